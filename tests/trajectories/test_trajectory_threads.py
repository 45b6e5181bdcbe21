"""The queue's bound, and many threads at once: nothing is torn, nothing that a reader holds goes from under it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from depth import LONG, some
from made import codes, files, filled, loaded, saved
from rollouts import leaves, simple
from sizes import with_sizes
from system_calls import watched

from relive.errors import NotEnoughData, ReliveWarning, StorageError
from relive.trajectories import TrajectoryReplayBuffer
from relive.trajectories._catalog import read
from relive.trajectories._source import SafetensorsSource


def start(job: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run a job in a thread; its result, or what it raised, comes into the list."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(job())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


@pytest.mark.parametrize("slow", ["trajectory_000000000000", "trajectory_000000000001"])
@pytest.mark.parametrize("fails", [False, True])
@with_sizes(apart=1)
def test_two_threads_write_and_names_come_in_the_order_of_adds(fails, slow, folder):
    """Sync the slow one, or fail, when the next is staged: that one waits, and is dropped with a failed one."""
    following = slow[:-1] + str(int(slow[-1]) + 1)
    staged, synced, renamed = threading.Event(), iter([True]), []
    size = filled(None, [0]).get_stats()["nbytes"]
    with watched() as system:

        def before(name: str, args: tuple[Any, ...]) -> None:
            file = os.readlink(f"/proc/self/fd/{args[0]}") if name == "fsync" else ""
            if following in file:
                staged.set()
            if slow in file and next(synced, False):
                assert staged.wait(30), "one thread writes"
                time.sleep(0.1)  # enough for a name that comes too early
                renamed.extend(args for name, args, _ in system.trace if name == "rename" and following in args[1])
                if fails:
                    raise OSError(errno.EIO, "the sync failed")

        system.before = before
        with TrajectoryReplayBuffer(folder, queue_bytes=16 * size) as buffer:
            buffer.add_trajectories([simple(k) for k in range(9)])
            if fails:
                with pytest.raises(StorageError, match="the sync failed"):
                    buffer.sync()
            assert buffer.sync() == (9, 9, 9)
            assert renamed == []
            names = [args[1] for name, args, _ in system.trace if name == "rename"]
            assert names == [f"trajectory_{k:012d}.safetensors" for k in range(9)]
            assert not [name for name in os.listdir(folder) if name.startswith(".tmp-")]
        with TrajectoryReplayBuffer(folder) as again:
            assert len(again) == 9


@pytest.mark.parametrize("room", [1, 6])
def test_an_add_waits_when_the_queue_is_full_and_not_before(room, folder):
    """Stop the disk: as many are added as fit, the next one waits until there is room."""
    gate, size = threading.Event(), filled(None, [0]).get_stats()["nbytes"]
    with watched() as system:
        buffer = TrajectoryReplayBuffer(folder, queue_bytes=room * size, cache_size=0)
        system.before = lambda name, args: None if name != "fsync" else gate.wait(60)
        try:
            first, told = start(lambda: [buffer.add_trajectories([simple(k)]) for k in range(room)])
            first.join(60)
            assert told == [[None] * room], "there was room, and it waited"
            assert buffer.get_stats()["added"] == room
            assert buffer.get_stats()["flushed"] == 0
            waiting, told = start(lambda: buffer.add_trajectories([simple(room)]))
            waiting.join(0.2)
            assert waiting.is_alive()
            assert buffer.get_stats()["memory_bytes"] <= (room + 1) * size
            assert len(buffer.sample(10)["code"]) == 10, "drawing does not wait"
            gate.set()
            waiting.join(60)
            assert told == [None]
            assert buffer.sync() == (room + 1,) * 3
        finally:
            gate.set()
            buffer.close()


def test_flushed_comes_before_durable(folder):
    """Delay the directory's sync: the file is whole under its name, and survives the process, not a loss of power."""
    gate = threading.Event()

    def before(name: str, args: tuple[Any, ...]) -> None:
        if name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode):
            gate.wait(60)

    with watched() as system, TrajectoryReplayBuffer(folder / "own") as buffer:
        system.before = before
        try:
            buffer.add_trajectories([simple(7)])
            assert buffer.flush() == (1, 1, 0)
            shutil.copytree(folder / "own", folder / "left", ignore=shutil.ignore_patterns("lock"))
            waiting, told = start(buffer.sync)
            waiting.join(0.2)
            assert waiting.is_alive()
        finally:
            gate.set()
        waiting.join(60)
        assert told == [(1, 1, 1)]
    with pytest.warns(ReliveWarning, match="indexed 1 complete file"):
        left = TrajectoryReplayBuffer(folder / "left")
    with left:
        assert codes(left, 20) == {7}


