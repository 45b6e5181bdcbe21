"""Writers of shards, saves, and what travels: no step is repeated, reordered or invented; what is dropped is known."""

from __future__ import annotations

import gc
import json
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import LONG, some
from forking import forked
from hypothesis import given, settings
from hypothesis import strategies as st
from local import Local, local_shards
from shard_steps import LANES, SCHEMA, STEP, Counting, check_items, filled, made
from sizes import with_sizes

import relive
from relive._schema.step_parser import StepParser
from relive.ray._blocks import Filling, followed, restored, stacks
from relive.ray._planning import planned
from relive.ray._sending import MOST, BlockQueue
from relive.ray.shards import Shards


class Queue(BlockQueue):
    """A writer's queue to one shard, of steps that count."""

    def __init__(self, lines: Local, lanes: Any = (0,), **choices: Any) -> None:
        super().__init__(lines, 0, "w", SCHEMA, np.array(lanes), lines.clock, **choices)
        self.envs, self.parser, self.local = Counting(), StepParser(SCHEMA), lines

    def put(self, count: int = 1, bare: bool = False) -> None:
        """Put steps into the open block, with `bare` ones without next observations."""
        for _ in range(count):
            step = self.parser.step(self.envs.step(self.lanes, bare=bare), (len(self.lanes),), 1)
            self.open.kind = (step.next_values is not None, False)
            self.open.put(step, None, slice(None), None)

    def turn(self, seconds: float = 0.0, times: int = 1, later: float = 0.0) -> None:
        """Send what is due, and take what was acknowledged."""
        for _ in range(times):
            self.local.seconds += later
            self.send(self.due())
            self.take(self.local.wait(self.promises(), seconds))


def one_shard() -> Local:
    return Local(planned(SCHEMA, 4096, 1, 1, None, None, np.random.default_rng(0)))


CALLS = ["add", "add", "add", "bare", "cut", "send", "hold", "release", "kill", "lose", "start", "wait", "deaf", "near"]


@settings(max_examples=60 if LONG else 20)
@given(st.lists(st.sampled_from(CALLS), max_size=120))
def test_a_writer_never_repeats_reorders_or_invents_a_step(calls: list[str]) -> None:
    lines = one_shard()
    lines.ledger.clear()
    queue = Queue(lines, longest=2)
    sent = deaths = 0
    for call in calls:
        if call in ("add", "bare"):
            if queue.open.full or queue.open.kind not in (None, (call == "add", False)):
                if queue.must_wait:
                    queue.envs.time += 1
                    continue
                queue.seal()
            queue.put(bare=call == "bare")
            sent += 1
        elif call == "cut" and not queue.must_wait:
            queue.seal()
            queue.open.cut.add(0)
        elif call == "send":
            queue.turn(0.05)
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
        queue.turn(0.05, later=0.3)
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
    """Count newest steps lost to cuts, whose successor was never given; each is the step before a gap."""
    gaps = set(range(sent)) - set(times)
    assert len(gaps) <= buffer.stats().cuts
    return len(gaps)


def test_a_slow_shard_holds_a_writer_back_and_a_dead_one_does_not() -> None:
    lines = one_shard()
    queue = Queue(lines)

    def block() -> None:
        queue.put(3)
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
    queue.turn(times=20, later=0.3)
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


def test_values_are_written_back_to_their_steps() -> None:
    """Write by ids of steps of sequences, over all shards; a dead shard drops its own."""
    schema = relive.Schema(
        obs=relive.Field((2,), "int64"), action=relive.Field(), value=relive.Field((3,), "int64", writable=True)
    )
    item = relive.Sequences(4, step_ids=True)
    shards, lines = local_shards(schema, 64 * LANES, num_envs=LANES, shards=3, item=item, save_dir=None)
    envs = Counting()
    with shards.writer() as writer:
        for _ in range(40):
            writer.add(**envs.step(np.arange(LANES)), value=np.zeros((LANES, 3), np.int64))
    batch = shards.sample(64)
    assert (batch.step_ids[:, 0] == batch.ids).all()
    number = batch.obs[..., :1] + 100 * batch.obs[..., 1:]
    assert shards.write(batch.step_ids, value=np.repeat(number, 3, axis=2)) == batch.mask.sum()
    for _ in range(4):
        again = shards.sample(64)
        written = np.isin(again.step_ids, batch.step_ids) & again.mask
        assert written.any()
        assert (again.value == (again.obs[..., :1] + 100 * again.obs[..., 1:]) * written[..., None]).all()
    assert shards.write([-1, 2**40], value=np.zeros((2, 3), np.int64)) == 0
    with pytest.raises(relive.ArgumentError, match="a writable field"):
        shards.write(batch.ids, action=batch.ids * 1.0)
    with pytest.raises(relive.SchemaError, match="shape"):
        shards.write(batch.ids, value=batch.ids)
    lines.kill(1)
    of_others = (batch.ids % LANES % 3 != 1).sum()
    assert shards.write(batch.ids, value=np.zeros((64, 3), np.int64)) == of_others


