"""Draws of `Recent` and of blends: probabilities, weights and what is drawn follow the stated law, at any fill."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from depth import LONG
from laws import law, normalised
from lockstep_programs import Program
from statistics_of_draws import P_MIN, chi_square_p
from test_lockstep_laws import LANES, fill, items_of, small

import relive

RECENT = relive.Recent(mean_age=3.0)
PRIORITIZED = relive.Prioritized(alpha=0.7, beta=0.5, stratified=False)
SAMPLERS: dict[str, Any] = {
    "uniform": relive.Uniform(),
    "prioritized": PRIORITIZED,
    "stratified": relive.Prioritized(alpha=0.7, beta=0.5, weights="buffer"),
    "without weights": relive.Prioritized(alpha=0.7, weights="none"),
    "annealed": relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=4), stratified=False),
    "by age": relive.Recent(mean_age=3.0, beta=0.4),
    "the newest": relive.Recent(mean_age=0.05, beta=1.0, weights="none"),
    "about uniform": relive.Recent(mean_age=1e12, beta=0.5, weights="buffer"),
    "by share": relive.Recent(share=0.2, beta=0.7, weights="buffer"),
    "a small share": relive.Recent(share=0.02),
    "about a half": relive.Recent(share=0.49999, beta=relive.Anneal(0.5, 1.0, over=9), weights="none"),
    "blend": relive.Blend((relive.Uniform(), 0.5), (PRIORITIZED, 0.3), (relive.Recent(share=0.1), 0.2)),
    "strata": relive.Blend((relive.Prioritized(weights="none"), 0.4), (relive.Recent(mean_age=2.0), 0.6)),
    "in order": relive.Blend((relive.Recent(mean_age=3.0, beta=1.0), 0.25), (relive.Uniform(), 0.75), shuffle=False),
    "of one": relive.Blend((PRIORITIZED, 1.0), shuffle=False),
}
# Calls, the share of steps that are left out, and the item; 12 calls are kept.
ITEMS = {"steps": relive.Transitions(n_step=2), "every third": relive.Sequences(2, n_step=2, starts=3)}
FILLS = {
    "one item a lane": (2, 0.0, "steps"),
    "two of three": (3, 0.0, "steps"),
    "half full": (7, 0.0, "steps"),
    "full": (12, 0.0, "steps"),
    "went round": (40, 0.0, "steps"),
    "starts": (41, 0.0, "every third"),
    "few in masks": (4, 0.5, "steps"),
    "masks": (40, 0.4, "steps"),
    "masks and starts": (39, 0.3, "every third"),
}


def made(sampler: Any, name: str, **choices: Any) -> relive.DeviceBuffer:
    calls, holes, item = FILLS[name]
    buffer = small(ITEMS[item], sampler=sampler, seed=5, **choices)
    rng = np.random.default_rng(3)
    for call in range(calls):
        fill(buffer, 1, rng, holes)
        if call % 9 == 5:
            buffer.cut(torch.from_numpy(rng.random(LANES) < 0.5))
    if sampler.prioritizes:
        items = items_of(buffer)
        buffer.update_priorities(items[::2], torch.from_numpy(rng.lognormal(size=len(items[::2]))))
    return buffer


def stated(buffer: relive.DeviceBuffer, name: str) -> dict[int, float]:
    """Return the probability of each item: ages are counted in calls at which items start."""
    calls = FILLS[name][0]
    starts, span = (1, 2) if FILLS[name][2] == "steps" else (3, 3)
    kept = [call for call in range(max(calls - 12, 0), calls + 1 - span) if call % starts == 0]
    every = [[call * LANES + lane for call in kept] for lane in range(LANES)]
    items = items_of(buffer)
    raw = buffer.priorities(items).tolist() if buffer.sampler.prioritizes else [1.0] * len(items)
    priorities = dict(zip(items.tolist(), raw, strict=True))
    found = dict.fromkeys(items.tolist(), 0.0)
    for member, share in getattr(buffer.sampler, "members", [(buffer.sampler, 1.0)]):
        chances = law(member, every, priorities)
        part = normalised({key: chances[key] for key in found})
        found = {key: chance + share * part[key] for key, chance in found.items()}
    return found


def check_weights(buffer: relive.DeviceBuffer, items: list[int], chances: np.ndarray, draws: int = 1) -> None:
    """Draw, and compare the weights with those that follow from the probabilities of all items."""
    sampler = buffer.sampler
    for draw in range(draws):
        beta = sampler.beta_at(draw) if sampler.weights else 0.0
        batch = buffer.sample(64)
        weights = (len(items) * chances[np.searchsorted(items, batch.ids)]) ** -beta
        divisors = {"batch": weights.max(), "buffer": (len(items) * chances[chances > 0].min()) ** -beta}
        np.testing.assert_allclose(batch.weights, weights / divisors.get(sampler.weights, 1.0), rtol=3e-6)
    assert not sampler.prioritizes or draws == 1 or abs(buffer.stats().beta - sampler.beta_at(draw)) < 1e-9


# By default each sampler at every third fill.
LAWS = [(name, fill) for k, name in enumerate(SAMPLERS) for n, fill in enumerate(FILLS) if LONG or (k + n) % 3 == 0]


@pytest.mark.parametrize(("name", "fill_name"), LAWS)
def test_probabilities_weights_and_draws(name: str, fill_name: str) -> None:
    sampler = SAMPLERS[name]
    buffer = made(sampler, fill_name)
    expected = stated(buffer, fill_name)
    items, chances = items_of(buffer), np.array([*expected.values()])
    found = buffer.probability(items).numpy()
    np.testing.assert_allclose(found, chances, rtol=3e-6 if sampler.prioritizes else 1e-9, atol=1e-9)
    assert abs(found.sum() - 1) < 1e-9
    assert buffer.probability(torch.tensor([-1, 10**9])).isnan().all()
    check_weights(buffer, items.tolist(), chances, draws=6)
    counts = np.zeros(len(items), np.int64)
    for _ in range(250 if LONG else 8):
        counts += np.bincount(np.searchsorted(items, buffer.sample(4000).ids), minlength=len(items))
    buffer.check()
    assert not counts[chances == 0].any()
    if getattr(sampler, "stratified", False):  # in every batch, an item is drawn within two of its share
        drawn = np.bincount(np.searchsorted(items, buffer.sample(512).ids), minlength=len(items))
        assert (abs(drawn - 512 * chances) <= 2).all()
    elif len(items) > 1 and (chances > 1e-3).sum() > 1:
        assert chi_square_p(counts, chances) > P_MIN


def test_the_test_of_draws_can_fail() -> None:
    buffer = made(relive.Recent(share=0.2), "went round")
    items = items_of(buffer)
    counts = np.bincount(np.searchsorted(items, buffer.sample(200_000).ids), minlength=len(items))
    other = [*law(relive.Recent(share=0.21), [list(range(11))] * LANES, {}).values()]
    assert len(items) == 11 * LANES
    with pytest.raises(AssertionError):
        assert chi_square_p(counts, np.tile(np.array(other) / LANES, (LANES, 1)).T.ravel()) > P_MIN


ANY = relive.Blend(
    (relive.Uniform(), 0.3), (relive.Prioritized(stratified=False), 0.3), (relive.Recent(share=0.3), 0.4)
)


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize("sampler", [relive.Recent(share=0.2), relive.Recent(mean_age=4.0, beta=0.5), ANY], ids=repr)
@pytest.mark.parametrize("seed", range(200) if LONG else [40])
def test_random_programs(seed: int, sampler: Any) -> None:
    """Masks, cuts, ends, finals that are overwritten, starts and `clear`: probabilities are those of the oracle."""
    program = Program(seed, sampler)
    looks = 0
    for t in range(120):
        program.step()
        program.disturb()
        if t % (5 if LONG else 15) == 0 or t > 117:
            looks += check_program(program)
    assert looks > 5


def check_program(program: Program) -> int:
    program.look()
    buffer, oracle, items = program.buffer, program.oracle, program.oracle.items()
    if not items:
        return 0
    calls = [c for c in range(oracle.first(), oracle.head - oracle.span + 1) if c % oracle.starts == 0]
    every = [[c * oracle.lanes + lane for c in calls] for lane in range(oracle.lanes)]
    expected = np.zeros(len(items))
    ids = torch.tensor(items)
    for member, share in getattr(buffer.sampler, "members", [(buffer.sampler, 1.0)]):
        raw = buffer.priorities(ids).tolist() if member.prioritizes else [1.0] * len(items)
        chances = law(member, every, dict(zip(items, raw, strict=True)))
        part = np.array([chances[key] for key in items])
        expected += share * part / part.sum()
    found = buffer.probability(ids)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)
    others = buffer.probability(torch.arange(-2, oracle.head * oracle.lanes + 3)).isfinite()
    assert int(others.sum()) == len(items)
    check_weights(buffer, items, expected)
    return 1


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_batch_has_the_shares(shuffle: bool) -> None:
    """Of 10 items by shares of .25, .35 and .4 a member draws 2 or 3, 3 or 4, and 4, in order or not."""
    members = (relive.Recent(mean_age=1e-6), 0.25), (relive.Prioritized(), 0.35), (relive.Recent(mean_age=1e-7), 0.4)
    buffer = small(relive.Transitions(), sampler=relive.Blend(*members, shuffle=shuffle), seed=1)
    fill(buffer, 12, np.random.default_rng(0))
    buffer.update_priorities(torch.arange(12 * LANES), torch.full((12 * LANES,), 1e-4))
    buffer.update_priorities(torch.tensor([1, 2, 3]), torch.tensor([1e9, 1e9, 1e9]))
    counts = []
    for _ in range(100):
        old = buffer.sample(10).ids < 11 * LANES
        counts.append(int(old.sum()))
        assert counts[-1] in (3, 4)
        assert shuffle or (old[2:7].sum() == counts[-1] and old[3:6].all())
    assert abs(np.mean(counts) - 3.5) < 0.2


def test_a_blend_of_one_is_shuffled() -> None:
    blend = relive.Blend((relive.Prioritized(), 1.0))
    for sampler, ordered in ((blend.__replace__(shuffle=False), True), (blend, False)):
        ids = made(sampler, "full").sample(64).ids
        assert bool((ids.diff() >= 0).all()) == ordered


def test_a_member_without_items_leaves_its_share_to_the_others() -> None:
    sampler = relive.Blend((relive.Uniform(), 0.25), (relive.Prioritized(eps=0.0), 0.75))
    buffer = small(relive.Transitions(), sampler=sampler, seed=1)
    assert not buffer.can_sample(1)
    fill(buffer, 4, np.random.default_rng(0))
    items = items_of(buffer)
    buffer.update_priorities(items, torch.zeros(len(items)))
    assert buffer.can_sample(1)
    assert buffer.probability(items).tolist() == [1 / len(items)] * len(items)
    assert (buffer.sample(32).ids >= 0).all()
    alone = small(relive.Transitions(), sampler=relive.Blend((relive.Prioritized(eps=0.0), 1.0)), seed=1)
    fill(alone, 4, np.random.default_rng(0))
    alone.update_priorities(items, torch.zeros(len(items)))
    assert (alone.sample(4).ids == -1).all()
    with pytest.raises(relive.NotEnoughData):
        alone.check()


def test_priorities_of_recent_draws_are_refused() -> None:
    recent = made(RECENT, "full")
    ids = items_of(recent)[:2]
    recent.update_priorities(ids, torch.ones(2))  # it has none: nothing changes
    for call in (lambda: recent.sample(2, beta=0.5), lambda: recent.priorities(ids)):
        with pytest.raises(relive.ArgumentError, match="a sampler with priorities"):
            call()
    recent.clear()
    assert not recent.can_sample(1)


def test_recency_takes_no_memory() -> None:
    assert made(RECENT, "full").nbytes == made(relive.Uniform(), "full").nbytes


def test_what_is_drawn_is_counted() -> None:
    buffer = made(relive.Recent(mean_age=3.0), "went round")
    assert buffer.stats().draw_entropy is None
    buffer.sample(20_000)
    chances = buffer.probability(items_of(buffer)).numpy()
    stats = buffer.stats()
    assert abs(stats.draw_entropy + (chances * np.log(chances * len(chances))).sum()) < 0.03
    ages = np.arange(1, 12)
    mean, late = stats.draw_age
    by_age = 0.75**ages / (0.75**ages).sum()
    assert abs(mean - (by_age * ages).sum()) < 0.1
    assert late == ages[by_age.cumsum() > 0.95][0]
    assert stats.replay_volume == 20_000 / (40 * LANES)
    even = made(relive.Uniform(), "went round")
    even.sample(100)
    assert even.stats().draw_entropy == 0.0
