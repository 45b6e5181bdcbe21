"""Shards that die, come back, are late or slow: what goes on, what is lost, and that no id names another step."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local import Local, local_shards

import relive
from relive._step_parser import StepParser
from relive.ray._blocks import Filling, followed, restored, stacks
from relive.ray._ids import ROW_BITS, Ids, lanes_in
from relive.ray._planning import planned
from relive.ray._queue import MOST, Queue
from relive.ray.shards import Shards

SCHEMA = relive.Schema(obs=relive.Field((2,), "int64"), action=relive.Field())
LANES, ROWS, STEP = 6, 64, np.array([0, 1])


class Counting:
    """Environments whose observation is the lane and the step: two steps that follow each other can be told apart."""

    def __init__(self) -> None:
        self.time = np.zeros(LANES, np.int64)

    def step(self, lanes: Any, bare: bool = False) -> dict[str, Any]:
        now = self.time[lanes].copy()
        self.time[lanes] += 1
        ends = np.zeros(len(now), bool)
        obs = np.stack([np.asarray(lanes), now], axis=1)
        step = {"obs": obs, "action": now * 1.0, "reward": now * 1.0, "terminated": ends, "truncated": ends}
        return step if bare else step | {"next_obs": obs + STEP}


def made(**choices: Any) -> tuple[Shards, Local]:
    choices = {"sampler": relive.Prioritized(alpha=1.0, eps=0.0, weights="none", beta=1.0), "shards": 3, **choices}
    return local_shards(SCHEMA, LANES * ROWS, num_envs=LANES, **choices)


def filled(shards: Shards, steps: int = 20, envs: Counting | None = None) -> Counting:
    envs = envs or Counting()
    with shards.writer() as writer:
        for _ in range(steps):
            writer.add(**envs.step(np.arange(LANES)))
    return envs


def check_items(batch: relive.Batch) -> None:
    np.testing.assert_array_equal(batch.next_obs, batch.obs + STEP)
    np.testing.assert_array_equal(batch.obs[:, 0], batch.ids % LANES)
    np.testing.assert_array_equal(batch.reward, batch.obs[:, 1])


# Draws.


@pytest.mark.parametrize("fault", ["kill", "hold"])
def test_draws_go_on_with_the_others_and_follow_their_law(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    shards, lines = made()
    filled(shards)
    shards.sample(8)
    getattr(lines, fault)(1)
    begun = lines.seconds
    with caplog.at_level(logging.WARNING, "relive"):
        batch = shards.sample(60)
    assert lines.seconds - begun < 2
    check_items(batch)
    assert not (batch.ids % LANES % 3 == 1).any()
    np.testing.assert_allclose(batch.weights, 1, rtol=1e-6)  # all priorities are equal, over the shards that answered
    assert "Shard 1 does not answer" in caplog.text
    stats = shards.stats()
    assert (stats.missing, stats.missing_lanes, stats.late_batches) == ((1,), (1, 4), 1)
    assert stats.size == 80
    begun = lines.seconds
    assert shards.sample(60).ids.shape == (60,)
    assert lines.seconds == begun  # nobody waits for it twice
    assert shards.update_priorities([1, 7, 3], [1.0, 1.0, 1.0]) == 1
    assert shards.stats().stale_updates == 2


def test_a_shard_that_was_stopped_returns_with_all_it_had() -> None:
    shards, lines = made()
    filled(shards)
    lines.hold(2)
    shards.sample(30)
    lines.release(2)
    lines.seconds += 0.3
    for _ in range(2):
        shards.sample(30)
    assert shards.stats().missing == ()
    assert shards.stats().lost == 0
    assert {2, 5} <= set((shards.sample(300).ids % LANES).tolist())


def test_without_any_shard_the_error_names_them() -> None:
    shards, lines = made()
    filled(shards)
    for shard in range(3):
        lines.kill(shard)
    with pytest.raises(relive.StorageError, match=r"None of the shards \[0, 1, 2\] answers"):
        shards.sample(4)
    assert not shards.can_sample(1)
    assert shards.stats().missing == (0, 1, 2)


def test_prefetched_batches_survive_a_death() -> None:
    shards, lines = made()
    filled(shards)
    with shards.prefetch(60, depth=4) as batches:
        next(batches)
        lines.hold(0)
        asked = [next(batches) for _ in range(2)]
        lines.kill(0)
        asked += [next(batches) for _ in range(8)]
        assert shards.update_priorities(asked[0].ids, np.ones(60)) is None
    for batch in asked:
        check_items(batch)
        np.testing.assert_allclose(batch.weights, 1, rtol=1e-6)


def test_without_replacement_nothing_repeats_when_a_shard_dies() -> None:
    shards, lines = made(sampler=relive.Uniform(replacement=False))
    filled(shards)
    lines.kill(1)
    assert len(set(shards.sample(80).ids.tolist())) == 80
    with pytest.raises(relive.NotEnoughData, match=r"at least 81 drawable items, got 80.*shards \[1\] do not answer"):
        shards.sample(81)


# Lives.


def test_no_update_lands_on_another_step_and_no_id_is_used_twice(tmp_path: Path) -> None:
    """A shard dies and comes back from a save older than its last steps, twice; late updates name all lives."""
    shards, lines = made(save_dir=str(tmp_path))
    envs, known = filled(shards), set[int]()
    old = shards.sample(400).ids
    known |= set(old.tolist())
    lines.objects[1].save_by_clock()
    filled(shards, 10, envs)
    lost = np.array([key for key in shards.sample(900).ids.tolist() if key % 3 == 1 and key // LANES >= 20])
    assert len(lost)
    for life in (1, 2):
        lines.kill(1)
        shards.sample(10)
        lines.restart(1)
        lines.seconds += 1
        shards.sample(10)
        shards.sample(10)
        stats = shards.stats()
        assert (stats.missing, stats.shards[1].life, stats.lost) == ((), life, 20 * life)
        rows = {key for key in shards.sample(900).ids.tolist() if key % 3 == 1}
        assert rows == {key for key in old.tolist() if key % 3 == 1}  # what was saved has the ids that it had
        assert shards.update_priorities(lost, np.full(len(lost), 99.0)) == 0
        if life == 1:
            new = filled(shards, 10, envs)
            batch = shards.sample(900)
            check_items(batch)
            fresh = {key for key in batch.ids.tolist() if key % 3 == 1} - rows
            assert {key // LANES >> ROW_BITS for key in fresh} == {1}
            assert fresh.isdisjoint(lost.tolist())
            assert shards.update_priorities(lost, np.full(len(lost), 99.0)) == 0
            assert shards.update_priorities(sorted(fresh), np.full(len(fresh), 0.5)) == len(fresh)
            lost = np.array([*lost, *fresh])
            assert new is envs
    assert shards.stats().stale_updates > len(lost)


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize(
    ("rounds", "late"), [(12, 300), pytest.param(60, 2_000, marks=pytest.mark.slow, id="all of 10^5")]
)
def test_late_updates_land_on_their_own_step_or_nowhere(rounds: int, late: int, tmp_path: Path) -> None:
    """Each step's priority is a number of its own. Shards die and return, rings wrap, and updates of all ages come."""
    shards, lines = made(save_dir=str(tmp_path))
    rng, envs, lost = np.random.default_rng(0), Counting(), 0
    ids, codes = np.empty(0, np.int64), np.empty(0)
    for number in range(rounds):
        with shards.writer() as writer:
            for _ in range(int(rng.integers(1, 20))):
                step = envs.step(np.arange(LANES))
                writer.add(**step, priority=code(step["obs"]))
            assert writer.flush() == 0
        if number % 4 == 1:
            lines.objects[number % 3].save_by_clock()
        if number % 3 == 2:
            dead = int(rng.integers(3))
            lines.kill(dead)
            shards.sample(10)
            lines.restart(dead)
        lines.seconds += 1
        for _ in range(3):
            batch = shards.sample(300)
            check_items(batch)
        ids, codes = np.append(ids, batch.ids), np.append(codes, code(batch.obs))
        chosen = rng.integers(len(ids), size=late)
        applied = shards.update_priorities(ids[chosen], codes[chosen])
        lost += late - applied
        for shard in lines.objects:
            for part in shard.buffer.batches(128, shuffle=False):
                np.testing.assert_array_equal(shard.buffer.priorities(part.ids), code(part.obs))
    assert 0.05 * rounds * late < lost < rounds * late


