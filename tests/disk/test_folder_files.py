"""Files that take the place of others, and for which room is found first; what of them is damage, and what is not."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive._disk.checking import Check, failures
from relive._disk.files import Folder, reported
from relive._disk.replacing import replacing
from relive.errors import CorruptionError, StorageError

MEMORY = "/dev/shm"


def kind_of(path: str) -> str:
    """Return the file system of a path, by the longest mount point above it."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [(len(words[1]), words[2]) for words in mounts if Path(words[1]) in (Path(path), *Path(path).parents)]
    return max(above)[1]


@pytest.mark.skipif(not os.path.ismount(MEMORY), reason="no file system in memory")
@pytest.mark.parametrize("folder", [MEMORY, "/var/tmp"])
def test_room_is_reserved_on_disks(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = []
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, first, count: reserved.append(count))
    with tempfile.TemporaryDirectory(dir=folder) as path:
        with_files = Folder(path)
        with_files.write("small", [bytes(10)], 10)
        with_files.write("large", [bytes(2 << 20)], 2 << 20)
        with_files.close()
    assert reserved == ([] if kind_of(path) == "tmpfs" else [2 << 20])


def test_a_file_is_synced_before_it_takes_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def call(*given: Any, name: str = name, real: Any = real) -> None:
            calls.append(name)
            real(*given)

        monkeypatch.setattr(os, name, call)
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(str(path)) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert calls[:2] == ["fsync", "replace"]
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    with pytest.raises(KeyboardInterrupt), replacing(str(path)) as file:  # noqa: PT012
        file.write(b"new")
        raise KeyboardInterrupt
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]


def failing(code: int) -> list[str]:
    with reported("x", "read the file"):
        raise OSError(code, os.strerror(code))


def places() -> Iterator[str]:
    yield "one place"
    raise CorruptionError("and the rest")


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EIO, errno.ELOOP])
def test_every_file_is_checked(code: int) -> None:
    done: list[tuple[int, int]] = []
    checks = [Check("a", lambda: failing(code)), Check("b", list), Check("c", places)]
    found = list(failures(checks, lambda *at: done.append(at)))
    reason = f"Could not read the file ({os.strerror(code)}) - at `x`"
    assert found == [("a", reason), ("c", "one place"), ("c", "and the rest")]
    assert done == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.ENOSPC])
def test_a_file_is_not_damaged_because_a_process_may_not_read_it(code: int) -> None:
    with pytest.raises(StorageError, match="Could not read the file"):
        list(failures([Check("a", lambda: failing(code))]))
