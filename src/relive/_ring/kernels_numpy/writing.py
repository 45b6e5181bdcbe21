"""One call that writes to a ring, in readable NumPy.

Loops run over time, over frames or over the rows of one lane, never over lanes or items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._base.journal import Journal
from ..._base.types import Array, Bool, Bytes, Float64, Int64
from ..lanes import (
    CUT,
    CUTS,
    DRAWABLE,
    ENDS,
    FIRST,
    GONE,
    HEAD,
    HELD,
    HISTORY,
    LOST,
    MEMORY,
    OLDEST,
    READY,
    READY_STEPS,
    REPEATS,
    START,
    STEP,
    STEPS,
    STORED,
    TERMINATED,
    TRUNCATED,
    UNBOOTSTRAPPED,
    anchors_in,
    first_rows,
)
from .rows import RingRows


class Writing:
    """Changes a ring through a journal.

    Args:
        ring: The rows.
        clock: int64 `[2]`, as in `Ring`.
        given: As in `Ring`.
        journal: Undoes what was written if the call does not come to its end.
    """

    def __init__(self, ring: RingRows, clock: Int64, given: Float64 | None, journal: Journal) -> None:
        self._ring, self._journal = ring, journal
        self._clock, self._given = clock, given
        self._marks, self._counters = ring.marks, ring.counters
        self._counted = ring.counters[:, READY].copy()  # anchors before this row are counted in DRAWABLE

    def step(
        self,
        values: Sequence[Array],
        nexts: Sequence[Array] | None,
        terminated: Bool,
        truncated: Bool,
        lanes: Int64,
        priority: Float64 | None,
    ) -> Int64:
        """Write one step of every lane; return its ids."""
        ring, counters = self._ring, self._counters
        obs = values[: ring.num_obs]
        self._cut_unless_continued(lanes, obs)
        begins, marks = ~ring.open_lanes(lanes), np.zeros(len(lanes), np.uint8)
        if begins.any():
            self._look_back(lanes[begins], [value[begins] for value in obs])
            marks = self._history(lanes, obs, begins)
        memory, rows = self._claim(lanes)
        self._store(values, lanes, memory, rows)
        if self._given is not None and self._clock[1]:
            self._journal.put(self._given, ring.at(memory, lanes), 0.0 if priority is None else -np.abs(priority))
        number = counters[lanes, STEPS]
        starting = number % ring.starts == 0 if ring.starts else begins
        flags = TERMINATED * terminated | TRUNCATED * truncated | START * starting
        self._mark(lanes, memory, STEP | flags | marks)
        self._give_up(lanes)
        self._add(lanes, STEPS, 1)
        self._add(lanes, STORED, 1)
        self._count(lanes, HELD, 0)
        ended, apart = terminated | truncated, np.zeros(len(lanes), bool)
        if nexts is None:
            self._mark(lanes[ended], memory[ended], self._marks[ring.at(memory, lanes)][ended] | LOST)
            self._add(lanes, UNBOOTSTRAPPED, truncated & ~terminated)
        else:
            apart = self._succeed(lanes, memory, obs, nexts, ended)
        self._advance_ready(lanes, ended, apart)
        self.count_anchors(lanes)
        return np.asarray(rows * ring.num_lanes + lanes)

    def close(self, lanes: Int64) -> None:
        """Close the streams of `lanes` after a cut: the rows that hold their successors become boundary rows."""
        newest = (self._counters[lanes, MEMORY] - 1) % self._ring.depth
        self._mark(lanes, newest, self._marks[self._ring.at(newest, lanes)] | CUT)
        self._claim(lanes)
        self._count(lanes, HELD, 0)
        self._all_ready(lanes)
        self._add(lanes, CUTS, 1)

    def forget_newest(self, lanes: Int64) -> None:
        """End streams whose newest step waits for a successor.

        Its outcome is unknown, so the step is dropped; its observation stays as the successor of the step before.
        """
        ring, counters = self._ring, self._counters
        newest = (counters[lanes, MEMORY] - 1) % ring.depth
        self._mark(lanes, newest, self._marks[self._ring.at(newest, lanes)] & FIRST | LOST)
        # The step before it may belong to an earlier episode, whose end is followed by observations only.
        seeking, behind = lanes, 2
        while behind <= min(ring.rows, 2 * ring.lookback + 3):
            seeking = seeking[counters[seeking, HEAD] >= behind]
            before = (counters[seeking, MEMORY] - behind) % ring.depth
            found = (self._marks[ring.at(before, seeking)] & STEP) > 0
            self._mark(seeking[found], before[found], self._marks[ring.at(before, seeking)][found] | CUT)
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
            marks = self._marks[ring.at((first + offset)[among], lanes[among])]
            self._add(lanes[among], DRAWABLE, anchors_in(marks))
        self._counted[lanes] = ready

    def _mark(self, lanes: Int64, memory: Int64, marks: Any) -> None:
        self._journal.put(self._marks, self._ring.at(memory, lanes), marks)

    def _count(self, lanes: Int64, counter: int, value: Any) -> None:
        self._journal.put(self._counters, (lanes, counter), value)

    def _add(self, lanes: Int64, counter: int, value: Any) -> None:
        self._count(lanes, counter, self._counters[lanes, counter] + value)

    def _cut_unless_continued(self, lanes: Int64, obs: Sequence[Array]) -> None:
        """Cut the streams in which `obs` is not the next observation, byte by byte."""
        ring, counters = self._ring, self._counters
        held = ring.holds(lanes)
        differs, next_ = np.zeros(len(lanes), bool), ring.storage(counters[lanes, MEMORY], lanes)
        for column, value in zip(ring.columns, self._newest_frames(obs), strict=False):
            differs |= _unequal(column.rows[next_], value)
        older = np.zeros(len(lanes), bool)
        open_ = np.flatnonzero(ring.open_lanes(lanes))
        at = lanes[open_]
        newest = ring.storage(counters[at, MEMORY] - 1, at)
        for column, value in zip(ring.columns, obs, strict=False):
            if column.frames > 1:
                expected = column.rows[ring.stacks(newest, column.frames - 1, column.repeat)]
                older[open_] |= _unequal(expected, value[open_, :-1])
        for end, which in ((self.close, held & (differs | older)), (self.forget_newest, ~held & older)):
            if which.any():
                end(lanes[which])

    def _look_back(self, lanes: Int64, obs: Sequence[Array]) -> None:
        """Count episodes whose final observation is a new one, and those whose next stream begins with it."""
        ring, counters = self._ring, self._counters
        final = (counters[lanes, MEMORY] - 1) % ring.depth
        stands = (counters[lanes, HEAD] > 0) & ((self._marks[ring.at(final, lanes)] & (STEP | LOST)) == 0)
        last = final
        for age in range(1, min(ring.rows, ring.lookback + 2)):
            step = (self._marks[ring.at(last, lanes)] & STEP) > 0
            last = np.where(~step & (counters[lanes, HEAD] > age), (last - 1) % ring.depth, last)
        stands &= (self._marks[ring.at(last, lanes)] & (TERMINATED | TRUNCATED)) > 0
        moved, same = np.zeros(len(lanes), bool), np.ones(len(lanes), bool)
        before, after = ring.storage(last, lanes), ring.storage(final, lanes)
        for column, value in zip(ring.columns, self._newest_frames(obs), strict=False):
            moved |= _unequal(column.rows[before], column.rows[after])
            same &= ~_unequal(value, column.rows[after])
        self._add(lanes, ENDS, stands & moved)
        self._add(lanes, REPEATS, stands & moved & same)

    def _history(self, lanes: Int64, obs: Sequence[Array], first: Bool) -> Bytes:
        """Store older frames that padding cannot give; return FIRST for the streams that need none of them."""
        ring = self._ring
        needed = np.zeros(len(lanes), np.int64)
        stacked = [(c, value) for c, value in zip(ring.columns, obs, strict=False) if c.frames > 1]
        for column, value in stacked:
            for age in range(1, column.frames):
                frame = value[:, -1 - age]
                padding = value[:, -age] if column.repeat else np.zeros_like(frame)
                needed = np.where(first & _unequal(frame, padding), np.maximum(needed, age), needed)
        ring.otherwise_padded += int(_padded_otherwise(stacked, first & (needed > 0)).sum())
        for age in range(int(needed.max(initial=0)), 0, -1):
            chosen = needed >= age
            memory, _ = self._claim(lanes[chosen])
            self._mark(lanes[chosen], memory, HISTORY | FIRST * (needed[chosen] == age))
            for column, value in stacked:
                if age < column.frames:
                    self._journal.put(column.rows, ring.storage(memory, lanes[chosen]), value[chosen, -1 - age])
        return np.asarray(FIRST * (first & (needed == 0)), np.uint8)

    def _newest_frames(self, obs: Sequence[Array]) -> list[Array]:
        return [v[:, -1] if c.frames > 1 else v for c, v in zip(self._ring.columns, obs, strict=False)]

    def _store(self, values: Sequence[Array], lanes: Int64, memory: Int64, rows: Int64) -> None:
        ring, where = self._ring, self._ring.storage(memory, lanes)
        values = [*self._newest_frames(values[: ring.num_obs]), *values[ring.num_obs :]]
        for column, value in zip(ring.columns, values, strict=True):
            if column.every:
                kept = self._counters[lanes, STEPS] % column.every == 0
                units, slots = rows[kept] // column.every, len(column.rows) // ring.num_lanes
                self._make_room(lanes[kept], (units - slots + 1) * column.every - 1)
                self._journal.put(column.rows, units % slots * ring.num_lanes + lanes[kept], value[kept])
            else:
                self._journal.put(column.rows, where, value)

    def _succeed(self, lanes: Int64, memory: Int64, obs: Sequence[Array], nexts: Sequence[Array], ended: Bool) -> Bool:
        """Put `nexts` into the rows after the steps; where the episode ended, these become boundary rows at once.

        Returns where the frames of `nexts` do not continue those of `obs`.
        """
        ring = self._ring
        apart = np.zeros(len(lanes), bool)
        for column, value, later in zip(ring.columns, obs, nexts, strict=False):
            if column.frames > 1:
                apart |= _unequal(value[:, 1:], later[:, :-1])
        cut = apart & ~ended
        self._mark(lanes[cut], memory[cut], self._marks[ring.at(memory, lanes)][cut] | CUT)
        self._add(lanes, CUTS, cut)
        over = ended | apart
        if over.any():
            last = [value[over] for value in nexts]
            begins = self._history(lanes[over], last, apart[over])
            where, _ = self._claim(lanes[over])
            self._mark(lanes[over], where, begins)
            self._observe(lanes[over], where, self._newest_frames(last))
        going = lanes[~over]
        where = self._counters[going, MEMORY]
        self._make_room(going, self._counters[going, HEAD] - ring.depth)
        self._mark(going, where, 0)
        self._observe(going, where, [value[~over] for value in self._newest_frames(nexts)])
        self._count(going, HELD, self._counters[going, HEAD])
        return apart

    def _observe(self, lanes: Int64, memory: Int64, obs: Sequence[Array]) -> None:
        where = self._ring.storage(memory, lanes)
        for column, value in zip(self._ring.columns, obs, strict=False):
            self._journal.put(column.rows, where, value)

    def _claim(self, lanes: Int64) -> tuple[Int64, Int64]:
        """Take the next row of each lane; the row R rows before it is overwritten. Memory rows and row numbers."""
        ring, counters = self._ring, self._counters
        memory, rows = counters[lanes, MEMORY], counters[lanes, HEAD]
        full = (rows >= ring.rows) & (rows - ring.rows >= counters[lanes, GONE])
        if full.any():
            self._retire(lanes[full], rows[full] - ring.rows)
        self._make_room(lanes, rows - ring.depth)
        self._count(lanes, HEAD, rows + 1)
        self._count(lanes, MEMORY, (memory + 1) % ring.depth)
        return memory, rows

    def _give_up(self, lanes: Int64) -> None:
        """Retire the first rows of lanes that have as many steps as they keep, up to the oldest step."""
        ring, counters = self._ring, self._counters
        lanes = lanes[counters[lanes, STORED] >= ring.steps]
        while len(lanes):
            first = first_rows(counters[lanes], ring.rows)
            self._retire(lanes, first)
            self._make_room(lanes, first)
            lanes = lanes[counters[lanes, STORED] >= ring.steps]

    def _retire(self, lanes: Int64, rows: Int64) -> None:
        """Retire the first rows of lanes, which are stored no longer."""
        ring, counters = self._ring, self._counters
        was_step = (self._marks[ring.at(rows, lanes)] & STEP) > 0
        self._add(lanes, STORED, -was_step.astype(np.int64))
        late = counters[lanes, READY] == rows
        self._add(lanes, READY_STEPS, late & was_step)
        self._add(lanes, READY, late)
        self._drop(lanes[counters[lanes, OLDEST] == rows])
        for _ in range(ring.lookback):  # rows whose own older rows are gone, up to where a stream begins
            oldest = counters[lanes, OLDEST]
            begins = (self._marks[ring.at(oldest, lanes)] & FIRST) > 0
            dropped = (oldest <= rows + ring.lookback) & ~begins
            if not dropped.any():
                break
            self._drop(lanes[dropped])

    def _make_room(self, lanes: Int64, gone: Int64) -> None:
        """Free the rows `gone` and those before them, since they are overwritten or stored no longer."""
        self._count(lanes, GONE, np.maximum(self._counters[lanes, GONE], gone + 1))

    def _drop(self, lanes: Int64) -> None:
        """Drop the oldest row of those lanes from the drawable ones."""
        oldest = self._counters[lanes, OLDEST]
        anchors = anchors_in(self._marks[self._ring.at(oldest, lanes)])
        counted = anchors & (oldest < self._counted[lanes])
        self._add(lanes, DRAWABLE, -counted.astype(np.int64))
        self._add(lanes, OLDEST, 1)

    def _advance_ready(self, lanes: Int64, ended: Bool, cut: Bool) -> None:
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
            marks = self._marks[ring.at(counters[ready, READY], ready)]
            self._add(ready, READY_STEPS, (marks & STEP) > 0)
            self._add(ready, READY, 1)

    def _all_ready(self, lanes: Int64) -> None:
        self._count(lanes, READY, self._counters[lanes, HEAD])
        self._count(lanes, READY_STEPS, self._counters[lanes, STEPS])


def _padded_otherwise(stacked: Sequence[tuple[Any, Array]], chosen: Bool) -> Bool:
    """Mark the chosen streams whose older frames are what the other padding gives: zeros, or the newest frame."""
    for column, value in stacked:
        for age in range(1, column.frames):
            frame = value[:, -1 - age]
            chosen = chosen & ~_unequal(frame, np.zeros_like(frame) if column.repeat else value[:, -age])
    return chosen


def _unequal(a: Array, b: Array) -> Bool:
    """Mark the entries of the first axis whose bytes differ between `a` and `b`."""
    if not len(a):
        return np.zeros(0, bool)
    left, right = (np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) for x in (a, b))
    return np.asarray((left != right).any(axis=1))
