"""The order of a ring's items by their priorities, and a sum tree over its ranks, in readable NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._base.journal import Journal
from ..._base.types import Bool, Float64, Int64
from ..lanes import DRAWABLE
from ..plans import Drawn, Sampled
from .order import Order
from .power import power
from .ring import Ring
from .tree import ITEMS, Tree, news

# Entries of a ranking's state: the largest raw priority ever set or given, and how often one was set.
LARGEST, CLOCK = 0, 1


def order_size(capacity: int) -> int:
    """Float64 numbers that the order of `capacity` slots takes."""
    return 2 * capacity


class Ranks:
    """Draws slots by the ranks of their priorities; of equal priorities the one that was set earlier ranks higher.

    Args:
        tree: Empty; gets a leaf `rank**-alpha` for every rank there is.
        order: float64 `[order_size(capacity)]`, zeros.
        raw: float64 `[capacity]`: the priority of every slot, 0 where there is none.
        stamps: int64 `[capacity]`: when it was set.
        state: float64 `[2]`: the largest raw priority ever set or given (0 if none), and how often one was set.
        alpha: How strongly ranks count.
    """

    def __init__(self, tree: Tree, order: Float64, raw: Float64, stamps: Int64, state: Float64, alpha: float) -> None:
        self._tree, self._order = tree, Order(order)
        self._raw, self._stamps, self._state, self._alpha = raw, stamps, state, alpha

    def rebuild(self) -> None:
        """Put what `raw` and `stamps` hold in order, as a killed process left them.

        The largest priority was noted before `raw` was written to; new items may have a larger one, `initial`.
        """
        known = np.flatnonzero(self._raw > 0)
        with Journal() as journal:
            journal.put(self._state, CLOCK, max(self._state[CLOCK], self._stamps[known].max(initial=-1) + 1))
            by_age = known[np.argsort(self._stamps[known], kind="stable")]
            self._order.replace(journal, known[:0], by_age, self._raw[by_age])

    def refresh(self, ring: Ring, seen: Int64, initial: float) -> int:
        """Take in what changed in `ring` since `seen`, which moves on; return how many slots have a rank."""
        changes, largest, values = news(ring, seen, float(self._state[LARGEST]), initial)
        added, arrival = changes.added, ring.arrival
        if arrival is not None and ring.num_lanes > 1:
            by_time = np.argsort(arrival.reshape(-1)[changes.rows], kind="stable")
            added, values = added[by_time], values[by_time]
        with Journal() as journal:
            journal.put(self._state, LARGEST, largest)
            journal.put(self._tree.state, ITEMS, ring.counters[:, DRAWABLE].sum())
            if not np.array_equal(seen, changes.seen):
                journal.put(self._raw, changes.removed, 0.0)
                self._stamp(journal, added)
                self._set(journal, np.union1d(changes.removed, added), added, values)
                journal.put(seen, slice(None), changes.seen)
        return len(self._order)

    def chooser(self, ring: Ring, seen: Int64, draws: Float64, settings: Any) -> None:
        """What the native `sample` draws by: there is none here; the arguments are those of `Tree.chooser`."""

    def update(self, slots: Int64, td_error: Float64, keep: Bool | None, eps: float) -> bool:
        """Set priorities `|td_error| + eps` of the slots that `keep` marks; the last of several for one slot wins.

        Returns False, and has changed nothing, where one of them would not be finite.
        """
        with np.errstate(over="ignore"):
            values = np.abs(td_error) + eps
        if not np.isfinite(values).all():
            return False
        if keep is not None:
            slots, values = slots[keep], values[keep]
        with Journal() as journal:
            won = self._stamp(journal, slots)
            slots, values = slots[won], values[won]
            journal.put(self._state, LARGEST, max(self._state[LARGEST], values.max(initial=0.0)))
            self._set(journal, slots, slots, values)
        return True

    def draw(self, u: Float64, stratified: bool) -> Drawn:
        """Slots at random in proportion to `rank**-alpha`, and these numbers, from uniforms in [0, 1)."""
        self._fit_tree()
        ranks, values = self._tree.draw(u, stratified)
        return Drawn(self._order.slots(ranks), values)

    def draw_distinct(self, u: Float64) -> Drawn:
        """Slots drawn one after another, each out of those not drawn yet, and their numbers."""
        self._fit_tree()
        ranks, values = self._tree.draw_distinct(u)
        return Drawn(self._order.slots(ranks), values)

    def sample(self, u: Float64, stratified: bool, replacement: bool, scale: int, items: float, beta: float) -> Sampled:
        """A draw and its weights, as `Tree.sample`, of slots instead of ranks."""
        self._fit_tree()
        ranks, values, weights = self._tree.sample(u, stratified, replacement, scale, items, beta)
        return Sampled(self._order.slots(ranks), values, weights)

    def _stamp(self, journal: Journal, slots: Int64) -> NDArray[np.bool_]:
        """Note that `slots` are set now, one after the other; which of them are not set again in this call."""
        clock = int(self._state[CLOCK])
        now = np.arange(clock, clock + len(slots))
        journal.put(self._stamps, slots, now)
        journal.put(self._state, CLOCK, clock + len(slots))
        last: NDArray[np.bool_] = self._stamps[slots] == now
        return last

    def _set(self, journal: Journal, removed: Int64, added: Int64, values: Float64) -> None:
        journal.put(self._raw, added, values)
        self._order.replace(journal, removed, added, values)

    def _fit_tree(self) -> None:
        """Give the tree as many leaves as there are ranks."""
        before, after = int(self._tree.state[2]), len(self._order)
        if after > before:
            ranks = np.arange(before, after)
            self._tree.set(ranks, power((ranks + 1).astype(np.float64), -self._alpha))
        elif after < before:
            self._tree.set(np.arange(after, before), np.zeros(before - after))
