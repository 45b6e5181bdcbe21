"""Draws, loads and looks at a directory whose writer removes old trajectories: what goes meanwhile is no damage."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import timeit
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from depth import LONG, eventually, soon
from moving_directory import written_by

from relive._disk.files import Folder
from relive.errors import StorageError
from relive.trajectories import Prefetch, TrajectoryReplayBuffer, _catalog, _open_files, contents, inspect, verify
from relive.trajectories._source import SafetensorsSource

SECONDS = 60.0 if LONG else 0.2

WRITER = """
import os, sys, time
import numpy as np
from relive.trajectories import Trajectory, TrajectoryReplayBuffer
path, kind, most, queue, pause = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
ID = "00000000-0000-5000-8000-000000000000"
k = 0
def one():
    global k
    k += 1
    fields = {"rewards": np.full((5, 2, 1), k, "f4"), "actions": np.full((5, 2, 300), k, "f4")}
    if kind == "packed":
        fields["curr_obs"] = {"image": np.full((5, 2, 32, 32), k % 256, "u1")}
    return Trajectory(**fields, model_weights_id=ID, max_episode_length=5)
own = None if kind == "pt" else path
compress = "zstd" if kind == "packed" else None
form = "pt" if kind == "pt" else "safetensors"
with TrajectoryReplayBuffer(own, max_trajectories=int(most), queue_bytes=int(queue), trajectory_format=form,
                            compress=compress, seed=0) as buffer:
    buffer.add_trajectories([one() for _ in range(int(most))])
    save = buffer.sync if own else lambda: buffer.save_checkpoint(path)
    save()
    print("up", flush=True)
    while not os.path.exists(path + ".stop"):
        buffer.add_trajectories([one()])
        own or save()
        time.sleep(pause)
"""


def one(k: int, size: int = 2) -> dict[str, Any]:
    return {"rewards": np.full((5, 2, 1), k, np.float32), "actions": np.full((5, 2, size), k, np.float32)}


def opened_trajectories() -> tuple[list[str], list[str]]:
    """List trajectories' files that this process has open; those that exist, and those that are deleted."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    names = [name for name in names if "trajectory_" in name]
    return [name for name in names if "(deleted)" not in name], [name for name in names if "(deleted)" in name]


@pytest.mark.filterwarnings("error::relive.errors.ReliveWarning")
@pytest.mark.parametrize(
    ("kind", "most", "queue", "pause"),
    [("own", 20, 1 << 28, 0.002), ("own", 1, 1, 0.01), ("packed", 10, 1 << 28, 0.002), ("pt", 3, 1 << 28, 0.0)],
)
def test_whoever_looks_at_what_moves_finds_it_whole(kind, most, queue, pause, folder):
    """Check that a load, draw, look or verification finds nothing missing, damaged, or empty."""
    path, counts = folder / "made", {"loads": 0, "looks": 0}
    joined = TrajectoryReplayBuffer(seed=0, sample_window_size=2, cache_size=0)
    with written_by(WRITER, path, kind, most, queue, pause), closing(joined):
        joined.load_checkpoint(path)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with closing(TrajectoryReplayBuffer(seed=0)) as reader:
                reader.load_checkpoint(path)
                assert 1 <= len(reader) <= most + 30
                counts["loads"] += 1
            joined.refresh()
            batch = joined.sample(8)
            assert (batch.rewards == batch.actions[:, :1]).all()
            if kind == "packed":
                assert (batch.curr_obs.image == batch.rewards[:, :, None] % 256).all()
            if kind == "pt" and counts["loads"] % 5 > 1:  # starts a process
                continue
            found = inspect(path)
            assert (found.missing, found.trajectories >= most) == ((), True)
            assert verify(path) == []
            counts["looks"] += 1
    assert min(counts.values()) >= 1


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of descriptors here")
def test_draws_in_many_threads_beside_removals(folder):
    """Check that no draw fails, prefetched batches continue, and no deleted file stays open."""
    before, errors, draws = sys.getswitchinterval(), list[BaseException](), [0]
    sys.setswitchinterval(1e-5)
    end = time.monotonic() + SECONDS
    try:
        with (
            TrajectoryReplayBuffer(folder, seed=0, sample_window_size=0, cache_size=0, max_trajectories=20) as buffer,
            TrajectoryReplayBuffer(seed=0, sample_window_size=0) as reader,
        ):
            buffer.add_trajectories([one(0)] * 20)
            buffer.sync()
            reader.load_checkpoint(folder)

            def until_the_end(job: Callable[[], object]) -> None:
                while time.monotonic() < end or draws[0] < 40:
                    try:
                        job()
                    except BaseException as error:
                        errors.append(error)
                    draws[0] += 1

            def add() -> None:
                buffer.add_trajectories([one(1)])
                buffer.flush()

            with Prefetch(buffer, 8) as batches:
                jobs = [add, *[lambda: buffer.sample(16)] * 2, lambda: next(batches)]
                jobs += [lambda: reader.sample(8), reader.refresh, lambda: buffer.sample(4, success=None)]
                threads = [threading.Thread(target=until_the_end, args=[job]) for job in jobs]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            buffer.sync()
            reader.refresh()
            assert errors == []
            assert opened_trajectories()[1] == []
            buffer.clear_cache()
    finally:
        sys.setswitchinterval(before)


