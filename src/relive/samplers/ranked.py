"""Items drawn in proportion to a power of the rank of their priority."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _kernels, _memory
from .._ring import Ring
from .._types import Array, Bool, Float32, Float64, Int64
from ._priorities import Newcomers, Shares, check_given, check_settings, raw_of
from .anneal import Anneal

# Merging both parts of the order costs about as much per item as two passes over the few items of the smaller part.
_PASSES = 0.5


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Draw item i with probability `(1 / rank(i))**alpha / sum`, where rank 1 has the largest `|td_error| + eps`.

    Ranks are exact at every draw. Of equal priorities the one that was set earlier ranks higher. A new item gets the
    largest priority ever set (`initial` until there is one), or what `add(..., priority=...)` says; an item whose
    priority is 0 has no rank and is not drawn until it is updated.

    Only the order of TD errors matters, not their size: an outlier takes the share of rank 1 and no more, and the
    shares stay as they are when all errors shrink. `Prioritized` needs no order and is the cheaper of the two.

    Args:
        alpha: How strongly ranks count, >= 0: 0 draws uniformly, and from about 60 on the first in rank is drawn
            practically every time. Applied exactly once.
        beta: Exponent of the importance-sampling correction, >= 0: a number, or an `Anneal` that moves by one at every
            `sample`.
        eps: Added to |td_error|, >= 0; with 0, an item whose error was 0 is not drawn again until it is updated.
        weights: What the weights `(N * P(i))**-beta` are divided by: the largest in the batch (`"batch"`), the largest
            in the buffer (`"buffer"`), or nothing (`"none"`). With batches of one, `"batch"` makes every weight 1.
        stratified: One draw in each of `batch` equal slices of the total, in the order of ranks; else independent
            draws. Draws without replacement are successive draws and know no slices.
        replacement: Whether a batch may hold an item twice.
        initial: Raw priority of new items until the first priority is set, >= 0.

    Raises:
        ArgumentError: An argument outside these limits.

    Source: Schaul et al., "Prioritized Experience Replay", ICLR 2016, section 3.3, second variant; there with ranks
    that are sorted anew only now and then.

    Cost: O(batch * log N) for a draw, and O(m log N + sqrt(m N)) on average for m changed priorities or added steps:
    what changed is merged into a sorted array from time to time. Measured with batches of 256, a draw and its update
    take 0.14, 0.2 and 0.5 ms at 10**4, 10**5 and 10**6 items (`Prioritized`: 0.02 to 0.03 ms), of which a merge of
    10**6 items is 8 ms in one call of about thirty; adding one step takes 0.1 ms. Memory: 26.3 bytes per step of
    capacity, 8 more once `priority=` has been used, and 14 for a moment at every merge.

    >>> Ranked(alpha=0.7, beta=Anneal(0.5, 1.0, over=200_000)).alpha
    0.7
    """

    alpha: float = 0.7
    beta: float | Anneal = 0.4
    eps: float = 1e-6
    weights: str = "batch"
    stratified: bool = True
    replacement: bool = True
    initial: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def prioritizes(self) -> bool:
        """True: `update_priorities` and `priority=` are understood."""
        return True

    def index(self, ring: Ring) -> _Ranked:
        """Return an empty index over the places of `ring`."""
        return _Ranked(self, ring.capacity)


class _Ranked:
    """A sum tree over ranks, whose leaves `rank**-alpha` never change, and the order that says who has which rank."""

    def __init__(self, settings: Ranked, capacity: int) -> None:
        self._settings, self._kernels = settings, _kernels.active()
        self._shares, self._new = Shares(settings, capacity), Newcomers(settings.initial, capacity)
        self._order = _Order(capacity)
        self.check, self.priorities = check_given, self._order.priorities

    listener = None

    @property
    def drawable(self) -> int:
        return len(self._order)

    def change(self, removed: Int64, added: Int64) -> None:
        self._replace(removed, added, self._new.of(added))

    def offer(self, places: Int64, priority: Float64 | None) -> None:
        self._new.offer(places, priority)

    def draw(self, n: int, rng: Any, beta: float | None, items: int) -> tuple[Int64, Float32]:
        ranks, weights = self._shares.draw(n, rng, beta, items)
        return self._order.places(ranks), weights

    def update(self, places: Int64, td_error: Float64, keep: Bool | None) -> None:
        raw = raw_of(td_error, self._settings.eps)
        if keep is not None:
            places, raw = places[keep], raw[keep]
        if not len(places):
            return
        self._new.raise_to(float(raw.max()))
        if len(places) > 1:
            last = _last_of_each(places)
            places, raw = places[last], raw[last]
        self._replace(places, places, raw)

    def report(self) -> dict[str, Any]:
        return self._shares.report(self._order.values())

    def _replace(self, removed: Int64, added: Int64, priority: Float64) -> None:
        before = len(self._order)
        self._order.replace(removed, added, priority)
        after = len(self._order)
        if after > before:
            ranks = np.arange(before, after)
            self._shares.tree.set(ranks, self._kernels.power(ranks + 1.0, -self._settings.alpha))
        elif after < before:
            self._shares.tree.set(np.arange(after, before), np.zeros(before - after))


