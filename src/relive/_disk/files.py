"""Every system call on the files of a directory that relive writes: trajectories, or saves of a buffer.

Names are relative to an open directory, and symbolic links are never followed, on systems that have both. New files are
written under a temporary name, synced and renamed; only their owner can read them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from .._base import check, forks, system
from .._base.system import AT_ONCE, PLAIN
from ..errors import MissingSave, StorageError, event, message

TEMPORARY = ".tmp-"
_MODE = 0o600
_SYNCS = 32  # at the same time
_WORTH_RESERVING = 1 << 20  # bytes
_MOST_TARGETS = 1024  # buffers per `preadv`, on Linux


class Folder:
    """An open directory."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = os.path.abspath(check.path(path, "$.path"))
        try:
            if create:
                _make(self.path)
            self._fd = _opened(self.path)
        except OSError as error:
            got = {errno.ENOENT: "none", errno.ENOTDIR: "a file"}.get(error.errno or 0, f"`{error.strerror}`")
            missing = MissingSave if error.errno == errno.ENOENT else StorageError
            raise missing(message("a directory", got, self.path)) from error
        self._lock: int | None = None

    def lock(self, remedy: str, name: str = "lock") -> None:
        """Become the only writer of the directory, until `close` or the end of the process; `remedy`: if it has one.

        A forked child neither holds the lock nor keeps it from other processes.
        """
        try:
            self._lock = self._open(name, os.O_RDWR | os.O_CREAT | AT_ONCE)
            system.lock(self._lock)
        except OSError as error:
            what = f"Could not lock the directory ({error.strerror})"
            raise StorageError(event(what, self.path, remedy)) from error
        forks.tell(self)

    def locked(self, name: str) -> bool:
        """Tell if an open folder, of this process or another one, has the lock of that name."""
        try:
            fd = self._open(name, os.O_RDWR | AT_ONCE)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            system.lock(fd)
        except OSError:
            return True
        finally:
            let_go(fd)
        return False

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.close()

    def close(self) -> None:
        """Close the directory and release its lock."""
        if self._lock is not None:
            with contextlib.suppress(OSError):  # closing is not enough while a child has it, which C code may fork
                system.unlock(self._lock)
            forks.forget(self)
        self._close()

    def _forked(self) -> None:
        """Close the files in a child without releasing its parent's locks."""
        self._close()

    def _close(self) -> None:
        for fd in (self._lock, self._fd):
            if fd is not None and fd >= 0:
                let_go(fd)
        self._lock, self._fd = None, -1 if system.DIRECTORIES_OPEN else None

    def _at(self, name: str) -> str:
        """Return the name that calls take: relative to the open directory, or else with its path."""
        return os.path.join(self.path, name) if self._fd is None else name

    def _open(self, name: str, flags: int) -> int:
        return os.open(self._at(name), flags | PLAIN, _MODE, dir_fd=self._fd)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all regular files, by name."""
        found = {}
        with reported(self.path, "list the directory"):
            with os.scandir(self.path if self._fd is None else self._fd) as listed:
                entries = list(listed)
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:  # deleted meanwhile by another process
                    continue
        return found

    def size(self, name: str) -> int | None:
        """Return the size of a regular file, or None if there is none of this name."""
        with reported(f"{self.path}/{name}", "look at the file"):
            try:
                found = os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False)
            except FileNotFoundError:
                return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def write(self, name: str, parts: Iterable[Any], nbytes: int = 0) -> None:
        """Write a new file under a temporary name, sync it, and rename it; `nbytes`: its size, if that is known."""
        self.stage([(name, parts, nbytes)])
        self.publish(name)

    def stage(self, files: Iterable[tuple[str, Iterable[Any], int]]) -> None:
        """Write new files under temporary names, and sync them; `publish` renames them. All of them are open at once.

        A failure leaves none of them.

        Args:
            files: Names, parts and sizes (0: not known). A part is the file's next bytes, or a tuple: the place where
                it begins, and its bytes.
        """
        staged: list[tuple[str, int]] = []
        try:
            for name, parts, nbytes in files:
                with reported(f"{self.path}/{name}", "write the file"):
                    staged.append((name, -1))  # it may be there although its creation fails
                    staged[-1] = name, self._created(name)
                    _reserve(staged[-1][1], nbytes)
                    _fill(staged[-1][1], parts)
            number, error = _synced([fd for _, fd in staged])
            with reported(f"{self.path}/{staged[number][0]}", "write the file"):
                if error is not None:
                    raise error
            for number, (name, fd) in enumerate(staged):
                staged[number] = name, -1
                with reported(f"{self.path}/{name}", "write the file"):
                    os.close(fd)
        except BaseException:
            for name, fd in staged:
                if fd >= 0:
                    let_go(fd)
                with contextlib.suppress(StorageError):  # report the first failure
                    self.remove(TEMPORARY + name)
            raise

    def publish(self, name: str) -> None:
        """Give a staged file its name."""
        try:
            self.rename(TEMPORARY + name, name)
        except BaseException:
            with contextlib.suppress(StorageError):
                self.remove(TEMPORARY + name)
            raise

    def _created(self, name: str) -> int:
        self.remove(TEMPORARY + name)
        return self._open(TEMPORARY + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def mark(self, name: str) -> None:
        """Make an empty file, unless it is there, and its name durable: nothing written later is there without it."""
        if self.size(name) is None:
            with reported(f"{self.path}/{name}", "write the file"):
                os.close(self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        self.sync()

    def sync(self, file: str | None = None) -> None:
        """Make the directory's names durable; before that the contents of `file`, if it exists."""
        if file is not None and self.size(file) is not None:
            with self.reading(file, os.O_RDWR if system.WINDOWS else os.O_RDONLY) as fd:
                system.sync(fd)
        if self._fd is not None:
            with reported(self.path, "sync the directory"):
                system.sync(self._fd)

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        with reported(f"{self.path}/{name}", "delete the file"), contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._fd)

    def discard(self, name: str) -> None:
        """Delete a file that is of no use any more. Where the system refuses to, that is logged and nothing else."""
        try:
            self.remove(name)
        except StorageError as error:
            logging.getLogger("relive").warning("%s", error)

    def link(self, source: Folder, name: str, target: str) -> bool:
        """Hard-link a file of another folder into this one; False where that is impossible, as across devices."""
        try:
            ends = source._at(name), self._at(target)
            os.link(*ends, src_dir_fd=source._fd, dst_dir_fd=self._fd, follow_symlinks=False)
        except (OSError, NotImplementedError):
            return False
        return True

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing any file of the new name."""
        with reported(f"{self.path}/{old}", f"rename the file to `{new}`"):
            system.rename(self._at(old), self._at(new), self._fd)

    def copy(self, source: Folder, name: str, target: str | None = None) -> None:
        """Copy a file of another folder into this one, under the name `target` if given."""
        with source.reading(name) as fd:
            self.write(target or name, iter(lambda: os.read(fd, 1 << 20), b""))

    def link_or_copy(self, source: Folder, name: str, target: str) -> None:
        """Hard-link a file of another folder into this one, or copy it where that is impossible."""
        if not self.link(source, name, target):
            self.copy(source, name, target)

    @contextlib.contextmanager
    def reading(self, name: str, mode: int = os.O_RDONLY) -> Iterator[int]:
        """Open a regular file for the `with` block; errors of reading it name the file."""
        fd = self.open(name, mode)
        try:
            with reported(f"{self.path}/{name}", "read the file"):
                yield fd
        finally:
            let_go(fd)

    def open(self, name: str, mode: int = os.O_RDONLY) -> int:
        """Open a regular file for reading; links, pipes and devices are refused."""
        with reported(f"{self.path}/{name}", "open the file"):
            fd = self._open(name, mode | AT_ONCE)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise StorageError(message("a regular file", "something else", f"{self.path}/{name}"))
            except BaseException:
                let_go(fd)
                raise
        return fd


@contextlib.contextmanager
def empty_folder(path: str | os.PathLike[str]) -> Iterator[Folder]:
    """Open a new or empty directory for writing. On failure, remove everything from it."""
    with contextlib.closing(Folder(path, create=True)) as folder:
        if folder.sizes():
            remedy = "choose another, or remove it first"
            raise StorageError(message("a new or an empty directory", "one with files", folder.path, remedy))
        try:
            yield folder
        except BaseException:
            for name in folder.sizes():
                folder.remove(name)
            raise


def at_once() -> int:
    """Return the number of files that a call may have open at the same time."""
    return min(max(system.most_open_files() // 8, 4), 256)


def kept_open() -> int:
    """Return the number of files that may stay open for a later call."""
    return min(system.most_open_files() // 4, 1024)


def _opened(path: str) -> int | None:
    """Open a directory; return its descriptor, or None if the system has none for directories.

    Raises:
        OSError: There is no such directory.
    """
    if system.DIRECTORIES_OPEN:
        return os.open(path, os.O_RDONLY | system.DIRECTORY)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return None


def _synced(fds: Sequence[int]) -> tuple[int, OSError | None]:
    """Sync files at the same time, so that the file system writes its journal for many of them at once.

    Returns:
        The position of one that failed, and its error; None if all are synced.
    """
    left: deque[tuple[int, int]] = deque(enumerate(fds))
    failed: list[tuple[int, OSError]] = []

    def sync_some() -> None:
        with contextlib.suppress(IndexError):  # none is left
            while True:
                number, fd = left.popleft()
                try:
                    system.sync(fd)
                except OSError as error:
                    failed.append((number, error))

    helpers: list[threading.Thread] = []
    with contextlib.suppress(RuntimeError):  # no new threads, as at the end of the process
        while len(helpers) < min(len(fds), _SYNCS) - 1:
            thread = threading.Thread(target=sync_some, name="relive-sync", daemon=True)
            thread.start()
            helpers.append(thread)
    sync_some()
    for thread in helpers:
        thread.join()
    return failed[0] if failed else (0, None)


def _reserve(fd: int, nbytes: int) -> None:
    """Let the file system find room for a large file at once: writing it then takes half the time on ext4.

    In memory there is no room to be found, and all pages would be touched once more.
    """
    if system.LINUX and nbytes >= _WORTH_RESERVING and not _in_memory(fd):
        with contextlib.suppress(OSError):  # the writes will say what is wrong
            os.posix_fallocate(fd, 0, nbytes)


def _in_memory(fd: int) -> bool:
    """Return True if an open file is in a file system in memory, as far as the system tells."""
    device = os.fstat(fd).st_dev
    if os.major(device):  # a disk's
        return False
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for words in map(str.split, mounts):
            if words[2] == f"0:{os.minor(device)}":
                return words[words.index("-") + 1] == "tmpfs"
    return False


def _fill(fd: int, parts: Iterable[Any]) -> None:
    for part in parts:
        if type(part) is tuple:
            begin, part = part
            os.lseek(fd, begin, os.SEEK_SET)
        view = memoryview(part).cast("B")
        while len(view):
            written = os.write(fd, view)
            if not written:
                raise OSError(errno.ENOSPC, "no byte could be written")
            view = view[written:]


def _make(path: str) -> None:
    """Make a directory and its parents, and sync their names: without these nothing in it survives a power loss."""
    above = [os.path.dirname(path)]
    while not os.path.isdir(above[-1]):
        above.append(os.path.dirname(above[-1]))
    for made in (*above[-2::-1], path):  # `os.makedirs` would let everybody in that the umask lets in
        with contextlib.suppress(FileExistsError):
            os.mkdir(made, 0o700)
    for parent in reversed(above):
        # Other file systems are not ours to sync, and a directory that cannot be read cannot be synced.
        if os.stat(parent).st_dev == os.stat(path).st_dev and os.access(parent, os.R_OK):
            fd = _opened(parent)
            if fd is None:
                return
            try:
                system.sync(fd)
            finally:
                let_go(fd)


@contextlib.contextmanager
def reported(at: str, action: str) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `StorageError`: "Could not <action> (<reason>) - at `at`"."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(event(f"Could not {action} ({error.strerror or error})", at)) from error


def let_go(fd: int) -> None:
    """Close a descriptor, ignoring failures: nothing was written to it, or an earlier failure is being raised."""
    with contextlib.suppress(OSError):
        os.close(fd)


def size_of(fd: int) -> int:
    """Return the size of an open file in bytes."""
    return os.fstat(fd).st_size


def read_into(fd: int, offset: int, targets: Sequence[memoryview]) -> bool:
    """Fill `targets` one after the other with the bytes from `offset` on; False if the file ends before."""
    rest = deque(target for target in targets if len(target))
    while rest:
        got = system.read_into(fd, list(islice(rest, _MOST_TARGETS)), offset)
        if not got:
            return False
        offset += got
        while rest and got >= len(rest[0]):
            got -= len(rest.popleft())
        if got:  # a short read: a signal, or a limit of the system
            rest[0] = rest[0][got:]
    return True


def read_at(fd: int, offset: int, count: int) -> bytes:
    """Read `count` bytes from `offset` on, fewer at the end of the file."""
    parts = []
    while count > 0:
        part = system.read_at(fd, count, offset)
        if not part:
            break
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return b"".join(parts)