class _Watched(dict[Any, Any]):
    """The files that stay open; `after` is called when one is put back."""

    after: Callable[[], None] = staticmethod(lambda: None)

    def setdefault(self, key: Any, file: Any = None) -> Any:
        kept = super().setdefault(key, file)
        self.after()
        return kept


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of descriptors here")
@pytest.mark.parametrize("whose", ["its own", "another's"])
@pytest.mark.parametrize("how", ["sample", "window", "info"])
def test_a_removal_while_a_draw_puts_its_files_back(how, whose, folder, monkeypatch):
    """Check at any file that all others are closed again, and no deleted one stays open."""
    opened = _Watched()
    monkeypatch.setattr(_open_files, "OPEN", opened)
    with TrajectoryReplayBuffer(folder, seed=0, cache_size=0, max_trajectories=4) as buffer:
        buffer.add_trajectories([one(k) for k in range(4)])
        buffer.sync()
        drawing, removals = buffer, [1] * 20
        if whose == "another's":
            drawing = TrajectoryReplayBuffer(seed=0, cache_size=0)
            drawing.load_checkpoint(folder)
        drawing.sample_window_size = 3 if how == "window" else 0

        def remove() -> None:
            if removals:
                removals.pop()
                buffer.add_trajectories([one(9)])
                buffer.sync()
                drawing.refresh()

        for _ in range(20):
            opened.after = remove
            if how == "info":
                drawing.get_trajectory_info(drawing.list_trajectory_ids()[-1])
            else:
                assert len(drawing.sample(32).rewards) == 32
            opened.after = lambda: None
            drawing.refresh()
            there, deleted = opened_trajectories()
            assert deleted == []
            assert len(there) == len(opened)
        drawing.close()
        assert opened == {}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of descriptors here")
def test_a_file_that_goes_after_its_entry(folder, monkeypatch):
    """Check a file that a draw still has open, whose removal a reader took in, and which is deleted last."""
    with TrajectoryReplayBuffer(folder, seed=0, max_trajectories=1) as buffer:
        buffer.add_trajectories([one(0)])
        buffer.sync()
        reader, real, gate = TrajectoryReplayBuffer(seed=0, cache_size=0), SafetensorsSource.read, threading.Event()
        reader.load_checkpoint(folder)
        discard = Folder.discard
        monkeypatch.setattr(Folder, "discard", lambda folder, name: (gate.wait(60), discard(folder, name)))

        def read(source: SafetensorsSource, *arguments: Any) -> None:
            real(source, *arguments)
            if len(reader) and reader.list_trajectory_ids() == [0]:
                buffer.add_trajectories([one(1)])
                eventually(lambda: (reader.refresh(), reader.list_trajectory_ids())[1] == [1])  # both may be listed

        monkeypatch.setattr(SafetensorsSource, "read", read)
        assert reader.sample(4).rewards.max() <= 1
        gate.set()
        buffer.sync()
        assert opened_trajectories()[1] == []
        reader.close()


def test_a_new_trajectory_is_listed_before_the_old_one_goes(folder):
    """Check with room for one, and a queue that is full: the index of the directory always has one."""
    found, done = list[int](), threading.Event()
    with TrajectoryReplayBuffer(folder, max_trajectories=1, queue_bytes=1) as buffer:
        buffer.add_trajectories([one(0, 2000)])
        buffer.sync()

        def look() -> None:
            while not done.is_set():
                found.append(len(_catalog.read(str(folder))[0]))

        thread = threading.Thread(target=look)
        thread.start()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            buffer.add_trajectories([one(1, 2000)])
        done.set()
        thread.join()
    assert min(found) >= 1
    assert max(found) <= 3


@pytest.mark.parametrize("error", [KeyError(7), IndexError("x"), OverflowError("x"), StorageError("a version")])
def test_an_index_that_changes_is_read_again_whatever_is_wrong(error, folder, monkeypatch):
    with TrajectoryReplayBuffer(folder) as buffer:
        buffer.add_trajectories([one(0)])
        buffer.sync()
        real, tries = _catalog.read_once, [1, 2]

        def read(path: str) -> Any:
            if tries:
                buffer.add_trajectories([one(tries.pop())])
                buffer.sync()
                buffer._writer.catalog.settle(restart=True)
                raise error
            return real(path)

        monkeypatch.setattr(_catalog, "read_once", read)
        signatures = iter(range(100))
        monkeypatch.setattr(_catalog, "signature_of", lambda path: next(signatures) if tries else "still")
        assert len(_catalog.read(str(folder))[0]) == 3

        def broken(path: str) -> Any:
            raise error

        monkeypatch.setattr(_catalog, "read_once", broken)
        with pytest.raises(type(error) if isinstance(error, IndexError) else StorageError):
            _catalog.read(str(folder))


