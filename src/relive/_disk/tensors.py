"""A safetensors file with checksums: one CRC-32 for every 64 KiB of its data, in a last tensor."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._base.frozen import Frozen
from .._base.narrow import dtype_of
from .._base.types import Array, Bool
from .._ring import kernels
from ..errors import CorruptionError, StorageError, event, message
from . import safetensors
from .files import Folder, let_go, read_at, read_into, reported, size_of

CHUNK = 1 << 16  # bytes that have one checksum
TABLE = "relive/crc32"
_STAGE = 64 * CHUNK  # bytes that are read by one call
_MOST_TABLE = 32 << 20
_MOST_AXES = 66


class Tensor(Frozen):
    """Dtype and shape of one array in a file.

    `complex128`, which the format does not have, is written as `float64` with a last axis of two.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def width(self) -> int:
        """Bytes of one entry of the first axis."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @classmethod
    def of(cls, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Tensor:
        """Return the tensor of an array of that dtype and shape."""
        return cls(np.dtype(np.float64), (*shape, 2)) if dtype.char == "D" else cls(dtype, shape)


class TensorReader:
    """Reads a file that `TensorWriter` wrote; what is read is compared with its checksums first.

    Args:
        folder: The directory.
        name: The file.
        nbytes: How many bytes it should have.
        checksum: That of its header and its table.
        forgiving: Whether damaged chunks are read as zeros.

    Raises:
        CorruptionError: The file has another size, or its header or table are damaged.
        StorageError: The file is missing or cannot be read.
    """

    def __init__(self, folder: Folder, name: str, nbytes: int, checksum: int, *, forgiving: bool = False) -> None:
        self.at, self.forgiving = f"{folder.path}/{name}", forgiving
        self._last = -1, np.empty(0, np.uint8)
        self._fd = folder.open(name)
        try:
            with reported(self.at, "read the file"):
                size = size_of(self._fd)
                if size != nbytes:
                    raise CorruptionError(message(f"a file of {nbytes} bytes", f"{size}", self.at))
                self._read_header(size, checksum)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            let_go(fd)

    def __enter__(self) -> TensorReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def rows(self, name: str, first: int = 0, last: int | None = None) -> Array:
        """Return the entries `[first, last)` of the first axis of an array, in its original dtype and shape.

        Raises:
            CorruptionError: A checksum differs; the message names the offset.
        """
        tensor = self.tensors[name]
        last = tensor.shape[0] if last is None else last
        found = self.room((last - first) * tensor.width)
        self.read(name, first, found)
        return found.view(tensor.dtype).reshape(last - first, *tensor.shape[1:])

    def read(self, name: str, first: int, out: Array) -> None:
        """Fill the bytes of `out` with those of an array from the entry `first` on.

        Raises:
            CorruptionError: A checksum differs; the message names the offset, and `out` has any contents.
        """
        begin = self._starts[name] + first * self.tensors[name].width
        self._fill(begin, out.reshape(-1).view(np.uint8))

    def stream(self, name: str) -> TensorStream:
        """Return a stream of an array from its first entry on."""
        return TensorStream(self, self.tensors[name], self._starts[name])

    def unchecked(self, name: str, first: int = 0, last: int | None = None) -> Array:
        """Return the entries `[first, last)` of the first axis of an array without checking their bytes."""
        tensor = self.tensors[name]
        last = tensor.shape[0] if last is None else last
        begin = self._start + self._starts[name] + first * tensor.width
        raw = read_at(self._fd, begin, (last - first) * tensor.width)
        return np.frombuffer(raw, tensor.dtype).reshape(last - first, *tensor.shape[1:])

    def touched(self, name: str, damage: Sequence[int]) -> Bool:
        """Mark the entries of the first axis of an array in the chunks at the offsets `damage`."""
        tensor = self.tensors[name]
        found = np.zeros(tensor.shape[0], bool)
        width = max(tensor.width, 1)
        for offset in damage:
            begin = offset - self._start - self._starts[name]
            found[max(begin // width, 0) : max(-(-(begin + CHUNK) // width), 0)] = True
        return found

    def damage(self) -> Iterator[int]:
        """Yield the offsets in the file of all chunks that do not match their checksums."""
        stage = np.empty(_STAGE, np.uint8)
        for begin in range(0, self._data, _STAGE):
            part = stage[: min(_STAGE, self._data - begin)]
            yield from self.differing(begin, part)

    def room(self, nbytes: int) -> Array:
        """Return a buffer of so many bytes to read into.

        Raises:
            StorageError: There is not so much memory.
        """
        try:
            return np.empty(nbytes, np.uint8)
        except (MemoryError, ValueError) as error:  # a sparse file may claim a huge size
            raise StorageError(message("an array that fits in memory", f"{nbytes:,} bytes", self.at)) from error

    def _read_header(self, size: int, checksum: int) -> None:
        head = safetensors.read(self._fd, size)
        self._start = len(head)
        try:
            entries, self.metadata = safetensors.parsed(head, size)
            self.tensors, self._starts = _parsed(entries)
            table = self.tensors.pop(TABLE)
            self._data = self._starts.pop(TABLE)
            if self._start + self._data + table.nbytes != size or table != table_of(self._data):
                raise ValueError("sizes do not add up")
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise CorruptionError(event(f"Invalid header ({str(error)[:60]})", self.at)) from None
        if table.nbytes > _MOST_TABLE:
            raise StorageError(message(f"at most {_MOST_TABLE} bytes of checksums", f"{table.nbytes}", self.at))
        raw = read_at(self._fd, self._start + self._data, table.nbytes)
        self._table = np.frombuffer(raw, np.uint32)
        if len(raw) != table.nbytes or zlib.crc32(raw, zlib.crc32(head)) != checksum:
            raise CorruptionError(event("The header or the table of checksums does not match its checksum", self.at))

    def _fill(self, begin: int, target: Array) -> None:
        """Fill `target` with the data from `begin` on."""
        end, at = begin + len(target), begin
        while at < end:
            first = at // CHUNK * CHUNK
            count = min(_STAGE, (end - at) // CHUNK * CHUNK)
            if first < at or not count:  # a part of a chunk
                part = self._chunk(first)[at - first : end - first]
                target[at - begin :][: len(part)] = part
                at += len(part)
            else:
                self._read(at, target[at - begin :][:count])
                at += count

    def _chunk(self, begin: int) -> Array:
        """Return the chunk at an offset; keep the last one, since the next read often begins in it."""
        if self._last[0] != begin:
            chunk = np.empty(min(CHUNK, self._data - begin), np.uint8)
            self._read(begin, chunk)
            self._last = begin, chunk
        return self._last[1]

    def _read(self, begin: int, part: Array) -> None:
        """Fill `part` with whole chunks."""
        for offset in self.differing(begin, part):
            if not self.forgiving:
                raise CorruptionError(event(f"The data at offset {offset} do not match their checksum", self.at))
            part[offset - self._start - begin :][:CHUNK] = 0

    def differing(self, begin: int, part: Array) -> list[int]:
        """Read a part that begins with a chunk; the offsets of those of its chunks that are damaged."""
        at, number = self._start + begin, begin // CHUNK
        sums = _read(self._fd, at, part)
        if sums is None:
            with reported(self.at, "read the file"):
                whole = read_into(self._fd, at, [part.data])  # which says what the system refused
            if not whole:
                raise CorruptionError(event(f"The file ends before offset {at + len(part)}", self.at))
            sums = checksums(part)
        differ = sums != self._table[number : number + len(sums)]
        return [at + chunk * CHUNK for chunk in np.flatnonzero(differ).tolist()]


class TensorStream:
    """Reads an array from its first entry on; every chunk of the file is read and checked once.

    Args:
        reader: The file.
        tensor: The array.
        start: Where its bytes begin in the data.
    """

    def __init__(self, reader: TensorReader, tensor: Tensor, start: int) -> None:
        self._reader, self._tensor = reader, tensor
        self._next = start // CHUNK * CHUNK  # the chunk to be read
        self._stage = np.empty(0, np.uint8)
        self._begin, self._end = start - self._next, 0  # of the bytes in `stage` that have not been asked for

    def rows(self, count: int) -> Array:
        """Return the next `count` entries; the next call overwrites them.

        Raises:
            CorruptionError: A checksum differs; the message names the offset.
        """
        tensor = self._tensor
        nbytes = count * tensor.width
        if self._end - self._begin < nbytes:
            self._read(nbytes)
        found = self._stage[self._begin : self._begin + nbytes]
        self._begin += nbytes
        return found.view(tensor.dtype).reshape(count, *tensor.shape[1:])

    def _read(self, nbytes: int) -> None:
        """Read on until `stage` holds that many bytes."""
        old, had = self._stage, self._end - self._begin  # negative: the first chunk begins with another array's bytes
        kept = max(had, 0)
        more = min(-(-(nbytes - had) // CHUNK) * CHUNK, self._reader._data - self._next)
        if len(old) < kept + more:
            self._stage = self._reader.room(kept + more)
        self._stage[:kept] = old[self._begin : self._begin + kept]
        self._reader._read(self._next, self._stage[kept : kept + more])
        self._next += more
        self._begin, self._end = max(-had, 0), kept + more


def table_of(nbytes: int) -> Tensor:
    """Return the table for the checksums of that many bytes of data."""
    return Tensor(np.dtype(np.uint32), (-(-nbytes // CHUNK),))


def checksums(data: Array) -> Array:
    """Compute the CRC-32 of every chunk; the last one may be shorter."""
    whole = len(data) // CHUNK
    sums = kernels.active().checksums(data[: whole * CHUNK].reshape(whole, CHUNK))
    rest = data[whole * CHUNK :]
    return np.append(sums, np.uint32(zlib.crc32(rest.data))) if len(rest) else sums


def _read(fd: int, offset: int, data: Array) -> Array | None:
    """Fill `data` from `offset` of a file on; the `checksums` of it, None if not all could be read.

    Every chunk gets its checksum while it is in the processor's cache.
    """
    whole = len(data) // CHUNK * CHUNK
    found = []
    for first, last in ((0, whole), (whole, len(data))):
        if first < last:
            chunks = data[first:last].reshape(-1, min(CHUNK, last - first))
            numbers = np.arange(len(chunks))
            files = np.full(len(chunks), fd)
            failed, sums = kernels.active().read_rows(files, offset + first + numbers * CHUNK, numbers, chunks)
            if failed >= 0:
                return None
            found.append(sums)
    return found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.uint32), *found])


def entry_of(tensor: Tensor, offset: int) -> dict[str, Any]:
    """Describe a tensor at that offset in the data, as in a header."""
    return safetensors.tensor(tensor.dtype.name, tensor.shape, offset, tensor.nbytes)


def _parsed(entries: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, int]]:
    tensors, starts, ends = {}, {}, {0}
    for name, entry in entries.items():
        shape, (start, end) = entry["shape"], entry["data_offsets"]
        whole = all(type(axis) is int and 0 <= axis < 2**48 for axis in (*shape, start, end))
        if not whole or not 1 <= len(shape) <= _MOST_AXES:
            raise ValueError(f"invalid shape {str(shape)[:40]}")
        tensors[name], starts[name] = Tensor(dtype_of(safetensors.DTYPES[entry["dtype"]], "$"), tuple(shape)), start
        if end - start != tensors[name].nbytes or (end != start and end in ends):
            raise ValueError("invalid offsets")
        ends.add(end)
    if not set(starts.values()) <= ends or sum(t.nbytes for n, t in tensors.items() if n != TABLE) != starts[TABLE]:
        raise ValueError("there are gaps")
    return tensors, starts
