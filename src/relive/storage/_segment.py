"""A file of named arrays that several processes map, and who of them may write what.

Layout: a header (magic, format, sizes, the arrays' names and places as JSON, a checksum), then the arrays, each on a
64-byte boundary. The magic is written last. Lock 0 is the creator's, lock 1 + k that of the writer of lane k.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Callable, Mapping

import numpy as np

from .._base.arrays import ArraySpec
from .._base.types import Array
from ..errors import ArgumentError, MissingSave, StorageError, event, message
from ._locks import FileLocks

_MAGIC, _FORMAT = b"relive\0\1", 2
_FORMATS = (1, _FORMAT)  # a writer that knows the first alone would not count its calls, which readers rely on
_HEADER = struct.Struct("<8sIIQ32s")  # magic, format, bytes of the JSON, bytes of the file, identity; then a checksum
_CHECKSUM = 4
_FIRST = _HEADER.size + _CHECKSUM  # where the JSON begins
_LINE, _PAGE, _LONGEST = 64, 4096, 1 << 20
CREATOR = 0


class Segment:
    """Arrays in a mapped file.

    Attributes:
        path: The file.
        fresh: Whether the arrays are new and zero.
        locks: Who writes what.
        identity: What the arrays mean; see `Storage.open`.
        removal: Removes the file; None where that is not this process's to do.
    """

    def __init__(self, path: str, fd: int, size: int, identity: bytes, places: Mapping[str, tuple[int, int]]) -> None:
        self.path, self.identity, self.fresh = path, identity, False
        self.locks = FileLocks(path, fd)
        self._places = places
        self._mapping = mmap.mmap(fd, size)
        self._arrays: dict[str, Array] = {}
        self.removal: Callable[[], object] | None = None

    @classmethod
    def create(cls, path: str, spec: Mapping[str, ArraySpec], identity: bytes, remedy: str) -> Segment:
        """Make the file, with all of its bytes reserved; no process can open it before `announce`.

        Args:
            path: The file.
            spec: The arrays.
            identity: What they mean.
            remedy: What to do if the file exists.

        Raises:
            ArgumentError: More bytes than the file system has.
            StorageError: The file exists, or cannot be made; nothing is left.
        """
        places, listed, size = _places(spec)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags, 0o600)
        except FileExistsError:
            raise StorageError(message("a new name", "one that is in use", path, remedy)) from None
        except OSError as error:
            raise StorageError(event(f"Could not make the file ({error.strerror})", path)) from error
        try:
            _reserve(fd, size, path)
            made = cls(path, fd, size, identity, places)
            made.fresh = True
            made._mapping[_FIRST : _FIRST + len(listed)] = listed
            made._type(spec)
            if not made.locks.take(CREATOR):
                raise StorageError(message("a file of this process", "one that another process has locked", path))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(fd)
        return made

    @classmethod
    def attach(cls, path: str, missing: str) -> Segment:
        """Open a file that `create` made, in this process or another one.

        Args:
            path: The file.
            missing: What to do if there is none.

        Raises:
            StorageError: There is none, or it is not one of ours: another format, unfinished, another user's.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise MissingSave(message("a shared or mapped buffer", "none", path, missing)) from None
        except OSError as error:
            raise StorageError(event(f"Could not open the file ({error.strerror})", path)) from error
        try:
            size, identity, places = _read_header(fd, path)
            return cls(path, fd, size, identity, places)
        finally:
            os.close(fd)

    def announce(self, name: str, value: bytes) -> None:
        """Store `value` in the array `name`, and let others open the file."""
        self._arrays[name][:] = np.frombuffer(value, np.uint8)
        listed = _listed(self._places)
        header = _HEADER.pack(_MAGIC, _FORMAT, len(listed), len(self._mapping), self.identity)
        header += zlib.crc32(header + listed).to_bytes(_CHECKSUM, "little")
        self._mapping[len(_MAGIC) : len(header)] = header[len(_MAGIC) :]
        self._mapping.flush()
        self._mapping[: len(_MAGIC)] = _MAGIC
        self._mapping.flush(0, _PAGE)

    def typed(self, spec: Mapping[str, ArraySpec], identity: bytes | None = None) -> Segment:
        """Return itself, with the arrays of `spec`.

        Raises:
            StorageError: It has other ones, or they mean something else.
        """
        found = {name: self._places.get(name, (0, -1))[1] for name in spec}
        if found != {name: wanted.nbytes for name, wanted in spec.items()} or identity not in (None, self.identity):
            raise StorageError(message("the arrays of this buffer", "those of another one", self.path))
        self._type(spec)
        return self

    def raw(self, name: str) -> bytes:
        """Read the bytes of an array.

        Raises:
            StorageError: There is no such array.
        """
        if name not in self._places:
            raise StorageError(message(f"a buffer that has `{name}`", "none", self.path))
        offset, nbytes = self._places[name]
        return self._mapping[offset : offset + nbytes]

    def host(self, name: str) -> Array:
        """Return the array of that name."""
        return self._arrays[name]

    def sync(self) -> None:
        """Write everything to the disk."""
        self._mapping.flush()

    @property
    def may_add(self) -> bool:
        """True: who opens the whole segment made it."""
        return True

    @property
    def fresh_sampler(self) -> bool:
        """As `fresh`."""
        return self.fresh

    def close(self) -> None:
        """Give the locks back; a shared segment's name goes, too. The memory itself goes with the last array."""
        self.locks.close()
        if self.removal is not None:
            self.removal()

    def _type(self, spec: Mapping[str, ArraySpec]) -> None:
        for name, wanted in spec.items():
            offset, _ = self._places[name]
            self._arrays[name] = np.ndarray(wanted.shape, wanted.dtype, self._mapping, offset)


