"""Rows that are still to be written to a file are copied before a lane overwrites them.

A save takes its small arrays at one instant, and its steps afterwards. Steps never change, but their memory is used
again when a lane has gone round. So before a call may overwrite such rows, it asks the guard, which copies them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from .._base import forks
from .._base.types import Array, Bytes, Int64
from .._ring import kernels
from .._ring.lanes import HEAD, items_of, ranges
from .._ring.ring import Ring
from ..schema import Schema

_NEVER = sys.maxsize
_PIECE = 1 << 20  # bytes that one call copies at least, so that few calls have to


class _Kept:
    """Copies of rows of some lanes.

    Attributes:
        lanes: The lanes, int64 `[n]`.
        first: The first row of each that was copied.
        last: The row after the last.
        columns: For each column the copied units, one lane after the other.
        ends: For each column where each lane's units end in it.
    """

    def __init__(self, ring: Ring, every: Sequence[int | None], lanes: Int64, first: Int64, last: Int64) -> None:
        self.lanes, self.first, self.last = lanes, first, last
        self.columns: list[Array] = []
        self.ends: list[Int64] = []
        for array, kept in zip(ring.columns, every, strict=True):
            begin, end = first // (kept or 1), -(-last // (kept or 1))
            which, units = ranges(begin, end)
            self.columns.append(array[ring.units(units * (kept or 1), lanes[which], kept)])
            self.ends.append(np.cumsum(end - begin))

    def units(self, column: int, i: int) -> Array:
        """Return the units of a column of the i-th of the lanes."""
        ends = self.ends[column]
        return self.columns[column][ends[i - 1] if i else 0 : ends[i]]


class CopyOnOverwrite:
    """Keeps `ranges` of rows readable while a buffer goes on.

    Args:
        schema: The fields of a step.
        ring: The steps.
        ranges: int64 `[n, 3]`: lane, first, last.

    Attributes:
        limits: The `head` that each lane may reach before `before` has to be asked, int64 `[L]`.
    """

    def __init__(self, schema: Schema, ring: Ring, ranges: Int64) -> None:
        self._ring, self._every = ring, [column.field.every for column in schema.columns]
        self._end = np.zeros(ring.lanes, np.int64)
        self.limits: Int64 = np.full(ring.lanes, _NEVER)
        np.minimum.at(self.limits, ranges[:, 0], ranges[:, 1] + ring.rows)
        np.maximum.at(self._end, ranges[:, 0], ranges[:, 2])
        self._kept: dict[int, list[tuple[_Kept, int]]] = {}  # by lane, with its place among the lanes
        self._step = max(1, _PIECE // schema.nbytes)
        # A step takes a row, one for a final observation, and with both of them older frames.
        self._most = 2 + 2 * ring.window.lookback
        forks.tell(self)

    def _forked(self) -> None:
        """Close in a child, where the rows are not written."""
        self.close()

    def close(self) -> None:
        """Free the copies, since the rows have been written."""
        self.limits[:] = _NEVER
        self._kept.clear()

    def before(self, lanes: Int64, steps: int) -> None:
        """Copy what `steps` steps of each of `lanes` may overwrite; called under the buffer's lock."""
        until = self._ring.counters[lanes, HEAD] + self._most * (steps + 1) - self._ring.rows
        late = until > self.limits[lanes] - self._ring.rows
        if not late.any():
            return
        lanes, until = lanes[late], until[late]
        first = self.limits[lanes] - self._ring.rows
        last = np.minimum(np.maximum(until, first + max(1, self._step // len(lanes))), self._end[lanes])
        kept = _Kept(self._ring, self._every, lanes, first, last)
        for i, lane in enumerate(lanes.tolist()):
            self._kept.setdefault(lane, []).append((kept, i))
        self.limits[lanes] = np.where(last < self._end[lanes], last + self._ring.rows, _NEVER)

    def copy(self, columns: Sequence[int], units: Int64, outs: Sequence[Bytes]) -> None:
        """Copy ranges of units of columns, as they were at the instant of the save, to the bytes `outs`.

        Args:
            columns: Numbers of columns that are kept at the same steps.
            units: int64 `[n, 3]`: lane, first, last.
            outs: For each column as many bytes as the units have.
        """
        every = self._every[columns[0]]
        arrays = [items_of(self._ring.columns[column], 1) for column in columns]
        found = [out.view(array.dtype) for out, array in zip(outs, arrays, strict=True)]
        block = self._ring.marks.shape[2] if every is None else 1
        rows = [array[: -1 if every is None else None] for array in arrays]
        kernels.active().copy_ranges(rows, self._ring.lanes, block, units, found)
        # After the copy: what was overwritten meanwhile has been kept before.
        done = 0
        for lane, first, last in units.tolist() if self._kept else ():
            for kept, i in self._kept.get(lane, ()):
                offset = int(kept.first[i]) // (every or 1)
                begin, end = max(first, offset), min(last, -(-int(kept.last[i]) // (every or 1)))
                for column, out in zip(columns, found, strict=True) if begin < end else ():
                    copied = items_of(kept.units(column, i), 1)[begin - offset : end - offset]
                    out[done + begin - first : done + end - first] = copied
            done += last - first
