"""Several shards are one buffer: what is drawn, how often, and what it weighs. Without Ray, which carries calls."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from depth import LONG
from local import local_shards
from statistics_of_draws import chi_square_tail

import relive
from relive._buffer import drawing
from relive.ray.shards import Shards
from relive.testing import GO, SCHEMAS, STAY, TERMINATED, Script, SyntheticEnvs
from relive.testing._lives import Call, life
from relive.testing.agreement import assert_same_batch

pytestmark = pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
LANES, ROWS = 7, 24  # 3 shards have 3, 2 and 2 lanes
PLAIN = {"weights": "none", "beta": 1.0}
SAMPLERS = {
    "uniform": relive.Uniform(),
    "no repeats": relive.Uniform(replacement=False),
    "episodes": relive.Uniform(over="episodes"),
    "prioritized": relive.Prioritized(alpha=0.7, **PLAIN),
    "recent": relive.Recent(mean_age=6.0),
}
STATE = relive.Field((2,), "float32", every=2)
RECURRENT = relive.Schema(obs={"a": relive.Field((3,)), "b": relive.Field((), "int64")}, action=relive.Field(), h=STATE)
ITEMS: dict[str, tuple[relive.Schema, Any]] = {
    "flat": (SCHEMAS["flat"], relive.Transitions()),
    "n-step": (SCHEMAS["nested"], relive.Transitions(n_step=3, gamma=0.9)),
    "chunks": (SCHEMAS["nested"], relive.Transitions(n_step=3, gamma=0.9, chunk=True)),
    "stacked": (SCHEMAS["stacked"], relive.Transitions(n_step=2)),
    "wide": (SCHEMAS["wide"], relive.Transitions()),
    "sequences": (SCHEMAS["stacked"], relive.Sequences(3, burn_in=1, n_step=2)),
    "across, time first": (SCHEMAS["flat"], relive.Sequences(4, across_episodes=True, time_major=True)),
    "recurrent": (RECURRENT, relive.Sequences(4, starts=2, time_major=True)),
}


def pair(item: str, sampler: Any, shards: int = 3, **choices: Any) -> tuple[Shards, Any, relive.ReplayBuffer]:
    """Make shards, their transport, and the one buffer that they have to equal."""
    schema, kind = ITEMS[item]
    choices = {"num_envs": LANES, "item": kind, "sampler": sampler, "seed": 0, **choices}
    made, lines = local_shards(schema, LANES * ROWS, shards=shards, **choices)
    return made, lines, relive.ReplayBuffer(schema, LANES * ROWS, **choices)


def feed_both(writer: Any, shards: Shards, twin: relive.ReplayBuffer, call: Call) -> None:
    lanes: dict[str, Any] = {} if call.lanes == list(range(LANES)) else {"env_ids": call.lanes}
    for target in (writer, twin):
        if call.steps is None:
            target.cut(**lanes)
        else:
            target.extend(**call.steps, **lanes)
    assert writer.flush() == 0
    settle(shards)


def settle(shards: Shards) -> None:
    """Let all shards know of the largest priority that one of them heard of."""
    for _ in range(2):
        shards.stats()


PAIRS = [*((item, "prioritized") for item in ITEMS), ("stacked", "no repeats")]


@pytest.mark.parametrize(
    ("item", "sampler", "size"),
    [*((*pair, 64) for pair in PAIRS), *(pytest.param(*pair, 6_000, marks=pytest.mark.slow) for pair in PAIRS[:-1])],
)
def test_every_field_of_what_is_drawn_is_that_of_one_buffer(item: str, sampler: str, size: int) -> None:
    shards, _, twin = pair(item, SAMPLERS[sampler])
    drawn = 0
    with shards.writer() as writer:
        for call in life(twin, 25 if LONG or size > 64 else 12, seed=1):
            feed_both(writer, shards, twin, call)
            assert (shards.stats().size, shards.stats().cuts) == (len(twin), twin.stats().cuts)
            n = size if twin.sampler.replacement else twin.stats().drawable
            assert shards.can_sample(max(n, 1)) is twin.can_sample(max(n, 1))
            if not n or not twin.can_sample(n):
                continue
            batch = shards.sample(n)
            expected = twin.read(batch.ids)
            assert set(batch) == set(expected)
            assert_same_batch(batch, expected, without=("weights",))
            drawn += n
            if sampler == "no repeats":
                assert len(set(batch.ids.tolist())) == n
                assert (batch.weights == 1).all()
                continue
            masses = twin.priorities(batch.ids) ** 0.7
            share = drawing.share(twin._core)
            np.testing.assert_allclose(batch.weights, share.total / (share.count * masses), rtol=1e-6)
            errors = np.sin(batch.ids) * np.array([0.0, 1.0, 30.0])[batch.ids % 3]
            assert shards.update_priorities(batch.ids, errors) == twin.update_priorities(batch.ids, errors) == n
            settle(shards)
    assert drawn > (600 if LONG else 250) if size == 64 else drawn >= 10**5


@pytest.mark.slow
def test_a_draw_costs_a_call_a_shard() -> None:
    """Time 1 to 16 shards, in units of an empty call: each further shard adds the same."""
    costs = {}
    for count in (1, 2, 4, 8, 16):
        shards, lines, twin = pair("flat", SAMPLERS["prioritized"], shards=count, num_envs=16)
        script = Script([GO], [STAY], give_next=True)
        with shards.writer() as writer:
            writer.extend(**SyntheticEnvs(twin.schema, 16).rollout(list(range(16)), ROWS // 3, script))
            assert writer.flush() == 0
        shards.sample(256)
        best, empty = np.inf, np.inf
        for _ in range(7):
            before, begun = dict(lines.calls), time.process_time()
            for _ in range(50):
                shards.sample(256)
            best = min(best, (time.process_time() - begun) / 50)
            assert lines.calls["draw"] - before["draw"] == 50 * count
            assert sum(lines.calls.values()) - sum(before.values()) == 50 * count  # and nothing else
            begun = time.process_time()
            for _ in range(200):
                lines.take(lines.call(0, "share", 0.0))
            empty = min(empty, (time.process_time() - begun) / 200)
        costs[count] = best / empty
    for count in (2, 4, 8, 16):
        assert costs[count] < 2.5 * costs[count // 2], costs


@pytest.mark.parametrize("weights", ["batch", "buffer", "none"])
def test_one_shard_draws_what_one_buffer_draws(weights: str) -> None:
    sampler = relive.Prioritized(beta=relive.Anneal(0.3, 1.0, over=20), weights=weights)
    shards, _, twin = pair("flat", sampler, shards=1)
    with shards.writer() as writer:
        for call in life(twin, 25 if LONG else 12, seed=2):
            feed_both(writer, shards, twin, call)
            if twin.can_sample(1):
                ours, theirs = shards.sample(8), twin.sample(8)
                np.testing.assert_array_equal(ours.ids, theirs.ids)
                np.testing.assert_allclose(ours.weights, theirs.weights, rtol=1e-6)
                assert_same_batch(ours, theirs, without=("weights",))
                found, wanted = shards.stats(), twin.stats()
                assert found.draw_age == wanted.draw_age
                assert found.draw_entropy == pytest.approx(wanted.draw_entropy)
                assert found.replay_volume == wanted.replay_volume
                for each in (shards, twin):
                    each.update_priorities(ours.ids, np.cos(ours.ids))
    assert shards.stats().beta == twin.stats().beta


@pytest.mark.parametrize("weights", ["batch", "buffer"])
def test_weights_are_scaled_over_all_shards(weights: str) -> None:
    shards, _, twin = pair("flat", relive.Prioritized(alpha=0.7, beta=0.6, weights=weights))
    with shards.writer() as writer:
        fill(writer, shards, twin)
    for _ in range(8):
        batch = shards.sample(16)
        masses = twin.priorities(batch.ids) ** 0.7
        least = masses.min() if weights == "batch" else drawing.share(twin._core).smallest
        np.testing.assert_allclose(batch.weights, (masses / least) ** -0.6, rtol=1e-5)


def fill(writer: Any, shards: Shards, twin: relive.ReplayBuffer) -> None:
    """Add steps and priorities of very different sizes, zeros among them; the third shard has few and small ones."""
    script = Script([GO] * 9 + [TERMINATED], [STAY], give_next=True)
    envs = SyntheticEnvs(twin.schema, LANES)
    feed_both(writer, shards, twin, Call([0, 3, 6, 1], envs.rollout([0, 3, 6, 1], 20, script)))
    feed_both(writer, shards, twin, Call([2], envs.rollout([2], 5, script)))
    if twin.sampler.prioritizes:
        ids = np.concatenate([np.array(sorted(ids_of(twin)))])
        errors = np.where(ids % LANES == 2, 0.01, 1.0) * (ids % 5) ** 2
        for each in (shards, twin):
            each.update_priorities(ids, errors)
        settle(shards)


def ids_of(twin: relive.ReplayBuffer) -> list[int]:
    return [key for batch in twin.batches(64, shuffle=False) for key in batch.ids.tolist()]


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_law_over_many_draws(name: str) -> None:
    sampler = (
        relive.Prioritized(alpha=0.7, eps=0.0, **PLAIN, stratified=False) if name == "prioritized" else SAMPLERS[name]
    )
    shards, _, twin = pair("flat", sampler)
    with shards.writer() as writer:
        fill(writer, shards, twin)
    ids = np.array(sorted(ids_of(twin)))
    if name == "prioritized":
        chance = twin.priorities(ids) ** 0.7
    elif name == "episodes":
        drawn = np.sort(np.concatenate([drawing.draw_at(twin._core, (np.arange(10**5) + 0.5) / 10**5)[0].ids]))
        chance = np.bincount(np.searchsorted(ids, drawn), minlength=len(ids)).astype(float)
    else:
        chance = twin.probability(ids)
    total, size = (6_000, 50) if name == "no repeats" else (10**6 if LONG else 10**5, 10_000)
    counts = np.zeros(len(ids))
    for _ in range(total // size):
        batch = shards.sample(size)
        counts += np.bincount(np.searchsorted(ids, batch.ids), minlength=len(ids))
        assert name == "prioritized" or (batch.weights == 1).all()
    expected = total * chance / chance.sum()
    assert (counts[expected == 0] == 0).all()
    assert (expected == 0).sum() >= (10 if name == "prioritized" else 0)
    possible = expected > 0
    spread = 1 - size / len(ids) if name == "no repeats" else 1.0  # fewer repeats than independent draws have
    statistic = (((counts - expected) ** 2)[possible] / expected[possible]).sum() / spread
    assert chi_square_tail(statistic, int(possible.sum()) - 1) > 1e-5


def moving(shards: Shards, lines: Any, twin: relive.ReplayBuffer, cycles: int) -> tuple[float, float]:
    """Compute weighted means, with draws in flight while another handle adds and updates; return error and spread."""
    envs, script = SyntheticEnvs(twin.schema, LANES), Script([GO], [STAY], give_next=True)
    rng, errors, other = np.random.default_rng(3), [], Shards.__new__(Shards)
    other._attach(shards._plan, lines, np.random.default_rng(4), None)
    with shards.writer() as writer, shards.prefetch(64, depth=4) as batches:
        feed_both(writer, shards, twin, Call(list(range(LANES)), envs.rollout(list(range(LANES)), ROWS, script)))
        there: list[float] = []
        for _ in range(cycles):
            # A fifth of every shard's ring, with priorities that jump: what was heard of its total is wrong by then.
            levels = rng.choice([1.0, 30.0], 3)[np.arange(LANES) % 3]
            steps = envs.rollout(list(range(LANES)), 5, script) | {"priority": np.repeat(levels[:, None], 5, axis=1)}
            writer.extend(**steps)
            twin.extend(**steps)
            writer.flush()
            theirs = other.sample(32)
            assert other.update_priorities(theirs.ids, rng.choice([1.0, 30.0], 32)) == 32
            batch = next(batches)
            known = there.pop(0) if len(there) == 4 else None
            stored = twin.column("ids")  # all of which can be drawn
            there.append((1 + np.sin(stored[stored >= 0])).mean())
            if known is not None:
                errors.append(((1 + np.sin(batch.ids)) * batch.weights).mean() - known)
    mean, spread = float(np.mean(errors)), float(np.std(errors) / np.sqrt(len(errors)))
    return mean, spread


@pytest.mark.slow
def test_estimates_are_unbiased_while_others_add_and_update() -> None:
    mean, spread = moving(*pair("flat", relive.Prioritized(alpha=1.0, **PLAIN)), cycles=400)
    assert abs(mean) < 5 * spread
    assert spread < 0.05