def _places(spec: Mapping[str, ArraySpec]) -> tuple[dict[str, tuple[int, int]], bytes, int]:
    """Return offset and size of each array, the same as JSON, and the size of the file."""
    longest = {name: (1 << 62, wanted.nbytes) for name, wanted in spec.items()}
    end = -(-(_FIRST + len(_listed(longest))) // _PAGE) * _PAGE
    places = {}
    for name, wanted in spec.items():
        places[name] = (end, wanted.nbytes)
        end += -(-wanted.nbytes // _LINE) * _LINE
    return places, _listed(places), end


def _listed(places: Mapping[str, tuple[int, int]]) -> bytes:
    return json.dumps({name: list(place) for name, place in places.items()}).encode()


def _reserve(fd: int, size: int, path: str) -> None:
    """Give the file all of its bytes: a page that cannot be had later would end the process."""
    remedy = "lower `capacity`, or store smaller fields"
    if path.startswith("/dev/shm/"):
        remedy += ", or make `/dev/shm` larger (Docker: `--shm-size`)"
    found = os.fstatvfs(fd)
    limited = found.f_blocks > 0  # or the file system does not say how large it is
    if limited and size > found.f_blocks * found.f_frsize:
        most = f"at most {found.f_blocks * found.f_frsize:,} bytes, the size of the file system"
        raise ArgumentError(message(most, f"{size:,} bytes", path, remedy))
    try:
        if limited and size > found.f_bavail * found.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        raise StorageError(event(f"Could not reserve {size:,} bytes ({error.strerror})", path, remedy)) from error


def _read_header(fd: int, path: str) -> tuple[int, bytes, dict[str, tuple[int, int]]]:
    """Read size, identity and offsets from a file, and check them: nothing outside of the file may be mapped."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StorageError(message("a file that only its owner, you, may read and write", "another one", path))
    head = os.pread(fd, _FIRST, 0)
    if len(head) < _FIRST or not head.startswith(_MAGIC):
        unfinished = not head.strip(b"\0") or head[: len(_MAGIC)] == bytes(len(_MAGIC))
        got = "a file that was never finished" if unfinished else "a file of another kind"
        raise StorageError(message("a buffer that relive shared or mapped", got, path))
    _, kind, length, size, identity = _HEADER.unpack(head[: _HEADER.size])
    if kind not in _FORMATS:
        raise StorageError(message(f"a format up to {_FORMAT}", f"format {kind}", path, "use the relive that wrote it"))
    listed = os.pread(fd, min(length, _LONGEST), _FIRST)
    checksum = zlib.crc32(head[: _HEADER.size] + listed)
    if size != found.st_size or len(listed) != length or checksum != int.from_bytes(head[_HEADER.size :], "little"):
        raise StorageError(message("the header that was written", "another one", path))
    try:
        places = {str(name): (int(offset), int(nbytes)) for name, (offset, nbytes) in json.loads(listed).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise StorageError(message("a list of arrays", f"`{error}`", path)) from None
    for name, (offset, nbytes) in places.items():
        if offset < _FIRST + length or nbytes < 0 or offset % _LINE or offset + nbytes > size:
            raise StorageError(message(f"`{name}` inside the file", f"bytes {offset} to {offset + nbytes}", path))
    return size, identity, places
