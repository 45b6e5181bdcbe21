"""Draws that prefer new items: `2 ** (-rate * age)` for the age of an item among those of its lane."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..._base.types import Float64, Int64
from ..plans import Drawn
from .power import covered, decay, reached


class Anchors(Protocol):
    """The calls of a queue of anchors; see `queue.py`."""

    def refresh(self) -> int: ...
    def counts(self) -> Int64: ...
    def behind(self, slots: Int64) -> Int64: ...
    def slot(self, lanes: Int64, behind: Int64) -> Int64: ...


class Recency:
    """The law over a queue of anchors: a lane has the mass `1 - 2 ** (-rate * items)`.

    Args:
        queue: Its anchors.
        rate: As above.
        relative: Whether the rate is divided by the items of the fullest lane.
    """

    def __init__(self, queue: Anchors, rate: float, relative: bool) -> None:
        self._queue, self._given, self._relative = queue, rate, relative

    def refresh(self) -> int:
        """Take in what changed; return how many items there are."""
        size = self._queue.refresh()
        self._counts = counts = self._queue.counts()
        self._longest = max(int(counts.max()), 1)
        self._rate = self._given / self._longest if self._relative else self._given
        self._ends = np.cumsum(covered(self._rate * counts.astype(np.float64)))
        self._first = float(covered(np.array([self._rate]))[0])
        return size

    def total(self) -> float:
        """Return the mass of all items."""
        return float(self._ends[-1])

    def smallest(self) -> float:
        """Return the mass of the oldest item of the fullest lane."""
        return float(self._masses(np.array([self._longest - 1]))[0])

    def draw(self, u: Float64) -> Drawn:
        """Draw the slots of items, and return their masses."""
        targets = u * self._ends[-1]
        lanes = np.minimum(np.searchsorted(self._ends, targets, "right"), np.flatnonzero(self._counts)[-1])
        into = targets - np.where(lanes > 0, self._ends[lanes - 1], 0.0)
        last = self._counts[lanes] - 1
        ages = np.minimum(reached(into) * (1.0 / self._rate), last).astype(np.int64)
        return Drawn(self._queue.slot(lanes, last - ages), self._masses(ages))

    def masses(self, slots: Int64) -> Float64:
        """Return what items at slots that can be drawn are drawn in proportion to."""
        return self._masses(self._counts[slots % len(self._counts)] - 1 - self._queue.behind(slots))

    def chooser(self, draws: Float64, settings: Any) -> None:
        """Do nothing: only the native kernel has a fast path for draws inside `sample`."""

    def _masses(self, ages: Int64) -> Float64:
        return decay(self._rate * ages.astype(np.float64)) * self._first
