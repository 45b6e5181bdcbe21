"""What samplers with priorities share: limits of their settings, draws in proportion, checks of priorities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from .. import _check, _kernels
from .._types import Bool, Float64
from ..errors import ArgumentError, PriorityError, message
from ..sum_tree import carve
from ._protocol import Draw, Report
from .anneal import Anneal

# What weights are divided by: the largest in the batch, the largest in the buffer, nothing.
SCALES = ("batch", "buffer", "none")


class Settings(Protocol):
    """The settings that `Prioritized` and `Ranked` have in common."""

    @property
    def alpha(self) -> float: ...
    @property
    def beta(self) -> float | Anneal: ...
    @property
    def eps(self) -> float: ...
    @property
    def weights(self) -> str: ...
    @property
    def stratified(self) -> bool: ...
    @property
    def replacement(self) -> bool: ...
    @property
    def initial(self) -> float: ...


def check_settings(settings: Settings) -> None:
    """Refuse settings outside their limits; convert numbers to floats."""
    kind = type(settings).__name__
    for name in ("alpha", "eps", "initial"):
        object.__setattr__(settings, name, _check.real(getattr(settings, name), f"{kind}({name})", low=0.0))
    if isinstance(settings.beta, Anneal):
        for value in (settings.beta.start, settings.beta.end):
            _check.real(value, f"{kind}(beta)", low=0.0)
    else:
        object.__setattr__(settings, "beta", _check.real(settings.beta, f"{kind}(beta)", low=0.0))
    _check.one_of(settings.weights, SCALES, f"{kind}(weights)")
    _check.flag(settings.stratified, f"{kind}(stratified)")
    _check.flag(settings.replacement, f"{kind}(replacement)")


def check_given(priority: Float64) -> None:
    """Refuse raw priorities that are not finite or negative."""
    bad = ~(np.isfinite(priority) & (priority >= 0))
    if bad.any():
        raise _refusal("a finite priority >= 0", priority, bad, "$.priority")


def raw_of(td_error: Float64, eps: float) -> Float64:
    """The raw priorities `|td_error| + eps`; refuse those that are not finite."""
    with np.errstate(over="ignore"):  # a finite error can have an infinite priority
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


def uniforms(rng: np.random.Generator, n: int) -> Float64:
    """`n` numbers in [0, 1) by one call of `rng.random(n)`; checked unless `rng` is NumPy's own generator."""
    if type(rng) is np.random.Generator:
        return rng.random(n)
    values = np.ascontiguousarray(rng.random(n), np.float64)
    if values.shape != (n,) or not bool(((values >= 0) & (values < 1)).all()):
        inside = values.shape == (n,)
        got = f"`{values[~((values >= 0) & (values < 1))][0]}`" if inside else f"shape `{values.shape}`"
        raise ArgumentError(message(f"{n} uniforms in [0, 1)", got, "ReplayBuffer.rng"))
    return values


class ProportionalSampling:
    """Draws leaves of a sum tree in proportion to their values, with the weights that correct for it.

    Args:
        settings: Those of the sampler.
        memory: float64, `sum_tree.size(capacity)` numbers.
        state: float64 `[sum_tree.STATE]`.
        capacity: Leaves.
        items: Returns the N of the weights.
    """

    def __init__(
        self, settings: Settings, memory: Float64, state: Float64, capacity: int, items: Callable[[], int]
    ) -> None:
        self._settings, self._items = settings, items
        sums, mins = carve(memory, capacity)
        self.state, self.leaves = state, sums[0][:capacity]
        self.tree = _kernels.active().Tree(sums, mins, state)
        self._scale = SCALES.index(settings.weights)
        self._draws = 0
        self._drawn, self._beta = np.empty(0), 0.0  # values of the last draw's leaves, and its beta

    def rebuild(self) -> None:
        """Compute sums, minima and the count of positive leaves from the leaves, as a killed process left them."""
        self.tree.set(np.arange(len(self.leaves)), self.leaves.copy())
        self.state[2] = np.count_nonzero(self.leaves > 0)

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Return `n` leaves and their importance-sampling weights."""
        settings = self._settings
        if beta is None:
            beta = settings.beta.at(self._draws) if isinstance(settings.beta, Anneal) else settings.beta
        # Before the generator: of a draw that is interrupted, beta may have moved alone, the generator never.
        self._draws += 1
        items = self._items() if self._scale == 2 else 1
        u = uniforms(rng, n)
        found = self.tree.sample(u, settings.stratified, settings.replacement, self._scale, items, beta)
        leaves, self._drawn, weights = found
        self._beta = beta
        return Draw(leaves, weights)

    def report(self, positive: Float64, exponent: float = 1.0) -> Report:
        """Quantiles of `positive` raised to `exponent`, and the last draw."""
        quantiles = np.quantile(positive, (0.0, 0.25, 0.5, 0.75, 1.0)) if len(positive) else np.empty(0)
        values, beta = self._drawn, self._beta
        weights = (values.min() / values) ** beta if len(values) else values
        return Report(
            priority_quantiles=tuple(float(value) for value in quantiles**exponent),
            effective_sample_size=float(weights.sum() ** 2 / (weights**2).sum()) if len(values) else 0.0,
            beta=beta,
        )