def stopping(monkeypatch: pytest.MonkeyPatch, method: str) -> tuple[threading.Semaphore, threading.Semaphore]:
    """Stop a method of a source before it begins; one semaphore tells of the stop, the other releases it."""
    come, go = threading.Semaphore(0), threading.Semaphore(0)
    real = getattr(SafetensorsSource, method)

    def stopped(*args: Any) -> None:
        come.release()
        assert go.acquire(timeout=60)
        real(*args)

    monkeypatch.setattr(SafetensorsSource, method, stopped)
    return come, go


def deleted_files() -> list[str]:
    """List deleted files that this process has open."""
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return [target for link in links if os.path.islink(link) and "(deleted)" in (target := os.readlink(link))]


@pytest.mark.parametrize("loads", [False, True])
@pytest.mark.parametrize(("method", "old"), [("read", False), ("_fill", True)])
def test_a_draw_reads_deleted_files_that_it_has_opened_and_else_is_repeated(loads, method, old, folder, monkeypatch):
    """Check that retention and a load, whose new files have the names of the old ones, wait for no reader."""
    saved(folder / "saved", range(10, 13))
    come, go = stopping(monkeypatch, method)
    own, before = folder / "own", deleted_files()
    with filled(own, range(3), max_trajectories=3, enable_cache=False, seed=0) as buffer:
        reading, drawn = start(lambda: buffer.sample(30))
        assert come.acquire(timeout=60)
        if loads:
            buffer.load_checkpoint(folder / "saved")
        else:
            buffer.add_trajectories([simple(k) for k in range(10, 13)])
        buffer.sync()
        assert len(files(own)) == 3
        for _ in range(2):
            go.release()
        reading.join(60)
        assert_whole(drawn[0], {0, 1, 2} if old else {10, 11, 12})
        go.release()
        assert_whole(buffer.sample(30), {10, 11, 12})
        assert deleted_files() == before


def test_who_draws_or_asks_for_one_trajectory_waits_for_a_load(folder):
    """Check, since the first file has its name already and the second not yet: an early read would be of another."""
    saved(folder / "saved", range(10, 13))
    renamed, come, go = [], threading.Event(), threading.Event()

    def before(name: str, args: tuple[Any, ...]) -> None:
        renamed.extend([name] * (name == "rename"))
        if len(renamed) == 2 and not come.is_set():
            come.set()
            assert go.wait(60)

    with watched() as system, filled(folder / "own", range(3), cache_size=0) as buffer:
        system.before = before
        loading, told = start(lambda: buffer.load_checkpoint(folder / "saved"))
        try:
            assert come.wait(60)
            asking, asked = start(lambda: [buffer.load_trajectory(0), buffer.get_trajectory_info(0)])
            drawing, drawn = start(lambda: buffer.sample(30))
            asking.join(0.2)
            assert asking.is_alive()
            assert drawing.is_alive()
        finally:
            go.set()
        for thread in (loading, asking, drawing):
            thread.join(60)
        assert told == [None]
        assert asked[0][0]["code"][0, 0, 0] == 10
        assert_whole(drawn[0], {10, 11, 12})


