"""Rows in compressed blocks: some rows of an array together, each block a zstd frame of its own.

A file of tensors has the blocks of an array one behind the other as bytes under the array's name, and an array of where
each block ends there and its CRC-32. How many rows a block has, the last one perhaps fewer, is in the metadata.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .._base.extras import needs
from .._base.forks import importing
from .._base.types import Array, Bool, Bytes
from ..errors import CorruptionError, event
from .tensor_writer import Portion, portions_of
from .tensors import Tensor, TensorReader

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

INDEX = "relive/blocks/"  # and the array's name
_BYTES = 1 << 19  # of a block's rows, about: they are in the processor's cache when they are copied on
_MOST = 1 << 20  # of several rows
_MOST_WINDOW = 1 << 23  # bytes that a decoder may reserve for itself, as the format advises
_LEVEL = 1  # others are slower, and make the frames of games no smaller


class Packing:
    """An array on its way to a file in blocks.

    Args:
        name: The array.
        rows: Entries of its first axis.
        width: Bytes of each.

    Attributes:
        rows: Rows of a block.
        tensors: What the file holds for the array; the one under its name may become shorter.
        metadata: What the file's header says of it.
    """

    def __init__(self, name: str, rows: int, width: int) -> None:
        self._name = name
        self.rows = max(1, _BYTES // width)
        count = -(-rows // self.rows)
        self._index = np.zeros((count, 2), np.int64)
        # A frame is longer than what it holds by a few bytes for each 128 KiB at most.
        most = rows * width + count * (64 + self.rows * width // 256)
        self.tensors = {
            INDEX + name: Tensor(self._index.dtype, self._index.shape),
            name: Tensor(np.dtype(np.uint8), (most,)),
        }
        self.metadata = {INDEX + name: str(self.rows)}

    def portions(self, blocks: Iterable[Bytes]) -> Iterator[Portion]:
        """Compress the array's blocks, as they are asked for."""
        with importing, needs("compress", "Field(compress)"):
            from zstandard import ZstdCompressor

        end, encoder = 0, ZstdCompressor(level=_LEVEL)
        for number, rows in enumerate(blocks):
            block = encoder.compress(rows.data)
            end += len(block)
            self._index[number] = end, zlib.crc32(block)
            yield from portions_of(self._name, np.frombuffer(block, np.uint8))
        yield from portions_of(INDEX + self._name, self._index)


class Stream(Protocol):
    """An array from its first entry on."""

    def rows(self, count: int) -> Array:
        """Return the next `count` entries; the next call overwrites them."""


class Entries(Protocol):
    """An array of a file, however it is written there.

    What does not match a checksum raises a `CorruptionError`, or is zero where the reader forgives.
    """

    def rows(self, first: int, last: int) -> Array:
        """Return the entries `[first, last)` of the first axis."""

    def read(self, first: int, out: Array) -> None:
        """Fill the bytes of `out` with those of the array from the entry `first` on."""

    def stream(self) -> Stream:
        """Return a stream of the array from its first entry on."""

    def lost(self, damage: Sequence[int]) -> Bool:
        """Mark the entries that are damaged; `damage`: the offsets of damaged chunks of the file."""


class Plain:
    """An array that stands in the file as it is."""

    def __init__(self, reader: TensorReader, name: str, wanted: Tensor) -> None:
        if reader.tensors.get(name) != wanted:
            raise _another(reader, name)
        self._reader, self._name = reader, name

    def rows(self, first: int, last: int) -> Array:
        """Return the entries `[first, last)` of the first axis."""
        return self._reader.rows(self._name, first, last)

    def read(self, first: int, out: Array) -> None:
        """Fill the bytes of `out` with those of the array from the entry `first` on."""
        self._reader.read(self._name, first, out)

    def stream(self) -> Stream:
        """Return a stream of the array from its first entry on."""
        return self._reader.stream(self._name)

    def lost(self, damage: Sequence[int]) -> Bool:
        """Mark the entries in damaged chunks."""
        return self._reader.touched(self._name, damage)


