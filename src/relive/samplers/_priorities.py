"""What samplers with priorities share: limits of their settings, draws by share, and the priorities of new items."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _check, _kernels
from .._types import Bool, Float32, Float64, Int64
from ..errors import PriorityError, message
from ..sum_tree import allocate
from .anneal import Anneal


def check_settings(settings: Any) -> None:
    """Refuse settings outside their limits; numbers become floats."""
    kind = type(settings).__name__
    for name in ("alpha", "eps", "initial"):
        object.__setattr__(settings, name, _check.real(getattr(settings, name), f"{kind}({name})", low=0.0))
    if isinstance(settings.beta, Anneal):
        for value in (settings.beta.start, settings.beta.end):
            _check.real(value, f"{kind}(beta)", low=0.0)
    else:
        object.__setattr__(settings, "beta", _check.real(settings.beta, f"{kind}(beta)", low=0.0))
    _check.one_of(settings.weights, ("batch", "buffer", "none"), f"{kind}(weights)")
    _check.flag(settings.stratified, f"{kind}(stratified)")
    _check.flag(settings.replacement, f"{kind}(replacement)")


def check_given(priority: Float64) -> None:
    """Refuse raw priorities that are not finite or negative."""
    bad = ~(np.isfinite(priority) & (priority >= 0))
    if bad.any():
        raise _refusal("a finite priority >= 0", priority, bad, "$.priority")


def raw_of(td_error: Float64, eps: float) -> Float64:
    """The raw priorities `|td_error| + eps`; refuse those that are not finite."""
    with np.errstate(over="ignore"):  # of a finite error the priority may be infinite all the same
        raw: Float64 = np.abs(td_error) + eps
    finite = np.isfinite(raw)
    if not finite.all():
        raise _refusal("a finite TD error", td_error, ~finite, "$.td_error", "check the loss")
    return raw


def _refusal(expected: str, values: Float64, bad: Bool, at: str, remedy: str | None = None) -> PriorityError:
    position = np.unravel_index(int(np.flatnonzero(bad)[0]), values.shape)
    where = f"{at}[{', '.join(str(int(axis)) for axis in position)}]"
    got = f"`{values[position]}` ({int(bad.sum())} of {values.size})"
    return PriorityError(message(expected, got, where, remedy))


class Newcomers:
    """The raw priorities of items that were never updated: what they were given, or else the largest ever set."""

    def __init__(self, initial: float, capacity: int) -> None:
        self.usual = initial
        self.given: Float64 | None = None
        self._largest, self._capacity = 0.0, capacity

    def offer(self, places: Int64, priority: Float64 | None) -> bool:
        """Take note of priorities that were given (None: none); whether this raised the usual one."""
        if self.given is None:
            self.given = np.full(self._capacity, np.nan)
        self.given[places] = np.nan if priority is None else priority
        return priority is not None and self.raise_to(float(priority.max()))

    def raise_to(self, priority: float) -> bool:
        """Give new items `priority` from now on, if it is the largest so far; whether it is."""
        # Zero means "never, until updated" for the items it was given to; it says nothing about new ones.
        if not priority > self._largest:
            return False
        self._largest = self.usual = priority
        return True

    def of(self, places: Int64) -> Float64:
        """What the new items at `places` get."""
        if self.given is None:
            return np.full(len(places), self.usual)
        given = self.given[places]
        return np.where(np.isnan(given), self.usual, given)


class Shares:
    """A sum tree whose leaves are shares of the draws, and the weights that correct for drawing by them."""

    def __init__(self, settings: Any, capacity: int) -> None:
        self._settings, self._kernels = settings, _kernels.active()
        sums, mins, self.state = allocate(capacity)
        self.leaves = sums[0][:capacity]
        self.tree = self._kernels.Tree(sums, mins, self.state)
        self._draws = 0
        self._last: tuple[Float64, float] = (np.empty(0), 0.0)

    def draw(self, n: int, rng: Any, beta: float | None, items: int) -> tuple[Int64, Float32]:
        """Return `n` leaves and their importance-sampling weights, whose N is `items`."""
        settings = self._settings
        if beta is None:
            beta = settings.beta.at(self._draws) if isinstance(settings.beta, Anneal) else settings.beta
        uniforms = np.ascontiguousarray(rng.random(n), np.float64)
        if settings.replacement:
            leaves, values = self.tree.draw(uniforms, settings.stratified)
        else:
            leaves, values = self.tree.draw_distinct(uniforms)
        self._draws += 1
        if settings.weights == "batch":
            reference = self._kernels.smallest(values)
        elif settings.weights == "buffer":
            reference = self.state.item(1)
        else:
            reference = self.state.item(0) / items
        self._last = values, beta
        return leaves, self._kernels.weights(values, reference, beta)

    def report(self, positive: Float64, exponent: float = 1.0) -> dict[str, Any]:
        """What a sampler adds to statistics: quantiles of `positive` raised to `exponent`, and the last draw."""
        quantiles = np.quantile(positive, (0.0, 0.25, 0.5, 0.75, 1.0)) if len(positive) else np.empty(0)
        values, beta = self._last
        weights = (values.min() / values) ** beta if len(values) else values
        return {
            "priority_quantiles": tuple(float(value) for value in quantiles**exponent),
            "effective_sample_size": float(weights.sum() ** 2 / (weights**2).sum()) if len(values) else 0.0,
            "beta": beta,
        }
