"""Checkpoints, and directories that others write to, load into, interrupt, or damage: all is in them, little twice."""

from __future__ import annotations

import errno
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from depth import some
from made import MODES, codes, files, filled, loaded, opened, saved
from oracle_trajectories import Oracle, assert_rows
from rollouts import simple
from system_calls import open_files, watched

import relive
from relive.errors import ReliveWarning, StorageError
from relive.trajectories import TrajectoryReplayBuffer, _source, convert, merge, split, verify

both_layouts = pytest.mark.parametrize("kind", ["safetensors", "pt"])
every_mode = pytest.mark.parametrize("mode", MODES)


def inodes(path: Path) -> dict[int, int]:
    """Return the bytes of every file, by inode."""
    return {entry.stat().st_ino: entry.stat().st_size for entry in os.scandir(path)}


@pytest.mark.parametrize(
    ("generator", "kind"), some(product(["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"], ["safetensors", "pt"]), 6)
)
def test_every_generator_of_numpys_goes_on(generator, kind, folder):
    """Load also into a buffer that has drawn already, from other trajectories and with another window's sums."""
    given = np.random.Generator(getattr(np.random, generator)(5))
    with (
        filled(None, range(3), seed=given, trajectory_format=kind) as run,
        TrajectoryReplayBuffer(seed=0, trajectory_format=kind) as between,
    ):
        run.sample(7)
        run.save_checkpoint(folder / "saved")
        between.load_checkpoint(folder / "saved")
        between.save_checkpoint(folder / "again")  # without a draw of its own
        resumed = filled(folder / "own", (77, 78), seed=9, sample_window_size=1, enable_cache=False)
        resumed.sample(3)
        resumed.sample_window_size = 0
        resumed.load_checkpoint(folder / "again")
        assert resumed.sample(50)["code"].tobytes() == run.sample(50)["code"].tobytes()


@every_mode
def test_a_second_save_writes_little(mode, folder):
    """Check that after 1 % of new trajectories at most 3 % of the bytes are written, by inode and by call."""
    with opened(mode, folder / "own") as buffer:
        buffer.add_trajectories([simple(k, length=40, cells=60) for k in range(100)])
        buffer.save_checkpoint(folder / "saved")
        before = inodes(folder / "saved")
        buffer.add_trajectories([simple(100, length=40, cells=60)])
        buffer.sync()
        with watched() as system:
            buffer.save_checkpoint(folder / "saved")
        after = inodes(folder / "saved")
        index = (folder / "saved" / "index.sqlite").stat().st_size
        new = sum(size for inode, size in after.items() if inode not in before)
        total = sum(after.values())
        assert total > 100 * 40 * 2 * 60 * 4
        assert index + system.moved("write") <= new + index <= 0.03 * total
        assert (system.moved("write") == 0) == (mode != "memory"), "files of a directory are linked"
        assert len(files(folder / "saved")) == 101


def test_a_save_to_another_device_copies_once(folder):
    with watched() as system, opened("disk", folder / "own") as buffer:
        system.decide = lambda name, number: errno.EXDEV if name == "link" else None
        buffer.add_trajectories([simple(k) for k in range(50)])
        buffer.save_checkpoint(folder / "saved")
        buffer.add_trajectories([simple(50)])
        buffer.sync()
        system.reset()
        buffer.save_checkpoint(folder / "saved")
        assert system.moved("write") == files(folder / "saved")[0].stat().st_size
    assert codes(folder / "saved", 2000) == set(range(51))


@pytest.mark.parametrize("cut", [None, 100])
def test_a_checkpoint_is_mended_by_the_next_save(cut, folder):
    """Check that a file of the earlier checkpoint that is gone, or cut short, is written anew."""
    with opened("memory", folder, range(4)) as buffer:
        buffer.save_checkpoint(folder / "saved")
        file = files(folder / "saved")[2]
        file.unlink() if cut is None else os.truncate(file, cut)
        with pytest.raises(StorageError, match="trajectory_000000000002"):
            loaded(folder / "saved")
        buffer.save_checkpoint(folder / "saved")
    assert codes(folder / "saved") == {0, 1, 2, 3}