@pytest.mark.filterwarnings("error::relive.errors.ReliveWarning")
@pytest.mark.parametrize("how", ["verify", "inspect", "contents", "load"])
@pytest.mark.parametrize("format", ["safetensors", "pt"])
def test_a_save_before_each_list_of_files(format, how, folder, monkeypatch):
    """Check every list of names that a look takes: just before it a save removes the oldest file and adds one."""
    path, real, countdown = folder / "saved", Folder.sizes, [-1]
    with TrajectoryReplayBuffer(trajectory_format=format, max_trajectories=3) as buffer:
        buffer.add_trajectories([one(k) for k in range(3)])
        buffer.save_checkpoint(path)

        def sizes(of: Folder) -> dict[str, int]:
            countdown[0] -= 1
            if countdown[0] == -1:
                buffer.add_trajectories([one(9)])
                buffer.save_checkpoint(path)
            return real(of)

        def look() -> None:
            if how == "load":
                with closing(TrajectoryReplayBuffer()) as reader:
                    reader.load_checkpoint(path)
                    assert len(reader) == 3
            elif how == "inspect":
                assert inspect(path).missing == ()
            else:
                assert verify(path) == [] if how == "verify" else contents(path).read >= 2

        monkeypatch.setattr(Folder, "sizes", sizes)
        for at in itertools.count():
            countdown[0] = at
            look()
            if countdown[0] >= 0:  # it has taken fewer lists
                break
        assert at >= 1 or format == "safetensors"  # of which some looks read the index alone


@pytest.mark.parametrize("format", ["safetensors", "pt"])
def test_a_file_that_is_missing_for_good_is_damage_at_once(format, folder):
    with TrajectoryReplayBuffer(trajectory_format=format) as buffer:
        buffer.add_trajectories([one(k) for k in range(3)])
        buffer.save_checkpoint(folder / "saved")
    sorted((folder / "saved").glob("trajectory_*"))[1].unlink()
    assert len(inspect(folder / "saved").missing) == 1
    with closing(TrajectoryReplayBuffer()) as reader:
        if format == "pt":  # RLinf's own lack files
            with pytest.warns(match="the files of 3 trajectories"):
                reader.load_checkpoint(folder / "saved")
            return

        def looks() -> None:
            with pytest.raises(StorageError, match="got no file"):
                reader.load_checkpoint(folder / "saved")
            assert len(verify(folder / "saved")) == 1

        soon(lambda: timeit.timeit(looks, number=1), 0.5)


def test_a_writer_that_loads_a_checkpoint(folder):
    """Check that readers see the old ones or the new, though ids get other contents and files their names singly."""
    for name in range(8):
        with TrajectoryReplayBuffer() as made:
            made.add_trajectories([one(k + 100 * name) for k in range(20)])
            made.save_checkpoint(folder / f"{name}")
    end, errors = time.monotonic() + SECONDS, list[BaseException]()
    with TrajectoryReplayBuffer(folder / "own") as buffer, closing(TrajectoryReplayBuffer(cache_size=0)) as reader:
        buffer.load_checkpoint(folder / "0")
        reader.load_checkpoint(folder / "own")

        def look() -> None:
            try:
                while time.monotonic() < end:
                    batch = reader.sample(8)
                    assert (batch.rewards == batch.actions[:, :1]).all()
                    reader.refresh()
                    with closing(TrajectoryReplayBuffer()) as other:
                        other.load_checkpoint(folder / "own")
                        assert len(other) == 20
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        for name in itertools.cycle(range(8)):
            buffer.load_checkpoint(folder / f"{name}")
            time.sleep(0.03)
            if not thread.is_alive():
                break
        thread.join()
    assert errors == []


# Closing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("how", ["open", "by a link", "save"])
def test_a_directory_that_is_closing_can_be_opened(how, synced, folder):
    """Check in the same process: the next one to open it waits for the thread that closes it."""
    (folder / "link").symlink_to(folder / "own")
    for k in range(10):
        path = folder / ("link" if how == "by a link" and k % 2 else "own")
        buffer = TrajectoryReplayBuffer(path)
        assert len(buffer) == 20 * k
        buffer.add_trajectories([one(k, 1000)] * 20)
        if synced:
            buffer.sync()
        buffer.close(wait=False)
    if how == "save":
        with TrajectoryReplayBuffer() as other:
            other.add_trajectories([one(0)])
            with pytest.raises(StorageError, match="another buffer's"):
                other.save_checkpoint(folder / "own")
    eventually(lambda: not [each for each in threading.enumerate() if each.name == "relive-closing"])


def test_another_buffer_that_is_open_is_refused_still(folder):
    with TrajectoryReplayBuffer(folder / "own"):
        TrajectoryReplayBuffer(folder / "other").close(wait=False)
        with pytest.raises(StorageError, match="Could not lock"):
            TrajectoryReplayBuffer(folder / "own")
