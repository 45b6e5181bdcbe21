"""The ring's kernels in readable NumPy: what the native ones must agree with, bit by bit.

Loops run over time or over the steps of a window, never over lanes or items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._types import Array, Bool, Bytes, Float32, Float64, Int32, Int64

# Bits of a row's mark. A row without STEP is a boundary row: an observation that only serves as a successor.
STEP, TERMINATED, TRUNCATED, CUT, LOST = 1, 2, 4, 8, 16
END = TERMINATED | TRUNCATED | CUT

# Columns of the per-lane counters: rows ever written, the slot the next row goes to, the first row that is not known to
# be drawable yet, and whether a successor is held for the newest step.
HEAD, CURSOR, RIPE, HELD = range(4)

# Tallies of the whole ring: steps ever added, cuts, truncated steps without a final observation, steps stored now, and
# places that hold a drawable item.
ADDED, CUTS, UNBOOTSTRAPPED, STORED, DRAWABLE = range(5)


class Ring:
    """Lanes of rows with a held successor each. Works on arrays it is given and keeps no state of its own.

    Columns have `L * R` rows of the rings, lane after lane, and then one held successor per lane: these are touched by
    every step, so they stand together. A *place* is `slot * L + lane`; an id is `row * L + lane`, so that
    `place == id % (R * L)`.
    """

    def __init__(
        self, columns: Sequence[Array], num_obs: int, keys: Sequence[tuple[str, ...]], marks: Bytes, counters: Int64,
        tallies: Int64, reach: int,
    ) -> None:  # fmt: skip
        self._lanes, self._rows = marks.shape
        end = self._lanes * self._rows
        self._columns = [column[:end].reshape(self._lanes, self._rows, *column.shape[1:]) for column in columns]
        self._successors = [column[end:] for column in columns[:num_obs]]
        self._bytes = [column.reshape(self._lanes, -1).view(np.uint8) for column in self._successors]
        self._num_obs = num_obs
        self._marks, self._counters, self._tallies = marks, counters, tallies
        self._reach = reach

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
        news = _News(self, lanes)
        ids = np.empty((len(lanes), length), np.int64)
        for t in range(length):
            obs = [value[:, t] for value in values[: self._num_obs]]
            self._close(news, lanes[self._differs(lanes, obs)])
            slots, rows = self._claim(news, lanes)
            ids[:, t] = rows * self._lanes + lanes
            for column, value in zip(self._columns, values, strict=True):
                column[lanes, slots] = value[:, t]
            ended = terminated[:, t] | truncated[:, t]
            self._marks[lanes, slots] = STEP | TERMINATED * terminated[:, t] | TRUNCATED * truncated[:, t]
            self._tallies[ADDED] += len(lanes)
            self._tallies[STORED] += len(lanes)
            self._counters[lanes, HELD] = 0
            if next_values is None:
                self._marks[lanes[ended], slots[ended]] |= LOST
                self._tallies[UNBOOTSTRAPPED] += int((truncated[:, t] & ~terminated[:, t]).sum())
            else:
                self._boundary(news, lanes[ended], [value[ended, t] for value in next_values])
                going = lanes[~ended]
                for column, value in zip(self._successors, next_values, strict=True):
                    column[going] = value[~ended, t]
                self._counters[going, HELD] = 1
            self._ripen(lanes, ended)
        added, removed, notices = news.places()
        return ids, added, removed, notices

    def cut(self, lanes: Int64) -> tuple[Int64, Int64, int]:
        """End the streams of `lanes` that are open; return places added, places removed, and the number of cuts."""
        news = _News(self, lanes)
        held = self._counters[lanes, HELD] == 1
        self._close(news, lanes[held])
        head, slot = self._counters[lanes, HEAD], (self._counters[lanes, CURSOR] - 1) % self._rows
        mark = self._marks[lanes, slot]
        waiting = ~held & (head > 0) & ((mark & STEP) > 0) & ((mark & END) == 0)
        # The newest step's successor was never seen: only its observation is of use, as the successor of the step
        # before.
        lanes, head, slot = lanes[waiting], head[waiting], slot[waiting]
        self._marks[lanes, slot] = 0
        if self._rows > 1:
            before = (slot - 1) % self._rows
            earlier = (head > 1) & ((self._marks[lanes, before] & STEP) > 0)
            self._marks[lanes[earlier], before[earlier]] |= CUT
        self._counters[lanes, RIPE] = head
        self._tallies[CUTS] += len(lanes)
        self._tallies[STORED] -= len(lanes)
        return news.places()

    def ids(self, places: Int64) -> Int64:
        """The ids that stand at `places` now."""
        slots, lanes = np.divmod(places, self._lanes)
        behind = self._counters[lanes, CURSOR] - 1 - slots
        rows: Int64 = self._counters[lanes, HEAD] - 1 - np.where(behind < 0, behind + self._rows, behind)
        ids: Int64 = rows * self._lanes + lanes
        return ids

    def locate(self, ids: Int64) -> tuple[Int64, Bytes | None]:
        """The places of `ids`, and None if all can be drawn, else a code for each.

        Codes: 0 can be drawn, 1 overwritten, 2 not complete yet, 3 never issued.
        """
        rows, lanes = np.divmod(ids, self._lanes)
        head = self._counters[lanes, HEAD]
        codes = np.zeros(len(ids), np.uint8)
        codes[rows >= self._counters[lanes, RIPE]] = 2
        codes[(self._marks[lanes, rows % self._rows] & STEP) == 0] = 3
        codes[rows < head - self._rows] = 1
        codes[(ids < 0) | (rows >= head)] = 3
        return ids % (self._lanes * self._rows), codes if codes.any() else None

    def windows(self, places: Int64, discounts: Float32) -> tuple[Int64, Int64, Int64, Int32, Float32, Bool, Bool]:
        """The windows of `len(discounts) - 1` steps at most that start at drawable `places`.

        Returns the storage rows of the anchors and of the windows' successors, the steps, the discounts, and the flags
        of the last step.
        """
        n = len(discounts) - 1
        slots, lanes = np.divmod(places, self._lanes)
        steps = np.ones(len(places), np.int32)
        mark = self._marks[lanes, slots]
        for _ in range(n - 1):
            going = (mark & END) == 0
            steps += going
            mark = np.where(going, self._marks[lanes, (slots + steps - 1) % self._rows], mark)
        lost = (mark & LOST) > 0
        successor = (slots + steps - lost) % self._rows
        held = ~lost & (successor == self._counters[lanes, CURSOR])
        base = lanes * self._rows
        after = np.where(held, self._lanes * self._rows + lanes, base + successor)
        terminated, truncated = (mark & TERMINATED) > 0, (mark & TRUNCATED) > 0
        discount = np.where(terminated | lost, np.float32(0), discounts[steps])
        return self.ids(places), base + slots, after, steps, discount, terminated, truncated

    def fold(self, column: Array, starts: Int64, steps: Int32, gammas: Float64) -> Array:
        """The discounted sums over `steps` rows of `column` from storage rows `starts` on, in its dtype."""
        lanes, slots = np.divmod(starts, self._rows)
        wide = (-1,) + (1,) * (column.ndim - 1)
        total = column[starts].astype(np.float64)
        for k in range(1, len(gammas)):
            rows = lanes * self._rows + (slots + k) % self._rows
            total += np.where((k < steps).reshape(wide), gammas[k] * column[rows], 0.0)
        return total.astype(column.dtype)

    def _differs(self, lanes: Int64, obs: Sequence[Array]) -> Bool:
        """Whether a successor is held that is not byte-equal to the observation that has come."""
        differs = np.zeros(len(lanes), bool)
        for stored, value in zip(self._bytes, obs, strict=False):
            given = np.ascontiguousarray(value).reshape(len(lanes), -1).view(np.uint8)
            differs |= (stored[lanes] != given).any(axis=1)
        held: Bool = self._counters[lanes, HELD] == 1
        return differs & held

    def _close(self, news: _News, lanes: Int64) -> None:
        """Turn the held successors of `lanes` into boundary rows: their streams were cut."""
        self._marks[lanes, (self._counters[lanes, CURSOR] - 1) % self._rows] |= CUT
        self._boundary(news, lanes, [column[lanes] for column in self._successors])
        self._counters[lanes, HELD] = 0
        self._counters[lanes, RIPE] = self._counters[lanes, HEAD]
        self._tallies[CUTS] += len(lanes)

    def _boundary(self, news: _News, lanes: Int64, obs: Sequence[Array]) -> None:
        slots, _ = self._claim(news, lanes)
        self._marks[lanes, slots] = 0
        for column, value in zip(self._columns, obs, strict=False):
            column[lanes, slots] = value

    def _claim(self, news: _News, lanes: Int64) -> tuple[Int64, Int64]:
        """Take the next row of each lane; what stood there is gone. Returns slots and row numbers."""
        slots, rows = self._counters[lanes, CURSOR], self._counters[lanes, HEAD]
        gone = (self._marks[lanes, slots] & STEP) > 0
        news.gone(lanes[gone], rows[gone] - self._rows)
        self._tallies[STORED] -= int(gone.sum())
        self._counters[lanes, HEAD] = rows + 1
        self._counters[lanes, CURSOR] = (slots + 1) % self._rows
        return slots, rows

    def _ripen(self, lanes: Int64, ended: Bool) -> None:
        head, ripe = self._counters[lanes, HEAD], self._counters[lanes, RIPE]
        complete = np.maximum(ripe, head - self._reach + self._counters[lanes, HELD])
        self._counters[lanes, RIPE] = np.where(ended, head, complete)


class _News:
    """Which places one call made drawable and which it took away, in the order of the call's lanes, then of rows."""

    def __init__(self, ring: Ring, lanes: Int64) -> None:
        self._ring, self._called = ring, lanes
        self._order = np.full(ring._lanes, -1, np.int64)
        self._order[lanes] = np.arange(len(lanes))
        self._ripe = ring._counters[:, RIPE].copy()
        self._before = ring._tallies.copy()
        self._gone: list[tuple[Int64, Int64]] = []

    def gone(self, lanes: Int64, rows: Int64) -> None:
        """Note rows that were overwritten, if they could be drawn when the call began."""
        drawable = rows < self._ripe[lanes]
        self._gone.append((lanes[drawable], rows[drawable]))

    def places(self) -> tuple[Int64, Int64, int]:
        """Return places added and removed, and how many cuts and losses the caller may want to hear of."""
        ring = self._ring
        head, ripe = ring._counters[:, HEAD], ring._counters[:, RIPE]
        first = np.maximum(self._ripe, head - ring._rows)[self._called]
        counts = np.maximum(ripe[self._called] - first, 0)
        lane = np.repeat(self._called, counts)
        offset = np.arange(len(lane)) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = (np.repeat(first, counts) + offset) % ring._rows
        steps = (ring._marks[lane, slots] & STEP) > 0
        added = (slots * ring._lanes + lane)[steps]
        lanes = np.concatenate([lane for lane, _ in self._gone]) if self._gone else np.empty(0, np.int64)
        rows = np.concatenate([row for _, row in self._gone]) if self._gone else lanes
        sort = np.lexsort((rows, self._order[lanes]))
        removed = rows[sort] % ring._rows * ring._lanes + lanes[sort]
        gained = ring._tallies - self._before
        ring._tallies[DRAWABLE] += len(added) - len(removed)
        return added, removed, int(gained[CUTS] + gained[UNBOOTSTRAPPED])


