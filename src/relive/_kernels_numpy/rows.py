"""Lanes of rows and what can be read off them, in readable NumPy: the oracle of the native kernel.

Loops run over the frames of a stack or the steps of a window, never over lanes or items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._types import Array, Bool, Bytes, Float32, Float64, Int32, Int64

# Bits of a row's mark. A row without STEP is an observation that only serves others: as a successor (a boundary row),
# or, with HISTORY, as an older frame of the stream's first observation. FIRST is where a stream begins, START where an
# item may. LOST: the final observation was never given.
STEP, TERMINATED, TRUNCATED, CUT, LOST, FIRST, HISTORY, START = 1, 2, 4, 8, 16, 32, 64, 128
END = TERMINATED | TRUNCATED | CUT

# Columns of the per-lane counters: rows ever written, the slot the next row goes to, the first row that is not known to
# be drawable yet, whether a successor is held for the newest step, steps ever added, steps before the row RIPE, and the
# first row whose own older rows, as far as an item needs them, are all stored.
HEAD, CURSOR, RIPE, HELD, STEPS, RIPE_STEPS, FLOOR = range(7)

# Tallies of the whole ring: steps ever added, cuts, truncated steps without a final observation, steps stored now, and
# places that hold a drawable item.
ADDED, CUTS, UNBOOTSTRAPPED, STORED, DRAWABLE = range(5)


class Column:
    """One field: `rows` is all of its storage, `ring` the part of it that is rings, `[L, R, ...]`."""

    def __init__(self, layout: tuple[Any, ...], lanes: int, rows: int) -> None:
        self.rows, _, _, self.frames, self.pad, self.every, _ = layout
        end = len(self.rows) if self.every else lanes * rows
        self.ring: Array = self.rows[:end].reshape(lanes, -1, *self.rows.shape[1:])


class Rows:
    """What a ring's arrays say.

    Columns have `L * R` rows of the rings, lane after lane, then one held successor per lane (these are touched by
    every step, so they stand together), then one row of zeros. A *place* is `slot * L + lane`; an id is
    `row * L + lane`, so that `place == id % (R * L)`.
    """

    def __init__(
        self,
        layouts: Sequence[tuple[Any, ...]],
        num_obs: int,
        arrays: tuple[Bytes, Int64, Int64],
        anchors: tuple[int, int, int, bool],
    ) -> None:
        self.marks, self.counters, self.tallies = arrays
        self.reach, self.history, self.starts, self.across = anchors
        self.lanes, self.rows = self.marks.shape
        self.num_obs = num_obs
        self.columns = [Column(layout, self.lanes, self.rows) for layout in layouts]
        end = self.lanes * self.rows
        self.held = [column.rows[end : end + self.lanes] for column in self.columns[:num_obs]]
        self.nothing = end + self.lanes

    def ids(self, places: Int64) -> Int64:
        """The ids that stand at `places` now."""
        slots, lanes = np.divmod(places, self.lanes)
        behind = self.counters[lanes, CURSOR] - 1 - slots
        rows: Int64 = self.counters[lanes, HEAD] - 1 - np.where(behind < 0, behind + self.rows, behind)
        ids: Int64 = rows * self.lanes + lanes
        return ids

    def locate(self, ids: Int64) -> tuple[Int64, Bytes | None]:
        """The places of `ids`, and None if all can be drawn, else a code for each.

        Codes: 0 can be drawn, 1 overwritten, 2 not complete yet, 3 never issued, 4 no step at which items start.
        """
        rows, lanes = np.divmod(ids, self.lanes)
        marks = self.marks[lanes, rows % self.rows]
        codes = np.zeros(len(ids), np.uint8)
        codes[rows >= self.counters[lanes, RIPE]] = 2
        codes[(marks & START) == 0] = 4
        codes[(marks & STEP) == 0] = 3
        codes[rows < self.counters[lanes, FLOOR]] = 1
        codes[(ids < 0) | (rows >= self.counters[lanes, HEAD])] = 3
        return ids % (self.lanes * self.rows), codes if codes.any() else None

    def begin_since(self, places: Int64, rows: int) -> Bool:
        """Whether a stream begins in one of the last `rows` rows up to each of `places`."""
        slots, lanes = np.divmod(places, self.lanes)
        begins = np.zeros(len(places), bool)
        for back in range(min(rows, self.rows)):
            begins |= (self.marks[lanes, (slots - back) % self.rows] & FIRST) > 0
        return begins

    def stacks(self, newest: Int64, frames: int, repeat: bool) -> Int64:
        """The storage rows of `frames` frames, oldest first, of which the last stand at the rows `newest`.

        Where the stream begins later, its first frame is repeated, or the row of zeros stands.
        """
        held = newest >= self.lanes * self.rows
        lanes = np.where(held, newest - self.lanes * self.rows, newest // self.rows)
        slots = np.where(held, self.counters[lanes, CURSOR], newest % self.rows)
        rows = np.empty((*newest.shape, frames), np.int64)
        rows[..., -1] = newest
        begun = ~held & ((self.marks[lanes, slots % self.rows] & FIRST) > 0)
        for age in range(1, frames):
            slots = np.where(begun, slots, (slots - 1) % self.rows)
            padding = rows[..., -age] if repeat else self.nothing
            rows[..., -1 - age] = np.where(begun, padding, lanes * self.rows + slots)
            begun |= (self.marks[lanes, slots] & FIRST) > 0
        return rows

    def windows(self, places: Int64, discounts: Float32) -> tuple[Int64, Int64, Int64, Int32, Float32, Bool, Bool]:
        """The windows of `len(discounts) - 1` steps at most that start at drawable `places`.

        Returns ids, the storage rows of the anchors and of the windows' successors, the steps, the discounts, and the
        flags of the last step.
        """
        n = len(discounts) - 1
        slots, lanes = np.divmod(places, self.lanes)
        steps = np.ones(len(places), np.int32)
        mark = self.marks[lanes, slots]
        for _ in range(n - 1):
            going = (mark & END) == 0
            steps += going
            mark = np.where(going, self.marks[lanes, (slots + steps - 1) % self.rows], mark)
        after = self._successors(lanes, (slots + steps - 1) % self.rows)
        terminated, truncated = (mark & TERMINATED) > 0, (mark & TRUNCATED) > 0
        discount = np.where(terminated | ((mark & LOST) > 0), np.float32(0), discounts[steps])
        return self.ids(places), lanes * self.rows + slots, after, steps, discount, terminated, truncated

    def _successors(self, lanes: Int64, slots: Int64) -> Int64:
        """The storage rows of the observations after the steps at `slots`; their own where none was given."""
        marks = self.marks[lanes, slots]
        lost = (marks & LOST) > 0
        after = np.where(lost, slots, (slots + 1) % self.rows)
        held = ~lost & (after == self.counters[lanes, CURSOR])
        older = ~lost & ~held & ((marks & END) > 0)
        for _ in range(self.history):  # a final observation may have brought older frames of its own
            older &= (self.marks[lanes, after] & HISTORY) > 0
            after = np.where(older, (after + 1) % self.rows, after)
        rows: Int64 = np.where(held, self.lanes * self.rows + lanes, lanes * self.rows + after)
        return rows

    def sequences(
        self, places: Int64, length: int, discounts: Float32
    ) -> tuple[Int64, Int64, Int32, Float32, Bool, Bool, Bool, Int64 | None, Bool | None]:
        """The sequences of `length` steps that start at drawable `places`, with windows of `n` steps at each of them.

        Returns, for `length + n` positions, the storage rows of observations and those of the steps before (the row of
        zeros where there is none), then for `length` steps the windows' steps, discounts and flags, and which steps
        exist. Across episodes also the rows of the windows' successors, elsewhere those of the observations `n` later,
        and which of all positions begin an episode.
        """
        n = len(discounts) - 1
        count = length + n
        slots, lanes = np.divmod(places, self.lanes)
        shape = (len(places), count)
        observed: Int64 = np.empty(shape, np.int64)
        before: Int64 = np.full(shape, self.nothing)
        marks, after = np.zeros(shape, np.uint8), np.empty(shape, np.int64)
        first: Bool = np.zeros(shape, bool)
        earlier = (slots - 1) % self.rows
        preceded = ((self.marks[lanes, slots] & FIRST) == 0) & ((self.marks[lanes, earlier] & STEP) > 0)
        before[preceded, 0] = (lanes * self.rows + earlier)[preceded]
        first[:, 0] = ~preceded
        going, here = np.ones(len(places), bool), lanes * self.rows + slots
        for i in range(count):
            observed[:, i] = here
            marks[going, i] = self.marks[lanes, slots][going]
            after[:, i] = np.where(going, self._successors(lanes, slots), here)
            if i + 1 == count:
                break
            before[going, i + 1] = here[going]
            ends = (marks[:, i] & (CUT if self.across else END)) > 0
            first[:, i + 1] = going & ~ends & ((marks[:, i] & END) > 0)
            slots = self._next_steps(lanes, slots, going & ~ends)
            held = going & ~ends & (slots == self.counters[lanes, CURSOR])
            going = going & ~ends & ~held
            here = np.where(held, self.lanes * self.rows + lanes, np.where(ends, after[:, i], here))
            here = np.where(going, lanes * self.rows + slots % self.rows, here)
        steps, last = self._sequence_windows(marks, length, n)
        mask = (marks[:, :length] & STEP) > 0
        final = np.take_along_axis(marks, last, axis=1)
        successors = np.where(mask, np.take_along_axis(after, last, axis=1), observed[:, n:])
        discount: Float32 = np.where(mask & ((final & (TERMINATED | LOST)) == 0), discounts[steps], np.float32(0))
        terminated, truncated = (final & TERMINATED) > 0, (final & TRUNCATED) > 0
        taken: Int32 = np.where(mask, steps, 0).astype(np.int32)
        extra = (successors, first) if self.across else (None, None)
        return observed, before, taken, discount, terminated, truncated, mask, *extra

    def _next_steps(self, lanes: Int64, slots: Int64, which: Bool) -> Int64:
        """The slots of the next step where asked for; the cursor where that is yet to come."""
        cursor = self.counters[lanes, CURSOR]
        after = np.where(which, (slots + 1) % self.rows, slots)
        while True:
            passing = which & (after != cursor) & ((self.marks[lanes, after] & STEP) == 0)
            if not passing.any():
                return after
            after = np.where(passing, (after + 1) % self.rows, after)

    @staticmethod
    def _sequence_windows(marks: Bytes, length: int, n: int) -> tuple[Int64, Int64]:
        """How many steps the window at each of the first `length` positions has, and the position of its last one."""
        steps = np.ones((len(marks), length), np.int64)
        at = np.broadcast_to(np.arange(length), steps.shape)
        for _ in range(n - 1):
            steps += np.take_along_axis((marks & END) == 0, at + steps - 1, axis=1)
        return steps, at + steps - 1

    def fold(self, column: Array, starts: Int64, steps: Int32, gammas: Float64) -> Array:
        """The discounted sums over `steps` rows of `column` from storage rows `starts` on, in its dtype."""
        lanes, slots = np.divmod(starts, self.rows)
        wide = (-1,) + (1,) * (column.ndim - 1)
        total = column[starts].astype(np.float64)
        for k in range(1, len(gammas)):
            rows = lanes * self.rows + (slots + k) % self.rows
            total += np.where((k < steps).reshape(wide), gammas[k] * column[rows], 0.0)
        return total.astype(column.dtype)

    @staticmethod
    def fold_sequences(rewards: Array, steps: Int32, gammas: Float64, time_major: bool) -> Array:
        """The discounted sums over `steps` entries of `rewards` from each position on, in its dtype.

        `rewards` has an entry more in front and `len(gammas) - 2` more behind than `steps`, along the axis of time.
        """
        time, length = (0, len(steps)) if time_major else (1, steps.shape[1])
        total = np.zeros(steps.shape + rewards.shape[2:])
        wide = steps.shape + (1,) * (rewards.ndim - 2)
        for k in range(len(gammas) - 1):
            later = rewards[1 + k : 1 + k + length] if time == 0 else rewards[:, 1 + k : 1 + k + length]
            total += np.where((k < steps).reshape(wide), gammas[k] * later, 0.0)
        return total.astype(rewards.dtype)
