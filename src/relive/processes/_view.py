"""A ring as items of another kind see it: the same steps, under another window."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from .._base.types import Bytes, Int64
from .._ring.lanes import (
    CLEARED,
    CUTS,
    DRAWABLE,
    ENDS,
    GONE,
    HEAD,
    HELD,
    MEMORY,
    OLDEST,
    READY,
    READY_STEPS,
    REPEATS,
    START,
    STEP,
    STEPS,
    STORED,
    UNBOOTSTRAPPED,
    anchors_in,
    get_rows,
    set_rows,
)
from .._ring.plans import Window
from .._ring.recount import StoredMarks, oldest_in, ready_in
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..samplers import Index

_COUNTED = [STEPS, STORED, CUTS, UNBOOTSTRAPPED, ENDS, REPEATS]
_NO_IDS = np.empty(0, np.int64)


class ReaderView:
    """Marks and counters of this process's own, which follow those of a ring that others write.

    Which steps are drawable depends on how far an item looks around them, and the ring's own counters say so for the
    item of its creator alone. The fields of the steps are the ring's.

    Args:
        window: That of this process's item.
        ring: The ring.

    Attributes:
        ring: The same ring under `window`.

    Raises:
        ArgumentError: Items would start at steps that the ring does not number.
    """

    def __init__(self, window: Window, ring: Ring) -> None:
        if window.starts not in (1, ring.window.starts):
            every, got = (
                f"every {starts} steps" if starts else "with episodes" for starts in (ring.window.starts, window.starts)
            )
            wanted = f"items that start {every}"
            remedy = "make the buffer with this item, so that its steps are numbered for it"
            raise ArgumentError(message(wanted, got, "open(item)", remedy))
        self._window, self._of_ring, self._every = window, ring, window.starts == 1 != ring.window.starts
        self._counters, self._marks = ring.counters, ring.marks
        self._copied = np.zeros(ring.lanes, np.int64)
        self._before = np.full_like(ring.counters, -1)
        # How far behind its head a writer may still change marks.
        self._back = 2 * ring.window.lookback + 4
        self.ring = ring.under(window, np.zeros_like(ring.marks))
        self._own = self.ring.counters
        ring.kernel.look()
        self.take_in()

    def following(self, index: Any) -> Index:
        """Wrap a sampler's index over `ring` so that it first takes in changes of the ring that others write."""
        return cast(Index, _Following(index, self))  # everything but `refresh` is the index's

    def take_in(self) -> None:
        """Follow the ring to what it is now."""
        self._of_ring.kernel.overtaken(_NO_IDS)  # nothing that is read below is read before what was copied above
        now, own = self._of_ring.kernel.snapshot(), self._own
        if (now == self._before).all():  # nothing was written
            return
        self._before = now
        told = [HELD, CUTS, GONE, CLEARED]
        moved = (now[:, HEAD] != self._copied) | (now[:, told] != own[:, told]).any(axis=1)
        for lane in np.flatnonzero(moved).tolist():
            self._follow(lane, now[lane])

    def _follow(self, lane: int, now: Int64) -> None:
        own, rows = self._own[lane], self._of_ring.rows
        head = int(now[HEAD])
        held = head > 0 and int(now[HELD]) == head
        begin = max(min(int(self._copied[lane]) - self._back, int(own[READY])), head - rows, int(now[CLEARED]), 0)
        marks = get_rows(self._marks, lane, begin, head).copy()
        self._of_ring.kernel.overtaken(_NO_IDS)
        # Older rows may have been overwritten before they were copied.
        gone_before = int(self._counters[lane, GONE])
        first = min(max(gone_before, int(now[CLEARED]), head - rows, 0), head)
        if self._every:
            marks[(marks & STEP) > 0] |= START
        before, ready_before = int(own[OLDEST]), int(own[READY])
        gone = self._anchors(lane, before, min(first, ready_before))
        if now[CLEARED] > own[CLEARED]:
            self.ring.marks[:, lane] = 0
        set_rows(self.ring.marks, lane, begin, marks)
        # The row at `head` holds an observation alone; the mark of a lap ago stood there.
        set_rows(self.ring.marks, lane, head, np.zeros(1, np.uint8))
        back = self._window.lookback
        kept = get_rows(self.ring.marks, lane, first, min(first + back, head))
        oldest = min(max(before, int(oldest_in(_stored(kept, first), back)[0])), head)
        gone += self._anchors(lane, max(first, before), min(oldest, ready_before))
        ready = int(ready_in(_stored(marks, begin), np.array([held]), self._window)[0])
        ready = min(max(ready, ready_before, oldest), head)
        own[[OLDEST, READY, HEAD, HELD]] = oldest, ready, head, head if held else 0
        own[[CLEARED, MEMORY]] = now[CLEARED], head % self.ring.marks[:, 0].size
        own[GONE] = gone_before
        own[_COUNTED] = now[_COUNTED]
        own[READY_STEPS] = now[STEPS] - np.count_nonzero(marks[ready - begin :] & STEP)
        own[DRAWABLE] += self._anchors(lane, max(ready_before, oldest), ready) - gone
        self._copied[lane] = head

    def _anchors(self, lane: int, first: int, last: int) -> int:
        if last <= first:
            return 0
        return int(np.count_nonzero(anchors_in(get_rows(self.ring.marks, lane, first, last))))


def _stored(marks: Bytes, first: int) -> StoredMarks:
    """Hold the marks of one lane's rows from `first` on."""
    return StoredMarks.of(marks, np.array([first]), np.array([first + len(marks)]))


class _Following:
    """An index that takes in what others wrote before it looks."""

    def __init__(self, index: Index, view: ReaderView) -> None:
        self._index, self._view = index, view

    def refresh(self) -> int:
        """Take in changes, then refresh the index."""
        self._view.take_in()
        return self._index.refresh()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)
