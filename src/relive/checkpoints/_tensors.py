"""A safetensors file with checksums: one CRC-32 for every 64 KiB of its data, in a last tensor."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _kernels
from .._files import Folder, let_go, read_at, read_into, reported, size_of
from .._frozen import Frozen
from .._types import Array, Bool
from ..errors import ArgumentError, CorruptionError, StorageError, event, message

CHUNK = 1 << 16  # bytes that have one checksum
TABLE = "relive/crc32"
_STAGE = 16 * CHUNK
_MOST_HEADER = 1 << 20
_MOST_TABLE = 32 << 20
_MOST_AXES = 66
_ALIGN = 64
_CODES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16", "int32": "I32",
    "uint32": "U32", "float32": "F32", "float64": "F64", "int64": "I64", "uint64": "U64", "complex64": "C64",
}  # fmt: skip
_DTYPES = {code: np.dtype(name) for name, code in _CODES.items()}


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

    @classmethod
    def of(cls, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Tensor:
        """How arrays of that dtype and shape are written."""
        return cls(np.dtype(np.float64), (*shape, 2)) if dtype.char == "D" else cls(dtype, shape)


class TensorWriter:
    """Writes a file: `folder.write(name, writer.parts())`.

    Args:
        tensors: What the file holds.
        pieces: For every name the array's bytes, in any number of contiguous arrays.
        metadata: Text that goes into the header.

    Attributes:
        nbytes: Bytes of the file.
        checksum: Once it is written, the CRC-32 of its header and its table.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], pieces: Mapping[str, Iterable[Array]], metadata: Mapping[str, str]
    ) -> None:
        # The widest elements first, so that all of them are aligned.
        self._names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
        self._pieces = pieces
        self._data = sum(tensor.nbytes for tensor in tensors.values())
        entries: dict[str, Any] = {"__metadata__": dict(metadata)}
        end = 0
        for name in self._names:
            entries[name] = _entry(tensors[name], end)
            end += tensors[name].nbytes
        table = _table(end)
        entries[TABLE] = _entry(table, end)
        text = json.dumps(entries, separators=(",", ":")).encode()
        if len(text) > _MOST_HEADER - _ALIGN:
            raise ArgumentError(message("a schema of fewer fields", f"a header of {len(text)} bytes", "$"))
        text += b" " * (-(len(text) + 8) % _ALIGN)
        self._header = len(text).to_bytes(8, "little") + text
        self.nbytes = len(self._header) + end + table.nbytes
        self.checksum = 0

    def parts(self) -> Iterator[Any]:
        """The bytes of the file, in order."""
        yield self._header
        sums = []
        for stage in self._staged():
            sums.append(_checksums(stage))
            yield stage
        table = np.concatenate(sums) if sums else np.empty(0, np.uint32)
        yield table
        self.checksum = zlib.crc32(table.tobytes(), zlib.crc32(self._header))

    def _staged(self) -> Iterator[Array]:
        """All data in whole chunks, but for the last."""
        stage, used, total = np.empty(_STAGE, np.uint8), 0, 0
        for name in self._names:
            for piece in self._pieces[name]:
                data: Array = piece.reshape(-1).view(np.uint8)
                total += len(data)
                while len(data):
                    count = min(len(data), _STAGE - used)
                    stage[used : used + count] = data[:count]
                    data, used = data[count:], used + count
                    if used == _STAGE:
                        yield stage
                        used = 0
        if total != self._data:
            raise RuntimeError(f"{total} bytes of {self._data} were given")
        if used:
            yield stage[:used]


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
        self.at, self._forgiving = f"{folder.path}/{name}", forgiving
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
        """The entries `[first, last)` of the first axis of an array, as it was before it was written.

        Raises:
            CorruptionError: A checksum differs; the message names the offset.
        """
        tensor = self.tensors[name]
        last = tensor.shape[0] if last is None else last
        width = tensor.nbytes // max(tensor.shape[0], 1)
        try:
            found = np.empty((last - first, *tensor.shape[1:]), tensor.dtype)
        except (MemoryError, ValueError) as error:  # a sparse file may claim a huge size
            raise StorageError(message("an array that fits in memory", f"shape `{tensor.shape}`", self.at)) from error
        self._fill(self._starts[name] + first * width, found.reshape(-1).view(np.uint8))
        return found

    def unchecked(self, name: str) -> Array:
        """An array whose bytes are compared with nothing."""
        tensor = self.tensors[name]
        raw = read_at(self._fd, self._start + self._starts[name], tensor.nbytes)
        return np.frombuffer(raw, tensor.dtype).reshape(tensor.shape)

    def touched(self, name: str, damage: Sequence[int]) -> Bool:
        """Which entries of the first axis of an array are in one of the chunks at the offsets `damage`."""
        tensor = self.tensors[name]
        found = np.zeros(tensor.shape[0], bool)
        width = max(tensor.nbytes // max(tensor.shape[0], 1), 1)
        for offset in damage:
            begin = offset - self._start - self._starts[name]
            found[max(begin // width, 0) : max(-(-(begin + CHUNK) // width), 0)] = True
        return found

    def damage(self) -> Iterator[int]:
        """The offsets in the file of all chunks that do not match their checksums."""
        stage = np.empty(_STAGE, np.uint8)
        for begin in range(0, self._data, _STAGE):
            part = stage[: min(_STAGE, self._data - begin)]
            yield from self._differing(begin, part)

    def _read_header(self, size: int, checksum: int) -> None:
        head = read_at(self._fd, 0, 8)
        count = int.from_bytes(head, "little")
        if count > min(_MOST_HEADER, size - 8):
            raise CorruptionError(event(f"Invalid header of {count} bytes", self.at))
        head += read_at(self._fd, 8, count)
        self._start = len(head)
        try:
            entries = json.loads(head[8:])
            self.metadata: dict[str, str] = entries.pop("__metadata__")
            self.tensors, self._starts = _parsed(entries)
            table = self.tensors.pop(TABLE)
            self._data = self._starts.pop(TABLE)
            if self._start + self._data + table.nbytes != size or table != _table(self._data):
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
        end = begin + len(target)
        stage = np.empty(min(_STAGE, CHUNK * (-(-end // CHUNK) - begin // CHUNK)), np.uint8)
        at = begin // CHUNK * CHUNK
        while at < end:
            part = stage[: min(len(stage), self._data - at)]
            for offset in self._differing(at, part):
                if self._forgiving:
                    part[offset - self._start - at :][:CHUNK] = 0
                    continue
                raise CorruptionError(event(f"The data at offset {offset} do not match their checksum", self.at))
            first, last = max(begin, at), min(end, at + len(part))
            target[first - begin : last - begin] = part[first - at : last - at]
            at += len(part)

    def _differing(self, begin: int, part: Array) -> Iterator[int]:
        """Read a part that begins with a chunk; the offsets of those of its chunks that are damaged."""
        with reported(self.at, "read the file"):
            whole = read_into(self._fd, self._start + begin, [part.data])
        if not whole:
            raise CorruptionError(event(f"The file ends before offset {self._start + begin + len(part)}", self.at))
        number = begin // CHUNK
        sums = _checksums(part)
        for chunk in np.flatnonzero(sums != self._table[number : number + len(sums)]).tolist():
            yield self._start + begin + chunk * CHUNK


def _table(nbytes: int) -> Tensor:
    """The checksums of so many bytes of data."""
    return Tensor(np.dtype(np.uint32), (-(-nbytes // CHUNK),))


def _checksums(data: Array) -> Array:
    """The CRC-32 of every chunk, the last of which may be shorter."""
    whole = len(data) // CHUNK
    sums = _kernels.active().checksums(data[: whole * CHUNK].reshape(whole, CHUNK))
    rest = data[whole * CHUNK :]
    return np.append(sums, np.uint32(zlib.crc32(rest.data))) if len(rest) else sums


def _entry(tensor: Tensor, offset: int) -> dict[str, Any]:
    code, shape = _CODES[tensor.dtype.name], list(tensor.shape)
    return {"dtype": code, "shape": shape, "data_offsets": [offset, offset + tensor.nbytes]}


def _parsed(entries: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, int]]:
    tensors, starts, ends = {}, {}, {0}
    for name, entry in entries.items():
        shape, (start, end) = entry["shape"], entry["data_offsets"]
        whole = all(type(axis) is int and 0 <= axis < 2**48 for axis in (*shape, start, end))
        if not whole or not 1 <= len(shape) <= _MOST_AXES:
            raise ValueError(f"invalid shape {str(shape)[:40]}")
        tensors[name], starts[name] = Tensor(_DTYPES[entry["dtype"]], tuple(shape)), start
        if end - start != tensors[name].nbytes or (end != start and end in ends):
            raise ValueError("invalid offsets")
        ends.add(end)
    if not set(starts.values()) <= ends or sum(t.nbytes for n, t in tensors.items() if n != TABLE) != starts[TABLE]:
        raise ValueError("there are gaps")
    return tensors, starts
