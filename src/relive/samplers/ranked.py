"""Items drawn in proportion to a power of the rank of their priority."""

from __future__ import annotations

import numpy as np

from .. import _kernels, _memory, sum_tree
from .._arrays import ArraySpec, Memory
from .._frozen import Frozen
from .._journal import Journal
from .._ring import Ring
from .._types import Bool, Float64, Int64
from ._order import Order
from ._priorities import ProportionalSampling, check_settings, raw_of
from ._protocol import Draw, Report
from .anneal import Anneal


class Ranked(Frozen, kw_only=True):
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
            draws. Draws without replacement are successive draws and never stratified.
        replacement: Whether a batch may hold an item twice.
        initial: Raw priority of new items until the first priority is set, >= 0.

    Raises:
        ArgumentError: An argument outside these limits.

    Source: Schaul et al., "Prioritized Experience Replay", ICLR 2016, section 3.3, second variant. There ranks are
    approximate: they are sorted anew only now and then.

    Cost: O(batch * log N) for a draw, and O(m log N + sqrt(m N)) on average for m changed priorities or added steps:
    changes are merged into a sorted array from time to time. Measured with batches of 256, a draw and its update take
    about 12, 14 and 25 times as long as with `Prioritized` at 10**4, 10**5 and 10**6 items. A few calls, in which a
    merge falls, take many times longer than the others. Memory: 50.3 bytes per row of capacity (priority 8, order of
    setting 8, arrival 8, sorted order 16, tree 10.3), 8 more once `priority=` has been used, and 34 while merging.

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
        """True."""
        return True

    @property
    def keeps(self) -> tuple[str, ...]:
        """The priorities that steps are given, and when they became ready, which orders equal priorities."""
        return ("given", "arrival")

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """The priority of every slot and when it was set; the largest priority and a clock; the counters last seen."""
        numbers, integers = np.dtype(np.float64), np.dtype(np.int64)
        return {
            "ranks": ArraySpec((lanes * rows,), numbers),
            "ranks.stamps": ArraySpec((lanes * rows,), integers),
            "ranks.state": ArraySpec((2,), numbers),
            "ranks.seen": ArraySpec((lanes, 3), integers),
        }

    def index(self, ring: Ring, memory: Memory) -> _Ranked:
        """Return an index over the slots of `ring`."""
        return _Ranked(self, ring, memory)


# Entries of the state: the largest raw priority ever set or given, and how often one was set.
_LARGEST, _CLOCK = 0, 1


class _Ranked:
    """A sum tree over ranks, whose leaves `rank**-alpha` never change, and the slots in the order of their ranks.

    The storage has the priority of every slot and when it was set; order and tree are built from these.
    """

    def __init__(self, settings: Ranked, ring: Ring, memory: Memory) -> None:
        self._settings, self._ring = settings, ring
        self._raw, self._stamps = memory.host("ranks"), memory.host("ranks.stamps")
        self._state, self._seen = memory.host("ranks.state"), memory.host("ranks.seen")
        *_, state = sum_tree.allocate(1)
        levels = _memory.zeros(sum_tree.size(ring.capacity), np.float64)
        self._sampling = ProportionalSampling(settings, levels, state, ring.capacity, lambda: ring.drawable)
        self._order = Order(ring.capacity)
        if not memory.fresh:
            known = np.flatnonzero(self._raw > 0)
            with Journal() as journal:
                by_age = known[np.argsort(self._stamps[known], kind="stable")]
                self._order.replace(journal, known[:0], by_age, self._raw[by_age])
        self.priorities = self._raw.__getitem__

    def refresh(self) -> int:
        changes = self._ring.changes(self._seen)
        if not np.array_equal(changes.seen, self._seen):
            come, rows = changes.come, changes.rows
            if self._ring.arrival is not None and self._ring.lanes > 1:
                by_time = np.argsort(self._ring.arrival.reshape(-1)[rows], kind="stable")
                come, rows = come[by_time], rows[by_time]
            with Journal() as journal:
                largest = max(float(self._state[_LARGEST]), self._ring.largest_given(self._seen))
                journal.put(self._state, _LARGEST, largest)
                raw = self._ring.priorities(rows, largest or self._settings.initial)
                self._replace(journal, changes.gone, come, raw)
                journal.put(self._seen, slice(None), changes.seen)
        return len(self._order)

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        self._fit_tree()
        ranks, weights = self._sampling.draw(n, rng, beta)
        return Draw(self._order.slots(ranks), weights)

    def update(self, slots: Int64, td_error: Float64, keep: Bool | None) -> None:
        raw = raw_of(td_error, self._settings.eps)
        if keep is not None:
            slots, raw = slots[keep], raw[keep]
        if not len(slots):
            return
        if len(slots) > 1:
            last = _last_of_each(slots)
            slots, raw = slots[last], raw[last]
        with Journal() as journal:
            journal.put(self._state, _LARGEST, max(float(self._state[_LARGEST]), float(raw.max())))
            self._replace(journal, slots, slots, raw)

    def report(self) -> Report:
        return self._sampling.report(self._raw[self._raw > 0])

    def _replace(self, journal: Journal, removed: Int64, added: Int64, priority: Float64) -> None:
        clock = int(self._state[_CLOCK])
        journal.put(self._raw, removed, 0.0)
        journal.put(self._raw, added, priority)
        journal.put(self._stamps, added, np.arange(clock, clock + len(added)))
        journal.put(self._state, _CLOCK, clock + len(added))
        self._order.replace(journal, removed, added, priority)

    def _fit_tree(self) -> None:
        """Give the tree as many leaves as there are ranks."""
        before, after = int(self._sampling.state[2]), len(self._order)
        if after > before:
            ranks = np.arange(before, after)
            mass = _kernels.active().power((ranks + 1).astype(np.float64), -self._settings.alpha)
            self._sampling.tree.set(ranks, mass)
        elif after < before:
            self._sampling.tree.set(np.arange(after, before), np.zeros(before - after))


def _last_of_each(slots: Int64) -> Int64:
    """Ascending positions of the last occurrence of every slot."""
    _, first_from_behind = np.unique(slots[::-1], return_index=True)
    last: Int64 = np.sort(len(slots) - 1 - first_from_behind)
    return last
