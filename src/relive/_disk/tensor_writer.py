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
    """Yield the bytes of one array."""
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
        open: Arrays of bytes that may be shorter than `tensors` says, and end with their last portion. They stand last
            in the file; the portions of each come behind those of the one before it.

    Attributes:
        nbytes: Bytes of the file; with open arrays 0 until it is written.
        checksum: Once it is written, the CRC-32 of its header and its table.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        portions: Iterable[Portion],
        metadata: Mapping[str, str],
        open: Sequence[str] = (),
    ) -> None:
        # The widest elements first, so that all of them are aligned.
        names = sorted(tensors, key=lambda name: (name in open, -tensors[name].dtype.itemsize))
        self._tensors = {name: tensors[name] for name in names}
        self._portions, self._metadata, self._open = portions, metadata, open
        self._room = 0
        self._lay_out()
        self._room = len(self._header)  # of open arrays it has the largest sizes, which take the most digits
        if self._room > safetensors.MOST_HEADER:
            raise ArgumentError(message("a schema of fewer fields", f"a header of {self._room} bytes", "$"))
        if open:
            self.nbytes = 0
        self.checksum = 0

    def _lay_out(self) -> None:
        """Work out the header, and where the arrays begin and end in the data."""
        self._spans: dict[str, tuple[int, int]] = {}
        entries: dict[str, Any] = {}
        end = 0
        for name, tensor in self._tensors.items():
            entries[name] = entry_of(tensor, end)
            self._spans[name] = end, end + tensor.nbytes
            end += tensor.nbytes
        self._data, table = end, table_of(end)
        entries[TABLE] = entry_of(table, end)
        self._header = safetensors.header(entries, self._metadata, self._room)
        self.nbytes = len(self._header) + end + table.nbytes

    def parts(self) -> Iterator[tuple[int, Any]]:
        """Yield the parts of the file with their offsets, in any order."""
        start, sums = self._room, np.empty(table_of(self._data).shape, np.uint32)
        edges: dict[int, Bytes] = {}
        streams: dict[str, _ArrayStream] = {}
        for portion in self._portions:
            several = [self._stream(name, streams, edges) for name in portion.names]
            portion.fill([stream.room(count) for stream, count in zip(several, portion.nbytes, strict=True)])
            for stream in several:
                for begin, data in stream.chunks():
                    sums[begin // tensors.CHUNK :][: len(data) // tensors.CHUNK] = checksums(data)
                    yield start + begin, data
        for name in self._tensors:  # some have no bytes
            self._stream(name, streams, edges)
        self._end(streams)
        for name, stream in streams.items():
            if stream.end() != self._spans[name][1]:
                raise RuntimeError(f"other bytes of `{name}` were given than it has")
        sums = sums[: table_of(self._data).shape[0]]
        for number, chunk in edges.items():
            data = chunk[: self._data - number * tensors.CHUNK]
            sums[number] = zlib.crc32(data.data)
            yield start + number * tensors.CHUNK, data
        yield start + self._data, sums
        yield 0, self._header
        self.checksum = zlib.crc32(sums.tobytes(), zlib.crc32(self._header))

    def _stream(self, name: str, streams: dict[str, _ArrayStream], edges: dict[int, Bytes]) -> _ArrayStream:
        """Return the stream of an array; a new one first ends those of earlier arrays."""
        if name not in streams:
            self._end(streams)
            streams[name] = _ArrayStream(self._spans[name][0], edges)
        return streams[name]

    def _end(self, streams: Mapping[str, _ArrayStream]) -> None:
        """Let open arrays end where their bytes do so far, and others begin behind them."""
        for name in self._open:
            if name in streams:
                begin = self._spans[name][0]
                self._tensors[name] = Tensor(self._tensors[name].dtype, (streams[name].end() - begin,))
                self._lay_out()


class _ArrayStream:
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
        """Return the memory for the next bytes."""
        used, self._used = self._used, self._used + nbytes
        if self._used > len(self._stage):
            old, self._stage = self._stage, np.empty(tensors.CHUNK + nbytes, np.uint8)
            self._stage[self._others : used] = old[self._others : used]
        return self._stage[used : self._used]

    def chunks(self) -> Iterator[tuple[int, Bytes]]:
        """Yield the chunks that are complete so far, with their offsets; they are overwritten afterwards."""
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
        """Return the end of the given bytes; those of an incomplete chunk go to the edges."""
        self._add_to_edge(self._used)
        return self._begin + self._used

    def _add_to_edge(self, end: int) -> None:
        if self._others < end:
            chunk = self._edges.setdefault(self._begin // tensors.CHUNK, np.zeros(tensors.CHUNK, np.uint8))
            chunk[self._others : end] = self._stage[self._others : end]
