"""What is read from lanes of rows, in readable NumPy: the oracle of the native kernel.

Loops run over the frames of a stack or the steps of a window, never over lanes or items.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..._base.types import Array, Bool, Bytes, Float32, Float64, Int32, Int64
from ..lanes import (
    CUT,
    END,
    FIRST,
    HEAD,
    HELD,
    HISTORY,
    LOST,
    MEMORY,
    OLDEST,
    READY,
    START,
    STEP,
    TERMINATED,
    TRUNCATED,
    anchors_in,
    first_rows,
    place_of,
    ranges,
)
from ..plans import Around, Changes, ColumnLayout, Followed, Located, State, Unrolled, Window, Windowed

SEEN = [OLDEST, READY, HEAD]


class KernelColumn:
    """One field: all of its storage, and how values are kept in it."""

    def __init__(self, layout: ColumnLayout) -> None:
        self.rows, self.frames, self.repeat, self.every = layout.array, layout.frames, layout.repeat, layout.every


class RingRows:
    """Reads the arrays of a ring.

    Columns have `depth * L` rows and one row of zeros. A row of a lane is at `row % depth` in its lane's memory, which
    is more than R rows deep: the row after the newest step already holds that step's successor. K rows of a lane lie
    together, a *block*; the next block of the lane follows after those of the other lanes. An id is `row * L + lane`,
    its *slot* `id % (R * L)`.

    Attributes:
        otherwise_padded: Streams that begin with stacks padded in the other way than the schema's.
    """

    otherwise_padded = 0

    def __init__(
        self,
        columns: Sequence[ColumnLayout],
        num_obs: int,
        rows: int,
        steps: int,
        marks: Bytes,
        counters: Int64,
        window: Window,
    ) -> None:
        self.marks, self.counters = marks, counters
        self.span, self.lookback = window.span, window.lookback
        self.starts, self.across = window.starts, window.across
        blocks, self.num_lanes, self.block = marks.shape
        self.depth, self.rows, self.steps = blocks * self.block, rows, steps
        self.num_obs = num_obs
        self.columns = [KernelColumn(layout) for layout in columns]
        self.zero_row = self.num_lanes * self.depth

    def at(self, memory: Int64, lanes: Int64 | int) -> tuple[Int64, Int64 | int, Int64]:
        """Return the index of rows of lanes in `marks` and in columns."""
        return place_of(memory % self.depth, lanes, self.block)

    def storage(self, memory: Int64, lanes: Int64) -> Int64:
        """Return the storage rows of rows of lanes."""
        blocks, _, within = self.at(memory, lanes)
        return np.asarray((blocks * self.num_lanes + lanes) * self.block + within)

    def memory_of(self, rows: Int64) -> tuple[Int64, Int64]:
        """Return the rows in their lanes' memory of storage rows, and the lanes."""
        blocks, lanes = np.divmod(rows // self.block, self.num_lanes)
        return blocks * self.block + rows % self.block, lanes

    def rows_at(self, slots: Int64) -> tuple[Int64, Int64]:
        """Return the lanes of `slots`, and the newest rows that have them."""
        lane_slots, lanes = np.divmod(slots, self.num_lanes)
        heads = self.counters[lanes, HEAD]
        behind = heads % self.rows - lane_slots
        return lanes, heads - np.where(behind > 0, behind, behind + self.rows)

    def ids(self, slots: Int64) -> Int64:
        """Return the ids that have `slots` now."""
        lanes, rows = self.rows_at(slots)
        return np.asarray(rows * self.num_lanes + lanes)

    def drawable(self) -> Int64:
        """Return the ids of all items that can be drawn, by lane and age."""
        return self.ids(self.changes(np.zeros((self.num_lanes, 3), np.int64)).added)

    def locate(self, ids: Int64) -> Located:
        """Return the slots of `ids`, and their `State`s, or None if all are drawable."""
        rows, lanes = np.divmod(ids, self.num_lanes)
        marks = self.marks[self.at(rows, lanes)]
        states = np.zeros(len(ids), np.uint8)
        states[rows >= self.counters[lanes, READY]] = State.INCOMPLETE
        states[(marks & START) == 0] = State.NO_START
        states[(marks & STEP) == 0] = State.NEVER_ISSUED
        states[(marks & (STEP | LOST)) == LOST] = State.DROPPED
        states[rows < self.counters[lanes, OLDEST]] = State.OVERWRITTEN
        states[(ids < 0) | (rows >= self.counters[lanes, HEAD])] = State.NEVER_ISSUED
        return Located(ids % (self.num_lanes * self.rows), states if states.any() else None)

    def standing(self, ids: Int64) -> Int64:
        """Return the storage rows of stored steps; -1 for ids of no stored step."""
        rows, lanes = np.divmod(ids, self.num_lanes)
        head, first = self.counters[lanes, HEAD], first_rows(self.counters, self.rows)[lanes]
        stored = (ids >= 0) & (rows >= first) & (rows < head) & ((self.marks[self.at(rows, lanes)] & STEP) > 0)
        return np.where(stored, self.storage(rows, lanes), -1)

    def follow(self, ids: Int64, steps: Int64) -> Followed:
        """Follow each stream `steps` steps ahead (back, if negative), as far as it is stored.

        The id is -1 where `ids` has none of a stored step.
        """
        rows, lanes = np.divmod(ids, self.num_lanes)
        head, first = self.counters[lanes, HEAD], first_rows(self.counters, self.rows)[lanes]
        stored = self.standing(ids) >= 0
        made, going = np.zeros(len(ids), np.int64), stored & (steps != 0)
        while going.any():
            earlier = rows + made - (steps < 0)  # of the two rows that the next step goes between
            before, after = self.marks[self.at(earlier, lanes)], self.marks[self.at(earlier + 1, lanes)]
            going &= (
                (earlier >= first) & (earlier + 1 < head) & ((before & (STEP | END)) == STEP) & ((after & STEP) > 0)
            )
            made += np.sign(steps) * going
            going &= made != steps
        return Followed(np.where(stored, ids + made * self.num_lanes, -1), made)

    def holds(self, lanes: Int64) -> Bool:
        """Mark the lanes whose row after the newest step already holds its successor."""
        held = self.counters[lanes, HELD]
        return np.asarray((held > 0) & (held == self.counters[lanes, HEAD]))

    def open_lanes(self, lanes: Int64) -> Bool:
        """Mark the lanes whose newest row is a step that neither ended its episode nor was cut."""
        marks = self.marks[self.at(self.counters[lanes, MEMORY] - 1, lanes)]
        return np.asarray((self.counters[lanes, HEAD] > 0) & ((marks & (STEP | END)) == STEP))

    def changes(self, seen: Int64) -> Changes:
        """Return the slots that became drawable, and those that stopped, since the counters `[L, 3]` were `seen`."""
        now = self.counters[:, SEEN]
        (oldest, ready, _), (oldest_then, ready_then, _) = now.T, seen.T
        lanes, rows = ranges(oldest_then, np.minimum(oldest, ready_then))
        removed = rows % self.rows * self.num_lanes + lanes
        lanes, rows = ranges(np.maximum(ready_then, oldest), ready)
        anchors = anchors_in(self.marks[self.at(rows, lanes)])
        lanes, rows = lanes[anchors], rows[anchors]
        added = rows % self.rows * self.num_lanes + lanes
        return Changes(removed, added, self.storage(rows, lanes), now)

    def begins_since(self, lanes: Int64, rows: Int64, count: int) -> Bool:
        """Mark the rows with the beginning of a stream among the last `count` rows up to them."""
        begins = np.zeros(len(rows), bool)
        for back in range(min(count, self.rows)):
            begins |= (self.marks[self.at(rows - back, lanes)] & FIRST) > 0
        return begins

    def stacks(self, newest: Int64, frames: int, repeat: bool) -> Int64:
        """Return the storage rows of `frames` frames, oldest first; the last of them are `newest`.

        Before the stream's first frame, that frame is repeated, or the row of zeros is used.
        """
        memory, lanes = self.memory_of(newest)
        rows = np.empty((*newest.shape, frames), np.int64)
        rows[..., -1] = newest
        begun = (self.marks[self.at(memory, lanes)] & FIRST) > 0
        for age in range(1, frames):
            memory = np.where(begun, memory, (memory - 1) % self.depth)
            padding = rows[..., -age] if repeat else self.zero_row
            rows[..., -1 - age] = np.where(begun, padding, self.storage(memory, lanes))
            begun |= (self.marks[self.at(memory, lanes)] & FIRST) > 0
        return rows

    def windows(self, slots: Int64, discounts: Float32) -> Windowed:
        """Return the windows of at most `len(discounts) - 1` steps that start at drawable `slots`."""
        lanes, rows = self.rows_at(slots)
        memory = rows % self.depth
        steps = np.ones(len(slots), np.int32)
        mark = self.marks[self.at(memory, lanes)]
        for _ in range(len(discounts) - 2):
            going = (mark & END) == 0
            steps += going
            mark = np.where(going, self.marks[self.at(memory + steps - 1, lanes)], mark)
        after = self._successors(lanes, (memory + steps - 1) % self.depth)
        terminated, truncated = (mark & TERMINATED) > 0, (mark & TRUNCATED) > 0
        discount = np.where(terminated | ((mark & LOST) > 0), np.float32(0), discounts[steps])
        at = self.storage(memory, lanes)
        return Windowed(rows * self.num_lanes + lanes, at, after, steps, discount, terminated, truncated)

    def around(self, slots: Int64, offsets: Int64, repeat: bool) -> Around:
        """Return the rows at `offsets` steps from drawable `slots`, as far as the items' window reaches.

        Before the stream's first step and after its last one, that step is repeated, or the row of zeros is used.
        """
        lanes, rows = self.rows_at(slots)
        memory, back = rows % self.depth, int(-offsets.min(initial=0))
        _, lead, _ = self._back(lanes, memory, back)
        ahead, mark = np.zeros(len(slots), np.int64), self.marks[self.at(memory, lanes)]
        for _ in range(int(offsets.max(initial=0))):
            going = (mark & END) == 0
            ahead += going
            mark = np.where(going, self.marks[self.at(memory + ahead, lanes)], mark)
        reached = np.clip(offsets, (lead - back)[:, None], ahead[:, None])
        pad = reached != offsets
        found = self.storage(memory[:, None] + reached, lanes[:, None])
        return Around(found if repeat else np.where(pad, self.zero_row, found), pad)

    def _successors(self, lanes: Int64, memory: Int64) -> Int64:
        """Return the storage rows of the observations after the steps at `memory`; their own if none was given."""
        marks = self.marks[self.at(memory, lanes)]
        lost = (marks & LOST) > 0
        after = np.where(lost, memory, (memory + 1) % self.depth)
        older = ~lost & ((marks & END) > 0)
        for _ in range(self.lookback):  # a final observation may have brought older frames of its own
            older &= (self.marks[self.at(after, lanes)] & HISTORY) > 0
            if not older.any():
                break
            after = np.where(older, (after + 1) % self.depth, after)
        return self.storage(after, lanes)

    def sequences(self, slots: Int64, length: int, discounts: Float32, burn_in: int) -> Unrolled:
        """Plan sequences of `length` steps, `burn_in` of them before drawable `slots`, with windows at each."""
        n = len(discounts) - 1
        count = length + n
        lanes, rows = self.rows_at(slots)
        memory, lead, preceded = self._back(lanes, rows % self.depth, burn_in)
        shape = (len(slots), count)
        observed: Int64 = np.empty(shape, np.int64)
        before: Int64 = np.full(shape, self.zero_row)
        marks, after = np.zeros(shape, np.uint8), np.empty(shape, np.int64)
        first: Bool = np.zeros(shape, bool)
        before[preceded, 0] = self.storage((memory - 1) % self.depth, lanes)[preceded]
        going, here = np.ones(len(slots), bool), self.storage(memory, lanes)
        for i in range(count):
            observed[:, i] = here
            marks[going, i] = self.marks[self.at(memory, lanes)][going]
            after[:, i] = np.where(going, self._successors(lanes, memory), here)
            if i + 1 == count:
                break
            before[going, i + 1] = here[going]
            ends = (marks[:, i] & (CUT if self.across else END)) > 0
            first[:, i + 1] = going & ~ends & ((marks[:, i] & END) > 0)
            memory = self._next_steps(lanes, memory, going & ~ends)
            here = np.where(ends, after[:, i], self.storage(memory, lanes))
            here = np.where(going, here, observed[:, i])
            going = going & ~ends & (memory != self.counters[lanes, MEMORY])
        at = np.arange(count) - lead[:, None]
        behind = np.maximum(at, 0)
        observed, before = (np.take_along_axis(each, behind, axis=1) for each in (observed, before))
        marks, after = np.take_along_axis(marks, behind, axis=1), np.take_along_axis(after, behind, axis=1)
        before[at < 0], marks[at < 0] = self.zero_row, 0
        steps, last = self._sequence_windows(marks, length, n)
        mask = (marks[:, :length] & STEP) > 0
        final = np.take_along_axis(marks, last, axis=1)
        successors = np.where(mask, np.take_along_axis(after, last, axis=1), observed[:, n:])
        discount: Float32 = np.where(mask & ((final & (TERMINATED | LOST)) == 0), discounts[steps], np.float32(0))
        terminated, truncated = (mask & ((final & flag) > 0) for flag in (TERMINATED, TRUNCATED))
        taken: Int32 = np.where(mask, steps, 0).astype(np.int32)
        apart = np.flatnonzero((successors != observed[:, n:]) & self.across)
        return Unrolled(
            rows * self.num_lanes + lanes,
            observed,
            before,
            taken,
            discount,
            terminated,
            truncated,
            mask,
            apart,
            successors.reshape(-1)[apart],
            np.flatnonzero(first & self.across),
            lead,
            ~preceded,
        )

    def _back(self, lanes: Int64, memory: Int64, most: int) -> tuple[Int64, Int64, Bool]:
        """Go back from the steps at `memory`, `most` steps at most, within their streams.

        Returns:
            Where that leads to, how many steps are missing, and whether a step of the stream is before it.
        """
        left = np.full(len(lanes), most)
        while True:
            earlier = (memory - 1) % self.depth
            preceded = ((self.marks[self.at(memory, lanes)] & FIRST) == 0) & (
                (self.marks[self.at(earlier, lanes)] & STEP) > 0
            )
            going = preceded & (left > 0)
            if not going.any():
                return memory, left, preceded
            memory, left = np.where(going, earlier, memory), left - going

    def _next_steps(self, lanes: Int64, memory: Int64, which: Bool) -> Int64:
        """Return the memory row of the next step, in the lanes of `which`, or the row after the newest."""
        end = self.counters[lanes, MEMORY]
        after = np.where(which, (memory + 1) % self.depth, memory)
        while True:
            passing = which & (after != end) & ((self.marks[self.at(after, lanes)] & STEP) == 0)
            if not passing.any():
                return after
            after = np.where(passing, (after + 1) % self.depth, after)

    @staticmethod
    def _sequence_windows(marks: Bytes, length: int, n: int) -> tuple[Int64, Int64]:
        """Return the number of steps of the window at each of the first `length` positions, and its last position."""
        steps = np.ones((len(marks), length), np.int64)
        at = np.broadcast_to(np.arange(length), steps.shape)
        for _ in range(n - 1):
            steps += np.take_along_axis((marks & END) == 0, at + steps - 1, axis=1)
        return steps, at + steps - 1

    def fold(self, column: Array, starts: Int64, steps: Int32, gammas: Float64) -> Array:
        """Sum `steps` rows of `column` from storage rows `starts` on, discounted, in its dtype."""
        memory, lanes = self.memory_of(starts)
        wide = (-1,) + (1,) * (column.ndim - 1)
        total = column[starts].astype(np.float64)
        for k in range(1, len(gammas)):
            rows = self.storage(memory + k, lanes)
            # Nothing is added behind a window: -0.0 stays what it is.
            np.add(total, gammas[k] * column[rows], out=total, where=(k < steps).reshape(wide))
        return total.astype(column.dtype)

    def chunks(self, column: Array, starts: Int64, steps: Int32, length: int) -> Array:
        """Copy `steps` rows of `column` from storage rows `starts` on, followed by zeros: `[B, length, ...]`."""
        memory, lanes = self.memory_of(starts)
        ahead = np.arange(length)
        rows = self.storage(memory[:, None] + ahead, lanes[:, None])
        return column[np.where(ahead < steps[:, None], rows, self.zero_row)]

    @staticmethod
    def fold_sequences(rewards: Array, steps: Int32, gammas: Float64, time_major: bool) -> Array:
        """Sum `steps` entries of `rewards` from each position on, discounted, in its dtype.

        `rewards` has an entry more in front and `len(gammas) - 2` more behind than `steps`, along the axis of time.
        """
        time, length = (0, len(steps)) if time_major else (1, steps.shape[1])
        total = np.zeros(steps.shape + rewards.shape[2:])
        wide = steps.shape + (1,) * (rewards.ndim - 2)
        for k in range(len(gammas) - 1):
            later = rewards[1 + k : 1 + k + length] if time == 0 else rewards[:, 1 + k : 1 + k + length]
            total += np.where((k < steps).reshape(wide), gammas[k] * later, 0.0)
        return total.astype(rewards.dtype)


def largest_given(given: Float64, marks: Bytes, rows: int, counters: Int64, seen: Int64) -> float:
    """Return the largest priority given to a step since the counters were `seen`, or 0.

    A row that only holds an observation has the priority of a step that is long gone.
    """
    lanes, fresh = ranges(np.maximum(seen[:, 2], first_rows(counters, rows)), counters[:, HEAD])
    blocks, _, block = given.shape
    at = place_of(fresh % (blocks * block), lanes, block)
    return float(-given[at].min(initial=0.0, where=(marks[at] & (STEP | LOST)) > 0))
