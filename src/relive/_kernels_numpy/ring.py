"""Writing to the ring, in readable NumPy: what the native kernel must agree with, bit by bit.

Loops run over time, over frames or over the rows of one lane, never over lanes or items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._journal import Journal
from .._plans import ColumnLayout, Window
from .._types import Array, Bool, Bytes, Float64, Int64
from .rows import (
    CUT,
    CUTS,
    DRAWABLE,
    END,
    ENDS,
    FIRST,
    HEAD,
    HELD,
    HISTORY,
    LOST,
    OLDEST,
    PLACE,
    READY,
    READY_STEPS,
    REPEATS,
    SLOT,
    START,
    STEP,
    STEPS,
    STORED,
    TERMINATED,
    TRUNCATED,
    UNBOOTSTRAPPED,
    Rows,
)

# What a buffer says once, as bits; `Notices` puts them into words.
MANY_CUTS, REPEATED_FINALS, MANY_BOUNDARIES = 2, 4, 8


class Ring(Rows):
    """Lanes of rows. Works on arrays it is given and keeps no state of its own.

    Args:
        columns: The layout of every column, those of the observation first.
        num_obs: How many of these there are.
        marks: uint8 `[L, R + 1]`.
        counters: int64 `[L, 16]`.
        clock: int64 `[2]`: ticks of arrivals, and whether a priority was ever given.
        window: What an item needs around an anchor.
        given: float64 `[L, R + 1]`: minus the priority that a row was given, +0.0 for none; None: not kept.
        arrival: int64 `[L, R + 1]`: orders rows by when they became ready; None: not kept.
        notify: Called with the watched notices that a call gave reason for.
    """

    def __init__(
        self,
        columns: Sequence[ColumnLayout],
        num_obs: int,
        marks: Bytes,
        counters: Int64,
        clock: Int64,
        window: Window,
        given: Float64 | None,
        arrival: Int64 | None,
        notify: Callable[[int], object],
    ) -> None:
        super().__init__(columns, num_obs, marks, counters, window)
        self.clock, self.given, self.arrival = clock, given, arrival
        self.watched, self._notify = 0, notify

    def push(
        self,
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        extras: dict[str, Any],
        env_ids: Any,
        priority: Any,
    ) -> Int64 | None:
        """Add one step straight from the caller's values where nothing needs a closer look; here: never."""
        return None

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
            if priority is not None:
                journal.put(self.clock, 1, 1)
            write = _Write(self, journal)
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
            write.tell_arrivals(lanes, before[:, READY])
        self._notice(lanes, before)
        return ids

    def cut(self, lanes: Int64) -> None:
        """End the streams of `lanes` that are open."""
        before = self.counters[lanes]
        with Journal() as journal:
            write = _Write(self, journal)
            held = self.holds(lanes)
            write.forget_newest(lanes[~held & self.open_lanes(lanes)])
            write.close(lanes[held])
            write.count_anchors(lanes)
            write.tell_arrivals(lanes, before[:, READY])
        self._notice(lanes, before)

    def holds(self, lanes: Int64) -> Bool:
        """Whether the row after the newest step already holds its successor."""
        held = self.counters[lanes, HELD]
        return np.asarray((held > 0) & (held == self.counters[lanes, HEAD]))

    def open_lanes(self, lanes: Int64) -> Bool:
        """Whether the newest row is a step that has not ended its episode and was not cut."""
        marks = self.marks[lanes, (self.counters[lanes, SLOT] - 1) % self.stretch]
        return np.asarray((self.counters[lanes, HEAD] > 0) & ((marks & (STEP | END)) == STEP))

    def _notice(self, lanes: Int64, before: Int64) -> None:
        """Look at the notices where a call cut a stream, began one behind an end, or filled a lane."""
        now = self.counters[lanes]
        filled = (now[:, HEAD] > self.rows) & (before[:, HEAD] <= self.rows)
        if not (filled.any() or (now[:, [CUTS, ENDS]] != before[:, [CUTS, ENDS]]).any()):
            return
        sums = self.counters.sum(axis=0)
        found = 0
        if sums[STEPS] >= 100 and sums[CUTS] * 10 > sums[STEPS]:
            found |= MANY_CUTS
        if sums[ENDS] >= 20 and sums[REPEATS] * 10 >= sums[ENDS] * 9:
            found |= REPEATED_FINALS
        wrapped = self.counters[self.counters[:, HEAD] > self.rows]
        if ((self.rows - wrapped[:, STORED]) * 100 > self.rows * 3).any():
            found |= MANY_BOUNDARIES
        if found & self.watched:
            self._notify(found & self.watched)


