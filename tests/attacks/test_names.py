"""What a name leads to: links, pipes and files of others; some come between one call to the system and the next."""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from make_attacks import FILE, INDEX, special, sql
from rollouts import simple
from system_calls import open_files, watched

from relive._disk.files import Folder
from relive.errors import ReliveWarning, StorageError
from relive.trajectories import TrajectoryReplayBuffer, inspect

KINDS = ["link", "dangling", "pipe", "folder", "socket"]


def reader(path: Path, cache: int = 0) -> TrajectoryReplayBuffer:
    buffer = TrajectoryReplayBuffer(seed=0, sample_window_size=0, cache_size=cache)
    buffer.load_checkpoint(path)
    return buffer


def test_only_regular_files_are_listed(folder: Path, outside: Path) -> None:
    made = folder / "made"
    made.mkdir()
    (made / "file").write_bytes(b"abc")
    for what in KINDS:
        special(what, what)(made)
    assert Folder(made).sizes() == {"file": 3}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_neither_opened_nor_kept_open(kind: str, folder: Path, outside: Path) -> None:
    made = folder / "made"
    made.mkdir()
    special("x", kind)(made)
    source, target = Folder(made), Folder(folder / "target", create=True)
    before = open_files()
    for job in (lambda: source.open("x"), lambda: target.copy(source, "x")) * 5:
        with pytest.raises(StorageError):
            job()
    assert open_files() <= before
    assert os.listdir(folder / "target") == []


def test_a_link_is_linked_as_one(folder: Path, outside: Path) -> None:
    """Check that its target gets no name in the new directory."""
    made = folder / "made"
    made.mkdir()
    (made / "x").symlink_to(outside)
    Folder(folder / "target", create=True).link(Folder(made), "x", "x")
    assert outside.stat().st_nlink == 1


@pytest.mark.parametrize("put", [os.link, os.symlink])
def test_a_name_that_somebody_else_takes_first(put: Callable[[Path, Path], None], folder: Path, outside: Path) -> None:
    """Take the name between the moments when it was freed and when it is used."""
    with watched() as system:
        own = Folder(folder / "own", create=True)

        def before(name: str, args: tuple[Any, ...]) -> None:
            if name == "open" and args[0] == ".tmp-x":
                put(outside, folder / "own" / ".tmp-x")

        system.before = before
        with pytest.raises(StorageError, match="File exists"):
            own.write("x", [b"ours"])


def test_one_writes_to_a_directory(good: Path) -> None:
    with TrajectoryReplayBuffer(good), TrajectoryReplayBuffer() as other:
        for job in (lambda: TrajectoryReplayBuffer(good), lambda: other.save_checkpoint(good)):
            with pytest.raises(StorageError, match="Could not lock the directory"):
                job()


def test_a_load_into_a_directory_is_durable(good: Path, folder: Path) -> None:
    """Check that every name is synced: those until the index knows the files, and those afterwards."""
    with watched() as system, TrajectoryReplayBuffer(folder / "own") as buffer:
        buffer.load_checkpoint(good)
        told = [name for name, args, _ in system.trace if name in ("link", "rename") or (name == "fsync" and args[1])]
    assert [name for name, _ in itertools.groupby(told)][-4:] == ["link", "fsync", "rename", "fsync"]


@pytest.mark.parametrize("half", [False, True])
def test_a_wrong_index_deletes_no_trajectory(half: bool, good: Path) -> None:
    """Check that a file missing in the index is only deleted as removed if the index is right; also in half a load."""
    sql("UPDATE trajectories SET id = 2000 WHERE place = 2")(good)
    if half:
        sql("INSERT OR REPLACE INTO facts VALUES ('half_loaded', '1')")(good)
    with pytest.warns(ReliveWarning, match="left out 1 trajectory"), TrajectoryReplayBuffer(good) as buffer:
        assert len(buffer) == 2
    assert (good / FILE).exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_sqlite_opens_regular_files_only(end: str, kind: str, good: Path, outside: Path) -> None:
    """Check readers and writers; none waits for the other end of a pipe."""
    (good / (INDEX + end)).unlink(missing_ok=True)
    special(INDEX + end, kind)(good)
    for job in (lambda: inspect(good), lambda: TrajectoryReplayBuffer(good)):
        with pytest.raises(StorageError, match=r"not a regular file|Is a directory|symbolic links"):
            job()


