"""Rows that are still to be written to a file are copied before a lane overwrites them.

A save takes its small arrays at one instant, and its steps afterwards. Steps never change, but their memory is used
again when a lane has gone round. So before a call may overwrite such rows, it asks the guard, which copies them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from .._lanes import HEAD
from .._ring import Ring
from .._types import Array, Int64
from ..schema import Schema

_NEVER = sys.maxsize
_PIECE = 1 << 20  # bytes that one call copies at least, so that few calls have to


class _Kept:
    """Copies of the rows `[first, last)` of a lane, one array for each column, in its units."""

    def __init__(self, first: int, last: int, columns: Sequence[Array]) -> None:
        self.first, self.last, self.columns = first, last, columns


class Guard:
    """Keeps `ranges` of rows readable while a buffer goes on.

    Args:
        schema: What one step holds.
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
        self._kept: dict[int, list[_Kept]] = {}
        self._step = max(1, _PIECE // schema.nbytes)
        # A step takes a row, one for a final observation, and with both of them older frames.
        self._most = 2 + 2 * ring.window.lookback

    def before(self, lanes: Int64, steps: int) -> None:
        """Copy what `steps` steps of each of `lanes` may overwrite; called under the buffer's lock."""
        heads = self._ring.counters[lanes, HEAD] + self._most * (steps + 1)
        for lane, head in zip(lanes.tolist(), heads.tolist(), strict=True):
            if head > self.limits[lane]:
                self._keep(lane, head - self._ring.rows)

    def read(self, column: int, lane: int, first: int, last: int) -> Array:
        """The units `[first, last)` of a column, as they were at the instant of the save."""
        found = self._copy(column, lane, first, last)
        limit = int(self.limits[lane])  # after the copy: what was overwritten meanwhile has been kept before
        every = self._every[column] or 1
        for kept in self._kept.get(lane, ()) if first * every < limit - self._ring.rows else ():
            begin, end = max(first, kept.first // every), min(last, -(-kept.last // every))
            if begin < end:
                offset = kept.first // every
                found[begin - first : end - first] = kept.columns[column][begin - offset : end - offset]
        return found

    def _keep(self, lane: int, last: int) -> None:
        first = int(self.limits[lane]) - self._ring.rows
        last = min(max(last, first + self._step), int(self._end[lane]))
        columns = []
        for number, every in enumerate(self._every):
            k = every or 1
            columns.append(self._copy(number, lane, first // k, -(-last // k)))
        self._kept.setdefault(lane, []).append(_Kept(first, last, columns))
        self.limits[lane] = last + self._ring.rows if last < self._end[lane] else _NEVER

    def _copy(self, column: int, lane: int, first: int, last: int) -> Array:
        every = self._every[column]
        rows = np.arange(first, last) * (every or 1)
        return self._ring.columns[column][self._ring.units(rows, lane, every)]