class _Write:
    """One call that changes a ring, through a journal."""

    def __init__(self, ring: Ring, journal: Journal) -> None:
        self._ring, self._journal = ring, journal
        self._marks, self._counters = ring.marks, ring.counters
        self._counted = ring.counters[:, READY].copy()  # up to here anchors are counted in DRAWABLE

    def step(
        self,
        values: Sequence[Array],
        nexts: Sequence[Array] | None,
        terminated: Bool,
        truncated: Bool,
        lanes: Int64,
        priority: Float64 | None,
    ) -> Int64:
        """One step of every lane; its ids."""
        ring, counters = self._ring, self._counters
        obs = values[: ring.num_obs]
        self._end_what_it_does_not_continue(lanes, obs)
        begins = ~ring.open_lanes(lanes)
        self._look_back(lanes[begins], [value[begins] for value in obs])
        marks = self._history(lanes, obs, begins)
        memory, rows = self._claim(lanes)
        self._store(values, lanes, memory, rows)
        if ring.given is not None and ring.clock[1]:
            self._journal.put(ring.given, (lanes, memory), 0.0 if priority is None else -priority)
        number = counters[lanes, STEPS]
        flags = TERMINATED * terminated | TRUNCATED * truncated | START * (number % ring.starts == 0)
        self._mark(lanes, memory, STEP | flags | marks)
        self._add(lanes, STEPS, 1)
        self._add(lanes, STORED, 1)
        self._count(lanes, HELD, 0)
        ended, apart = terminated | truncated, np.zeros(len(lanes), bool)
        if nexts is None:
            self._mark(lanes[ended], memory[ended], self._marks[lanes, memory][ended] | LOST)
            self._add(lanes, UNBOOTSTRAPPED, truncated & ~terminated)
        else:
            apart = self._succeed(lanes, memory, obs, nexts, ended)
        self._ripen(lanes, ended, apart)
        self.count_anchors(lanes)
        ids: Int64 = rows * ring.num_lanes + lanes
        return ids

    def close(self, lanes: Int64) -> None:
        """The streams of `lanes` were cut: the rows that hold their successors become boundary rows."""
        newest = (self._counters[lanes, SLOT] - 1) % self._ring.stretch
        self._mark(lanes, newest, self._marks[lanes, newest] | CUT)
        self._claim(lanes)
        self._count(lanes, HELD, 0)
        self._all_ready(lanes)
        self._add(lanes, CUTS, 1)

    def forget_newest(self, lanes: Int64) -> None:
        """End streams whose newest step waits for a successor.

        It was never seen: only the step's observation is of use, as the successor of the step before.
        """
        ring, counters = self._ring, self._counters
        newest = (counters[lanes, SLOT] - 1) % ring.stretch
        self._mark(lanes, newest, self._marks[lanes, newest] & FIRST | LOST)
        # The step before it may belong to an earlier episode, whose end is followed by observations only.
        seeking, behind = lanes, 2
        while behind <= min(ring.rows, 2 * ring.lookback + 3):
            seeking = seeking[counters[seeking, HEAD] >= behind]
            before = (counters[seeking, SLOT] - behind) % ring.stretch
            found = (self._marks[seeking, before] & STEP) > 0
            self._mark(seeking[found], before[found], self._marks[seeking, before][found] | CUT)
            seeking, behind = seeking[~found], behind + 1
        self._all_ready(lanes)
        self._add(lanes, CUTS, 1)
        self._add(lanes, STORED, -1)

    def count_anchors(self, lanes: Int64) -> None:
        """Count the anchors that became ready."""
        ring, counters = self._ring, self._counters
        ready = counters[lanes, READY]
        first = np.maximum(self._counted[lanes], counters[lanes, OLDEST])
        for offset in range(int((ready - first).max(initial=0))):
            among = first + offset < ready
            marks = self._marks[lanes[among], (first + offset)[among] % ring.stretch]
            self._add(lanes[among], DRAWABLE, (marks & (STEP | START)) == STEP | START)
        self._counted[lanes] = ready

    def tell_arrivals(self, lanes: Int64, ready: Int64) -> None:
        """Write down when the rows that became ready did: lane by lane, in the order of the call."""
        ring, counters = self._ring, self._counters
        if ring.arrival is None:
            return
        for i, lane in enumerate(lanes.tolist()):
            rows = np.arange(max(ready[i], counters[lane, OLDEST]), counters[lane, READY])
            self._journal.put(ring.arrival, (lane, rows % ring.stretch), ring.clock[0] + i)
        self._journal.put(ring.clock, 0, ring.clock[0] + len(lanes))

    def _mark(self, lanes: Int64, memory: Int64, marks: Any) -> None:
        self._journal.put(self._marks, (lanes, memory), marks)

    def _count(self, lanes: Int64, counter: int, value: Any) -> None:
        self._journal.put(self._counters, (lanes, counter), value)

    def _add(self, lanes: Int64, counter: int, value: Any) -> None:
        self._count(lanes, counter, self._counters[lanes, counter] + value)

    def _end_what_it_does_not_continue(self, lanes: Int64, obs: Sequence[Array]) -> None:
        """Cut the streams in which `obs` is not the next observation, byte by byte."""
        ring, counters = self._ring, self._counters
        held = ring.holds(lanes)
        differs = np.zeros(len(lanes), bool)
        for column, value in zip(ring.columns, self._newest_frames(obs), strict=False):
            differs |= _unequal(column.lanes[lanes, counters[lanes, SLOT]], value)
        older = np.zeros(len(lanes), bool)
        open_ = np.flatnonzero(ring.open_lanes(lanes))
        at = lanes[open_]
        newest = at * ring.stretch + (counters[at, SLOT] - 1) % ring.stretch
        for column, value in zip(ring.columns, obs, strict=False):
            if column.frames > 1:
                expected = column.rows[ring.stacks(newest, column.frames - 1, column.repeat)]
                older[open_] |= _unequal(expected, value[open_, :-1])
        self.close(lanes[held & (differs | older)])
        self.forget_newest(lanes[~held & older])

    def _look_back(self, lanes: Int64, obs: Sequence[Array]) -> None:
        """Count episodes that ended with a new observation, and streams that begin with the very same one."""
        ring, counters = self._ring, self._counters
        final = (counters[lanes, SLOT] - 1) % ring.stretch
        stands = (counters[lanes, HEAD] > 0) & ((self._marks[lanes, final] & (STEP | LOST)) == 0)
        last = final
        for age in range(1, min(ring.rows, ring.lookback + 2)):
            step = (self._marks[lanes, last] & STEP) > 0
            last = np.where(~step & (counters[lanes, HEAD] > age), (last - 1) % ring.stretch, last)
        stands &= (self._marks[lanes, last] & (TERMINATED | TRUNCATED)) > 0
        moved, same = np.zeros(len(lanes), bool), np.ones(len(lanes), bool)
        for column, value in zip(ring.columns, self._newest_frames(obs), strict=False):
            moved |= _unequal(column.lanes[lanes, last], column.lanes[lanes, final])
            same &= ~_unequal(value, column.lanes[lanes, final])
        self._add(lanes, ENDS, stands & moved)
        self._add(lanes, REPEATS, stands & moved & same)

    def _history(self, lanes: Int64, obs: Sequence[Array], first: Bool) -> Bytes:
        """Store the older frames with which the streams that begin cannot do without; return the marks that say so."""
        ring = self._ring
        needed = np.zeros(len(lanes), np.int64)
        stacked = [(c, value) for c, value in zip(ring.columns, obs, strict=False) if c.frames > 1]
        for column, value in stacked:
            for age in range(1, column.frames):
                frame = value[:, -1 - age]
                padding = value[:, -age] if column.repeat else np.zeros_like(frame)
                needed = np.where(first & _unequal(frame, padding), np.maximum(needed, age), needed)
        for age in range(int(needed.max(initial=0)), 0, -1):
            chosen = needed >= age
            memory, _ = self._claim(lanes[chosen])
            self._mark(lanes[chosen], memory, HISTORY | FIRST * (needed[chosen] == age))
            for column, value in stacked:
                if age < column.frames:
                    self._journal.put(column.lanes, (lanes[chosen], memory), value[chosen, -1 - age])
        marks: Bytes = (FIRST * (first & (needed == 0))).astype(np.uint8)
        return marks

    def _newest_frames(self, obs: Sequence[Array]) -> list[Array]:
        return [v[:, -1] if c.frames > 1 else v for c, v in zip(self._ring.columns, obs, strict=False)]

    def _store(self, values: Sequence[Array], lanes: Int64, memory: Int64, rows: Int64) -> None:
        ring = self._ring
        values = [*self._newest_frames(values[: ring.num_obs]), *values[ring.num_obs :]]
        for column, value in zip(ring.columns, values, strict=True):
            if column.every:
                kept = self._counters[lanes, STEPS] % column.every == 0
                where = rows[kept] // column.every % column.lanes.shape[1]
                self._journal.put(column.lanes, (lanes[kept], where), value[kept])
            else:
                self._journal.put(column.lanes, (lanes, memory), value)

    def _succeed(self, lanes: Int64, memory: Int64, obs: Sequence[Array], nexts: Sequence[Array], ended: Bool) -> Bool:
        """Put `nexts` into the rows after the steps: where the episode ended, these rows are the lanes' at once.

        Returns where `nexts` do not follow `obs`.
        """
        ring = self._ring
        apart = np.zeros(len(lanes), bool)
        for column, value, later in zip(ring.columns, obs, nexts, strict=False):
            if column.frames > 1:
                apart |= _unequal(value[:, 1:], later[:, :-1])
        cut = apart & ~ended
        self._mark(lanes[cut], memory[cut], self._marks[lanes, memory][cut] | CUT)
        self._add(lanes, CUTS, cut)
        over = ended | apart
        last = [value[over] for value in nexts]
        begins = self._history(lanes[over], last, apart[over])
        where, _ = self._claim(lanes[over])
        self._mark(lanes[over], where, begins)
        self._observe(lanes[over], where, self._newest_frames(last))
        going = lanes[~over]
        where = self._counters[going, SLOT]
        self._mark(going, where, 0)
        self._observe(going, where, [value[~over] for value in self._newest_frames(nexts)])
        self._count(going, HELD, self._counters[going, HEAD])
        return apart

    def _observe(self, lanes: Int64, memory: Int64, obs: Sequence[Array]) -> None:
        for column, value in zip(self._ring.columns, obs, strict=False):
            self._journal.put(column.lanes, (lanes, memory), value)

    def _claim(self, lanes: Int64) -> tuple[Int64, Int64]:
        """Take the next row of each lane; what stood R rows before is gone. Where it stands, and its number."""
        ring, counters = self._ring, self._counters
        memory, rows = counters[lanes, SLOT], counters[lanes, HEAD]
        full = rows >= ring.rows
        old, gone = lanes[full], rows[full] - ring.rows
        was_step = (self._marks[old, gone % ring.stretch] & STEP) > 0
        self._add(old, STORED, -was_step.astype(np.int64))
        late = counters[old, READY] == gone
        self._add(old, READY_STEPS, late & was_step)
        self._add(old, READY, late)
        self._drop(old[counters[old, OLDEST] == gone])
        for _ in range(ring.lookback):  # rows whose own older rows are gone, up to where a stream begins
            oldest = counters[old, OLDEST]
            begins = (self._marks[old, oldest % ring.stretch] & FIRST) > 0
            self._drop(old[(oldest <= gone + ring.lookback) & ~begins])
        self._count(lanes, HEAD, rows + 1)
        self._count(lanes, PLACE, (rows + 1) % ring.rows)
        self._count(lanes, SLOT, (memory + 1) % ring.stretch)
        return memory, rows

    def _drop(self, lanes: Int64) -> None:
        """The lowest row of those lanes that can still be drawn is none of them any more."""
        oldest = self._counters[lanes, OLDEST]
        anchors = (self._marks[lanes, oldest % self._ring.stretch] & (STEP | START)) == STEP | START
        counted = anchors & (oldest < self._counted[lanes])
        self._add(lanes, DRAWABLE, -counted.astype(np.int64))
        self._add(lanes, OLDEST, 1)

    def _ripen(self, lanes: Int64, ended: Bool, cut: Bool) -> None:
        ring, counters = self._ring, self._counters
        if not ring.across:
            head = counters[lanes, HEAD]
            complete = np.maximum(counters[lanes, READY], head - ring.span + ring.holds(lanes))
            self._count(lanes, READY, np.where(ended | cut, head, complete))
            return
        self._all_ready(lanes[cut & ~ended])
        while True:  # a step becomes ready at a time, but for boundary rows on the way
            known = counters[lanes, STEPS] - counters[lanes, READY_STEPS] + ring.holds(lanes)
            ready = lanes[known > ring.span]
            if not len(ready):
                return
            marks = self._marks[ready, counters[ready, READY] % ring.stretch]
            self._add(ready, READY_STEPS, (marks & STEP) > 0)
            self._add(ready, READY, 1)

    def _all_ready(self, lanes: Int64) -> None:
        self._count(lanes, READY, self._counters[lanes, HEAD])
        self._count(lanes, READY_STEPS, self._counters[lanes, STEPS])


def _unequal(a: Array, b: Array) -> Bool:
    """Which entries of the first axis have other bytes in `a` than in `b`."""
    if not len(a):
        return np.zeros(0, bool)
    left, right = (np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) for x in (a, b))
    differs: Bool = (left != right).any(axis=1)
    return differs