def code(obs: Any) -> Any:
    """A number for each step: its lane and its time."""
    return 1.0 + obs[..., 0] + LANES * obs[..., 1]


def test_a_shard_without_saves_comes_back_empty() -> None:
    shards, lines = made()
    envs = filled(shards)
    before = shards.sample(300).ids
    lines.kill(1)
    shards.sample(4)
    lines.restart(1)
    lines.seconds += 1
    filled(shards, 20, envs)
    shards.stats()
    batch = shards.sample(600)
    check_items(batch)
    again = batch.ids[batch.ids % 3 == 1]
    assert len(again)
    assert not set(again.tolist()) & set(before.tolist())
    assert shards.stats().lost == 40
    assert shards.update_priorities(before, np.ones(300)) == (before % 3 != 1).sum()


def test_ids_name_one_step_whatever_the_lives() -> None:
    """Every id that was ever issued, against a table of what was saved, lost and written."""
    rng, lanes = np.random.default_rng(0), lanes_in(1, 3, 8)
    ids, heads, alive = Ids.new(lanes, 8), np.zeros(len(lanes), np.int64), dict[int, tuple[int, int]]()
    issued = set[int]()
    for life in range(1, 30):
        written = rng.integers(0, 5, len(lanes))
        for lane, count in enumerate(written.tolist()):
            for row in range(heads[lane], heads[lane] + count):
                (outer,) = ids.outer(np.array([row * len(lanes) + lane])).tolist()
                assert outer not in issued
                assert outer % 8 == lanes[lane]
                issued.add(outer)
                alive[outer] = (lane, row)
        heads = heads + written
        names = np.array([*issued, -1, 3, 2**62])
        inner, known = ids.inner(names, heads)
        assert names[known].tolist() == [key for key in names.tolist() if key in alive]
        assert inner.tolist() == [alive[key][1] * len(lanes) + alive[key][0] for key in names[known].tolist()]
        saved = np.maximum(0, heads - rng.integers(0, 4, len(lanes)))  # rows after the save are lost
        alive = {key: (lane, row) for key, (lane, row) in alive.items() if row < saved[lane]}
        heads = saved
        ids = ids.reborn(life, saved)


