"""Room for a large file is found before it is written, but not where there is none to be found."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from relive._disk.files import Folder

MEMORY = "/dev/shm"


def kind_of(path: str) -> str:
    """Return the file system of a path, by the longest mount point above it."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [(len(words[1]), words[2]) for words in mounts if Path(words[1]) in (Path(path), *Path(path).parents)]
    return max(above)[1]


@pytest.mark.skipif(not os.path.ismount(MEMORY), reason="no file system in memory")
@pytest.mark.parametrize("folder", [MEMORY, tempfile.gettempdir()])
def test_room_is_reserved_on_disks(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = []
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, first, count: reserved.append(count))
    with tempfile.TemporaryDirectory(dir=folder) as path:
        with_files = Folder(path)
        with_files.write("small", [bytes(10)], 10)
        with_files.write("large", [bytes(2 << 20)], 2 << 20)
        with_files.close()
    assert reserved == ([] if kind_of(path) == "tmpfs" else [2 << 20])