@both_layouts
def test_a_save_over_another_buffers_checkpoint_is_refused(kind, folder):
    saved(folder / "saved", (1, 2), seed=1, trajectory_format=kind)
    with opened("memory", folder, (3, 4), seed=2, trajectory_format=kind) as other:
        before = {path.name: path.read_bytes() for path in (folder / "saved").iterdir()}
        with pytest.raises(StorageError, match="another buffer's"):
            other.save_checkpoint(folder / "saved")
        assert {path.name: path.read_bytes() for path in (folder / "saved").iterdir()} == before
        other.load_checkpoint(folder / "saved")
        assert codes(other) == {1, 2}


@both_layouts
def test_a_directory_of_a_replay_buffers_saves_is_refused(kind, folder):
    """Check as a save and as a buffer's own, and that nothing is left there, or that buffer could not save."""
    other = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 9)
    other.save(folder / "saves")
    before = sorted(os.listdir(folder / "saves"))
    with opened("memory", folder, [1], trajectory_format=kind) as buffer:
        for call in (buffer.save_checkpoint, TrajectoryReplayBuffer):
            with pytest.raises(StorageError, match="got a `ReplayBuffer`'s saves"):
                call(folder / "saves")
        assert sorted(os.listdir(folder / "saves")) == before
        buffer.save_checkpoint(folder / "saved")
    assert other.save(folder / "saves").number == 2


def test_a_journal_left_behind_does_not_come_back(folder):
    """Check that a killed buffer's journal in a checkpoint is not replayed over the next save."""
    names = [folder / "saved" / f"index.sqlite{end}" for end in ("", "-wal")]
    with opened("memory", folder, [0]) as buffer:
        buffer.save_checkpoint(folder / "saved")
        with filled(folder / "saved", (50, 51)):
            kept = [name.read_bytes() for name in names]
        assert all(kept)
        for name, data in zip(names, kept, strict=True):
            name.write_bytes(data)
        buffer.save_checkpoint(folder / "saved")
    with loaded(folder / "saved") as found:
        assert codes(found) == {0}
        assert found.get_stats()["trajectory_counter"] == 1


@both_layouts
def test_loading_over_a_directory_that_is_in_use(kind, folder):
    """Check that none of the new files is deleted with old ones of the same name."""
    saved(folder / "saved", range(100, 105), trajectory_format=kind)
    with opened("disk", folder / "own") as buffer:
        for _ in range(5):
            buffer.add_trajectories([simple(k) for k in range(8)])
            buffer.load_checkpoint(folder / "saved")
            assert codes(buffer) == set(range(100, 105))
    with opened("disk", folder / "own") as again:
        assert codes(again) == set(range(100, 105))
        assert again.get_stats()["trajectory_counter"] == 5
        assert len(files(folder / "own")) == 5


def test_loading_the_directory_that_is_open(folder):
    """Check that it stays the same; only a share of itself would have to delete the rest."""
    with opened("disk", folder / "own", range(5)) as buffer:
        buffer.save_checkpoint(folder / "own")
        expected = buffer.sample(50)["code"].tobytes()
        buffer.load_checkpoint(folder / "own")
        assert buffer.sample(50)["code"].tobytes() == expected
        with pytest.raises(StorageError, match="another directory"):
            buffer.load_checkpoint(folder / "own", is_distributed=True, local_rank=0, world_size=2)
        assert len(buffer) == 5


@both_layouts
def test_a_refused_load_changes_nothing(kind, folder):
    file = files(saved(folder / "saved", range(3), trajectory_format=kind))[1]
    os.truncate(file, file.stat().st_size - 50)
    for mode in ["disk"] if kind == "pt" else MODES:  # in memory, RLinf's files are read when they are drawn from
        with opened(mode, folder / mode, range(10, 14)) as buffer:
            before, names = open_files(), os.listdir(folder / mode) if buffer.path else []
            for _ in range(5):
                with pytest.raises(StorageError, match=file.name):
                    buffer.load_checkpoint(folder / "saved")
            assert open_files() <= before, "no directory stays open"
            assert not buffer.path or sorted(os.listdir(folder / mode)) == sorted(names)
            oracle = Oracle(np.random.default_rng(1), 100)
            oracle.add([simple(k) for k in range(10, 14)])
            assert_rows(buffer.sample(40), oracle.draw(40))