# Writers.


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [
                "add",
                "add",
                "add",
                "bare",
                "cut",
                "send",
                "hold",
                "release",
                "kill",
                "lose",
                "start",
                "wait",
                "deaf",
                "near",
            ]
        ),
        max_size=120,
    )
)
def test_a_writer_never_repeats_reorders_or_invents_a_step(calls: list[str]) -> None:
    plan = planned(SCHEMA, 4096, 1, 1, None, None, np.random.default_rng(0))
    lines, envs = Local(plan), Counting()
    lines.ledger.clear()
    queue = Queue(lines, 0, "w", SCHEMA, np.array([0]), lines.clock)
    queue._steps = 2
    queue._open = queue._new()
    parser = StepParser(SCHEMA)
    sent = deaths = 0

    def turn() -> None:
        queue.send(queue.due())
        queue.take(lines.wait(queue.promises(), 0.05))

    for call in calls:
        if call in ("add", "bare"):
            step = parser.step(envs.step([0], bare=call == "bare"), (1,), 1)
            kind = (step.next_values is not None, False)
            if queue.open.full or queue.open.kind not in (None, kind):
                if queue.must_wait:
                    continue
                queue.seal()
            queue.open.kind = kind
            queue.open.put(step, None, slice(None), None)
            sent += 1
        elif call == "cut" and not queue.must_wait:
            queue.seal()
            queue.open.cut.add(0)
        elif call == "send":
            turn()
        elif call in ("hold", "release") and lines.objects[0]:
            getattr(lines, call)(0)
        elif call in ("kill", "lose") and lines.objects[0]:
            lines.hold(0)
            queue.send(queue.due())
            lines.kill(0, executed=1 if call == "lose" else 0)
            deaths += 1
        elif call == "start" and lines.objects[0] is None:
            lines.restart(0)
        elif call == "deaf":
            lines.cut_off[0] = 2
        elif call == "near":
            lines.cut_off.clear()
        elif call == "wait":
            lines.seconds += 0.3
    if lines.objects[0] is None:
        lines.restart(0)
    lines.release(0)
    lines.cut_off.clear()
    for _ in range(60):
        lines.seconds += 0.3
        turn()
        if not queue.blocks and queue.open.empty:
            break
    assert not queue.steps
    buffer = lines.objects[0].buffer
    stored = buffer.column("obs")[0][buffer.column("ids")[0] >= 0]
    times = stored[:, 1].tolist()
    assert times == sorted(set(times))
    if not deaths and not queue.dropped:
        assert len(times) == sent - lost_to_cuts(buffer, sent, times)
    for batch in buffer.batches(64):
        np.testing.assert_array_equal(batch.next_obs, batch.obs + STEP)


