"""What a name leads to: links, pipes and files of others; some come between one call to the system and the next."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from make_attacks import FILE, INDEX
from rollouts import simple
from system_calls import watched

from relive.errors import StorageError
from relive.trajectories import TrajectoryReplayBuffer, inspect
from relive.trajectories._files import Folder


@pytest.fixture
def good(folder: Path) -> Path:
    """A directory with three trajectories."""
    with TrajectoryReplayBuffer(folder / "good", seed=1) as buffer:
        buffer.add_trajectories([simple(k) for k in range(3)])
    return folder / "good"


@pytest.fixture
def outside(folder: Path) -> Iterator[Path]:
    """A file that is none of ours, and must stay as it is: its contents, and the names it has."""
    path = folder / "outside"
    path.write_bytes(b"secret")
    before = path.stat()
    yield path
    assert path.read_bytes() == b"secret"
    assert path.stat().st_mode == before.st_mode


def reader(path: Path, cache: int = 0) -> TrajectoryReplayBuffer:
    buffer = TrajectoryReplayBuffer(seed=0, sample_window_size=0, cache_size=cache)
    buffer.load_checkpoint(path)
    return buffer


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_only_regular_files_are_listed(folder: Path, outside: Path) -> None:
    made = folder / "made"
    made.mkdir()
    (made / "file").write_bytes(b"abc")
    (made / "link").symlink_to(outside)
    (made / "dangling").symlink_to(folder / "none")
    (made / "folder").mkdir()
    os.mkfifo(made / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(made / "socket"))
    assert Folder(made).sizes() == {"file": 3}


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_what_is_no_regular_file_is_neither_opened_nor_kept_open(kind: str, folder: Path, outside: Path) -> None:
    made = folder / "made"
    made.mkdir()
    if kind in ("link", "dangling"):
        (made / "x").symlink_to(outside if kind == "link" else folder / "none")
    else:
        os.mkfifo(made / "x") if kind == "pipe" else (made / "x").mkdir()
    source, target = Folder(made), Folder(folder / "target", create=True)
    before = open_files()
    for job in (lambda: source.open("x"), lambda: target.copy(source, "x")) * 5:
        with pytest.raises(StorageError):
            job()
    assert open_files() == before
    assert os.listdir(folder / "target") == []


def test_a_link_is_linked_as_one(folder: Path, outside: Path) -> None:
    """Not what it leads to, which would then have a name in the target."""
    made = folder / "made"
    made.mkdir()
    (made / "x").symlink_to(outside)
    Folder(folder / "target", create=True).link(Folder(made), "x", "x")
    assert outside.stat().st_nlink == 1


@pytest.mark.parametrize("put", [os.link, os.symlink])
def test_a_name_that_somebody_else_takes_first(put: Callable[[Path, Path], None], folder: Path, outside: Path) -> None:
    """Between the moment when a temporary name was freed and that when it is used."""
    with watched() as system:
        own = Folder(folder / "own", create=True)

        def before(name: str, args: tuple[Any, ...]) -> None:
            if name == "open" and args[0] == ".tmp-x":
                put(outside, folder / "own" / ".tmp-x")

        system.before = before
        with pytest.raises(StorageError, match="File exists"):
            own.write("x", [b"ours"])


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_sqlite_opens_regular_files_only(end: str, kind: str, good: Path, outside: Path) -> None:
    """Whoever reads, and whoever writes; nothing waits for the other end of a pipe."""
    at = good / (INDEX + end)
    at.unlink(missing_ok=True)
    if kind == "folder":
        at.mkdir()
    else:
        at.symlink_to(outside) if kind == "link" else os.mkfifo(at)
    for job in (lambda: inspect(good), lambda: TrajectoryReplayBuffer(good)):
        with pytest.raises(StorageError, match=r"no regular file|Is a directory|symbolic links"):
            job()


@pytest.mark.parametrize("name", [INDEX, "lock"])
def test_a_dangling_link_makes_no_file_elsewhere(name: str, folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "own" / name).symlink_to(folder / "canary")
    with pytest.raises(StorageError):
        TrajectoryReplayBuffer(folder / "own")
    assert not (folder / "canary").exists()


@pytest.mark.parametrize("what", ["gone", "cut", "other bytes", "pipe"])
@pytest.mark.parametrize("cache", [0, 9])
def test_what_is_refused_does_not_stay_open(what: str, cache: int, good: Path) -> None:
    buffer = reader(good, cache)
    at = good / FILE
    if what in ("gone", "pipe"):
        at.unlink()
    if what == "pipe":
        os.mkfifo(at)
    if what == "cut":
        os.truncate(at, 700)
    if what == "other bytes":
        at.write_bytes(at.read_bytes()[:-100] + bytes(100))
    before = open_files()
    for _ in range(5):
        with pytest.raises(StorageError):
            buffer.sample(500)
    assert open_files() == before


@pytest.mark.parametrize("call", range(1, 5))
def test_a_file_that_is_cut_while_it_is_read(call: int, good: Path) -> None:
    """After its size was looked at: rows that could not be read have the checksum of a table that could not, either."""
    buffer = reader(good)
    buffer.sample(50)
    with watched() as system, contextlib.closing(reader(good)) as buffer:
        calls = iter(range(1, 10**6))

        def before(name: str, args: tuple[Any, ...]) -> None:
            if name == "preadv" and next(calls) == 3 * call:
                for path in good.glob("trajectory*"):
                    os.truncate(path, 0)

        system.before = before
        with pytest.raises(StorageError):
            buffer.sample(50)


@pytest.mark.parametrize("cache", [0, 9])
def test_fields_that_the_index_calls_otherwise(cache: int, good: Path) -> None:
    """Row by row, and whole files that are kept in memory."""
    with contextlib.closing(sqlite3.connect(good / INDEX)) as db, db:
        db.execute("UPDATE layouts SET columns = replace(columns, 'rewards', 'rewardr')")
    with pytest.raises(StorageError, match=r"as the index knows it|the fields that the index names"):
        reader(good, cache).sample(50)
