"""Writers of other processes wait while a buffer is saved: through an array that all of them have mapped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from .._base.arrays import Locks
from .._base.types import Bool, Int64
from .._ring.lanes import BEGUN, ENDED, HEAD
from .._ring.ring import Ring
from ..errors import ReliveError, event

_NEVER = sys.maxsize
_LOOK = 100e-6  # seconds from one look to the next
_STOPPED = 2.0  # seconds that a writer waits at most for an instant, whatever became of the process that takes it
_CALLS, _TURN = 5.0, 30.0  # seconds to wait for writers, and for another process that saves
_DEAD = 0.2  # seconds without a change, after which a call that has begun is one that a kill ended


class Hold:
    """Holds writers back, in the process that saves; and makes them wait, in theirs.

    A writer compares the `head` of its lanes with `limits` before each call, as it does for the saves of its own
    process. One that has just compared them may still begin a call: the process that saves sees that in the counts of
    begun calls, and takes its instant again. A killed process leaves no writer waiting, since its lock goes with it.

    Args:
        ring: The lanes.
        touched: The calls that began and those that ended, as the ring counts them, int64 `[2, groups]`.
        limits: As below; other processes have it, too.
        locks: Those of the buffer's file, whose last one is that of the process that saves.

    Attributes:
        limits: The `head` that each lane may reach, int64 `[L]`.
    """

    def __init__(self, ring: Ring, touched: Int64, limits: Int64, locks: Locks) -> None:
        self.limits, self._touched = limits, touched
        self._ring, self._locks, self._lock = ring, locks, ring.lanes + 1
        self._most = 2 + 2 * ring.window.lookback  # as in native/bind_ring.cpp
        self._until: Int64 | None = None  # of the save that this process writes
        self._killed = np.zeros(touched.shape[1], np.int64)  # calls that a kill ended

    def free(self) -> None:
        """Let all writers go on, unless a process saves."""
        if not self._locks.taken(self._lock):
            self.limits[:] = _NEVER

    def before(self, lanes: Int64, steps: int) -> None:
        """Wait until `steps` steps of each of `lanes` may be written."""
        begun, most = time.monotonic(), self._most * (steps + 1)
        while (self._ring.counters[lanes, HEAD] + most > self.limits[lanes]).any():
            if not self._locks.taken(self._lock):
                self.free()
                return
            if not self.limits[lanes].all() and time.monotonic() - begun > _STOPPED:
                return
            time.sleep(_LOOK)

    def still(self, take: Callable[[], Int64 | None]) -> None:
        """Call `take` while no other process writes, again if one did; then they may write up to what it returns.

        Args:
            take: Copies; returns limits, which hold until `release`, or None: those before.

        Raises:
            ReliveError: Another process saves for long, or writes without waiting, as the buffer's creator does.
        """
        since = time.monotonic()
        self._begin()
        try:
            while time.monotonic() - since < _CALLS:
                before = self._quiet(since)
                until = take()
                if before is not None and (self._touched == before).all():
                    self._until = self._until if until is None else until.copy()
                    return
                self._begin()  # once more: a save that another thread writes may have come to its end meanwhile
            what = "Another process wrote to the buffer, over and over, while it was copied"
            remedy = "let the process save that made the buffer, for which its writers wait; nothing was saved"
            raise ReliveError(event(what, "ReplayBuffer.save", remedy))
        finally:
            self._go_on()

    def release(self) -> None:
        """Let writers go on as they like, after a save of this process."""
        if self._until is not None:
            self._until = None
            self._go_on()

    def passed(self) -> Bool:
        """Find the lanes beyond their limits, as those of older writers may be."""
        heads = self._ring.counters[:, HEAD]
        return np.asarray(heads > (heads if self._until is None else self._until))

    def _begin(self) -> None:
        begun = time.monotonic()
        while not self._locks.take(self._lock):
            if time.monotonic() - begun > _TURN:
                what = "Another process is saving the buffer"
                raise ReliveError(event(what, "ReplayBuffer.save", "let one process save it; nothing was saved"))
            time.sleep(_LOOK)
        self.limits[:] = 0

    def _go_on(self) -> None:
        self.limits[:] = _NEVER if self._until is None else self._until
        if self._until is None:
            self._locks.drop(self._lock)

    def _quiet(self, since: float) -> Int64 | None:
        """Wait until no writer is in the middle of a call; the counts of calls then. None: they do not stop.

        A call that a kill ended stays begun; so does one that has not moved for long, which is taken for such.
        """
        counts, moved = self._counts(), time.monotonic()
        while (counts[BEGUN] - counts[ENDED] != self._killed).any():
            now = time.monotonic()
            if now - moved > _DEAD:
                self._killed = counts[BEGUN] - counts[ENDED]
                break
            if now - since > _CALLS:
                return None
            time.sleep(_LOOK)
            before, counts = counts, self._counts()
            moved = moved if (counts == before).all() else now
        return counts

    def _counts(self) -> Int64:
        ended: Int64 = self._touched[ENDED].copy()  # first
        return np.stack([self._touched[BEGUN], ended])
