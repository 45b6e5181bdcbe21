"""Which lanes of a buffer that several processes share this one may write."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np

from .._base import forks
from .._base.arrays import Locks
from .._base.types import Bytes, Int64
from .._ring.lanes import BEGUN, ENDED, GROUP, LOADED
from .._ring.ring import Ring
from ..errors import ArgumentError, message

# Seconds to wait for a lane that a writer has, and for one whose lock a process holds that opens the buffer.
_WRITTEN, _OPENED = 0.1, 30.0


class Claims:
    """Claims lanes when they are first written to, and refuses those that others write.

    Args:
        ring: The lanes.
        locks: The locks of the lanes.
        owners: The process of each lane's writer, for monitors; int64 `[L]`.
        lanes: Those that may be claimed; none for a buffer that only reads.

    Attributes:
        ring: As above.
        allowed: uint8 `[L]`, 1 for lanes that have been claimed.
    """

    def __init__(self, ring: Ring, locks: Locks, owners: Int64, lanes: Sequence[int]) -> None:
        self.ring, self._locks, self._owners = ring, locks, owners
        self._mine = frozenset(lanes)
        self.allowed: Bytes = np.zeros(ring.lanes, np.uint8)
        ring.kernel.allow(self.allowed)
        forks.tell(self)

    def before(self, lanes: Int64) -> bool:
        """Claim the lanes about to be written, all of them or none; return True if some had to be claimed.

        A lane with an earlier writer is put right where that was killed in mid-call, and its stream is cut; that
        of a lane which was loaded goes on.

        Raises:
            ArgumentError: Another writer has one of them, or they are not this one's.
        """
        new = lanes[self.allowed[lanes] == 0].tolist()
        for done, lane in enumerate(new):
            if lane not in self._mine or not self._take(lane):
                for taken in new[:done]:
                    self._locks.drop(taken + 1)
                raise self._refusal(lane)
        if new:
            self._begin(new)
        return bool(new)

    def resume(self) -> None:
        """Let the first writer of each lane go on where it stands, as its steps were loaded from a save."""
        self.ring.counters[:, LOADED] = 1

    def take_free(self) -> Int64:
        """Claim all lanes that no other writer has."""
        taken = [lane for lane in range(self.ring.lanes) if not self._written(lane) and self._take(lane)]
        self._begin(taken)
        return np.array(taken, np.int64)

    def mend(self) -> None:
        """Put lanes right whose writer was killed in the middle of a call; their next writer would do it, too."""
        touched = self.ring.touched
        if touched is None or np.array_equal(touched[BEGUN], touched[ENDED]):
            return
        open_ = np.repeat(touched[BEGUN] != touched[ENDED], GROUP)[: self.ring.lanes]
        for lane in np.flatnonzero(open_ & (self._owners != 0) & (self.allowed == 0)).tolist():
            if lane in self._mine and self._locks.take(lane + 1):
                self._owners[lane] = 0  # whoever wants the lane meanwhile waits
                try:
                    self.ring.recover(np.array([lane]))
                finally:
                    self._locks.drop(lane + 1)

    def confine(self, lanes: Int64) -> None:
        """Claim no other lanes than these."""
        self._mine = frozenset(lanes.tolist())

    def release(self) -> None:
        """Give back all lanes."""
        for lane in np.flatnonzero(self.allowed).tolist():
            self.allowed[lane] = 0
            self._owners[lane] = 0
            self._locks.drop(lane + 1)

    def _begin(self, lanes: list[int]) -> None:
        self.ring.recover(np.array(lanes, np.int64))
        for lane in lanes:
            if self.ring.counters[lane, LOADED]:
                self.ring.counters[lane, LOADED] = 0
            else:
                self.ring.cut(np.array([lane]))
            self._owners[lane] = os.getpid()
            self.allowed[lane] = 1

    def _written(self, lane: int) -> bool:
        return bool(self._owners[lane]) and self._locks.taken(lane + 1)

    def _take(self, lane: int) -> bool:
        """Take a lane's lock. An opening process holds all lanes without an owner until it has repaired them."""
        begin = time.monotonic()
        while not self._locks.take(lane + 1):
            if time.monotonic() - begin > (_WRITTEN if self._owners[lane] else _OPENED):
                return False
            time.sleep(0.002)
        return True

    def _refusal(self, lane: int) -> ArgumentError:
        if not self._mine:
            got, remedy = "a buffer that only reads", "add with `relive.Writer`"
            return ArgumentError(message("a writer, or the process that made the buffer", got, "add", remedy))
        if lane not in self._mine:
            own = f"one of the writer's own lanes {sorted(self._mine)}"
            return ArgumentError(message(own, f"`{lane}`", "$.env_ids"))
        owner = self._owners[lane]
        got = f"lane {lane}, which {f'process {owner} writes' if owner else 'a process has that opens the buffer'}"
        return ArgumentError(message("lanes without another writer", got, "$.env_ids", "name other lanes, or close it"))

    def _forked(self) -> None:
        """Clear all claims in a child: the lanes stay the parent's."""
        self.allowed[:] = 0
