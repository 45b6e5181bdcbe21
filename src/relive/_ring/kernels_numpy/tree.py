"""The 8-ary sum tree in NumPy: what `native/tree.hpp` does, level by level over whole batches.

Level 0 holds the leaves; an entry of level `l + 1` is the sum of one group of 8 entries of level `l`, always
recomputed from all eight in one order, ((0+1)+(2+3))+((4+5)+(6+7)), and never adjusted by a difference: there is no
drift. A descent compares the target with the inclusive scan of a group, whose last entry has the same bits as the
group's sum. `mins` holds the smallest positive leaf below each entry, 0 where there is none, so that fresh zero pages
are a valid empty tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._base.journal import Journal
from ..._base.priorities import falling
from ..lanes import CLEARED, DRAWABLE
from ..plans import Changes, Drawn, SampledLeaves
from .power import mass, power, smallest, weights
from .ring import Ring
from .rows import largest_given

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

FAN_OUT = 8
# Entries of the state of a tree that follows a ring.
LARGEST, ITEMS = 3, 4


def _sum8(groups: Float64s) -> Float64s:
    """Sum of each row of `[n, 8]`, in the order of the tree."""
    pairs = groups[:, 0::2] + groups[:, 1::2]
    fours = pairs[:, 0::2] + pairs[:, 1::2]
    total: Float64s = fours[:, 0] + fours[:, 1]
    return total


def _min8(groups: Float64s) -> Float64s:
    """Return the smallest positive entry of each row of `[n, 8]`, or 0."""
    smallest = np.where(groups > 0.0, groups, math.inf).min(axis=1)
    return np.where(smallest < math.inf, smallest, 0.0)


def _scan8(groups: Float64s) -> Float64s:
    """Scan each row of `[n, 8]` exclusively, with the row's sum appended: `[n, 9]`."""
    scan = np.zeros((len(groups), FAN_OUT + 1))
    inclusive = scan[:, 1:]
    inclusive[:] = groups
    for step in (1, 2, 4):
        inclusive[:, step:] = inclusive[:, step:] + inclusive[:, :-step]
    return scan


def _search_exactly(group: list[float], target: float) -> tuple[int, float]:
    """Find the child by adding up in sequence: it cannot stop on a zero, and falls back to the last positive child."""
    before, last = 0.0, 0
    for j, value in enumerate(group):
        if value > 0.0:
            after = before + value
            if after > target:
                return j, target - before
            before, last = after, j
    return last, group[last]


def _news(ring: Ring, seen: Int64s, largest: float, initial: float) -> tuple[Changes, float, Float64s]:
    """Return the ring's changes since `seen`, the largest raw priority so far, and those of the new slots.

    They have what they were given, or else the largest that was ever set or given, or else `initial`.
    """
    changes = ring.changes(seen)
    if (ring.counters[:, CLEARED] > seen[:, 0]).any():
        largest = 0.0
    if ring.given is None or not ring.clock[1]:
        return changes, largest, np.full(len(changes.added), largest or initial)
    largest = max(largest, largest_given(ring.given, ring.marks, ring.rows, ring.counters, seen))
    given = ring.given.reshape(-1)[changes.rows]
    return changes, largest, np.where(np.signbit(given), -given, largest or initial)