class Gather:
    """Copies rows of many columns into output arrays; `picks[i]` names the list of rows that column `i` takes."""

    def __init__(self, columns: Sequence[Array], picks: Sequence[int]) -> None:
        self._columns = list(columns)
        self._picks = list(picks)

    def take(self, rows: Sequence[Int64], outs: Sequence[Array]) -> None:
        """Fill `outs[i]` with the storage rows `rows[picks[i]]` of column `i`."""
        for column, pick, out in zip(self._columns, self._picks, outs, strict=True):
            out[...] = column[rows[pick]]

    def expand(
        self, ring: Ring, places: Int64, discounts: Float32, outs: list[Array] | None
    ) -> tuple[Int64, Int64, Int32, Float32, Bool, Bool, list[Array]]:
        """The windows at `places`, and the rows of anchors and successors in `outs` or in new arrays."""
        ids, at, after, steps, discount, terminated, truncated = ring.windows(places, discounts)
        if outs is None:
            outs = self.taken((at, after))
        else:
            self.take((at, after), outs)
        return ids, at, steps, discount, terminated, truncated, outs

    def taken(self, rows: Sequence[Int64]) -> list[Array]:
        """The same in new arrays."""
        return [column[rows[pick]] for column, pick in zip(self._columns, self._picks, strict=True)]
