"""One buffer, many threads: nothing is lost, nothing is torn, and every count is that of the same calls one by one."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

import relive
from relive._ring import kernels as _kernels
from relive.testing.agreement import assert_same_batch

LANES, ROWS = 4, 64


@pytest.fixture(autouse=True)
def _impatient_interpreter() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


THREE_STEPS, CHUNKS = (relive.Transitions(n_step=3, gamma=1.0, chunk=chunk) for chunk in (False, True))


def make(sampler: object, item: relive.Item = THREE_STEPS, rows: int = ROWS) -> relive.ReplayBuffer:
    """Make a buffer of observations and actions that repeat (lane, serial), so that a torn row shows."""
    schema = relive.Schema(obs=relive.Field((16, 2), "int64"), action=relive.Field((8,), "int64"))
    return relive.ReplayBuffer(schema, rows * LANES, num_envs=LANES, item=item, sampler=sampler, seed=0)


def step(lane: int, serial: int, ended: bool = False) -> dict[str, object]:
    """Make one step of one lane."""
    made = {name: values[lane : lane + 1, 0] for name, values in steps_of_all_lanes(serial, 1).items()}
    return {**made, "terminated": np.array([ended])}


def run_together(*jobs: Callable[[], None]) -> None:
    """Start all jobs at once, wait for all, and raise the first exception that any of them met."""
    failures: list[BaseException] = []
    gate = threading.Barrier(len(jobs))

    def guarded(job: Callable[[], None]) -> None:
        gate.wait()
        try:
            job()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def assert_whole(batch: relive.Batch) -> None:
    """Check that every row of every field has the same lane and the same step."""
    lane, serial = batch.obs[:, 0, 0], batch.obs[:, 0, 1]
    assert (batch.obs == batch.obs[:, :1]).all()
    assert (batch.ids % LANES == lane).all()
    actions = batch.action.reshape(len(serial), -1, 8)  # of one step, or of a chunk
    assert (actions == (serial[:, None] + np.arange(actions.shape[1]))[..., None]).all()
    assert (batch.next_obs[:, :, 0] == lane[:, None]).all()
    assert (batch.next_obs[:, :, 1] == (serial + batch.steps)[:, None]).all()
    assert (batch.reward == batch.steps * (serial + (batch.steps - 1) / 2)).all()


def one_by_one(batch: relive.Batch) -> relive.Batch:
    """Split sequences of consecutive steps into single steps, as items of their own."""
    length = batch.mask.shape[1]
    ids = batch.ids[:, None] + LANES * np.arange(length)
    names = ("obs", "next_obs", "action", "reward", "steps")
    return relive.Batch({**{name: np.concatenate(batch[name]) for name in names}, "ids": ids.reshape(-1)})


@pytest.mark.parametrize("sampler", [relive.Prioritized(), relive.Uniform()], ids=["prioritized", "uniform"])
def test_a_writer_a_lane_and_readers_and_updates(sampler):
    """Check that the buffer ends up as if the same lanes had been added one after the other."""
    buffer, steps, rounds = make(sampler), 400, 300
    drawn, applied, offered = [], [], []

    def reader() -> None:
        done = 0
        while done < rounds:
            if buffer.can_sample(1):
                batch = buffer.sample(32)
                assert_whole(batch)
                drawn.append(32)
                done += 1
                if isinstance(sampler, relive.Prioritized):
                    offered.append(32)
                    applied.append(buffer.update_priorities(batch.ids, batch.weights + 0.5))

    def watcher() -> None:
        for _ in range(rounds):
            stats = buffer.stats()
            assert 0 <= stats.size <= buffer.capacity
            assert stats.drawable <= stats.size
            assert len(buffer) <= buffer.capacity

    run_together(*(partial(writer_of, buffer, lane, steps) for lane in range(LANES)), reader, reader, watcher)
    alone = make(sampler)
    for lane in range(LANES):
        writer_of(alone, lane, steps)
    stats, expected = buffer.stats(), alone.stats()
    found = stats.added, stats.cuts, stats.size, stats.drawable
    assert found == (LANES * steps, 0, expected.size, expected.drawable)
    assert stats.drawn == sum(drawn)
    assert stats.stale_updates == sum(offered) - sum(applied)
    ids = alone.ids()
    assert len(ids) == expected.drawable
    assert_same_batch(buffer.read(ids), alone.read(ids))


def writer_of(buffer: relive.ReplayBuffer, lane: int, steps: int) -> None:
    for t in range(steps):
        buffer.add(**step(lane, t, ended=t % 37 == 36), env_ids=[lane])


def test_threads_that_add_to_the_same_lanes():
    """Check that each call is one whole step of every lane: streams are cut between calls, never inside one."""
    buffer, calls, workers = make(relive.Prioritized(), relive.Transitions()), 200, 4
    ids: list[np.ndarray] = []

    def job(worker: int) -> Callable[[], None]:
        def add() -> None:
            for t in range(calls):
                serial = (worker * calls + t) * 10
                ids.append(buffer.add(**{name: v[:, 0] for name, v in steps_of_all_lanes(serial, 1).items()}))

        return add

    with pytest.warns(relive.errors.ReliveWarning, match="byte for byte"):
        run_together(*(job(worker) for worker in range(workers)))
    every = np.concatenate(ids)
    assert len(np.unique(every)) == len(every) == buffer.stats().added == workers * calls * LANES
    assert buffer.stats().cuts == (workers * calls - 1) * LANES
    for _ in range(20):
        assert_whole(buffer.sample(64))


@pytest.mark.parametrize(("size", "item"), [*((n, THREE_STEPS) for n in (64, 1500, 6000)), (500, relive.Sequences(4))])
def test_batches_belong_to_their_callers(size: int, item: relive.Item) -> None:
    """Check that a batch's memory is reused only when its last array is gone, however it was sliced.

    Batches from kilobytes to megabytes: small and large ones may come from different places.
    """
    buffer = make(relive.Uniform(), item)
    for lane in range(LANES):
        writer_of(buffer, lane, 100)

    def job() -> None:
        kept, copies = [], []
        for i in range(60 if size < 1000 else 20):
            batch = buffer.sample(size)
            view = batch.obs[i % 64 :: size // 20] if i % 2 else batch.next_obs[:50]
            kept.append(view)
            copies.append(view.copy())
            if len(kept) > 9:
                kept.pop(i % 5)
                copies.pop(i % 5)
            batch.reward[:] = -1  # the caller's own array
            del batch
            for held, copy in zip(kept, copies, strict=True):
                np.testing.assert_array_equal(held, copy)

    run_together(job, job, job)
    if item is THREE_STEPS:
        assert_whole(buffer.sample(256))


def steps_of_all_lanes(serial: int, length: int) -> dict[str, np.ndarray]:
    """Make `length` steps of every lane, `[L, T, ...]`."""
    lanes, serials = np.meshgrid(np.arange(LANES), serial + np.arange(length), indexing="ij")
    obs = np.broadcast_to(np.stack([lanes, serials], axis=-1)[:, :, None], (*lanes.shape, 16, 2))
    off = np.zeros(lanes.shape, bool)
    action = np.repeat(serials[..., None], 8, axis=-1)
    return {
        "obs": obs, "action": action, "reward": serials, "next_obs": obs + np.array([0, 1]),
        "terminated": off, "truncated": off,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "item"),
    [
        *((rows, relive.Transitions()) for rows in (ROWS, 3000)), (ROWS, THREE_STEPS),
        (ROWS, CHUNKS),
        *((rows, relive.Sequences(12, n_step=2, gamma=1.0)) for rows in (ROWS, 500)),
    ],
)  # fmt: skip
def test_a_large_batch_is_whole_though_others_write_meanwhile(rows: int, item: relive.Item) -> None:
    """Check that no row of a batch is overwritten before it is read, by other items, too, however few there are."""
    buffer, length = make(relive.Prioritized(alpha=0.0), item, rows), 8
    buffer.extend(**steps_of_all_lanes(0, rows))
    done, serial = threading.Event(), rows

    def writer() -> None:
        nonlocal serial
        while not done.is_set():
            several = steps_of_all_lanes(serial, length)
            buffer.extend(**several)
            for t in range(length):
                one = steps_of_all_lanes(serial + length + t, 1)
                buffer.add(**{name: values[:, 0] for name, values in one.items()})
            serial += 2 * length

    def learner() -> None:
        try:
            for _ in range(10):
                batch = buffer.sample(2000) if item.time_major is None else one_by_one(buffer.sample(2000))
                assert_whole(batch)
                assert (batch.obs[:, 0, 1] == batch.ids // LANES).all()
                buffer.update_priorities(batch.ids, batch.reward)
                with suppress(relive.StaleId):
                    assert_whole(buffer.read(batch.ids, item=CHUNKS))
                with buffer.hold():
                    assert_whole(buffer.read(buffer.ids(item=CHUNKS)[:500], item=CHUNKS))
        finally:
            done.set()

    run_together(writer, learner, learner)
    assert buffer.stats().cuts == 0
    assert buffer.stats().added == serial * LANES


def test_a_lock_lets_in_one_thread_at_a_time() -> None:
    """Check though each releases the interpreter while it is inside."""
    module = _kernels.active()
    lock = module.Lock()
    inside: list[int] = []

    def job() -> None:
        for _ in range(100):
            with lock, lock:
                inside.append(1)
                time.sleep(1e-6)
                assert len(inside) == 1
                assert lock.taken()
                inside.pop()

    run_together(job, job, job, job)
    assert not lock.taken()


@pytest.mark.skipif(not _kernels.is_native(), reason="the native kernels' lock")
def test_a_thread_that_waits_for_a_lock_gets_its_turn() -> None:
    """Check though the other one, which takes it again and again, releases the interpreter only inside."""
    sys.setswitchinterval(0.005)  # the interpreter's own
    with _kernels.use("native") as module:
        lock = module.Lock()
    begun, turns, taken_again = threading.Event(), 0, 0

    def greedy() -> None:
        nonlocal taken_again
        while turns < 20 and taken_again < 5_000:
            with lock:
                begun.set()
                time.sleep(1e-4)
            taken_again += 1

    def patient() -> None:
        nonlocal turns
        begun.wait()
        while turns < 20 and taken_again < 5_000:
            with lock:
                turns += 1

    run_together(greedy, patient)
    assert turns == 20


def test_a_thread_that_waits_for_a_lock_can_be_interrupted() -> None:
    """Check that Ctrl-C reaches it, and the lock goes to the next one."""
    module = _kernels.active()
    lock = module.Lock()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            entered.set()
            leave.wait(30)

    def on_alarm(*_: object) -> None:
        raise KeyboardInterrupt

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait()
    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            lock.__enter__()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not lock.taken()
    leave.set()
    with lock:
        assert lock.taken()
    holder.join(30)
    assert not lock.taken()


def test_a_refused_call_frees_the_lock():
    """Check that a refused thread leaves the buffer open to the others."""
    buffer = make(relive.Prioritized())

    def wrong() -> None:
        for _ in range(50):
            with pytest.raises(relive.errors.SchemaError):
                buffer.add(obs=1)
            with pytest.raises(relive.errors.StaleId):
                buffer.read([-1])
            with pytest.raises(relive.errors.PriorityError):
                buffer.update_priorities([], [np.nan])

    run_together(wrong, wrong, lambda: writer_of(buffer, 0, 50))
    assert buffer.stats().added == 50


@pytest.mark.parametrize("sampler", [relive.Prioritized(), relive.Prioritized(newest="stored")], ids=repr)
def test_statistics_are_computed_outside_of_the_lock(sampler: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that other threads wait for a copy of the priorities, not for sorting them."""
    buffer = make(sampler)
    writer_of(buffer, 0, 50)
    ids = buffer.sample(9).ids
    buffer.update_priorities(ids, np.arange(9.0))
    expected = np.sort(buffer.priorities(np.unique(ids)))[-1]
    inside, sort = [], np.sort

    def watched(*arguments: object) -> np.ndarray:
        inside.append(buffer._core.lock.taken())
        return sort(*arguments)

    monkeypatch.setattr(np, "sort", watched)
    assert buffer.stats().priority_quantiles[-1] == pytest.approx(expected)
    assert inside
    assert not any(inside)
