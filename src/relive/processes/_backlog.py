"""What writers added and a sampler has not taken in yet, of a learner that they outrun.

A sampler that takes in all that came since its last look is never done where more comes meanwhile than it took in. So
it takes in some rows, looks how many came, and goes on with more only while that is less. What then waits is taken in
by the next draws, some rows each, the newest last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from .._base.types import Bool, Int64
from .._ring.lanes import OLDEST, READY
from .._ring.ring import Ring

# Rows that are taken in between two looks at first, over all lanes: a quarter of a millisecond of a draw.
FEW = 1 << 12


_Result = TypeVar("_Result")


class Backlog:
    """Lets a sampler take in what came, and bounds it where writers are faster.

    Args:
        ring: As the sampler sees it.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring, self._kernel = ring, ring.kernel

    def take_in(self, refresh: Callable[[], int], look: Callable[[], None]) -> int:
        """Let the sampler take in rows; return how many items can be drawn. `look` notes which rows are ready."""
        while True:
            look()
            came = self._kernel.came
            if came > FEW:
                items = self._take_in_some(refresh, look)
            else:
                items = refresh()
                if came:
                    self._kernel.took(None, False)
            if items or not self._lapped():
                return items

    def again(self, call: Callable[[], _Result], look: Callable[[], None]) -> _Result:
        """Make a call that lets the sampler take in rows, but no more than a few."""
        look()
        kernel = self._kernel
        came = kernel.came
        if came > FEW:
            with self._until(None, kernel.taken):
                return call()
        result = call()
        if came:
            kernel.took(None, False)
        return result

    def unknown(self, ids: Int64) -> Bool | None:
        """Mark items that the sampler has not taken in; return None if it has all."""
        if not self._kernel.came:
            return None
        rows, lanes = np.divmod(ids, self._ring.lanes)
        late = np.asarray(rows >= self._kernel.taken[lanes])
        return late if late.any() else None

    def missing(self, items: int) -> int:
        """Count the items that could be drawn, but that a sampler with so many `items` lacks."""
        if not self._kernel.partial:
            return 0
        missing = max(self._ring.drawable - items, 0)
        self._kernel.partial = missing > 0
        return missing

    def _take_in_some(self, refresh: Callable[[], int], look: Callable[[], None]) -> int:
        """Take in what waits, in the order of rows, until nothing does or more came meanwhile.

        Where writers have outrun the learner before, few rows are taken in; and where half of a lane waits, most of
        what was taken in would be overwritten soon, so that all but the newest rows are passed over.
        """
        kernel, ring = self._kernel, self._ring
        taken, ready, outrun = kernel.taken, kernel.ready, kernel.outrun
        begun, done, most = ready, 0, FEW
        kernel.partial = True
        while True:
            first = np.minimum(np.maximum(taken, ring.counters[:, OLDEST]), ready)
            if outrun:
                newest = ready - max(FEW // ring.lanes, 1)
                first = np.where(ready - first > ring.rows // 2, newest, first)
            waiting = ready - first
            left = int(waiting.sum())
            taken = first + (waiting if left <= most else -(-waiting * most // left))
            with self._until(first, taken):
                items = refresh()
            kernel.took(taken, outrun and left > most)
            done += int((taken - first).sum())
            if left <= most or outrun:
                break
            look()
            ready, most = kernel.ready, done
            outrun = int((ready - begun).sum()) > done
            if outrun:
                kernel.took(taken, True)
                break
        self.missing(items)
        return items

    def _lapped(self) -> bool:
        """Return True if writers came round since the look: all that it found is gone, and others are ready."""
        now, then = self._ring.counters, self._kernel.ready
        return bool((now[:, OLDEST] >= then).all() and (now[:, READY] > then).any())

    @contextmanager
    def _until(self, first: Int64 | None, last: Int64) -> Iterator[None]:
        self._kernel.admit(first, last)
        try:
            yield
        finally:
            self._kernel.admit(None, None)
