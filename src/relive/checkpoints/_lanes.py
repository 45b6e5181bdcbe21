"""The lanes of a saved buffer: their counters, and what ring and sampler keep for each of their rows.

They change when the same rows are to be drawn as other items, or in a ring of another size.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .._base.frozen import Frozen
from .._base.types import Array, Bytes, Float64, Int64
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
    ranges,
)
from .._ring.plans import Window
from .._ring.recount import (
    StoredMarks,
    first_kept,
    oldest_in,
    ready_in,
    recount,
    recount_ready_steps,
    steps_in,
    with_starts,
)
from . import _names as names

MOST = 2**62  # ids stay below it


class Lanes(Frozen):
    """The rows `[first, head)` of each lane; N rows together, one lane after the other.

    Attributes:
        counters: int64 `[L, 16]`.
        stored: The marks of the rows.
        given: The priority that each row was given, `[N]`, as the ring has it; None: none was.
        slots: What the sampler keeps for each row, `[N]`.
    """

    counters: Int64
    stored: StoredMarks
    given: Float64 | None
    slots: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.counters)

    @property
    def first(self) -> Int64:
        """The oldest row of each lane."""
        return self.stored.first

    @property
    def head(self) -> Int64:
        """The row after the newest."""
        return self.stored.head

    @property
    def marks(self) -> Bytes:
        """Those of all rows."""
        return self.stored.marks

    @property
    def steps(self) -> int:
        """The number of steps that all lanes were ever given."""
        return int(self.counters[:, STEPS].sum())

    def rows(self) -> tuple[Int64, Int64]:
        """Return all rows: their lanes, and their numbers there."""
        return ranges(self.first, self.head)

    def drawable(self) -> Int64:
        """Return the rows whose items can be drawn, as positions among all rows."""
        at, anchors = self.stored.at, anchors_in(self.marks)
        _, before = ranges(self.stored.begin, at(self.counters[:, OLDEST]))
        _, behind = ranges(at(self.counters[:, READY]), self.stored.end)
        anchors[before] = anchors[behind] = False
        return np.flatnonzero(anchors)

    def fit(self) -> bool:
        """Check that counters can be those of these rows; those that follow from the marks are counted again."""
        first, c = self.first, self.counters.T
        inside = [(first <= c[row]) & (c[row] <= c[HEAD]) for row in (OLDEST, READY)]
        good = inside[0] & inside[1] & (c[GONE] <= c[HEAD]) & (c[STEPS] >= steps_in(self.stored))
        return bool((good & ((c[HELD] == 0) | (c[HELD] == c[HEAD]))).all())

    def refitted(self, chosen: Int64, window: Window, lanes: int, rows: int, steps: int) -> Lanes:
        """Fit some of the lanes to a ring of another size, under the windows of another item and sampler.

        Args:
            chosen: Which of the lanes.
            window: That of the item.
            lanes: Lanes of the ring.
            rows: Rows of its lanes.
            steps: Steps that its lanes keep, the newest.
        """
        stored = self.stored
        first = np.maximum(first_kept(stored, steps), self.head - rows)
        _, at = ranges(stored.at(first)[chosen], stored.end[chosen])
        counters, stored = self.counters[chosen], StoredMarks.of(self.marks[at], first[chosen], self.head[chosen])
        stored = StoredMarks.of(with_starts(stored, counters[:, STEPS], window.starts), stored.first, stored.head)
        given = None if self.given is None else self.given[at]
        return Lanes(counters, stored, given, {}).counted(window, lanes, rows)

    def counted(self, window: Window, lanes: int, rows: int) -> Lanes:
        """Recount the counters that follow from the marks, for a ring of that size."""
        stored, counters = self.stored, self.counters.copy()
        head, first, held = self.head, self.first, counters[:, HELD] > 0
        counters[:, HELD] = held * head
        # Where the ring has room for older rows, they are not there.
        counters[:, CLEARED] = np.where(first > head - rows, first, counters[:, CLEARED])
        oldest = oldest_in(stored, window.lookback)
        recount(counters, stored, oldest, np.maximum(ready_in(stored, held, window), oldest), depth_of(lanes, rows))
        recount_ready_steps(counters, stored)
        return Lanes(counters, stored, self.given, self.slots)


def lanes_of(arrays: Mapping[str, Array], rows: int) -> Lanes:
    """Read the lanes of a ring with `rows` rows a lane from the small arrays of a save.

    Raises:
        ValueError, KeyError: The arrays do not fit each other.
    """
    counters, clock, marks = arrays[names.COUNTERS], arrays[names.CLOCK], arrays[names.MARKS]
    if counters.shape[1:] != (COUNTERS,) or clock.shape != (2,) or not counters.dtype == clock.dtype == np.int64:
        raise ValueError("invalid counters")
    if (counters < 0).any() or (counters >= MOST // len(counters)).any() or not 0 <= clock[0] < MOST:
        raise ValueError("counters out of range")
    head, first = counters[:, HEAD], first_rows(counters, rows)
    if (head < first).any() or marks.dtype != np.uint8 or marks.shape != ((head - first).sum(),):
        raise ValueError("rows are missing")
    slots = {name.removeprefix(names.SLOTS): array for name, array in arrays.items() if name.startswith(names.SLOTS)}
    if any(array.shape != marks.shape for name, array in arrays.items() if name.startswith((names.ROWS, names.SLOTS))):
        raise ValueError("arrays of different lengths")
    given = arrays.get(names.GIVEN)
    if given is not None and not (given.dtype == np.float64 and ((given <= 0) & (given > -np.inf)).all()):
        raise ValueError("invalid priorities")
    return Lanes(counters, StoredMarks.of(marks, first, head), given, slots)
