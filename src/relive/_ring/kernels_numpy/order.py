"""Slots by descending priority."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._base.journal import Journal
from ..._base.types import Array, Float64, Int64

# Merging both parts of the order costs about as much per item as two passes over the few items of the smaller part.
_PASSES = 0.5


class _LateRanks(NamedTuple):
    """The ranks of the latecomers, and for every hole how many of the main part count before it."""

    ranks: Int64
    shift: Int64


class Order:
    """Slots by descending priority; of equal priorities the one that was set earlier comes first.

    The main part is one sorted array. Changes since it was last merged are kept beside it: the positions in it that no
    longer count (holes), and the latecomers, sorted, each with the main position before which it belongs. Both lists
    are short, and every change and draw passes over them; once these passes have cost as much as a merge, one is made.

    Args:
        memory: Zeros, two float64 numbers a slot.
    """

    def __init__(self, memory: Float64) -> None:
        capacity = len(memory) // 2
        numbers = memory[capacity:].view(np.int32)
        self._keys = memory[:capacity]  # negated priorities, so that they ascend
        # The slots; and of each 1 + its position in the main part, or -1 if it is a latecomer, or 0 if it is unknown.
        self._main, self._where = numbers[:capacity], numbers[capacity:]
        self._length = 0
        self._holes = np.empty(0, np.int64)
        self._late_keys = np.empty(0, np.float64)
        self._late = np.empty(0, np.int64)
        self._late_at = np.empty(0, np.int64)
        self._passed = 0
        self._ranks: _LateRanks | None = None

    def __len__(self) -> int:
        return self._length - len(self._holes) + len(self._late)

    def replace(self, journal: Journal, removed: Int64, added: Int64, priority: Float64) -> None:
        """Forget the distinct slots `removed`, known or not, then take in the distinct `added` of priority > 0."""
        journal.set(self, "_ranks", None)
        self._remove(journal, removed)
        if (priority > 0).all():
            self._add(journal, added, -priority)
        else:
            self._add(journal, added[priority > 0], -priority[priority > 0])
        journal.set(self, "_passed", self._passed + len(self._holes) + len(self._late))
        if self._passed > _PASSES * self._length:
            self._merge(journal)

    def slots(self, ranks: Int64) -> Int64:
        """The slots at `ranks`, counted from 0."""
        late_ranks, shift = self._late_ranks()
        above = late_ranks.searchsorted(ranks)
        position = ranks - above
        position += shift.searchsorted(position, "right")
        found: Int64 = self._main[np.minimum(position, len(self._main) - 1)].astype(np.int64)
        if len(late_ranks):
            above = np.minimum(above, len(late_ranks) - 1)
            found = np.where(late_ranks[above] == ranks, self._late[above], found)
        return found

    def _remove(self, journal: Journal, slots: Int64) -> None:
        where = self._where[slots].astype(np.int64)
        journal.put(self._where, slots, 0)
        if (where < 0).any():
            stays = self._where[self._late] < 0
            journal.set(self, "_late_keys", self._late_keys[stays])
            journal.set(self, "_late_at", self._late_at[stays])
            journal.set(self, "_late", self._late[stays])
        holes = np.sort(where[where > 0] - 1)
        if len(holes):
            journal.set(self, "_holes", _inserted(self._holes.searchsorted(holes), self._holes, holes))

    def _add(self, journal: Journal, slots: Int64, keys: Float64) -> None:
        if len(slots) > 1:
            order = np.argsort(keys, kind="stable")
            slots, keys = slots[order], keys[order]
        # Behind all equals: they were set earlier.
        at = self._keys[: self._length].searchsorted(keys, "right")
        before = self._late_keys.searchsorted(keys, "right")
        journal.set(self, "_late_keys", _inserted(before, self._late_keys, keys))
        journal.set(self, "_late", _inserted(before, self._late, slots))
        journal.set(self, "_late_at", _inserted(before, self._late_at, at))
        journal.put(self._where, slots, -1)

    def _late_ranks(self) -> _LateRanks:
        """The ranks of the latecomers, and for every hole how many of the main part count before it."""
        if self._ranks is None:
            before = self._late_at - self._holes.searchsorted(self._late_at)
            shift = self._holes - np.arange(len(self._holes))
            self._ranks = _LateRanks(before + np.arange(len(before)), shift)
        return self._ranks

    def _merge(self, journal: Journal) -> None:
        """Make one sorted array of both parts."""
        old, new = self._length, len(self)
        late_ranks, _ = self._late_ranks()
        counts = np.ones(old, np.bool_)
        counts[self._holes] = False
        from_main = np.ones(new, np.bool_)
        from_main[late_ranks] = False
        parts: tuple[tuple[Array, Array], ...] = ((self._keys, self._late_keys), (self._main, self._late))
        for part, late in parts:
            merged = np.empty(new, part.dtype)
            merged[from_main] = part[:old][counts]
            merged[late_ranks] = late
            journal.put(part, slice(new), merged)
        journal.put(self._where, self._main[:new], np.arange(1, new + 1))
        journal.set(self, "_length", new)
        for name in ("_holes", "_late", "_late_at"):
            journal.set(self, name, np.empty(0, np.int64))
        journal.set(self, "_late_keys", np.empty(0, np.float64))
        journal.set(self, "_passed", 0)
        journal.set(self, "_ranks", None)


def _inserted(before: Int64, array: Array, values: Array) -> Array:
    """`array` with `values` put in before its ascending positions `before`."""
    there = before + np.arange(len(before))
    free = np.ones(len(array) + len(there), np.bool_)
    free[there] = False
    result = np.empty(len(free), array.dtype)
    result[free] = array
    result[there] = values
    return result
