"""What the Triton kernels that read and write rows share: the columns of a buffer as words, and where rows are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .._ring.lanes import HEAD
from ._layout import Layout, Part
from ._state import State

WORD = 4  # bytes
SMALLEST_BLOCK, LARGEST_BLOCK = 32, 1024

_HEAD = tl.constexpr(HEAD)


class Words(NamedTuple):
    """Fields of rows as words of four bytes, or single bytes where that does not fit.

    Attributes:
        rows: For each field a view of the tensor that has it, flat.
        offsets: Its first word in a row.
        words: Its words.
        strides: Words of a row.
        every: Of how many rows one is kept, in a tensor of their own; 0: all are in the rows.
        kept: Rows of a lane in that tensor.
        frames: Frames that a value of it shows, each of so many words.
        repeats: 1 where a stream's first frame stands for those before it, 0 where zeros do.
    """

    rows: tuple[Tensor, ...]
    offsets: tuple[int, ...]
    words: tuple[int, ...]
    strides: tuple[int, ...]
    every: tuple[int, ...]
    kept: tuple[int, ...]
    frames: tuple[int, ...]
    repeats: tuple[int, ...]

    @classmethod
    def of(cls, layout: Layout, state: State, parts: Sequence[Part]) -> Words:
        """The fields `parts`."""
        sizes = [size_of(layout, part) for part in parts]
        rows = [in_words(state.columns[part.array], size) for part, size in zip(parts, sizes, strict=True)]
        return cls(
            tuple(rows),
            tuple(part.offset // size for part, size in zip(parts, sizes, strict=True)),
            tuple(part.nbytes // size for part, size in zip(parts, sizes, strict=True)),
            tuple(layout.widths[part.array] // size for part, size in zip(parts, sizes, strict=True)),
            tuple(part.every for part in parts),
            tuple(layout.kept(part) if part.every else 0 for part in parts),
            tuple(part.frames for part in parts),
            tuple(int(part.repeats) for part in parts),
        )

    @property
    def block(self) -> int:
        """How many words a program takes at a time."""
        widest = max(self.words, default=1)
        return min(max(1 << (widest - 1).bit_length(), SMALLEST_BLOCK), LARGEST_BLOCK)


def size_of(layout: Layout, part: Part) -> int:
    """Bytes of the words in which a field is copied."""
    return WORD if (part.nbytes | part.offset | layout.widths[part.array]) % WORD == 0 else 1


def in_words(tensor: Tensor, size: int) -> Tensor:
    """A contiguous tensor as words of `size` bytes, flat."""
    return tensor.reshape(-1).view(torch.int32 if size == WORD else torch.uint8)


@triton.jit
def at_of(row, lane, LANES: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr):
    """Where rows of lanes are in the tensors; any number leads somewhere inside."""
    memory = row % DEPTH
    memory = tl.where(memory < 0, memory + DEPTH, memory)
    return (memory // TOGETHER * LANES + lane) * TOGETHER + memory % TOGETHER


@triton.jit
def copy(source, there, to, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Copy a field; zeros, where there is none."""
    for start in range(0, WORDS, BLOCK):
        i = start + tl.arange(0, BLOCK)
        here = i < WORDS
        tl.store(to + i, tl.load(source + i, (here & there) != 0, 0), here)


@triton.jit
def copy_chunk(
    source,
    row,
    lane,
    steps,
    there,
    to,
    STRIDE: tl.constexpr,
    WORDS: tl.constexpr,
    SEVERAL: tl.constexpr,
    LANES: tl.constexpr,
    DEPTH: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy a field of `steps` rows of a lane; zeros behind them."""
    for ahead in range(SEVERAL):
        place = at_of(row + ahead, lane, LANES, DEPTH, TOGETHER)
        copy(source + place * STRIDE, there & (ahead < steps), to + ahead * WORDS, WORDS, BLOCK)


@triton.jit
def differs(one, begin, other, here_begin, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Whether two stretches of words differ."""
    found = 0
    for start in range(0, WORDS, BLOCK):
        i = start + tl.arange(0, BLOCK)
        here = i < WORDS
        a = tl.load(one + begin + i, here, 0)
        b = tl.load(other + here_begin + i, here, 0)
        found += tl.sum((a != b).to(tl.int32))
    return found


@triton.jit
def put(to, begin, source, from_begin, who, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Copy a field where `who` says so; elsewhere what stands there stays."""
    for start in range(0, WORDS, BLOCK):
        i = start + tl.arange(0, BLOCK)
        here = ((i < WORDS) & who) != 0
        tl.store(to + begin + i, tl.load(source + from_begin + i, here, 0), here)


@triton.jit
def unit_of(row, lane, LANES: tl.constexpr, EVERY: tl.constexpr, KEPT: tl.constexpr):
    """Where a field that is kept at every so many steps has rows of lanes; any number leads somewhere inside."""
    return tl.maximum(row, 0) // EVERY % KEPT * LANES + lane


@triton.jit
def row_of(counters, slot, LANES: tl.constexpr, ROWS: tl.constexpr, COUNTERS: tl.constexpr):
    """The newest row that has a slot, and its lane."""
    lane = slot % LANES
    head = tl.load(counters + lane * COUNTERS + _HEAD)
    behind = head % ROWS - slot // LANES
    return head - tl.where(behind > 0, behind, behind + ROWS), lane
