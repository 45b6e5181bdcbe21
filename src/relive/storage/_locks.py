"""Locks that end with the process that holds them."""

from __future__ import annotations

import contextlib
import os
import struct

from .._base import forks
from ..errors import StorageError, message

with contextlib.suppress(ImportError):  # where there is none, none of these locks is taken
    import fcntl

_RECORD = "hhqqi4x"  # struct flock


class FileLocks:
    """Locks on single bytes of a file, whatever these bytes hold: one holder each, in any process.

    The kernel gives them back when their holder closes the file or dies, by whatever death, in whatever container.
    They are those of an open file (`F_OFD_SETLK`), so that two holders of one process exclude each other as well. A
    forked child has none: it would keep those of a parent that dies.
    """

    def __init__(self, path: str, mapped: int) -> None:
        """Open `path`, which has to be the file that the descriptor `mapped` has open."""
        self._path, self._file = path, _identity(mapped)
        self._fd = -1
        forks.tell(self)

    def take(self, byte: int) -> bool:
        """Take a lock; False where another process has it."""
        try:
            self._call(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, byte)
        except BlockingIOError:
            return False
        return True

    def drop(self, byte: int) -> None:
        """Give a lock back."""
        if self._fd >= 0:
            self._call(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)

    def taken(self, byte: int) -> bool:
        """Return True if another process holds the lock."""
        kind, *_ = struct.unpack(_RECORD, self._call(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte))
        return bool(kind != fcntl.F_UNLCK)

    def close(self) -> None:
        """Give all locks back."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _call(self, command: int, kind: int, byte: int) -> bytes:
        if self._fd < 0:
            self._fd = self._opened()
        return fcntl.fcntl(self._fd, command, struct.pack(_RECORD, kind, os.SEEK_SET, byte, 1, 0))

    def _opened(self) -> int:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise StorageError(message("the buffer's file", f"`{error.strerror}`", self._path)) from error
        if _identity(fd) != self._file:
            os.close(fd)
            raise StorageError(message("the buffer's file", "another one under its name", self._path))
        return fd

    def _forked(self) -> None:
        """Close in a child, which has none of the locks."""
        self.close()


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino
