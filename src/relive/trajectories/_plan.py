"""Where everything is in a trajectory's file: offsets follow from fields, steps and environments.

The file is safetensors, with a table of checksums, one for every row of every field.

A row is one chunk-step of one environment: row `t * B + b` of `[T, B, ...]`. Its offset is computed, not stored. A
*shared* `next_obs` is `curr_obs` one step later: `curr_obs` has T + 1 steps, `next_obs` is not written, and its row k
is row k + B of `curr_obs`. The last four bytes, the *mark*, are the checksum of header and table. The index has it,
too, so a different file of the same size under the same name is noticed.

Rows of a *compressed* field are zstd frames of different sizes. They stand between table and mark; the file begins with
where each of them does. The table has their CRC-32, so that damage is found before anything is decompressed.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Generic, TypeVar

from .._base.types import Int64
from .._disk import safetensors
from ._layout import FieldLayout

N = TypeVar("N", int, Int64)

CHECKSUMS, MARK, PADDING = "relive/crc32", "relive/checksum", "relive/padding"
BEGINS, FRAMES = "relive/begins", "relive/frames"
_ZSTD_BLOCK = 1 << 17  # bytes that a part of a frame holds at most


def most_of_frame(width: int) -> int:
    """Return the most bytes that a frame of a row of so many bytes takes."""
    return width + width // 128 + 64


class FilePlan(Generic[N]):
    """The offsets in a file, which follow from layout, length and width; or in many files, given arrays.

    Attributes:
        steps: Of each stored field.
        starts: Of each stored field, in bytes from the end of the header; of no meaning for compressed ones.
        begins: How many numbers at the start of the data say where frames begin, and where the last one ends.
        padding: Bytes behind the fields, which align the table; a tensor of its own, as safetensors requires.
        table: Start of the checksums, `rows` for each field.
        frames: Start of the frames of compressed fields.
        nbytes: Bytes behind the header, all but the frames: the mark stands behind them.
        least: Bytes that the frames take at least.
        most: Bytes that the frames take at most; a little more than what is in them.
    """

    def __init__(self, layout: FieldLayout, length: N, width: N) -> None:
        self.layout: FieldLayout = layout
        self.length: N = length
        self.width: N = width
        self.steps: list[N] = [layout.steps(column.path, length) for column in layout.stored]
        self.starts: list[N] = []
        self.rows: N = (length + bool(layout.shared)) * width
        self.begins: N = self.rows * len(layout.packed) + bool(layout.packed)
        end: N = 8 * self.begins
        self.least: N = 0 * length
        self.most: N = 0 * length
        for column, steps in zip(layout.stored, self.steps, strict=True):
            self.starts.append(end)
            rows = steps * width
            if column.path in layout.compressed:
                self.least = self.least + rows * (4 * -(-column.nbytes // _ZSTD_BLOCK))
                self.most = self.most + rows * (most_of_frame(column.nbytes) + 4)
            else:
                end = end + rows * column.nbytes
        self.padding: N = -end % 4
        self.table: N = end + self.padding
        self.frames: N = self.table + self.rows * (4 * len(self.starts))
        self.nbytes: N = self.frames + 4

    def fits(self, nbytes: N) -> Any:
        """Return whether so many bytes can follow the header of a file."""
        frames = nbytes - self.nbytes
        return (frames >= self.least) & (frames <= self.most) & (frames % 4 == 0)

    def tensors(self, packed: int) -> dict[str, dict[str, Any]]:
        """Return the header's facts of each tensor, by name; of one file with so many bytes of frames."""
        tensors: dict[str, dict[str, Any]] = {}
        padding, table, frames = int(self.padding), int(self.table), int(self.frames)
        if self.begins:
            tensors[BEGINS] = safetensors.tensor("int64", [int(self.begins)], 0, 8 * int(self.begins))
        for column, steps, start in zip(self.layout.stored, self.steps, self.starts, strict=True):
            rows, name = (int(steps), int(self.width)), "/".join(column.path)
            nbytes = math.prod(rows) * column.nbytes
            if column.path not in self.layout.compressed:
                tensors[name] = safetensors.tensor(column.dtype, rows + column.shape, int(start), nbytes)
        if padding:
            tensors[PADDING] = safetensors.tensor("uint8", [padding], table - padding, padding)
        tensors[CHECKSUMS] = safetensors.tensor("uint32", [int(self.rows), len(self.starts)], table, frames - table)
        if self.begins:
            tensors[FRAMES] = safetensors.tensor("uint8", [packed], frames, packed)
        tensors[MARK] = safetensors.tensor("uint32", [1], frames + packed, 4)
        return tensors


@lru_cache(maxsize=256)
def plan_of(layout: FieldLayout, length: int, width: int) -> FilePlan[int]:
    """Return the plan of a layout and size, from a cache."""
    return FilePlan(layout, length, width)


def plan_of_all(layout: FieldLayout, length: Int64, width: Int64) -> FilePlan[Int64] | FilePlan[int]:
    """Return the plan of many files; of one size, mostly, for which it is known."""
    alike = (length == length[0]).all() and (width == width[0]).all()
    return plan_of(layout, int(length[0]), int(width[0])) if alike else FilePlan(layout, length, width)
