"""Directories that others write to, load into, interrupt, or damage."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from rollouts import simple
from system_calls import watched

from relive.errors import StorageError
from relive.trajectories import Prefetch, TrajectoryReplayBuffer, convert, merge, split


def test_a_reader_follows_a_directory_that_is_written_to(folder):
    """Check that it follows by itself if a file is gone, and by `refresh` if there are new ones."""
    with TrajectoryReplayBuffer(folder, max_trajectories=5) as writer, TrajectoryReplayBuffer(seed=0) as reader:
        writer.add_trajectories([simple(k) for k in range(5)])
        writer.sync()
        reader.load_checkpoint(folder)
        assert not reader.refresh()
        seen = set(range(5))
        for k in range(5, 40):
            writer.add_trajectories([simple(k)])
            writer.sync()
            if k % 4 == 0:
                assert reader.refresh()
                assert reader._store.index.records["id"].tolist() == list(range(k - 4, k + 1))
            drawn = set(reader.sample(30)["code"][:, 0].tolist())
            assert drawn <= set(range(k - 8, k + 1))
            seen |= drawn
        assert len(seen) > 30
        reader.add_trajectories([simple(99)])
        assert not reader.refresh(), "it has something of its own"
        assert not writer.refresh()


def test_a_reader_follows_a_load(folder):
    """Load new files with the names of the old ones, and other contents."""
    with TrajectoryReplayBuffer() as other:
        other.add_trajectories([simple(k) for k in range(20, 24)])
        other.save_checkpoint(folder / "saved")
    with TrajectoryReplayBuffer(folder / "own") as writer, TrajectoryReplayBuffer(seed=0, cache_size=0) as reader:
        writer.add_trajectories([simple(k) for k in range(4)])
        writer.sync()
        reader.load_checkpoint(folder / "own")
        reader.sample(50)
        writer.load_checkpoint(folder / "saved")
        assert reader.refresh()
        assert set(reader.sample(100)["code"][:, 0].tolist()) == {20, 21, 22, 23}


@pytest.mark.parametrize("own", [True, False])
def test_draws_wait_for_a_load(own, folder):
    """Load in another thread; batches that are drawn ahead wait, too."""
    with TrajectoryReplayBuffer() as source:
        source.add_trajectories([simple(k, length=2) for k in range(100, 200)])
        source.save_checkpoint(folder / "saved")
    with TrajectoryReplayBuffer(folder / "own" if own else None, seed=0, cache_size=0) as buffer:
        buffer.add_trajectories([simple(k) for k in range(5)])
        stop, seen, errors = threading.Event(), set(), []

        def draw() -> None:
            try:
                while not stop.is_set():
                    seen.update(np.unique(buffer.sample(20)["code"][:, 0]).tolist())
                    assert buffer.get_stats()["num_trajectories"] in (5, 100)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=draw)
        with Prefetch(buffer, batch_size=10) as batches:
            thread.start()
            for _ in range(5):
                buffer.load_checkpoint(folder / "saved")
                next(batches)
            stop.set()
            thread.join()
        assert not errors
        assert seen & set(range(100, 200))


@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_an_interrupted_save_opens_as_the_old_one(first, folder):
    """Check that earlier files there are not taken for trajectories that were just added."""

    class Killed(BaseException):
        pass

    with watched() as system, TrajectoryReplayBuffer() as buffer:
        for k in range(10):
            buffer.add_trajectories([simple(k)])
            if k == 4 and not first:
                buffer.save_checkpoint(folder / "saved")
        links = iter(range(100))

        def before(name: str, args: tuple[object, ...]) -> None:
            if name == "rename" and str(args[0]).startswith(".tmp-trajectory") and next(links) == 3:
                raise Killed

        system.before = before
        with pytest.raises(Killed):
            buffer.save_checkpoint(folder / "saved")
        assert len(list((folder / "saved").glob("trajectory*"))) == 3 + 5 * (not first)
    with pytest.warns(match="deleted 3 files of an interrupted save"):
        again = TrajectoryReplayBuffer(folder / "saved")
    with again:
        assert len(again) == 5 * (not first)
        again.add_trajectories([simple(50)])
        again.sync()
        left = [name for name in os.listdir(folder / "saved") if name.startswith("trajectory")]
        assert len(left) == len(again)
    with TrajectoryReplayBuffer(folder / "saved") as once_more:  # what it adds from now on counts
        assert len(once_more) == 1 + 5 * (not first)


@pytest.mark.parametrize("how", ["convert", "pt", "merge", "split", "save"])
def test_copies_check_what_they_copy(how, folder):
    with TrajectoryReplayBuffer(folder / "own") as buffer:
        buffer.add_trajectories([simple(k) for k in range(3)])
        buffer.sync()
        file = sorted((folder / "own").glob("trajectory*"))[1]
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        jobs = {
            "convert": lambda: convert(folder / "own", folder / "copy"),
            "pt": lambda: convert(folder / "own", folder / "copy", "pt"),
            "merge": lambda: merge([folder / "own"], folder / "copy"),
            "split": lambda: split(folder / "own", 2, folder / "copy"),
            "save": lambda: buffer.save_checkpoint(folder / "copy"),
        }
        with pytest.raises(StorageError, match=r"does not match its checksum.*trajectory_000000000001"):
            jobs[how]()
    assert not list((folder / "copy").glob("*000000000001*"))
