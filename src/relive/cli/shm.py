"""`relive shm`: the buffers in shared memory of this machine. It needs no package: programs are killed anywhere."""

from __future__ import annotations

import os
import sys
import time

from relive.cli.terminal import columns
from relive.errors import StorageError
from relive.storage._segment import CREATOR, Segment
from relive.storage.shared import FOLDER, PREFIX, segments


def list_segments() -> int:
    """List the shared buffers of this machine: name, bytes, owner, and whether their process lives.

    Example: relive shm list
    """
    rows = [("name", "bytes", "user", "state")]
    for path in segments():
        found = os.stat(path, follow_symlinks=False)
        name = path.removeprefix(f"{FOLDER}/{PREFIX}")
        rows.append((name, f"{found.st_size:,}", str(found.st_uid), _state(path)))
    sys.stdout.write(columns(rows, "<>><") + "\n")
    return 0


def clean() -> int:
    """Remove shared buffers whose process is gone, however it ended; those that are in use stay.

    Example: relive shm clean
    """
    for path in segments():
        if _state(path) in (_LEFT, _UNFINISHED):
            os.unlink(path)
            sys.stdout.write(f"removed {path}\n")
    return 0


_IN_USE, _LEFT, _UNFINISHED, _FOREIGN = "in use", "left behind", "never finished", "another user's"


def _state(path: str) -> str:
    try:
        if os.stat(path, follow_symlinks=False).st_uid != os.geteuid():
            return _FOREIGN
        segment = Segment.attach(path, "")
    except StorageError:
        age = time.time() - os.stat(path, follow_symlinks=False).st_mtime
        return _UNFINISHED if age > 60 else _IN_USE  # a process may be making it now
    return _IN_USE if segment.locks.taken(CREATOR) else _LEFT
