"""Writing a safetensors file with checksums, in whatever order the bytes of its arrays come."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._base.frozen import Frozen
from .._base.types import Array, Bytes
from ..errors import ArgumentError, message
from . import safetensors, tensors
from .tensors import TABLE, Tensor, checksums, entry_of, table_of

_STAGE = 1 << 20  # bytes of an array that are written at once


class Portion(Frozen):
    """The next bytes of some arrays.

    Attributes:
        names: The arrays.
        nbytes: How many bytes of each.
        fill: Copies them to where they are to be, an array of bytes for each.
    """

    names: tuple[str, ...]
    nbytes: tuple[int, ...]
    fill: Callable[[Sequence[Bytes]], None]


def portions_of(name: str, array: Array) -> Iterator[Portion]:
    """The bytes of one array."""
    data: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for begin in range(0, len(data), _STAGE):
        part = data[begin : begin + _STAGE]
        yield Portion((name,), (len(part),), partial(_copy, part))


def _copy(data: Bytes, outs: Sequence[Bytes]) -> None:
    outs[0][:] = data


class TensorWriter:
    """Writes a file: `folder.write(name, writer.parts())`.

    Args:
        tensors: What the file holds.
        portions: Their bytes. Those of one array come in order, those of different arrays in any.
        metadata: Text that goes into the header.

    Attributes:
        nbytes: Bytes of the file.
        checksum: Once it is written, the CRC-32 of its header and its table.
    """

    def __init__(self, tensors: Mapping[str, Tensor], portions: Iterable[Portion], metadata: Mapping[str, str]) -> None:
        # The widest elements first, so that all of them are aligned.
        names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
        self._portions, self._spans = portions, dict[str, tuple[int, int]]()
        entries: dict[str, Any] = {}
        end = 0
        for name in names:
            entries[name] = entry_of(tensors[name], end)
            self._spans[name] = end, end + tensors[name].nbytes
            end += tensors[name].nbytes
        self._data = end
        table = table_of(end)
        entries[TABLE] = entry_of(table, end)
        self._header = safetensors.header(entries, metadata)
        if len(self._header) > safetensors.MOST_HEADER:
            raise ArgumentError(message("a schema of fewer fields", f"a header of {len(self._header)} bytes", "$"))
        self.nbytes = len(self._header) + end + table.nbytes
        self.checksum = 0

    def parts(self) -> Iterator[tuple[int, Any]]:
        """The parts of the file, each with where it begins; not in order."""
        yield 0, self._header
        start, sums = len(self._header), np.empty(table_of(self._data).shape, np.uint32)
        edges: dict[int, Bytes] = {}
        streams = {name: _Stream(begin, edges) for name, (begin, _) in self._spans.items()}
        for portion in self._portions:
            several = [streams[name] for name in portion.names]
            portion.fill([stream.room(count) for stream, count in zip(several, portion.nbytes, strict=True)])
            for stream in several:
                for begin, data in stream.chunks():
                    sums[begin // tensors.CHUNK :][: len(data) // tensors.CHUNK] = checksums(data)
                    yield start + begin, data
        for name, stream in streams.items():
            if stream.end() != self._spans[name][1]:
                raise RuntimeError(f"other bytes of `{name}` were given than it has")
        for number, chunk in edges.items():
            data = chunk[: self._data - number * tensors.CHUNK]
            sums[number] = zlib.crc32(data.data)
            yield start + number * tensors.CHUNK, data
        yield start + self._data, sums
        self.checksum = zlib.crc32(sums.tobytes(), zlib.crc32(self._header))


class _Stream:
    """The bytes of one array on their way to a file, whole chunks at a time.

    Args:
        begin: Where they begin in the data.
        edges: By number the chunks that begin or end with another array's bytes, to which this array's are added.
    """

    def __init__(self, begin: int, edges: dict[int, Bytes]) -> None:
        self._edges = edges
        self._stage: Bytes = np.empty(0, np.uint8)
        self._begin = begin // tensors.CHUNK * tensors.CHUNK  # of the stage in the data
        self._others = self._used = begin - self._begin  # bytes of the stage: those of other arrays, all

    def room(self, nbytes: int) -> Bytes:
        """Where the next bytes are to be put."""
        used, self._used = self._used, self._used + nbytes
        if self._used > len(self._stage):
            old, self._stage = self._stage, np.empty(tensors.CHUNK + nbytes, np.uint8)
            self._stage[self._others : used] = old[self._others : used]
        return self._stage[used : self._used]

    def chunks(self) -> Iterator[tuple[int, Bytes]]:
        """The chunks that are whole by now, and where they begin; they are overwritten afterwards."""
        whole = self._used // tensors.CHUNK * tensors.CHUNK
        if not whole:
            return
        first = tensors.CHUNK if self._others else 0
        self._add_to_edge(first)
        if first < whole:
            yield self._begin + first, self._stage[first:whole]
        self._stage[: self._used - whole] = self._stage[whole : self._used]
        self._begin, self._used, self._others = self._begin + whole, self._used - whole, 0

    def end(self) -> int:
        """Where the bytes end that were given; those of a chunk that is not whole go to the edges."""
        self._add_to_edge(self._used)
        return self._begin + self._used

    def _add_to_edge(self, end: int) -> None:
        if self._others < end:
            chunk = self._edges.setdefault(self._begin // tensors.CHUNK, np.zeros(tensors.CHUNK, np.uint8))
            chunk[self._others : end] = self._stage[self._others : end]