def lost_to_cuts(buffer: relive.ReplayBuffer, sent: int, times: list[int]) -> int:
    """A cut costs a newest step whose successor was never given; it is the step before a gap."""
    gaps = set(range(sent)) - set(times)
    assert len(gaps) <= buffer.stats().cuts
    return len(gaps)


def test_a_slow_shard_holds_a_writer_back_and_a_dead_one_does_not() -> None:
    plan = planned(SCHEMA, 4096, 1, 1, None, None, np.random.default_rng(0))
    lines, envs = Local(plan), Counting()
    queue = Queue(lines, 0, "w", SCHEMA, np.array([0]), lines.clock)
    parser = StepParser(SCHEMA)

    def block() -> None:
        for _ in range(3):
            queue.open.kind = (True, False)
            queue.open.put(parser.step(envs.step([0]), (1,), 1), None, slice(None), None)
        queue.seal()
        queue.send(queue.due())

    lines.hold(0)
    for _ in range(MOST):
        assert not queue.must_wait
        block()
    assert queue.must_wait
    lines.kill(0)
    queue.take(lines.wait(queue.promises(), 0.0))
    assert queue.down
    assert not queue.must_wait
    for _ in range(5):
        block()
    assert (queue.dropped, queue.steps, queue.blocks) == (15, 24, MOST)
    lines.restart(0)
    for _ in range(20):
        lines.seconds += 0.3
        queue.send(queue.due())
        queue.take(lines.wait(queue.promises(), 0.0))
    assert (queue.steps, queue.down) == (0, False)
    assert lines.objects[0].buffer.column("obs")[0][:24, 1].tolist() == list(range(15, 39))


def test_updates_go_with_the_next_draw_which_sees_them() -> None:
    shards, lines = made()
    filled(shards)
    with shards.prefetch(30, depth=1) as batches:
        ids = np.unique(next(batches).ids)
        before = lines.calls.get("update", 0)
        assert shards.update_priorities(ids, np.zeros(len(ids))) is None
        next(batches)  # was asked for before the update
        assert set(next(batches).ids.tolist()).isdisjoint(ids.tolist())
        assert lines.calls.get("update", 0) == before
        shards.update_priorities([0, 1, 2], [500.0] * 3)
    assert lines.calls["update"] == before + 3  # leaving the block sends what no draw took along
    assert (shards.sample(100).ids <= 2).sum() > 80


def test_what_was_dropped_leaves_a_cut() -> None:
    """Without `next_obs` only a cut tells that the step before a gap is not followed by the one behind it."""
    shards, lines = made(shards=1, save_dir=None)
    envs, lanes = Counting(), np.arange(LANES)
    queue = Queue(lines, 0, "w", SCHEMA, lanes, lines.clock)
    parser = StepParser(SCHEMA)

    def steps(count: int) -> None:
        for _ in range(count):
            queue.open.kind = (False, False)
            queue.open.put(parser.step(envs.step(lanes, bare=True), (LANES,), 1), None, slice(None), None)
            queue.seal()
            queue.send(queue.due())
            queue.take(lines.wait(queue.promises(), 0.0))

    steps(5)
    lines.cut_off[0] = 0
    steps(20)
    assert queue.dropped == 12 * LANES
    lines.cut_off.clear()
    for _ in range(20):
        lines.seconds += 0.3
        queue.send(queue.due())
        queue.take(lines.wait(queue.promises(), 0.0))
    steps(3)
    batch = shards.sample(500)
    check_items(batch)
    assert set(batch.obs[:, 1].tolist()) == {0, 1, 2, 3, *range(17, 27)}