def test_a_directory_that_was_left_behind_is_put_in_order(folder):
    """Check that unfinished files are deleted, finished ones taken in, and removed trajectories do not return."""
    with filled(folder, range(6)):
        data = [file.read_bytes() for file in files(folder)]
    TrajectoryReplayBuffer(folder, max_trajectories=4).close()
    (folder / "trajectory_000000000001.safetensors").write_bytes(data[1])  # removed, but its file was still there
    (folder / "trajectory_000000000006.safetensors").write_bytes(data[3])  # written, but not in the index yet
    (folder / "trajectory_000000000007.safetensors").write_bytes(data[3][:200])
    (folder / ".tmp-trajectory_000000000008.safetensors").write_bytes(data[3][:300])
    os.truncate(folder / "trajectory_000000000005.safetensors", 100)
    with pytest.warns(ReliveWarning) as told:
        buffer = TrajectoryReplayBuffer(folder, seed=0)
    with buffer:
        assert codes(buffer) == {2, 3, 4}
        assert len(buffer) == 4
        buffer.add_trajectories([simple(9)])
        buffer.sync()
        assert codes(buffer) == {2, 3, 4, 9}
    text = str(told[0].message)
    for part in ("indexed 1 complete", "deleted 1 partial", "deleted 1 file of removed", "left out 1 trajectory"):
        assert part in text
    with pytest.warns(ReliveWarning, match="left out 1 trajectory"):
        TrajectoryReplayBuffer(folder).close()


def test_a_refused_save_lets_go(folder):
    """Check that the files it held can be deleted, and that the next load does not wait."""
    with opened("disk", folder / "own", range(2), max_trajectories=2) as buffer:
        (folder / "file").touch()
        with pytest.raises(StorageError):
            buffer.save_checkpoint(folder / "file")
        buffer.add_trajectories([simple(k) for k in range(2, 4)])
        buffer.sync()
        assert len(files(folder / "own")) == 2


@pytest.mark.parametrize(("cache", "draws"), [(0, 0), (9, 0), (0, 20)])
def test_files_that_were_exchanged_are_noticed(cache, draws, folder, monkeypatch):
    """Exchange a file for another trajectory's of the same size; also after it was read."""
    monkeypatch.setattr(_source, "kept_open", lambda: 1)
    with TrajectoryReplayBuffer(folder) as buffer:
        buffer.add_trajectories([simple(k, length=3, cells=700) for k in range(3)])
    drawn = TrajectoryReplayBuffer(folder, seed=0, cache_size=cache)
    for _ in range(draws):
        drawn.sample(100)
    one, _, other = files(folder)
    one.rename(folder / "aside")
    other.rename(one)
    (folder / "aside").rename(other)
    told = pytest.raises(StorageError, match=r"`trajectory_[02]` does not match its index .*trajectory_00000000000[02]")
    with drawn, told:
        drawn.sample(100)
    assert [name for name, _ in verify(folder)] == [one.name, other.name]


def test_many_fields(folder):
    """Check more than the system reads into by one call."""
    given = {f"f{k}": np.full((2, 1), k, np.int16) for k in range(1100)}
    with TrajectoryReplayBuffer(folder) as buffer:
        buffer.add_trajectories([given])
    for cache in (0, 9):
        with TrajectoryReplayBuffer(folder, cache_size=cache) as buffer:
            batch = buffer.sample(3)
            assert all((batch[name] == array[0]).all() for name, array in given.items())


@pytest.mark.parametrize(
    ("options", "at"),
    [
        ({"model_weights_id": "x" * 41}, "model_weights_id"),
        ({"model_weights_id": "a" + "é" * 20}, "model_weights_id"),
        ({"model_weights_id": "a\0"}, "model_weights_id"),
        ({"model_weights_id": "\ud800"}, "model_weights_id"),
        ({"max_episode_length": 2**31}, "max_episode_length"),
        ({"fields": {"x" * 600_000: np.zeros((5, 2))}}, "trajectories"),
        ({"fields": {"x": np.zeros((5, 2) + (1,) * 31)}}, "trajectories"),
    ],
)
def test_what_could_not_be_read_again_is_not_taken(options, at, folder):
    for path in (None, folder / "own"):
        with TrajectoryReplayBuffer(path) as buffer:
            with pytest.raises(ValueError, match=at):
                buffer.add_trajectories([{**simple(1), **options.get("fields", options)}])
            assert len(buffer) == 0
            buffer.add_trajectories([{**simple(1), "model_weights_id": "é" * 20, "max_episode_length": 2**31 - 1}])
            buffer.save_checkpoint(folder / "saved")


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