class Blocks:
    """An array that stands in the file in blocks.

    A forgiving reader gives zeros for blocks that are not what was written.

    Args:
        reader: The file.
        name: The array.
        wanted: What it was before it was compressed. No block may hold more than its rows of that.

    Raises:
        CorruptionError: The file has another array under that name, or none.
    """

    def __init__(self, reader: TensorReader, name: str, wanted: Tensor) -> None:
        self._reader, self._name, self._tensor = reader, name, wanted
        try:
            self._rows = int(reader.metadata[INDEX + name])
            index, self._size = reader.tensors[INDEX + name], reader.tensors[name].nbytes
            count = -(-wanted.shape[0] // self._rows)
            if self._rows < 1 or self._rows * wanted.width > max(_MOST, wanted.width):
                raise ValueError("invalid blocks")
            if index != Tensor(np.dtype(np.int64), (count, 2)) or reader.tensors[name].width != 1:
                raise ValueError("invalid blocks")
        except (LookupError, ValueError, TypeError, ArithmeticError):
            raise _another(reader, name) from None
        # A block has a checksum of its own, so a damaged chunk need not cost the others in it.
        self._bytes = reader.unchecked if reader.forgiving else reader.rows
        self._index = self._bytes(INDEX + name)
        self._kept = -1, np.empty(0, np.uint8)
        self._decoder: ZstdDecompressor | None = None

    def rows(self, first: int, last: int) -> Array:
        """Return the entries `[first, last)` of the first axis."""
        found = np.empty((last - first, *self._tensor.shape[1:]), self._tensor.dtype)
        self.read(first, found)
        return found

    def read(self, first: int, out: Array) -> None:
        """Fill the bytes of `out` with those of the array from the entry `first` on."""
        left: Bytes = out.reshape(-1).view(np.uint8)
        while len(left):
            number, row = divmod(first, self._rows)
            size = self._nbytes(number)
            if row or len(left) < size:  # a part of a block
                part = self._block(number)[row * self._tensor.width :][: len(left)]
                left[: len(part)] = part
            else:
                part = left[:size]
                self._unpack(number, part)
            first, left = first + len(part) // self._tensor.width, left[len(part) :]

    def stream(self) -> Stream:
        """Return a stream of the array from its first entry on."""
        return _BlockStream(self, self._tensor)

    def lost(self, damage: Sequence[int]) -> Bool:
        """Mark the entries of blocks that are not as written, or are no frame of their rows."""
        stage: Bytes = self._reader.room(self._nbytes(0) if len(self._index) else 0)
        bad = [not self._unpacked(number, stage[: self._nbytes(number)]) for number in range(len(self._index))]
        return np.repeat(np.array(bad, bool), self._rows)[: self._tensor.shape[0]]

    def _nbytes(self, number: int) -> int:
        """Count the bytes of a block's rows."""
        return min(self._rows, self._tensor.shape[0] - number * self._rows) * self._tensor.width

    def _block(self, number: int) -> Bytes:
        """Return the rows of a block; keep the last one, since the next read often begins in it."""
        if self._kept[0] != number:
            rows = np.empty(self._nbytes(number), np.uint8)
            self._unpack(number, rows)
            self._kept = number, rows
        return self._kept[1]

    def _sound(self, number: int) -> Bytes | None:
        """Return the bytes of a block, or None if they are not those that were written."""
        begin, (end, checksum) = int(self._index[number - 1, 0]) if number else 0, self._index[number].tolist()
        if not 0 <= begin <= end <= self._size:
            return None
        block = self._bytes(self._name, begin, end)
        return block if zlib.crc32(block.data) == checksum else None

    def _unpack(self, number: int, out: Bytes) -> None:
        """Fill `out`, which is as long as the rows of a block, with these."""
        if self._unpacked(number, out):
            return
        if not self._reader.forgiving:
            raise CorruptionError(event(f"Block {number} of `{self._name}` is not what was written", self._reader.at))
        out[:] = 0

    def _unpacked(self, number: int, out: Bytes) -> bool:
        """Check a block, and fill `out` with its rows if it is as written and has all of them."""
        block = self._sound(number)
        return block is not None and self._decoded(block, out)

    def _decoded(self, block: Bytes, out: Bytes) -> bool:
        """Decompress a block into `out`, if it has that size, without memory for more; return whether it succeeded."""
        with importing, needs("compress", "Field(compress)"):
            import zstandard
        decoder = self._decoder = self._decoder or zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
        try:
            if zstandard.frame_content_size(block.data) != len(out):
                return False
            with decoder.stream_reader(block.data) as stream:
                return stream.readinto(out.data) == len(out)
        except zstandard.ZstdError:
            return False


class _BlockStream:
    """The entries of an array in blocks, from the first on."""

    def __init__(self, blocks: Blocks, tensor: Tensor) -> None:
        self._blocks, self._tensor, self._next = blocks, tensor, 0
        self._stage: Bytes = np.empty(0, np.uint8)

    def rows(self, count: int) -> Array:
        """Return the next `count` entries; the next call overwrites them."""
        nbytes = count * self._tensor.width
        if len(self._stage) < nbytes:
            self._stage = np.empty(nbytes, np.uint8)
        self._blocks.read(self._next, self._stage[:nbytes])
        self._next += count
        return self._stage[:nbytes].view(self._tensor.dtype).reshape(count, *self._tensor.shape[1:])


def entries(reader: TensorReader, name: str, wanted: Tensor, *, compressed: bool) -> Entries:
    """Return an array of a file, plain or in blocks.

    Raises:
        CorruptionError: The file has another array under that name, or none.
    """
    return Blocks(reader, name, wanted) if compressed else Plain(reader, name, wanted)


def _another(reader: TensorReader, name: str) -> CorruptionError:
    return CorruptionError(event(f"`{name}` has another shape than the schema says", reader.at))