def test_a_shard_that_returns_from_a_save_cuts_its_lanes(tmp_path: Path) -> None:
    shards, lines = made(shards=1, save_dir=str(tmp_path))
    envs = Counting()
    with shards.writer() as writer:
        for _ in range(5):
            writer.add(**envs.step(np.arange(LANES), bare=True))
        writer.flush()
        lines.objects[0].save_by_clock()
        lines.kill(0)
        envs.time += 7
        lines.restart(0)
    with shards.writer() as writer:
        for _ in range(5):
            writer.add(**envs.step(np.arange(LANES), bare=True))
    lines.seconds += 1
    shards.stats()
    batch = shards.sample(500)
    check_items(batch)
    assert set(batch.obs[:, 1].tolist()) == {0, 1, 2, 3, 12, 13, 14, 15}


def test_a_block_whose_acknowledgement_was_lost_is_not_added_twice() -> None:
    shards, lines = made(shards=1)
    envs, lanes = Counting(), np.arange(LANES)
    queue, parser = Queue(lines, 0, "w", SCHEMA, lanes, lines.clock), StepParser(SCHEMA)
    for executed in (0, 1, 3):
        for _ in range(3):
            queue.open.kind = (True, False)
            queue.open.put(parser.step(envs.step(lanes), (LANES,), 1), None, slice(None), None)
            queue.seal()
        lines.cut_off[0] = executed
        queue.send(queue.due())
        queue.take(lines.wait(queue.promises(), 0.0))
        lines.cut_off.clear()
        for _ in range(5):
            lines.seconds += 0.3
            queue.send(queue.due())
            queue.take(lines.wait(queue.promises(), 0.0))
    stats = shards.stats()
    assert (stats.size, stats.added, stats.cuts) == (9 * LANES, 9 * LANES, 0)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_save_is_loaded_into_any_number_of_shards(count: int, tmp_path: Path) -> None:
    """Steps, priorities, ids of all lives, and what is stale."""
    own, path = str(tmp_path / "own"), str(tmp_path / "saved")
    shards, lines = made(save_dir=own)
    envs = filled(shards, 10)
    lines.objects[1].save_by_clock()
    filled(shards, 5, envs)
    lost = [key for key in np.unique(shards.sample(900).ids).tolist() if key % 3 == 1 and key // LANES >= 10]
    lines.kill(1)
    lines.restart(1)
    filled(shards, 10, envs)
    shards.stats()
    ids = np.unique(shards.sample(3000).ids)
    shards.update_priorities(ids, 1.0 + ids % 7)
    saved = shards.save(path)
    assert (len(saved.numbers), len(lost)) == (3, 10)
    again, others = made(shards=count, source=path)
    stats = again.stats()
    assert stats.size == shards.stats().size
    assert sum(shard.mass for shard in stats.shards) == pytest.approx(sum(s.mass for s in shards.stats().shards))
    assert again.update_priorities(lost, np.ones(len(lost))) == 0
    assert again.update_priorities(ids, 1.0 + ids % 5) == len(ids)
    batch = again.sample(3000)
    check_items(batch)
    assert set(batch.ids.tolist()) == set(ids.tolist())
    again.save(path + "2")
    third, _ = made(shards=3, source=path + "2")
    assert third.update_priorities([*ids, *lost], np.ones(len(ids) + len(lost))) == len(ids)
    assert others.shards == count


def test_draws_wait_for_a_limiter() -> None:
    limiter = relive.RateLimiter(samples_per_insert=1.0, min_size=60, error_buffer=40.0, timeout=0.05)
    shards, _ = made(limiter=limiter)
    envs = filled(shards, 5)
    with pytest.raises(relive.RateLimitTimeout, match="30 steps are added and 0 items drawn, and 30 more steps"):
        shards.sample(8)
    filled(shards, 15, envs)
    shards.stats()
    drawn = [shards.sample(20).ids for _ in range(5)]
    with pytest.raises(relive.RateLimitTimeout):
        shards.sample(20)
    assert len(drawn) == 5


def test_a_block_has_what_follows_each_step_to_the_bit() -> None:
    """Next observations travel where they are not the next step's: equal numbers of other bytes, NaN, uneven lanes."""
    rng = np.random.default_rng(0)
    field = relive.Field((2,), "float32")
    stack = relive.Field((2,), "float32", stack=3)
    schema = relive.Schema(obs={"a": field, "b": relive.Field((), "int64"), "c": stack}, action=relive.Field())
    parser, lanes = StepParser(schema), np.arange(3)
    filling = Filling(schema, lanes, 32)
    odd = np.array([0.0, -0.0, np.nan, 1.0], np.float32)
    obs = {"a": odd[rng.integers(4, size=(3, 2))], "b": rng.integers(2, size=3)}
    obs["c"] = odd[rng.integers(4, size=(3, *stack.full_shape))]
    kept: list[list[Any]] = [[], [], []]
    for t in range(32):
        live = np.arange(3) if t < 20 else np.array([0, 2])
        same = rng.random(3) < 0.8
        after = {"a": odd[rng.integers(4, size=(3, 2))], "b": rng.integers(2, size=3)}
        newest = odd[rng.integers(4, size=(3, 1, 2))]
        after["c"] = np.concatenate([obs["c"][:, 1:], newest], axis=1) if rng.random() < 0.8 else -obs["c"]
        given = {name: value.copy() for name, value in after.items()}
        given["a"][~same] = -given["a"][~same]  # the same numbers where they are 0
        no = np.zeros(len(live), bool)
        step = {"obs": {k: v[live] for k, v in obs.items()}, "next_obs": {k: v[live] for k, v in given.items()}}
        step |= {"action": no, "reward": no, "terminated": no, "truncated": no}
        parsed = parser.step(step, (len(live),), 1)
        filling.kind = (True, False)
        filling.put(parsed, None, slice(None), None if t < 20 else live)
        for lane in live.tolist():
            kept[lane].append(tuple(given[name][lane].tobytes() for name in "abc"))
        obs = after
    block = filling.block()
    assert block.values[2].shape == (32, 3, 2)
    assert 3 < len(block.led) < block.counts.sum() * 0.6
    block = restored(block, stacks(schema))
    for ours, theirs in zip(block.values, filling._values, strict=True):
        for lane, count in enumerate(block.counts.tolist()):
            assert ours[:count, lane].tobytes() == theirs[:count, lane].tobytes()
    a, b, c = followed(block)
    for lane in range(3):
        found = [tuple(each[t, lane].tobytes() for each in (a, b, c)) for t in range(int(block.counts[lane]))]
        assert found == kept[lane]
    assert 3 <= len(block.apart) < block.counts.sum() * 0.6


def test_it_is_said_where_batches_in_flight_are_too_much_for_the_object_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shards, lines = local_shards(relive.Schema(obs=relive.Field((9_000,)), action=relive.Field()), 40, num_envs=2)
    obs, no = np.zeros((2, 9_000)), np.zeros(2, bool)
    with shards.writer() as writer:
        writer.add(obs=obs, action=no, reward=no, next_obs=obs, terminated=no, truncated=no)
    for room, said in ((10e6, 0), (1e6, 1)):
        lines.room = room
        with caplog.at_level(logging.WARNING, "relive"), shards.prefetch(4, depth=3) as batches:
            next(batches)
            next(batches)
        assert caplog.text.count("3 batches in flight take 1 MB of an object store of") == said


def test_a_writer_whose_thread_failed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of a flush that waits for ever."""
    shards, _ = made()
    writer, envs = shards.writer(), Counting()
    monkeypatch.setattr(Filling, "block", lambda filling: 1 // 0)
    writer.add(**envs.step(np.arange(LANES)))
    for call in (writer.flush, lambda: writer.add(**envs.step(np.arange(LANES))), writer.close):
        with pytest.raises(relive.ReliveError, match="The thread that sends failed with ZeroDivisionError"):
            call()
