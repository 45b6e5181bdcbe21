"""Directories that others write to, load into, interrupt, or damage."""

from __future__ import annotations

import pytest
from made import codes, files, filled, loaded, saved
from rollouts import simple
from system_calls import watched

from relive.errors import StorageError
from relive.trajectories import TrajectoryReplayBuffer, convert, merge, split


def test_a_reader_follows_a_directory_that_is_written_to(folder):
    """Check that it follows by itself if a file is gone, and by `refresh` if there are new ones."""
    with filled(folder, range(5), max_trajectories=5) as writer, loaded(folder, seed=0) as reader:
        assert not reader.refresh()
        seen = set(range(5))
        for k in range(5, 25):
            writer.add_trajectories([simple(k)])
            writer.sync()
            if k % 4 == 0:
                assert reader.refresh()
                assert reader._store.index.records["id"].tolist() == list(range(k - 4, k + 1))
            drawn = codes(reader, 30)
            assert drawn <= set(range(k - 8, k + 1))
            seen |= drawn
        assert len(seen) > 15
        reader.add_trajectories([simple(99)])
        assert not reader.refresh(), "it has something of its own"
        assert not writer.refresh()


def test_a_reader_follows_a_load(folder):
    """Load new files with the names of the old ones, and other contents."""
    saved(folder / "saved", range(20, 24))
    with filled(folder / "own", range(4)) as writer, loaded(folder / "own", seed=0, cache_size=0) as reader:
        reader.sample(50)
        writer.load_checkpoint(folder / "saved")
        assert reader.refresh()
        assert codes(reader, 100) == {20, 21, 22, 23}


@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_an_interrupted_save_opens_as_the_old_one(first, folder):
    """Check that earlier files there are not taken for trajectories that were just added."""

    with watched() as system, TrajectoryReplayBuffer() as buffer:
        for k in range(10):
            buffer.add_trajectories([simple(k)])
            if k == 4 and not first:
                buffer.save_checkpoint(folder / "saved")
        links = iter(range(100))

        def before(name: str, args: tuple[object, ...]) -> None:
            if name == "rename" and str(args[0]).startswith(".tmp-trajectory") and next(links) == 3:
                raise KeyboardInterrupt

        system.before = before
        with pytest.raises(KeyboardInterrupt):
            buffer.save_checkpoint(folder / "saved")
        assert len(files(folder / "saved")) == 3 + 5 * (not first)
    with pytest.warns(match="deleted 3 files of an interrupted save"):
        again = TrajectoryReplayBuffer(folder / "saved")
    with again:
        assert len(again) == 5 * (not first)
        again.add_trajectories([simple(50)])
        again.sync()
        assert len(files(folder / "saved")) == len(again)
    with TrajectoryReplayBuffer(folder / "saved") as once_more:  # what it adds from now on counts
        assert len(once_more) == 1 + 5 * (not first)


@pytest.mark.parametrize("how", ["convert", "pt", "merge", "split", "save"])
def test_copies_check_what_they_copy(how, folder):
    with filled(folder / "own", range(3)) as buffer:
        file = files(folder / "own")[1]
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