class Tree:
    """Sums of non-negative leaves over arrays that the caller owns; every input is valid already.

    Args:
        sums: One float64 array a level, leaves first, each a multiple of 8 long; the last holds one group.
        mins: `mins[l]` belongs to `sums[l + 1]`.
        state: float64 `[5]`: total, smallest positive leaf (inf if none), number of positive leaves; then, where the
            tree follows a ring, the largest raw priority ever set or given (0 if none) and the ring's drawable items.
    """

    def __init__(self, sums: Sequence[Float64s], mins: Sequence[Float64s], state: Float64s) -> None:
        self._leaves = sums[0]
        self._sums = [level.reshape(-1, FAN_OUT) for level in sums]
        self._mins = [level.reshape(-1, FAN_OUT) for level in mins]
        self.state = state
        self._raws: Tree | None = None

    def keep_raws(self, raws: Tree) -> None:
        """Keep raw priorities in `raws`, a tree over as many leaves, as `falling` has them.

        New items then get the largest of those that were stored at the last update, or given since.
        """
        self._raws = raws

    def get(self, indices: Int64s) -> Float64s:
        """Return the leaves at `indices`."""
        return self._leaves[indices]

    def set(self, indices: Int64s, values: Float64s) -> None:
        """Write leaves; the last of several values for one index counts."""
        with Journal() as journal:
            self._write(journal, indices, values)

    def fill_zero_and_set(self, removed: Int64s, added: Int64s, value: float) -> None:
        """Write 0 at `removed`, then `value` at `added`."""
        with Journal() as journal:
            self._replace(journal, removed, added, np.full(len(added), value))

    def restore(self) -> None:
        """Compute all anew from the leaves, where a kill may have left a hidden one, which is negative."""
        with Journal() as journal:
            journal.put(self._leaves, slice(None), np.abs(self._leaves))
            journal.put(self.state, 2, np.count_nonzero(self._leaves))
            self._rebuild(journal, np.arange(len(self._leaves)))

    def refresh(self, ring: Ring, seen: Int64s, initial: float, alpha: float) -> int:
        """Take in what changed in `ring` since `seen`, which moves on; return how many leaves are positive.

        Leaves become powers of the raw priorities of new items: what they were given, or else the largest that was
        ever set or given, or else `initial`.
        """
        changes, largest, raw = _news(ring, seen, float(self.state[LARGEST]), initial)
        with Journal() as journal:
            journal.put(self.state, ITEMS, ring.counters[:, DRAWABLE].sum())
            journal.put(self.state, LARGEST, largest)
            if not np.array_equal(seen, changes.seen):
                self._replace(journal, changes.removed, changes.added, power(raw, alpha))
                if self._raws is not None:
                    self._raws._replace(journal, changes.removed, changes.added, falling(raw))
                journal.put(seen, slice(None), changes.seen)
        return int(self.state[2])

    def chooser(self, ring: Ring, seen: Int64s, draws: Float64s, settings: Any) -> None:
        """Do nothing: only the native kernel has a fast path for draws inside `sample`.

        Args:
            ring: The ring that the tree follows.
            seen: The ring's counters at the last refresh.
            draws: How many draws there were, and the last one's beta, float64 `[2]`.
            settings: Those of the sampler: `initial`, `alpha`, `eps`, `beta`, `weights`, `stratified`, `replacement`.
        """

    def update(
        self, slots: Int64s, td_error: Float64s, keep: NDArray[np.bool_] | None, eps: float, alpha: float
    ) -> bool:
        """Set priorities `|td_error| + eps` of the slots that `keep` marks; the last of several for one slot wins.

        Returns False, and has changed nothing, where one of them would not be finite.
        """
        values, largest = mass(td_error, eps, alpha)
        if not largest < math.inf:
            return False
        if keep is not None:
            slots, values, td_error = slots[keep], values[keep], td_error[keep]
        with Journal() as journal:
            self._write(journal, slots, values)
            if self._raws is not None:
                self._raws._write(journal, slots, falling(np.abs(td_error) + eps))
                journal.put(self.state, LARGEST, falling(self._raws.state[1:2])[0])
                return True
            won = np.abs(td_error[self._leaves[slots] == values]) + eps
            journal.put(self.state, LARGEST, max(self.state[LARGEST], won.max(initial=0.0)))
        return True

    def _replace(self, journal: Journal, removed: Int64s, added: Int64s, values: Float64s) -> None:
        self._write(journal, np.concatenate((removed, added)), np.concatenate((np.zeros(len(removed)), values)))

    def _write(self, journal: Journal, indices: Int64s, values: Float64s) -> None:
        touched = np.unique(indices)
        positive = np.count_nonzero(self._leaves[touched])
        journal.put(self._leaves, indices, values)
        now = self.state[2] + np.count_nonzero(self._leaves[touched]) - positive
        journal.put(self.state, 2, now)
        self._rebuild(journal, touched)

    def find(self, prefix: Float64s) -> Drawn:
        """Find the leaf in whose half-open share of `[0, total)` each prefix lies, and its value.

        A leaf of zero is never returned; a prefix at or above the total gives the last positive leaf.
        """
        target = prefix
        node = np.zeros(len(prefix), np.int64)
        rows = np.arange(len(prefix))
        for level in reversed(self._sums):
            groups = level[node]
            scan = _scan8(groups)
            child = np.count_nonzero(scan[:, 1:] <= target[:, None], axis=1)
            rest = target - scan[rows, np.minimum(child, FAN_OUT - 1)]
            # Rounding can lead past the group's end or, as a scan in pairs need not be monotone, on to a zero.
            doubtful = (child == FAN_OUT) | (groups[rows, np.minimum(child, FAN_OUT - 1)] <= 0.0)
            for i in np.flatnonzero(doubtful).tolist():
                child[i], rest[i] = _search_exactly(groups[i].tolist(), float(target[i]))
            node, target = node * FAN_OUT + child, rest
        return Drawn(node, self._leaves[node])

    def draw(self, u: Float64s, stratified: bool) -> Drawn:
        """Draw leaves in proportion to their values, by uniforms in [0, 1); return them with their values.

        Stratified: the i-th uniform is a point inside the i-th of `len(u)` equal slices of the total.
        """
        total = self.state[0]
        if stratified:
            return self.find((np.arange(len(u)) + u) * (total / len(u)) if len(u) else u)
        return self.find(u * total)

    def draw_distinct(self, u: Float64s) -> Drawn:
        """Draw leaves one after another, each out of those not drawn yet, with their values; keep the tree unchanged.

        At most as many as there are positive leaves.
        """
        indices = np.empty(len(u), np.int64)
        total = float(self.state[0])
        hidden: dict[tuple[int, int], list[float]] = {}
        for i, uniform in enumerate(u.tolist()):
            indices[i] = self._find_one(uniform * total, hidden)
            total = self._hide(int(indices[i]), hidden)
        return Drawn(indices, self._leaves[indices])

    def sample(
        self, u: Float64s, stratified: bool, replacement: bool, scale: int, items: float, beta: float
    ) -> SampledLeaves:
        """Draw leaves with their weights `(value / reference) ** -beta`.

        The reference is the smallest value in the batch (scale 0), in the tree (1), or the mean of `items` leaves (2).
        """
        leaves, values = self.draw(u, stratified) if replacement else self.draw_distinct(u)
        least, total = float(self.state[1]), float(self.state[0])
        reference = smallest(values) if scale == 0 else least if scale == 1 else total / items
        return SampledLeaves(leaves, values, weights(values, reference, beta))

    def try_update(
        self, ring: Ring, seen: Int64s, ids: Any, td_error: Any, initial: float, eps: float, alpha: float
    ) -> bool:
        """Return False: only the native kernel has a short way for plain arguments."""
        return False

    def _group(self, level: int, node: int, hidden: dict[tuple[int, int], list[float]]) -> list[float]:
        """Return the eight entries of one node, without those that are hidden."""
        found = hidden.get((level, node))
        return self._sums[level][node].tolist() if found is None else found

    def _find_one(self, target: float, hidden: dict[tuple[int, int], list[float]]) -> int:
        """`find` for one prefix, in Python numbers: small arrays would cost more than the arithmetic."""
        node = 0
        for level in reversed(range(len(self._sums))):
            group = self._group(level, node, hidden)
            scan = group
            for step in (1, 2, 4):
                scan = scan[:step] + [scan[j] + scan[j - step] for j in range(step, FAN_OUT)]
            child = sum(entry <= target for entry in scan)
            if child < FAN_OUT and group[child] > 0.0:
                target -= scan[child - 1] if child else 0.0
            else:
                child, target = _search_exactly(group, target)
            node = node * FAN_OUT + child
        return node

    def _hide(self, index: int, hidden: dict[tuple[int, int], list[float]]) -> float:
        """Draw as if one leaf were zero; the total that is left."""
        value = 0.0
        for level in range(len(self._sums)):
            index, position = divmod(index, FAN_OUT)
            group = list(self._group(level, index, hidden))
            group[position] = value
            hidden[level, index] = group
            a, b, c, d, e, f, g, h = group
            value = ((a + b) + (c + d)) + ((e + f) + (g + h))
        return value

    def _rebuild(self, journal: Journal, touched: Int64s) -> None:
        """Recompute every group above the leaves `touched` (ascending, unique)."""
        groups = touched
        for level, below in enumerate(self._sums):
            groups = np.unique(groups // FAN_OUT)
            children = below[groups]
            with np.errstate(over="ignore"):  # of raw priorities the sum says nothing
                sums = _sum8(children)
            mins = _min8(children if level == 0 else self._mins[level - 1][groups])
            if level + 1 < len(self._sums):
                journal.put(self._sums[level + 1].reshape(-1), groups, sums)
                journal.put(self._mins[level].reshape(-1), groups, mins)
            elif len(groups):
                journal.put(self.state, 0, sums[0])
                journal.put(self.state, 1, mins[0] if mins[0] > 0.0 else math.inf)
