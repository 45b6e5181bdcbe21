"""Items that are not the buffer's: the same steps under other windows."""

from __future__ import annotations

import numpy as np

from .._base.check import distinct
from .._base.memory import Arena
from .._base.types import Int64
from .._ring.lanes import HEAD, HELD, OLDEST, READY, STEP, anchors_in, first_rows, ranges
from .._ring.plans import State
from .._ring.recount import StoredMarks, oldest_in, ready_in
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..items import Item
from ..schema import Schema
from .arguments import stale


class Reader:
    """An item bound to a buffer's steps that is not the buffer's own.

    The ring's counters say which steps its own items can start at. For another item they are counted from the marks, in
    the lanes that are asked for: near the oldest row and near the newest.

    Args:
        item: The item.
        schema: The fields of a step.
        ring: As the buffer's own items see it.
        at: The argument that named it.

    Raises:
        ArgumentError: The item does not fit the schema or the lanes, or starts at steps that the ring does not number.
    """

    def __init__(self, item: Item, schema: Schema, ring: Ring, at: str) -> None:
        item.check(schema, ring.steps)
        self.item, self._ring, self._window = item, ring, item.window(schema)
        if self._window.starts not in (1, ring.window.starts):
            every = f"every {ring.window.starts} steps" if ring.window.starts else "with an episode"
            wanted, remedy = f"an item that starts {every}, or at any", "leave out `starts`"
            raise ArgumentError(message(wanted, f"`{item!r}`", at, remedy))
        self._anywhere = self._window.starts == 1 != ring.window.starts
        # A step takes a row, one for a final observation, and with both of them older frames.
        older = max(column.field.frames for column in schema.columns) - 1
        self._tail = (self._window.span + 3) * (2 + 2 * older)
        self._own = ring.under(self._window.__replace__(span=max(self._window.span, 1)))
        self.expander = item.bind(schema, self._own, Arena())

    def ids(self) -> Int64:
        """Return the ids of all items, by lane and age."""
        lanes = np.arange(self._own.lanes)
        self._count(lanes)
        lanes, rows = ranges(self._own.counters[:, OLDEST], self._own.counters[:, READY])
        marks = self._own.marks[self._own.at(rows, lanes)]
        starts = (marks & STEP) > 0 if self._anywhere else anchors_in(marks)
        return np.asarray((rows * self._own.lanes + lanes)[starts])

    def located(self, ids: Int64, at: str) -> tuple[Int64, Int64]:
        """Return the slots of items, and ids before which nothing is read of each.

        Raises:
            StaleId: An item cannot be read.
        """
        ring = self._own
        rows, lanes = np.divmod(ids, ring.lanes)
        self._count(distinct(lanes))
        _, states = ring.locate(ids)
        if states is not None:
            if self._anywhere:
                waits = np.where(rows < ring.counters[lanes, READY], State.DRAWABLE, State.INCOMPLETE)
                states = np.where(states == State.NO_START, waits, states).astype(np.uint8)
            bad = states != State.DRAWABLE
            if bad.any():
                raise stale(ids, states, bad, at, f"items that `{self.item!r}` can show" if len(ids) else "items")
        first = np.maximum(rows - self._window.lookback, first_rows(ring.counters, ring.rows)[lanes])
        return ids % ring.slots, first * ring.lanes + lanes

    def _count(self, lanes: Int64) -> None:
        """Count anew from which row, and up to which, items of some lanes can be read."""
        counters, window, marks = self._own.counters, self._window, self._ring.marks
        counters[:] = self._ring.kernel.snapshot()
        now = counters[lanes]
        first, head = first_rows(now, self._own.rows), now[:, HEAD]
        low = StoredMarks.read(marks, lanes, first, np.minimum(first + window.lookback, head))
        ready = head
        if window.span:
            high = StoredMarks.read(marks, lanes, np.maximum(first, head - self._tail), head)
            ready = ready_in(high, (head > 0) & (now[:, HELD] == head), window)
        counters[lanes, OLDEST] = oldest = oldest_in(low, window.lookback)
        counters[lanes, READY] = np.maximum(ready, oldest)
