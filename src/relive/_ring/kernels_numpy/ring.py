"""Writing to the ring, in readable NumPy: what the native kernel must agree with, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..._base.journal import Journal
from ..._base.types import Array, Bool, Bytes, Float64, Int64
from ..lanes import (
    BEGUN,
    CLEARED,
    CUTS,
    ENDED,
    ENDS,
    GONE,
    HEAD,
    HELD,
    LOADED,
    MANY_BOUNDARIES,
    MANY_CUTS,
    MEMORY,
    NO_ENDS,
    OLDEST,
    OTHER_PADDING,
    READY,
    REPEATED_FINALS,
    REPEATS,
    STEPS,
    STORED,
    count_call,
)
from ..plans import ColumnLayout, Window
from .rows import RingRows
from .writing import Writing

FEW_STREAMS = 20


class Ring(RingRows):
    """Lanes of rows. Works on arrays it is given and keeps no state of its own.

    Args:
        columns: The layout of every column, those of the observation first.
        num_obs: How many of these there are.
        rows: R, the rows of a lane.
        steps: S, the steps that a lane keeps, S <= R.
        marks: uint8 `[blocks, L, K]`, where `blocks * K` is more than R.
        counters: int64 `[L, 16]`.
        clock: int64 `[2]`: a number of earlier versions, and whether a priority was ever given.
        window: What an item needs around an anchor.
        given: float64, like `marks`: minus the priority that a row was given, +0.0 for none; None: not kept.
        touched: int64 `[2, groups]`, calls that began to write to a group of lanes and that ended; None: not kept.
        notify: Called with the watched notices that a call found a reason for.
        busy: 1 for lanes that another process is writing, whose counters cannot be checked; None: no lane is.
    """

    def __init__(
        self,
        columns: Sequence[ColumnLayout],
        num_obs: int,
        rows: int,
        steps: int,
        marks: Bytes,
        counters: Int64,
        clock: Int64,
        window: Window,
        given: Float64 | None,
        touched: Int64 | None,
        notify: Callable[[int], object],
        busy: Bytes | None,
    ) -> None:
        super().__init__(columns, num_obs, rows, steps, marks, counters, window)
        self.clock, self.given = clock, given
        self._touched = touched
        self.watched, self._notify = 0, notify
        self.came, self.outrun, self.partial = 0, False, False  # all that came is taken in
        self.asked = 0  # calls of a native `add` of which Python had to look at a value
        self.enough_ends = 20  # from so many on it is looked whether final observations repeat

    def write(
        self,
        values: Sequence[Array],
        next_values: Sequence[Array] | None,
        terminated: Bool,
        truncated: Bool,
        lanes: Int64,
        priority: Float64 | None,
    ) -> Int64:
        """Write canonical values `[L', T, ...]` to distinct lanes, all or nothing; return ids `[L', T]`."""
        before = self.counters[lanes]
        with Journal() as journal:
            count_call(journal, self._touched, BEGUN, lanes)
            if priority is not None:
                journal.put(self.clock, 1, 1)
            write = self._writing(journal)
            ids = np.empty((len(lanes), terminated.shape[1]), np.int64)
            for t in range(terminated.shape[1]):
                ids[:, t] = write.step(
                    [value[:, t] for value in values],
                    None if next_values is None else [value[:, t] for value in next_values],
                    terminated[:, t],
                    truncated[:, t],
                    lanes,
                    None if priority is None else priority[:, t],
                )
            count_call(journal, self._touched, ENDED, lanes)
        self._notice(lanes, before)
        return ids

    def limit(self, limits: Int64 | None) -> None:
        """Do nothing: only the native kernel leaves calls that could move a lane's `head` past its limit to Python."""

    def allow(self, lanes: Bytes | None) -> None:
        """Do nothing: only the native kernel leaves calls for lanes whose entry is 0 to Python."""

    def look(self) -> None:
        """Note before a draw which rows are ready, since other processes may write."""
        self.ready = self.counters[:, READY].copy()

    @property
    def taken(self) -> Int64:
        """The first row of each lane that the sampler has not taken in: it takes in all, as no other process writes."""
        return self.ready

    def admit(self, from_: Int64 | None, until: Int64 | None) -> None:
        """Do nothing: only the native kernel lets a sampler take in a part of what came.

        Args:
            from_: Of each lane, no new row before this one is taken in; None: all are.
            until: Of each lane, no row from this one on.
        """

    def took(self, until: Int64 | None, outrun: bool) -> None:
        """Do nothing: nothing comes in the middle of a call.

        Args:
            until: How far the sampler took in each lane; None: to the last look.
            outrun: Whether writers added more meanwhile.
        """

    def overtaken(self, ids: Int64) -> Bool | None:
        """Mark the items copied since `look` that were overwritten meanwhile; return None if none were."""
        rows, lanes = np.divmod(ids, len(self.counters))
        bad = (rows < self.counters[lanes, OLDEST]) | (rows >= self.ready[lanes])
        return bad if bad.any() else None

    def snapshot(self) -> Int64:
        """Return the counters `[L, 16]`, those of each lane between two steps of its writer."""
        return self.counters.copy()

    def sums(self) -> Int64:
        """Return the sums of the counters over all lanes, `[16]`; 0 for those that are places."""
        sums = self.counters.sum(axis=0)
        sums[[MEMORY, OLDEST, HELD, CLEARED, LOADED, GONE]] = 0
        return np.asarray(sums)

    def forget_sums(self) -> None:
        """Do nothing: only the native kernel keeps the sums, and has to be told where not a call changes counters."""

    def cut(self, lanes: Int64) -> None:
        """End the streams of `lanes` that are open."""
        before = self.counters[lanes]
        with Journal() as journal:
            count_call(journal, self._touched, BEGUN, lanes)
            write = self._writing(journal)
            held = self.holds(lanes)
            write.forget_newest(lanes[~held & self.open_lanes(lanes)])
            write.close(lanes[held])
            write.count_anchors(lanes)
            count_call(journal, self._touched, ENDED, lanes)
        self._notice(lanes, before)

    def _writing(self, journal: Journal) -> Writing:
        return Writing(self, self.clock, self.given, journal)

    def _notice(self, lanes: Int64, before: Int64) -> None:
        """Check the notices if this call cut a stream, began one after an end, or filled a lane."""
        now = self.counters[lanes]
        filled = self._full(now) & ~self._full(before)
        if not (filled.any() or (now[:, [CUTS, ENDS]] != before[:, [CUTS, ENDS]]).any()):
            return
        sums = self.counters.sum(axis=0)
        found = 0
        many = sums[CUTS] * 10 > sums[STEPS]
        if sums[STEPS] >= 100 and many:
            found |= MANY_CUTS
        if sums[CUTS] >= FEW_STREAMS and not many and not sums[ENDS]:
            found |= NO_ENDS
        if self.otherwise_padded >= 3:
            found |= OTHER_PADDING
        if sums[ENDS] >= self.enough_ends and sums[REPEATS] * 10 >= sums[ENDS] * 9:
            found |= REPEATED_FINALS
        full = self.counters[self._full(self.counters)]
        if ((self.steps - full[:, STORED]) * 100 > self.steps * 3).any():
            found |= MANY_BOUNDARIES
        if found & self.watched:
            self._notify(found & self.watched)

    def _full(self, counters: Int64) -> Bool:
        """Mark the lanes that had more rows written since they were last empty than they hold."""
        return np.asarray(counters[:, HEAD] - counters[:, CLEARED] > self.rows)
