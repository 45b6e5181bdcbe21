"""The same steps through other items, and the ids of all of them: compared with oracles of each item."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product
from typing import Any

import numpy as np
import pytest
import storages
from depth import LONG, pairs

import relive
from relive._ring import kernels
from relive.testing import SCHEMAS, OracleBuffer, SequencesModel, TransitionsModel
from relive.testing._lives import BACK_ENDS, feed, life
from relive.testing.agreement import assert_items, assert_same_batch

pytestmark = pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
LANES, STEPS = 3, 16
T, S = relive.Transitions, relive.Sequences
ITEMS: dict[str, tuple[Any, Any]] = {
    "one": (T(gamma=0.9), TransitionsModel(1, 0.9)),
    "three": (T(n_step=3, gamma=0.9), TransitionsModel(3, 0.9)),
    "chunk": (T(n_step=4, gamma=0.5, chunk=True), TransitionsModel(4, 0.5, chunk=True)),
    "burnt-in": (S(3, burn_in=2, n_step=2), SequencesModel(5, 2, 0.99, burn_in=2)),
    "across": (S(5, across_episodes=True), SequencesModel(5, 1, 0.99, across=True)),
    "starts": (S(3, starts=3), SequencesModel(3, 1, 0.99, starts=3)),
}
PAIRS = [(own, other) for own in ITEMS for other in ITEMS if other != "starts" or own == "starts"]
FORMS = [*product(["flat", "stacked"], BACK_ENDS)]


def by_lane(ids: Any) -> list[int]:
    return sorted(ids, key=lambda i: (i % LANES, i))


def made(item: Any, schema: str = "flat", **choices: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(SCHEMAS[schema], LANES * STEPS, num_envs=LANES, item=item, seed=1, **choices)


@pytest.mark.parametrize(("pair", "form"), pairs(PAIRS if LONG else PAIRS[::4], FORMS), ids=str)
def test_other_items_are_those_of_their_oracles(pair: tuple[str, str], form: tuple[str, str]) -> None:
    """Over ends, cuts, late successors, open episodes and several laps; what cannot be read is refused."""
    (own, other), (schema, back_end) = pair, form
    with kernels.use(back_end):
        buffer, item = made(ITEMS[own][0], schema), ITEMS[other][0]
        oracles = [OracleBuffer.of(buffer, ITEMS[name][1]) for name in pair]
        read = 0
        for number, call in enumerate(life(buffer, 60 if LONG else 20)):
            for oracle in oracles[1:]:
                oracle.cut(call.lanes) if call.steps is None else oracle.extend(call.lanes, call.steps)
            feed(buffer, call, oracles[0])
            assert buffer.ids().tolist() == by_lane(oracles[0].drawable)
            assert buffer.ids(item=item).tolist() == by_lane(oracles[1].drawable)
            others = [anchor for key, anchor in oracles[0].anchors().items() if key not in oracles[0].drawable]
            unexpanded = [anchor for anchor in others if oracles[0].item.expand(anchor) is None]
            assert buffer.stats().waiting == len(unexpanded)
            expected = oracles[1].items()
            if expected:
                ids = np.array([*expected], np.int64)[:: 1 + number % 3]
                batch = buffer.read(ids, item=item)
                assert batch.ids.tolist() == ids.tolist()
                assert_items(batch, [expected[key] for key in ids.tolist()])
                read += 1
            for key in oracles[1].undrawable()[number % 3 :: 3]:
                with pytest.raises(relive.StaleId, match=r"ReplayBuffer.read"):
                    buffer.read([key], item=item)
        assert read > 12


@pytest.mark.parametrize(
    ("storage", "sampler"),
    pairs(storages.NAMES, [relive.Uniform(), relive.Prioritized(), relive.Uniform(replacement=False)]),
)
def test_one_draw_through_several_items(storage: str, sampler: Any) -> None:
    """In every storage, and in a reader of another process's buffer."""
    items = [ITEMS[name][0] for name in ("one", "chunk", "burnt-in", "across")]
    twins = [made(item, sampler=sampler) for item in items]
    with ExitStack() as stack:
        buffer = stack.enter_context(made(ITEMS["three"][0], sampler=sampler, storage=storages.new(storage)))
        readers = [buffer]
        if storage == "shared":
            others = {"item": ITEMS["burnt-in"][0], "seed": 0}, {"seed": 0}
            readers += [stack.enter_context(relive.open(buffer.storage.name, **choices)) for choices in others]
        for call in life(buffer, 40 if LONG else 20):
            feed(buffer, call)
            for twin in twins:
                feed(twin, call)
            if not buffer.can_sample(6):
                continue
            drawn, before = buffer.sample(6), buffer.stats()
            for reader in readers:
                for item, twin in zip(items, twins, strict=True):
                    assert reader.ids(item=item).tolist() == twin.ids().tolist()
                    ids = np.intersect1d(drawn.ids, twin.ids())
                    assert_same_batch(reader.read(ids, item=item), twin.read(ids))
            assert buffer.stats() == before