@pytest.mark.parametrize("name", [INDEX, "lock"])
def test_a_dangling_link_makes_no_file_elsewhere(name: str, folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "own" / name).symlink_to(folder / "canary")
    with pytest.raises(StorageError):
        TrajectoryReplayBuffer(folder / "own")
    assert not (folder / "canary").exists()


@pytest.mark.parametrize("what", ["gone", "cut", "longer", "a bit", "other bytes", *KINDS])
@pytest.mark.parametrize("cache", [0, 9])
def test_what_is_refused_does_not_stay_open(what: str, cache: int, good: Path) -> None:
    buffer = reader(good, cache)
    at, data = good / FILE, bytearray((good / FILE).read_bytes())
    data[int.from_bytes(data[:8], "little") + 8] ^= what == "a bit"  # of the first row
    changed = {"cut": data[:700], "longer": data + b"x", "a bit": data, "other bytes": data[:-100] + bytes(100)}
    if what in KINDS:
        special(FILE, what)(good)
    elif what == "gone":
        at.unlink()
    else:
        at.write_bytes(changed[what])
    before = open_files()
    for _ in range(5):
        with pytest.raises(StorageError):
            buffer.sample(500)
    assert open_files() <= before


@pytest.mark.parametrize(("call", "cache"), [*((call, 0) for call in (1, 3, 4, 5, 60, 160)), (1, 9)])
def test_a_file_that_is_cut_while_it_is_read(call: int, cache: int, good: Path) -> None:
    """Cut a file after its size was read: unreadable rows match the checksum of an unreadable table."""
    with watched() as system, contextlib.closing(reader(good, cache)) as buffer:
        calls = itertools.count(1)

        def before(name: str, args: tuple[Any, ...]) -> None:
            if name == "preadv" and next(calls) == call:
                for path in good.glob("trajectory*"):
                    os.truncate(path, 900 if cache else 0)

        system.before = before
        with pytest.raises(StorageError, match="ends before" if cache else None):
            buffer.sample(50)


@pytest.mark.parametrize(("id_", "byte", "kept"), [(9, None, 4), (9, -1, 3), (9, -9, 3), (2**53, None, 3)])
def test_what_is_taken_in_can_be_read_again(id_: int, byte: int | None, kept: int, good: Path) -> None:
    """Check a file missing in the index: table and checksum must be whole, and its number within the index's range."""
    data = bytearray((good / FILE).read_bytes())
    if byte is not None:
        data[byte] ^= 1
    (good / f"trajectory_{id_:012d}.safetensors").write_bytes(data)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReliveWarning)
            buffer = TrajectoryReplayBuffer(good)
        with buffer:
            assert len(buffer) == kept


def test_what_a_save_removed_does_not_come_back(folder: Path) -> None:
    """Check that a checkpoint, by the range of its ids, recognises an older file that is left in it."""
    with TrajectoryReplayBuffer(max_trajectories=2) as buffer:
        buffer.add_trajectories([simple(k) for k in range(2)])
        buffer.save_checkpoint(folder / "saved")
        data = (folder / "saved" / FILE).read_bytes()
        buffer.add_trajectories([simple(k) for k in range(2, 4)])
        buffer.save_checkpoint(folder / "saved")
    (folder / "saved" / FILE).write_bytes(data)
    with (
        pytest.warns(ReliveWarning, match="deleted 1 file of removed"),
        TrajectoryReplayBuffer(folder / "saved") as buffer,
    ):
        assert len(buffer) == 2


@pytest.mark.parametrize("cache", [0, 9])
def test_fields_that_the_index_calls_otherwise(cache: int, good: Path) -> None:
    """Check row by row, and with whole files that are kept in memory."""
    sql("UPDATE layouts SET columns = replace(columns, 'rewards', 'rewardr')")(good)
    with pytest.raises(StorageError, match="has other fields"):
        reader(good, cache).sample(50)