def test_a_save_is_of_one_moment_and_holds_nobody_up(folder):
    """Draw, add and remove while files are linked or copied: these stay until then, and the save has none of it."""
    come, go = threading.Event(), threading.Event()

    def before(name: str, args: tuple[Any, ...]) -> None:
        if name == "link":
            come.set()
            assert go.wait(60)

    with watched() as system, filled(folder / "own", range(3), seed=0, max_trajectories=3, cache_size=0) as buffer:
        buffer.sample(5)
        system.before, state = before, buffer._draws.state()
        saving, told = start(lambda: buffer.save_checkpoint(folder / "saved"))
        try:
            assert come.wait(60)
            others, results = start(lambda: [buffer.add_trajectories([simple(k) for k in range(3, 9)]), buffer.sync()])
            others.join(60)
            assert results == [[None, (9, 9, 9)]]
            assert_whole(buffer.sample(30), {6, 7, 8})
            assert len(files(folder / "own")) == 9, "nothing is deleted meanwhile"
        finally:
            go.set()
        saving.join(60)
        assert told == [None]
        assert len(files(folder / "own")) == 3, "what the save held is gone now"
    entries, facts = read(str(folder / "saved"))
    assert [entry.id for entry in entries] == [0, 1, 2]
    assert (facts["draws"], facts["counter"]) == (state, "3")
    with loaded(folder / "saved") as found:
        assert_whole(found.sample(50), {0, 1, 2})


@lru_cache(maxsize=4096)
def kept(serial: int) -> dict[str, Any]:
    return dict(leaves(simple(serial)))


def assert_whole(batch: Any, serials: set[int] | None = None) -> None:
    """Check that every row is a row of one trajectory, in all of its fields."""
    found = dict(leaves(batch))
    assert serials is None or set(np.unique(found["code"][:, 0]).tolist()) <= serials
    for k, (serial, t, b) in enumerate(found["code"].tolist()):
        for name, array in kept(serial).items():
            assert found[name][k].tobytes() == array[t, b].tobytes(), (serial, t, b, name)


@pytest.mark.parametrize("cache", some([0, 4, 1000], 1))
def test_threads_add_draw_retain_and_save_at_once(cache, folder):
    """Let two add, two draw, one save and flush: every drawn row is whole, and the files are those that stay."""
    until = time.monotonic() + float(os.environ.get("RELIVE_EXAMPLES", "200" if LONG else "30")) / 150
    window, most = 12, 20
    options = {"sample_window_size": window, "max_trajectories": most, "cache_size": cache, "queue_bytes": 20_000}
    with TrajectoryReplayBuffer(folder / "own", seed=0, **options) as buffer:

        def adder(first: int) -> int:
            serial = first
            while time.monotonic() < until or serial < 60:
                buffer.add_trajectories([simple(serial), simple(serial + 2)])
                serial += 4
            return (serial - first) // 2

        def drawer() -> int:
            count = 0
            while time.monotonic() < until or not count:
                try:
                    assert_whole(buffer.sample(20))
                    count += 1
                except NotEnoughData:
                    continue
            return count

        def saver() -> int:
            count = 0
            while time.monotonic() < until or not count:
                buffer.save_checkpoint(folder / "saved")
                assert buffer.sync().durable >= 0
                with loaded(folder / "saved", seed=count) as found:
                    assert len(found) <= most
                    if len(found):
                        assert_whole(found.sample(20))
                count += 1
            return count

        jobs = [start(lambda: adder(0)), start(lambda: adder(1)), start(drawer), start(drawer), start(saver)]
        for thread, _ in jobs:
            thread.join(60)
            assert not thread.is_alive()
        results = [told[0] for _, told in jobs]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        assert buffer.sync() == (sum(results[:2]),) * 3
        assert len(buffer) == most < sum(results[:2])
        assert len(files(folder / "own")) == most, "those of removed trajectories are deleted"
    with TrajectoryReplayBuffer(folder / "own") as again:
        assert len(again) == most
        assert_whole(again.sample(200))