def test_hindsight_of_a_draw() -> None:
    def reward(achieved: Any, desired: Any, info: Any) -> Any:
        return -np.abs(achieved - desired)

    fields = {name: relive.Field() for name in ("achieved_goal", "desired_goal", "observation")}
    schema = relive.Schema(obs=fields, action=relive.Field())
    item = relive.Hindsight(item=T(), reward=reward, ratio=1.0, strategy="final")
    buffers = [relive.ReplayBuffer(schema, 40, item=each, seed=3) for each in (T(n_step=2), item)]
    time, ends = np.arange(40.0), np.arange(40) % 10 == 9
    obs, after = (dict.fromkeys(fields, time + shift) for shift in (0, 1))
    for buffer in buffers:
        buffer.extend(obs=obs, action=time, reward=time, next_obs=after, terminated=ends, truncated=ends & False)
    ids = buffers[1].ids()
    assert_same_batch(buffers[0].read(ids, item=item), buffers[1].read(ids))


def test_fields_that_are_kept_at_some_steps() -> None:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field(), state=relive.Field((2,), every=4))
    choices = {"capacity": 60, "num_envs": 2, "seed": 0}
    buffer = relive.ReplayBuffer(schema, item=S(4, starts=4), **choices)
    twin = relive.ReplayBuffer(schema, item=S(8, starts=4, burn_in=4), **choices)
    for call in life(buffer, 60 if LONG else 30):
        feed(buffer, call)
        feed(twin, call)
        ids = buffer.ids(item=twin.item)
        assert ids.tolist() == twin.ids().tolist()
        assert_same_batch(buffer.read(ids, item=twin.item), twin.read(ids))
    with pytest.raises(relive.ArgumentError, match="`starts` to be a multiple of 4"):
        buffer.read([0], item=S(4))


def test_items_that_do_not_fit_change_nothing() -> None:
    buffer = made(S(3, starts=3), sampler=relive.Prioritized())
    for call in life(buffer, 30):
        feed(buffer, call)
    stats, ids, state = buffer.stats(), buffer.ids(), buffer.rng.bit_generator.state
    refused = [
        (T(n_step=STEPS + 1), "at most 16 steps, as many as a lane keeps"),
        (S(3, starts=2), r"an item that starts every 3 steps, or at any, got .*starts=2.*`ReplayBuffer.{}\(item\)`"),
        (3, r"an object like .*`ReplayBuffer.{}\(item\)`"),
        (T, r"an object like .*`ReplayBuffer.{}\(item\)`"),
        (relive.Hindsight(reward=np.add), "the name of a field of `obs`"),
    ]
    for item, text in refused:
        with pytest.raises(relive.ArgumentError, match=text.format("ids")):
            buffer.ids(item=item)  # type: ignore[arg-type]
        with pytest.raises(relive.ArgumentError, match=text.format("read")):
            buffer.read(ids, item=item)  # type: ignore[arg-type]
    for bad in ([[0]], [0.5], "ab"):
        with pytest.raises(relive.ArgumentError, match="integers of shape"):
            buffer.read(bad, item=T())
    for stale in ([-1], [10**6], [ids[0] - LANES * STEPS * 3]):
        with pytest.raises(relive.StaleId, match="items that `Transitions"):
            buffer.read([*ids[:2], *stale], item=T())
    assert (buffer.stats(), buffer.rng.bit_generator.state) == (stats, state)
    assert buffer.ids().tolist() == ids.tolist()
    assert len(buffer.read([], item=T()).ids) == 0


def test_many_items_are_forgotten_again() -> None:
    buffer = made(T())
    for call in life(buffer, 10):
        feed(buffer, call)
    for n in range(1, 14):
        item = T(n_step=n)
        assert_same_batch(buffer.read(buffer.ids(item=item), item=item), buffer.read(buffer.ids(item=item), item=item))
    assert len(buffer._core.readers._known) == 8


def test_a_cleared_buffer_and_one_that_was_loaded(tmp_path: Any) -> None:
    buffer, item = made(ITEMS["three"][0], "stacked"), ITEMS["burnt-in"][0]
    for call in life(buffer, 40):
        feed(buffer, call)
    buffer.save(tmp_path)
    loaded, twin = relive.load(tmp_path), relive.load(tmp_path, item=item)
    assert loaded.ids(item=item).tolist() == twin.ids().tolist() == buffer.ids(item=item).tolist()
    assert_same_batch(loaded.read(twin.ids(), item=item), twin.read(twin.ids()))
    buffer.clear()
    assert not len(buffer.ids())
    assert not len(buffer.ids(item=item))
