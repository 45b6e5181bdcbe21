"""Items drawn in proportion to a power of their priority."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _check, _kernels
from .._ring import Ring
from .._types import Bool, Float32, Float64, Int64
from ..errors import PriorityError, message
from ..sum_tree import allocate
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
        for name in ("alpha", "eps", "initial"):
            object.__setattr__(self, name, _check.real(getattr(self, name), f"Prioritized({name})", low=0.0))
        if isinstance(self.beta, Anneal):
            for value in (self.beta.start, self.beta.end):
                _check.real(value, "Prioritized(beta)", low=0.0)
        else:
            object.__setattr__(self, "beta", _check.real(self.beta, "Prioritized(beta)", low=0.0))
        _check.one_of(self.weights, ("batch", "buffer", "none"), "Prioritized(weights)")
        _check.flag(self.stratified, "Prioritized(stratified)")
        _check.flag(self.replacement, "Prioritized(replacement)")

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
        self._settings, self._capacity = settings, capacity
        self._kernels = _kernels.active()
        sums, mins, self._state = allocate(capacity)
        self._leaves = sums[0][:capacity]
        self._tree = self._kernels.Tree(sums, mins, self._state)
        self._draws = 0
        self._largest: float | None = None
        self._given: Float64 | None = None
        self._last: tuple[Float64, float] = (np.empty(0), 0.0)
        self._tree.newcomer = self._power(settings.initial)

    @property
    def drawable(self) -> int:
        return int(self._state.item(2))

    @property
    def listener(self) -> Any:
        return self._tree if self._given is None else None

    def change(self, removed: Int64, added: Int64) -> None:
        if self._given is None:
            self._tree.fill_zero_and_set(removed, added, self._tree.newcomer)
            return
        given = self._given[added]
        self._given[added] = np.nan
        known = ~np.isnan(given)
        values = np.full(len(added), self._tree.newcomer)
        values[known] = self._kernels.power(given[known], self._settings.alpha)
        self._tree.fill_zero_and_assign(removed, added, values)

    def check(self, priority: Float64) -> None:
        bad = ~(np.isfinite(priority) & (priority >= 0))
        if bad.any():
            raise PriorityError(_bad("a finite priority >= 0", priority, bad, "$.priority", None))

    def offer(self, places: Int64, priority: Float64 | None) -> None:
        if self._given is None:
            self._given = np.full(self._capacity, np.nan)
        self._given[places] = np.nan if priority is None else priority
        if priority is not None:
            self._raise_largest(float(priority.max()))

    def draw(self, n: int, rng: Any, beta: float | None, items: int) -> tuple[Int64, Float32]:
        settings = self._settings
        if beta is None:
            beta = settings.beta.at(self._draws) if isinstance(settings.beta, Anneal) else settings.beta
        uniforms = np.ascontiguousarray(rng.random(n), np.float64)
        if settings.replacement:
            places, values = self._tree.draw(uniforms, settings.stratified)
        else:
            places, values = self._tree.draw_distinct(uniforms)
        self._draws += 1
        if settings.weights == "batch":
            reference = self._kernels.smallest(values)
        elif settings.weights == "buffer":
            reference = self._state.item(1)
        else:
            reference = self._state.item(0) / items
        self._last = values, beta
        return places, self._kernels.weights(values, reference, beta)

    def update(self, places: Int64, td_error: Float64, keep: Bool | None) -> None:
        values, largest = self._kernels.mass(td_error, self._settings.eps, self._settings.alpha)
        if not largest < np.inf:
            remedy = "check the loss"
            with np.errstate(over="ignore"):  # of a finite one the priority may be infinite all the same
                bad = ~np.isfinite(np.abs(td_error) + self._settings.eps)
            raise PriorityError(_bad("a finite TD error", td_error, bad, "$.td_error", remedy))
        if keep is not None:
            places, values, td_error = places[keep], values[keep], td_error[keep]
            largest = float(np.abs(td_error).max(initial=0.0)) + self._settings.eps
        if len(places):
            self._tree.set(places, values)
            self._raise_largest(largest)

    def priorities(self, places: Int64) -> Float64:
        values: Float64 = self._tree.get(places)
        alpha = self._settings.alpha
        return values ** (1 / alpha) if alpha > 0 else (values > 0).astype(np.float64)

    def report(self) -> dict[str, Any]:
        positive = self._leaves[self._leaves > 0]
        quantiles = np.quantile(positive, (0.0, 0.25, 0.5, 0.75, 1.0)) if len(positive) else np.empty(0)
        if self._settings.alpha > 0:
            quantiles = quantiles ** (1 / self._settings.alpha)
        values, beta = self._last
        weights = (values.min() / values) ** beta if len(values) else values
        return {
            "priority_quantiles": tuple(float(value) for value in quantiles),
            "effective_sample_size": float(weights.sum() ** 2 / (weights**2).sum()) if len(values) else 0.0,
            "beta": beta,
        }

    def _raise_largest(self, priority: float) -> None:
        # Zero means "never, until updated" for the items it was given to; it says nothing about new ones.
        if priority > (self._largest or 0.0):
            self._largest = priority
            self._tree.newcomer = self._power(priority)

    def _power(self, priority: float) -> float:
        return float(self._kernels.power(np.array([priority]), self._settings.alpha)[0])


def _bad(expected: str, values: Float64, bad: Bool, at: str, remedy: str | None) -> str:
    position = np.unravel_index(int(np.flatnonzero(bad)[0]), values.shape)
    where = f"{at}[{', '.join(str(int(axis)) for axis in position)}]"
    return message(expected, f"`{values[position]}` ({int(bad.sum())} of {values.size})", where, remedy)
