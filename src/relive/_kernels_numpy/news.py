"""What one call changed: which places can be drawn now and which no longer."""

from __future__ import annotations

import numpy as np

from .._types import Int64
from .rows import CUTS, DRAWABLE, FLOOR, RIPE, START, STEP, UNBOOTSTRAPPED, Rows


class News:
    """Which places one call made drawable and which it took away, in the order of the call's lanes, then of rows."""

    def __init__(self, ring: Rows, lanes: Int64) -> None:
        self._ring, self._called = ring, lanes
        self._order = np.full(ring.lanes, -1, np.int64)
        self._order[lanes] = np.arange(len(lanes))
        self._ripe = ring.counters[:, RIPE].copy()
        self._before = ring.tallies.copy()
        self._gone: list[tuple[Int64, Int64]] = []

    def gone(self, lanes: Int64, rows: Int64) -> None:
        """Note rows that can be drawn no more, if they could when the call began."""
        drawable = rows < self._ripe[lanes]
        self._gone.append((lanes[drawable], rows[drawable]))

    def places(self) -> tuple[Int64, Int64, int]:
        """Return places added and removed, and how many cuts and losses the caller may want to hear of."""
        ring = self._ring
        first = np.maximum(self._ripe, ring.counters[:, FLOOR])[self._called]
        counts = np.maximum(ring.counters[self._called, RIPE] - first, 0)
        lane = np.repeat(self._called, counts)
        offset = np.arange(len(lane)) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = (np.repeat(first, counts) + offset) % ring.rows
        anchors = (ring.marks[lane, slots] & (STEP | START)) == STEP | START
        added = (slots * ring.lanes + lane)[anchors]
        lanes = np.concatenate([lane for lane, _ in self._gone]) if self._gone else np.empty(0, np.int64)
        rows = np.concatenate([row for _, row in self._gone]) if self._gone else lanes
        sort = np.lexsort((rows, self._order[lanes]))
        removed = rows[sort] % ring.rows * ring.lanes + lanes[sort]
        gained = ring.tallies - self._before
        ring.tallies[DRAWABLE] += len(added) - len(removed)
        return added, removed, int(gained[CUTS] + gained[UNBOOTSTRAPPED])
