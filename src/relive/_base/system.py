"""What systems do differently: Linux, macOS, Windows, and a browser. The rest of the package asks here.

Only Linux has all of it. What another one lacks is done in another way, or left out where nothing is lost but speed or
a safeguard; `require_linux` refuses the rest.
"""

from __future__ import annotations

import contextlib
import os
import sys
from _thread import allocate_lock  # `threading` takes long to import
from collections.abc import Sequence

from ..errors import ArgumentError, message

if sys.platform == "win32":
    import msvcrt
else:
    with contextlib.suppress(ImportError):  # not in a browser
        import fcntl
        import resource

LINUX = sys.platform == "linux"
WINDOWS = sys.platform == "win32"
DIRECTORIES_OPEN = {os.open, os.stat, os.unlink} <= os.supports_dir_fd and os.scandir in os.supports_fd
"""Whether a directory can be opened, so that it can be synced, and names can be relative to it."""
DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""For `os.open`: bytes as they are, no symbolic link, not open in programs that this process starts."""
AT_ONCE = getattr(os, "O_NONBLOCK", 0)
"""For `os.open`: whatever it is, a pipe too, opening it does not wait."""
_seeking = allocate_lock()


def require_linux(at: str) -> None:
    """Refuse what processes share, which needs locks and files that only Linux has.

    Raises:
        ArgumentError: This is another system.
    """
    if not LINUX:
        raise ArgumentError(message("Linux", f"`{sys.platform}`", at, "keep the steps in `relive.Ram()`"))


def sync(fd: int) -> None:
    """Write an open file, or a directory, to the disk."""
    if sys.platform == "darwin":
        with contextlib.suppress(OSError):  # a file system that cannot empty the disk's own cache
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def lock(fd: int) -> None:
    """Keep other processes from locking an open file until this one unlocks or closes it.

    Raises:
        OSError: Another one has it.
    """
    if sys.platform == "win32":
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    elif sys.platform != "emscripten":  # where there is one process
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(fd: int) -> None:
    """End a lock, though a child may have the file open still: closing it would not."""
    if sys.platform not in ("win32", "emscripten"):
        fcntl.flock(fd, fcntl.LOCK_UN)


def rename(old: str, new: str, within: int | None) -> None:
    """Rename a file, replacing any file of the new name; names are relative to the open directory `within`."""
    (os.replace if WINDOWS else os.rename)(old, new, src_dir_fd=within, dst_dir_fd=within)


def has_hole(fd: int, first: int, last: int) -> bool:
    """Return True if a page within `[first, last)` of an open file was never written, as far as the system tells."""
    return hasattr(os, "SEEK_HOLE") and os.lseek(fd, first, os.SEEK_HOLE) < last


def most_open_files() -> int:
    """Return the number of files that this process may have open."""
    if sys.platform in ("win32", "emscripten"):
        return 512
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if limit == resource.RLIM_INFINITY else limit


def read_into(fd: int, targets: Sequence[memoryview], offset: int) -> int:
    """Fill `targets` one after the other from a place in an open file, or some of them; returns how many bytes."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, targets, offset)
    data = read_at(fd, len(targets[0]), offset)
    targets[0][: len(data)] = data
    return len(data)


def read_at(fd: int, count: int, offset: int) -> bytes:
    """Read at most `count` bytes from a place in an open file."""
    if hasattr(os, "pread"):
        return os.pread(fd, count, offset)
    with _seeking:  # the file has one position for all threads
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, count)