class _Order:
    """Places by descending priority; of equal priorities the one that was set earlier comes first.

    The main part is one sorted array. What happened since it was merged stands beside it: the positions in it that no
    longer count (holes), and the latecomers, sorted, each with the main position before which it belongs. Both are
    short, and every change and draw passes over them; when these passes have cost as much as a merge, one is made.
    """

    def __init__(self, capacity: int) -> None:
        dtype = np.dtype(np.int32 if capacity < 2**31 else np.int64)
        self._keys = _memory.zeros((capacity,), np.float64)  # negated priorities, so that they ascend
        self._main = _memory.zeros((capacity,), dtype)
        self._where = _memory.zeros((capacity,), dtype)  # 1 + position in the main part; -1 a latecomer; 0 unknown
        self._length = 0
        self._holes = np.empty(0, np.int64)
        self._late_keys = np.empty(0, np.float64)
        self._late = np.empty(0, np.int64)
        self._late_at = np.empty(0, np.int64)
        self._passed = 0
        self._ranks: tuple[Int64, Int64] | None = None

    def __len__(self) -> int:
        return self._length - len(self._holes) + len(self._late)

    def replace(self, removed: Int64, added: Int64, priority: Float64) -> None:
        """Forget the distinct places `removed`, known or not, then take in the distinct `added` of priority > 0."""
        self._ranks = None
        self._remove(removed)
        if (priority > 0).all():
            self._add(added, -priority)
        else:
            self._add(added[priority > 0], -priority[priority > 0])
        self._passed += len(self._holes) + len(self._late)
        if self._passed > _PASSES * self._length:
            self._merge()

    def places(self, ranks: Int64) -> Int64:
        """The places at `ranks`, counted from 0."""
        late_ranks, shift = self._late_ranks()
        above = late_ranks.searchsorted(ranks)
        position = ranks - above
        position += shift.searchsorted(position, "right")
        found: Int64 = self._main[np.minimum(position, len(self._main) - 1)].astype(np.int64)
        if len(late_ranks):
            above = np.minimum(above, len(late_ranks) - 1)
            found = np.where(late_ranks[above] == ranks, self._late[above], found)
        return found

    def priorities(self, places: Int64) -> Float64:
        """The priorities of `places`, 0 of those that have none."""
        where = self._where[places]
        found = np.where(where > 0, -self._keys[where - 1], 0.0)
        late = where < 0
        if late.any():
            sorter = np.argsort(self._late)
            found[late] = -self._late_keys[sorter[self._late.searchsorted(places[late], sorter=sorter)]]
        return found

    def values(self) -> Float64:
        """All priorities, in no particular order."""
        return -np.concatenate((np.delete(self._keys[: self._length], self._holes), self._late_keys))

    def _remove(self, places: Int64) -> None:
        where = self._where[places].astype(np.int64)
        self._where[places] = 0
        if (where < 0).any():
            stays = self._where[self._late] < 0
            self._late_keys, self._late = self._late_keys[stays], self._late[stays]
            self._late_at = self._late_at[stays]
        holes = np.sort(where[where > 0] - 1)
        if len(holes):
            (self._holes,) = _inserted(self._holes.searchsorted(holes), (self._holes, holes))

    def _add(self, places: Int64, keys: Float64) -> None:
        if len(places) > 1:
            order = np.argsort(keys, kind="stable")
            places, keys = places[order], keys[order]
        # Behind all equals: they were set earlier.
        at = self._keys[: self._length].searchsorted(keys, "right")
        self._late_keys, self._late, self._late_at = _inserted(
            self._late_keys.searchsorted(keys, "right"),
            (self._late_keys, keys),
            (self._late, places),
            (self._late_at, at),
        )
        self._where[places] = -1

    def _late_ranks(self) -> tuple[Int64, Int64]:
        """The ranks of the latecomers, and for every hole how many of the main part count before it."""
        if self._ranks is None:
            before = self._late_at - self._holes.searchsorted(self._late_at)
            self._ranks = before + np.arange(len(before)), self._holes - np.arange(len(self._holes))
        return self._ranks

    def _merge(self) -> None:
        """Make one sorted array of both parts."""
        old, self._length = self._length, len(self)
        late_ranks, _ = self._late_ranks()
        counts = np.ones(old, np.bool_)
        counts[self._holes] = False
        from_main = np.ones(self._length, np.bool_)
        from_main[late_ranks] = False
        for part, late in ((self._keys, self._late_keys), (self._main, self._late)):
            kept = part[:old][counts]
            merged = part[: self._length]
            merged[from_main] = kept
            merged[late_ranks] = late
        self._where[self._main[: self._length]] = np.arange(1, self._length + 1)
        self._holes, self._late, self._late_at = (np.empty(0, np.int64) for _ in range(3))
        self._late_keys = np.empty(0, np.float64)
        self._passed = 0
        self._ranks = None


def _inserted(before: Int64, *pairs: tuple[Array, Array]) -> list[Array]:
    """Each pair's first array with the values of its second put in before the ascending positions `before`."""
    there = before + np.arange(len(before))
    free = np.ones(len(pairs[0][0]) + len(there), np.bool_)
    free[there] = False
    results = []
    for array, values in pairs:
        result = np.empty(len(free), array.dtype)
        result[free] = array
        result[there] = values
        results.append(result)
    return results


def _last_of_each(places: Int64) -> Int64:
    """Ascending positions of the last occurrence of every place."""
    _, first_from_behind = np.unique(places[::-1], return_index=True)
    last: Int64 = np.sort(len(places) - 1 - first_from_behind)
    return last
