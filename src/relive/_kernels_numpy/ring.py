"""Writing to the ring, in readable NumPy: what the native kernel must agree with, bit by bit.

Loops run over time, over frames or over the rows of one lane, never over lanes or items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._types import Array, Bool, Bytes, Int64
from .news import News
from .rows import (
    ADDED,
    CURSOR,
    CUT,
    CUTS,
    END,
    FIRST,
    FLOOR,
    HEAD,
    HELD,
    HISTORY,
    LOST,
    RIPE,
    RIPE_STEPS,
    START,
    STEP,
    STEPS,
    STORED,
    TERMINATED,
    TRUNCATED,
    UNBOOTSTRAPPED,
    Rows,
)


class Ring(Rows):
    """Lanes of rows with a held successor each. Works on arrays it is given and keeps no state of its own."""

    def attach(self, listener: Any, notify: Any) -> None:
        """Say who is told at once of what `push` changes, and what is called with tallies at a cut or a loss."""

    def push(
        self, obs: Any, action: Any, reward: Any, next_obs: Any, terminated: Any, truncated: Any, extras: dict[str, Any]
    ) -> None:
        """Add one step straight from the caller's values where nothing needs a closer look; here: never."""
        return

    def write(
        self,
        values: Sequence[Array],
        next_values: Sequence[Array] | None,
        terminated: Bool,
        truncated: Bool,
        lanes: Int64,
    ) -> tuple[Int64, Int64, Int64, int]:
        """Write canonical values `[L', T, ...]`; return ids `[L', T]`, places added and removed, and notices."""
        length = terminated.shape[1]
        news = News(self, lanes)
        ids = np.empty((len(lanes), length), np.int64)
        for t in range(length):
            obs = [value[:, t] for value in values[: self.num_obs]]
            self._end_what_it_does_not_continue(news, lanes, obs)
            begins = self._history(news, lanes, obs, ~self._open(lanes))
            slots, rows = self._claim(news, lanes)
            ids[:, t] = rows * self.lanes + lanes
            self._store([value[:, t] for value in values], lanes, slots, rows)
            number = self.counters[lanes, STEPS]
            flags = TERMINATED * terminated[:, t] | TRUNCATED * truncated[:, t] | START * (number % self.starts == 0)
            self.marks[lanes, slots] = STEP | flags | begins
            self.counters[lanes, STEPS] = number + 1
            self.counters[lanes, HELD] = 0
            self.tallies[ADDED] += len(lanes)
            self.tallies[STORED] += len(lanes)
            ended, apart = terminated[:, t] | truncated[:, t], np.zeros(len(lanes), bool)
            if next_values is None:
                self.marks[lanes[ended], slots[ended]] |= LOST
                self.tallies[UNBOOTSTRAPPED] += int((truncated[:, t] & ~terminated[:, t]).sum())
            else:
                apart = self._succeed(news, lanes, slots, obs, [value[:, t] for value in next_values], ended)
            self._ripen(lanes, ended, apart)
        added, removed, notices = news.places()
        return ids, added, removed, notices

    def cut(self, lanes: Int64) -> tuple[Int64, Int64, int]:
        """End the streams of `lanes` that are open; return places added, places removed, and the number of cuts."""
        news = News(self, lanes)
        held = self.counters[lanes, HELD] == 1
        self._forget_newest(lanes[~held & self._open(lanes)])
        self._close(news, lanes[held])
        return news.places()

    def _end_what_it_does_not_continue(self, news: News, lanes: Int64, obs: Sequence[Array]) -> None:
        """Cut the streams in which `obs` is not the next observation, byte by byte."""
        held = self.counters[lanes, HELD] == 1
        differs = np.zeros(len(lanes), bool)
        for held_value, value in zip(self.held, self._newest_frames(obs), strict=True):
            differs |= _unequal(held_value[lanes], value)
        older = np.zeros(len(lanes), bool)
        open_ = np.flatnonzero(self._open(lanes))
        at = lanes[open_]
        newest = at * self.rows + (self.counters[at, CURSOR] - 1) % self.rows
        for column, value in zip(self.columns, obs, strict=False):
            if column.frames > 1:
                expected = column.rows[self.stacks(newest, column.frames - 1, column.pad == "first")]
                older[open_] |= _unequal(expected, value[open_, :-1])
        self._close(news, lanes[held & (differs | older)])
        self._forget_newest(lanes[~held & older])

    def _history(self, news: News, lanes: Int64, obs: Sequence[Array], first: Bool) -> Bytes:
        """Store the older frames with which the streams that begin cannot do without; return the marks that say so."""
        needed = np.zeros(len(lanes), np.int64)
        stacked = [(c, value) for c, value in zip(self.columns, obs, strict=False) if c.frames > 1]
        for column, value in stacked:
            for age in range(1, column.frames):
                frame = value[:, -1 - age]
                padding = value[:, -age] if column.pad == "first" else np.zeros_like(frame)
                needed = np.where(first & _unequal(frame, padding), np.maximum(needed, age), needed)
        for age in range(int(needed.max(initial=0)), 0, -1):
            chosen = needed >= age
            slots, _ = self._claim(news, lanes[chosen])
            self.marks[lanes[chosen], slots] = HISTORY | FIRST * (needed[chosen] == age)
            for column, value in stacked:
                if age < column.frames:
                    column.ring[lanes[chosen], slots] = value[chosen, -1 - age]
        marks: Bytes = (FIRST * (first & (needed == 0))).astype(np.uint8)
        return marks

    def _open(self, lanes: Int64) -> Bool:
        """Whether the newest row is a step that has not ended its episode and was not cut."""
        marks = self.marks[lanes, (self.counters[lanes, CURSOR] - 1) % self.rows]
        return np.asarray((self.counters[lanes, HEAD] > 0) & ((marks & (STEP | END)) == STEP))

    def _newest_frames(self, obs: Sequence[Array]) -> list[Array]:
        return [v[:, -1] if c.frames > 1 else v for c, v in zip(self.columns, obs, strict=False)]

    def _store(self, values: Sequence[Array], lanes: Int64, slots: Int64, rows: Int64) -> None:
        values = [*self._newest_frames(values[: self.num_obs]), *values[self.num_obs :]]
        for column, value in zip(self.columns, values, strict=True):
            if column.every:
                kept = self.counters[lanes, STEPS] % column.every == 0
                where = rows[kept] // column.every % column.ring.shape[1]
                column.ring[lanes[kept], where] = value[kept]
            else:
                column.ring[lanes, slots] = value

    def _succeed(
        self, news: News, lanes: Int64, slots: Int64, obs: Sequence[Array], nexts: Sequence[Array], ended: Bool
    ) -> Bool:
        """Hold `nexts`, or store them where the episode ended or where they do not follow `obs`; return the latter."""
        apart = np.zeros(len(lanes), bool)
        for column, value, later in zip(self.columns, obs, nexts, strict=False):
            if column.frames > 1:
                apart |= _unequal(value[:, 1:], later[:, :-1])
        self.marks[lanes[apart & ~ended], slots[apart & ~ended]] |= CUT
        self.tallies[CUTS] += int((apart & ~ended).sum())
        over = ended | apart
        last = [value[over] for value in nexts]
        begins = self._history(news, lanes[over], last, apart[over])
        self._boundary(news, lanes[over], self._newest_frames(last), begins)
        for held, value in zip(self.held, self._newest_frames(nexts), strict=True):
            held[lanes[~over]] = value[~over]
        self.counters[lanes[~over], HELD] = 1
        return apart

    def _close(self, news: News, lanes: Int64) -> None:
        """Turn the held successors of `lanes` into boundary rows: their streams were cut."""
        self.marks[lanes, (self.counters[lanes, CURSOR] - 1) % self.rows] |= CUT
        self._boundary(news, lanes, [column[lanes] for column in self.held], np.zeros(len(lanes), np.uint8))
        self._all_ripe(lanes)
        self.tallies[CUTS] += len(lanes)

    def _forget_newest(self, lanes: Int64) -> None:
        """End streams whose newest step waits for a successor.

        It was never seen: only the step's observation is of use, as the successor of the step before.
        """
        slot = (self.counters[lanes, CURSOR] - 1) % self.rows
        self.marks[lanes, slot] &= FIRST
        # The step before it may belong to an earlier episode, whose end is followed by observations only.
        seeking, behind = lanes, 2
        while behind <= min(self.rows, 2 * self.history + 3):
            seeking = seeking[self.counters[seeking, HEAD] >= behind]
            before = (self.counters[seeking, CURSOR] - behind) % self.rows
            found = (self.marks[seeking, before] & STEP) > 0
            self.marks[seeking[found], before[found]] |= CUT
            seeking, behind = seeking[~found], behind + 1
        self._all_ripe(lanes)
        self.tallies[CUTS] += len(lanes)
        self.tallies[STORED] -= len(lanes)

    def _boundary(self, news: News, lanes: Int64, obs: Sequence[Array], begins: Bytes) -> None:
        slots, _ = self._claim(news, lanes)
        self.marks[lanes, slots] = begins
        for column, value in zip(self.columns, obs, strict=False):
            column.ring[lanes, slots] = value
        self.counters[lanes, HELD] = 0

    def _claim(self, news: News, lanes: Int64) -> tuple[Int64, Int64]:
        """Take the next row of each lane; what stood there is gone. Returns slots and row numbers."""
        slots, rows = self.counters[lanes, CURSOR], self.counters[lanes, HEAD]
        full = rows >= self.rows
        old, oldest = lanes[full], rows[full] - self.rows
        was_step = (self.marks[old, slots[full]] & STEP) > 0
        self.tallies[STORED] -= int(was_step.sum())
        late = self.counters[old, RIPE] == oldest
        self.counters[old, RIPE_STEPS] += late & was_step
        self.counters[old, RIPE] += late
        self._drop(news, old, self.counters[old, FLOOR] == oldest)
        for _ in range(self.history):  # rows whose own older rows are gone, up to where a stream begins
            floor = self.counters[old, FLOOR]
            begins = (self.marks[old, floor % self.rows] & FIRST) > 0
            self._drop(news, old, (floor <= oldest + self.history) & ~begins)
        self.counters[lanes, HEAD] = rows + 1
        self.counters[lanes, CURSOR] = (slots + 1) % self.rows
        return slots, rows

    def _drop(self, news: News, lanes: Int64, which: Bool) -> None:
        """Let the lowest row of those lanes that can still be drawn be none of them any more."""
        lanes = lanes[which]
        floor = self.counters[lanes, FLOOR]
        anchors = (self.marks[lanes, floor % self.rows] & (STEP | START)) == STEP | START
        news.gone(lanes[anchors], floor[anchors])
        self.counters[lanes, FLOOR] = floor + 1

    def _ripen(self, lanes: Int64, ended: Bool, cut: Bool) -> None:
        if not self.across:
            head, ripe = self.counters[lanes, HEAD], self.counters[lanes, RIPE]
            complete = np.maximum(ripe, head - self.reach + self.counters[lanes, HELD])
            self.counters[lanes, RIPE] = np.where(ended | cut, head, complete)
            return
        self._all_ripe(lanes[cut & ~ended])
        while True:  # a step becomes ripe at a time, but for boundary rows on the way
            known = self.counters[lanes, STEPS] - self.counters[lanes, RIPE_STEPS] + self.counters[lanes, HELD]
            ripe = lanes[known > self.reach]
            if not len(ripe):
                return
            self.counters[ripe, RIPE_STEPS] += (self.marks[ripe, self.counters[ripe, RIPE] % self.rows] & STEP) > 0
            self.counters[ripe, RIPE] += 1

    def _all_ripe(self, lanes: Int64) -> None:
        self.counters[lanes, RIPE] = self.counters[lanes, HEAD]
        self.counters[lanes, RIPE_STEPS] = self.counters[lanes, STEPS]


def _unequal(a: Array, b: Array) -> Bool:
    """Which entries of the first axis have other bytes in `a` than in `b`."""
    if not len(a):
        return np.zeros(0, bool)
    left, right = (np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) for x in (a, b))
    differs: Bool = (left != right).any(axis=1)
    return differs
