"""Writers of other processes wait while a buffer is saved: through an array that all of them have mapped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from .._base.arrays import Locks
from .._base.types import Bool, Int64
from .._ring.lanes import BEGUN, ENDED, GROUP, HEAD
from .._ring.ring import Ring
from ..errors import ReliveError, event

_NEVER = sys.maxsize
_LOOK = 100e-6  # seconds from one look to the next
_STOPPED = 2.0  # seconds that a writer waits at most for an instant, whatever became of the process that takes it
_CALLS, _TURN = 5.0, 30.0  # seconds to wait for writers in mid-call, and for another process that saves


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

    def still(self, take: Callable[[], Int64 | None], owners: Callable[[int], int]) -> None:
        """Call `take` while no other process writes, again if one did; then they may write up to what it returns.

        Args:
            take: Copies; returns limits, which hold until `release`, or None: those before.
            owners: The process that writes a lane, 0 for none.

        Raises:
            ReliveError: One is stopped in the middle of a call, or another process saves for long.
        """
        since = time.monotonic()
        try:
            while time.monotonic() - since < _CALLS:
                self._begin()  # once more: a save that another thread writes may have come to its end meanwhile
                begun = self._quiet(owners)
                until = take()
                if (self._touched[BEGUN] == begun).all():
                    self._until = self._until if until is None else until.copy()
                    return
            what = "Another process wrote to the buffer, over and over, while it was copied"
            remedy = "let the process save that made the buffer, for which its writers wait; nothing was saved"
            raise ReliveError(event(what, "ReplayBuffer.save", remedy))
        finally:
            self._go_on()

    def release(self) -> None:
        """Let writers go on as they like."""
        self._until = None
        self._go_on()

    def passed(self) -> Bool:
        """Which lanes went on further than they were allowed to, as those of other writers may."""
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

    def _quiet(self, owners: Callable[[int], int]) -> Int64:
        """Wait until no living writer is in the middle of a call; how many calls have begun."""
        since = time.monotonic()
        while True:
            ended, begun = self._touched[ENDED].copy(), self._touched[BEGUN].copy()  # in this order
            busy = np.flatnonzero(begun != ended)
            waited = time.monotonic() - since
            if not len(busy):
                return begun
            if waited > 100 * _LOOK:  # or a kill ended the call
                lanes = (lane for group in busy.tolist() for lane in range(group * GROUP, (group + 1) * GROUP))
                process = next((owners(lane) for lane in lanes if lane < self._ring.lanes and owners(lane)), 0)
                if not process:
                    return begun
                if waited > _CALLS:
                    what = f"Process {process} is in the middle of a call and does not go on"
                    raise ReliveError(event(what, "ReplayBuffer.save", "end it, or let it go on; nothing was saved"))
            time.sleep(_LOOK)
