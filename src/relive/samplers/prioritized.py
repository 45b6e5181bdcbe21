"""Items drawn in proportion to a power of their priority."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _kernels
from .._ring import Ring
from .._types import Bool, Float64, Int64
from ._priorities import Newcomers, Shares, check_given, check_settings, raw_of
from .anneal import Anneal


@dataclass(frozen=True, kw_only=True)
class Prioritized:
    """Draw item i with probability `p_i**alpha / sum`, where `p_i = |td_error_i| + eps` (proportional prioritization).

    A new item gets the largest priority ever set (`initial` until there is one), or what `add(..., priority=...)` says.

    Args:
        alpha: How strongly priorities count, >= 0; 0 draws uniformly. Applied exactly once.
        beta: Exponent of the importance-sampling correction, >= 0: a number, or an `Anneal` that moves by one at every
            `sample`.
        eps: Added to |td_error|, >= 0, so that no item dies for good.
        weights: What the weights `(N * P(i))**-beta` are divided by: the largest in the batch (`"batch"`), the largest
            in the buffer (`"buffer"`), or nothing (`"none"`). Three scales of the learning rate. With batches of one,
            `"batch"` makes every weight 1.
        stratified: One draw in each of `batch` equal slices of the total, in the order of anchors; else independent
            draws. Draws without replacement are successive draws and know no slices.
        replacement: Whether a batch may hold an item twice.
        initial: Raw priority of new items until the first priority is set, >= 0.

    Raises:
        ArgumentError: An argument outside these limits.

    Source: Schaul et al., "Prioritized Experience Replay", ICLR 2016, section 3.3. Memory: 10.3 bytes per step of
    capacity (a float64 leaf, and its share of sums and minima), 8 more once `priority=` has been used.

    >>> Prioritized(alpha=0.6, beta=Anneal(0.4, 1.0, over=200_000)).eps
    1e-06
    """

    alpha: float = 0.6
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

    def index(self, ring: Ring) -> _Prioritized:
        """Return an empty index over the places of `ring`."""
        return _Prioritized(self, ring.capacity)


class _Prioritized:
    """A sum tree whose leaves are `p**alpha` at the places that can be drawn and 0 elsewhere."""

    def __init__(self, settings: Prioritized, capacity: int) -> None:
        self._settings, self._kernels = settings, _kernels.active()
        self._shares, self._new = Shares(settings, capacity), Newcomers(settings.initial, capacity)
        self._tree = self._shares.tree
        self.check, self.draw = check_given, self._shares.draw
        self._tell_tree()

    @property
    def drawable(self) -> int:
        return int(self._shares.state.item(2))

    @property
    def listener(self) -> Any:
        return self._tree if self._new.given is None else None

    def change(self, removed: Int64, added: Int64) -> None:
        if self._new.given is None:
            self._tree.fill_zero_and_set(removed, added, self._tree.newcomer)
        else:
            values = self._kernels.power(self._new.of(added), self._settings.alpha)
            self._tree.fill_zero_and_assign(removed, added, values)

    def offer(self, places: Int64, priority: Float64 | None) -> None:
        if self._new.offer(places, priority):
            self._tell_tree()

    def update(self, places: Int64, td_error: Float64, keep: Bool | None) -> None:
        values, largest = self._kernels.mass(td_error, self._settings.eps, self._settings.alpha)
        if not largest < np.inf:
            raw_of(td_error, self._settings.eps)  # names the first that is not finite
        if keep is not None:
            places, values, td_error = places[keep], values[keep], td_error[keep]
            largest = float(np.abs(td_error).max(initial=0.0)) + self._settings.eps
        if len(places):
            self._tree.set(places, values)
            if self._new.raise_to(largest):
                self._tell_tree()

    def priorities(self, places: Int64) -> Float64:
        values: Float64 = self._tree.get(places)
        alpha = self._settings.alpha
        return values ** (1 / alpha) if alpha > 0 else (values > 0).astype(np.float64)

    def report(self) -> dict[str, Any]:
        leaves, alpha = self._shares.leaves, self._settings.alpha
        return self._shares.report(leaves[leaves > 0], 1 / alpha if alpha > 0 else 1.0)

    def _tell_tree(self) -> None:
        # A ring that adds one step asks the tree what the new item gets, not Python.
        self._tree.newcomer = float(self._kernels.power(np.array([self._new.usual]), self._settings.alpha)[0])