def test_what_was_dropped_leaves_a_cut() -> None:
    """Check without `next_obs`: only a cut tells that a gap follows the step before it."""
    shards, lines = made(shards=1, save_dir=None)
    queue = Queue(lines, range(LANES))

    def steps(count: int) -> None:
        for _ in range(count):
            queue.put(bare=True)
            queue.seal()
            queue.turn()

    steps(5)
    lines.cut_off[0] = 0
    steps(20)
    assert queue.dropped == 12 * LANES
    lines.cut_off.clear()
    queue.turn(times=20, later=0.3)
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
    queue = Queue(lines, range(LANES))
    for executed in (0, 1, 3):
        for _ in range(3):
            queue.put()
            queue.seal()
        lines.cut_off[0] = executed
        queue.turn()
        lines.cut_off.clear()
        queue.turn(times=5, later=0.3)
    stats = shards.stats()
    assert (stats.size, stats.added, stats.cuts) == (9 * LANES, 9 * LANES, 0)


def reborn(own: Path) -> tuple[Shards, Counting, np.ndarray, list[int]]:
    """Make shards of which one came back from a save; return the ids of their steps, and those of the lost ones."""
    shards, lines = made(save_dir=str(own))
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
    return shards, envs, ids, lost


@pytest.mark.parametrize("count", some([1, 2, 3, 4], 2))
def test_a_save_is_loaded_into_any_number_of_shards(count: int, tmp_path: Path) -> None:
    """Check steps, priorities, ids of all lives, and stale ones."""
    path = str(tmp_path / "saved")
    shards, _, ids, lost = reborn(tmp_path / "own")
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
    """Check that next observations travel if they differ from the next step's: other bytes, NaN, uneven lanes."""
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
    """Check for an error instead of a flush that waits for ever."""
    shards, _ = made()
    writer, envs = shards.writer(), Counting()
    monkeypatch.setattr(Filling, "block", lambda filling: 1 // 0)
    writer.add(**envs.step(np.arange(LANES)))
    for call in (writer.flush, lambda: writer.add(**envs.step(np.arange(LANES))), writer.close):
        with pytest.raises(relive.ReliveError, match="The thread that sends failed with ZeroDivisionError"):
            call()


@pytest.mark.parametrize("theirs", some([2, 3, 4], 2))
def test_a_save_that_is_refused_leaves_the_one_that_is_there(theirs: int, tmp_path: Path) -> None:
    """Save into a directory of others: their steps, ids of all lives and priorities are unchanged."""
    path = str(tmp_path / "saved")
    shards, envs, ids, _ = reborn(tmp_path / "own")
    shards.save(path)
    files = {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}
    others, _ = made(shards=theirs)
    filled(others, 7)
    with pytest.raises(relive.errors.StorageError, match="another buffer"):
        others.save(path)
    assert {file: file.read_bytes() for file in files} == files
    again, _ = made(source=path)
    assert set(np.unique(again.sample(3000).ids).tolist()) == set(ids.tolist())
    check_items(again.sample(3000))
    assert again.update_priorities(ids, 1.0 + ids % 5) == len(ids)
    envs.time -= 1  # what a writer sends again is known to be there
    filled(again, 3)


@pytest.mark.parametrize("flat", [False, True])
def test_a_save_that_fails_late_leaves_what_is_known_of_the_one_before(
    flat: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check its lives and blocks, though the shard came back in another life, or from another save's directory."""
    path, own = str(tmp_path / "saved"), str(tmp_path / "own")
    shards, lines = made(shards=1, save_dir=own)
    envs = filled(shards, 10)
    lines.objects[0].save_by_clock()
    filled(shards, 5, envs)
    shards.stats()
    ids, seen = np.unique(shards.sample(3000).ids), dict(lines.objects[0]._seen)
    shards.save(path)
    if flat:  # as relive wrote it at first
        known = Path(path, "shard-0000.json")
        saves = json.loads(known.read_text())["saves"]
        (facts,) = saves.values()
        known.write_text(json.dumps({**facts, "blocks": {number: saves[number]["blocks"] for number in saves}}))
    lines.kill(0)
    lines.restart(0)
    envs.time -= 5
    filled(shards, 10, envs)
    shards.stats()
    with monkeypatch.context() as broken:
        full = relive.errors.StorageError("full")
        broken.setattr(relive.ReplayBuffer, "save", lambda *_, **__: (_ for _ in ()).throw(full))
        with pytest.raises(relive.errors.StorageError, match="full"):
            shards.save(path)
    again, others = made(shards=1, source=path)
    assert set(np.unique(again.sample(3000).ids).tolist()) == set(ids.tolist())
    assert others.objects[0]._seen == seen
    shards.save(path)
    again, others = made(shards=1, source=path)
    assert others.objects[0].ids.lives.tolist() == [0, 1]
    assert others.objects[0]._seen == lines.objects[0]._seen


def test_saves_by_the_clock_are_tried_again_and_see_priorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from relive.ray._keeping import newest

    path = str(tmp_path)
    shards, lines = made(shards=1, save_dir=path)
    filled(shards)
    (shard,) = lines.objects
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(relive.errors.StorageError, match="No space left"):
            shard.save_by_clock()
    for number in (1, 2):
        shard.save_by_clock()
        assert newest(path, 0) == 1, "nothing has changed" if number == 2 else "the save that failed was not made again"
    shards.update_priorities(shards.sample(5).ids, np.full(5, 9.0))
    shard.save_by_clock()
    assert newest(path, 0) == 2


def senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "relive-writer"]


@pytest.mark.parametrize("end", ["closed", "dropped", "process"])
@pytest.mark.parametrize("shard", ["there", "dead", "stopped"])
def test_a_writer_that_ends_sends_what_it_holds(shard: str, end: str, caplog: pytest.LogCaptureFixture) -> None:
    """Check also for one line about all that it could not send, in a bounded time."""
    from relive.ray import _sending

    waited = 10.0 if shard == "there" or LONG else 0.1  # the whole time is waited for
    shards, lines = made(shards=1)
    envs, writer = Counting(), shards.writer()
    if shard == "dead":
        lines.kill(0)
    if shard == "stopped":
        lines.hold(0)
    with with_sizes(closing=waited), caplog.at_level(logging.WARNING, "relive"):
        for _ in range(20):
            writer.add(**envs.step(np.arange(LANES)))
        if end == "closed":
            writer.close()
        if end == "process":
            _sending.stop_all()
            with pytest.raises(relive.errors.ReliveError, match="closed"):
                writer.add(**envs.step(np.arange(LANES)))
        del writer
        gc.collect()
        for thread in senders():
            thread.join(20)
        assert not senders()
    if shard == "there":
        assert shards.stats().added == 20 * LANES
        assert not caplog.records
    else:
        (record,) = [record for record in caplog.records if "has ended" in record.getMessage()]
        assert f"and {20 * LANES} steps could not be sent" in record.getMessage()


def test_a_writer_in_a_forked_process_says_that_it_is_another_ones() -> None:
    shards, _ = made(shards=1)
    envs = Counting()
    with shards.writer() as writer:
        writer.add(**envs.step(np.arange(LANES)))

        def child() -> None:
            with pytest.raises(relive.errors.ReliveError, match="one of the process that forked it"):
                writer.add(**envs.step(np.arange(LANES)))

        with forked(child):
            pass
        writer.add(**envs.step(np.arange(LANES)))
    assert shards.stats().added == 2 * LANES


def test_items_whose_batches_have_other_lengths_are_refused() -> None:
    item = relive.Sequences(4, starts="episodes", trim=True)
    wanted = r"one length, got `Sequences\(length=4, .*Shards\(item\).*leave out `trim`"
    with pytest.raises(relive.ArgumentError, match=wanted):
        planned(SCHEMA, 4096, 1, 1, item, None, np.random.default_rng(0))
    assert planned(SCHEMA, 4096, 1, 1, item.__replace__(trim=False), None, np.random.default_rng(0)).shards == 1
