"""One lane of a saved buffer: its counters, and what ring and sampler keep for each of its rows.

They change when the same rows are to be drawn as other items, or in a ring of another size.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .._base.frozen import Frozen
from .._base.types import Array, Bytes, Int64
from .._ring.lanes import (
    CLEARED,
    COUNTERS,
    GONE,
    HEAD,
    HELD,
    OLDEST,
    READY,
    STEPS,
    anchors_in,
    depth_of,
    first_rows,
)
from .._ring.plans import Window
from .._ring.recount import first_kept, oldest_in, ready_in, recount, recount_ready_steps, steps_in, with_starts
from . import _names as names

MOST = 2**62  # ids stay below it


class Lane(Frozen):
    """The rows `[first, head)` of a lane.

    Attributes:
        counters: int64 `[16]`.
        first: The oldest row.
        marks: uint8, one for each row, like those that follow.
        kept: What the ring records for each row: `given`, `arrival`.
        slots: What the sampler keeps for each row.
    """

    counters: Int64
    first: int
    marks: Bytes
    kept: Mapping[str, Array]
    slots: Mapping[str, Array]

    @property
    def head(self) -> int:
        """The row after the newest."""
        return int(self.counters[HEAD])

    def anchors(self) -> Int64:
        """The rows whose items can be drawn."""
        return self.first + self.drawable()

    def drawable(self) -> Int64:
        """Likewise, counted from the first row on."""
        first = max(int(self.counters[OLDEST]) - self.first, 0)
        found = np.flatnonzero(anchors_in(self.marks[first : int(self.counters[READY]) - self.first]))
        found += first
        return found

    def fits(self) -> bool:
        """Whether its counters can be those of these rows; what follows from the marks is counted again."""
        c = self.counters
        inside = all(self.first <= c[row] <= c[HEAD] for row in (OLDEST, READY))
        inside = inside and c[GONE] <= c[HEAD]
        return bool(inside and c[HELD] in (0, c[HEAD]) and c[STEPS] >= steps_in(self.marks))

    def refitted(self, window: Window, lanes: int, rows: int, steps: int) -> Lane:
        """The same lane as one of `lanes` in a ring of another size, under the window of another item.

        Args:
            window: That item's.
            lanes: Lanes of the ring.
            rows: Rows of its lanes.
            steps: Steps that its lanes keep, the newest.
        """
        first = max(first_kept(self.marks, self.first, steps), self.head - rows)
        cut = first - self.first
        marks = with_starts(self.marks[cut:], int(self.counters[STEPS]), window.starts)
        kept = {name: array[cut:] for name, array in self.kept.items()}
        slots = {name: array[cut:] for name, array in self.slots.items()}
        return Lane(self.counters, first, marks, kept, slots).counted(window, lanes, rows)

    def counted(self, window: Window, lanes: int, rows: int) -> Lane:
        """The same lane, in a ring of that size, with the counters that follow from its marks."""
        head, first, marks = self.head, self.first, self.marks
        held = int(self.counters[HELD] > 0)
        counters = self.counters.astype(np.int64)
        oldest = oldest_in(marks, first, window.lookback)
        counters[HELD] = held * head
        if first > head - rows:  # the ring has room for older rows, and they are not there
            counters[CLEARED] = first
        ready = max(ready_in(marks, first, held, window), oldest)
        recount(counters, marks, first, oldest, ready, depth_of(lanes, rows))
        recount_ready_steps(counters, marks, first)
        return Lane(counters, first, marks, self.kept, self.slots)


def lanes_of(arrays: Mapping[str, Array], rows: int) -> list[Lane]:
    """The lanes in the small arrays of a save, of a ring whose lanes have `rows` rows.

    Raises:
        ValueError, KeyError: The arrays do not fit each other.
    """
    counters, clock, marks = arrays[names.COUNTERS], arrays[names.CLOCK], arrays[names.MARKS]
    if counters.shape[1:] != (COUNTERS,) or clock.shape != (2,) or not counters.dtype == clock.dtype == np.int64:
        raise ValueError("invalid counters")
    if (counters < 0).any() or (counters >= MOST // len(counters)).any() or not 0 <= clock[0] < MOST:
        raise ValueError("counters out of range")
    heads = counters[:, HEAD]
    firsts = first_rows(counters, rows)
    if (heads < firsts).any() or marks.dtype != np.uint8 or marks.shape != (sum((heads - firsts).tolist()),):
        raise ValueError("rows are missing")
    by_row = {name: array for name, array in arrays.items() if name.startswith((names.ROWS, names.SLOTS))}
    if any(array.shape != marks.shape for array in by_row.values()):
        raise ValueError("arrays of different lengths")
    given, arrival = arrays.get(names.GIVEN), arrays.get(names.ARRIVAL)
    if given is not None and not (given.dtype == np.float64 and ((given <= 0) & (given > -np.inf)).all()):
        raise ValueError("invalid priorities")
    if arrival is not None and not (arrival.dtype == np.int64 and ((arrival >= 0) & (arrival <= clock[0])).all()):
        raise ValueError("invalid arrivals")
    found, end = [], 0
    for row, first in zip(counters, firsts.tolist(), strict=True):
        begin, end = end, end + int(row[HEAD]) - first
        kept, slots = (
            {name.removeprefix(kind): array[begin:end] for name, array in by_row.items() if name.startswith(kind)}
            for kind in (names.ROWS, names.SLOTS)
        )
        found.append(Lane(row, first, marks[begin:end], kept, slots))
    return found
