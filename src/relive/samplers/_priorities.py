"""What samplers with priorities share: limits of their settings, draws in proportion, checks of priorities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from .._base import check
from .._base.priorities import valid
from .._base.types import Array, Float64, Int64
from .._ring.plans import Sampled
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
        object.__setattr__(settings, name, check.real(getattr(settings, name), f"{kind}({name})", low=0.0))
    if isinstance(settings.beta, Anneal):
        for value in (settings.beta.start, settings.beta.end):
            check.real(value, f"{kind}(beta)", low=0.0)
    else:
        object.__setattr__(settings, "beta", check.real(settings.beta, f"{kind}(beta)", low=0.0))
    check.one_of(settings.weights, SCALES, f"{kind}(weights)")
    check.flag(settings.stratified, f"{kind}(stratified)")
    check.flag(settings.replacement, f"{kind}(replacement)")


def beta_at(beta: float | Anneal, call: int) -> float:
    """The exponent of the weights at the `call`-th draw, counted from 0."""
    return beta.at(call) if isinstance(beta, Anneal) else beta


def sound(raw: Float64, anchors: Int64, *numbers: Array) -> bool:
    """Whether saved priorities are those of anchors, and priorities as the other numbers are finite and not negative.

    Args:
        raw: A number for each row, 0 where nothing can be drawn.
        anchors: The rows that can be drawn.
        numbers: Counts and priorities.
    """
    return all(valid(each).all() for each in (raw, *numbers)) and np.count_nonzero(raw) == np.count_nonzero(
        raw[anchors]
    )


class Weighted(Protocol):
    """A kernel that draws in proportion to numbers, whose state begins with their sum and their smallest."""

    def sample(
        self, u: Float64, stratified: bool, replacement: bool, scale: int, items: float, beta: float
    ) -> Sampled: ...


class ProportionalSampling:
    """Draws slots in proportion to numbers, with the weights that correct for it.

    Args:
        settings: Those of the sampler.
        weighted: The kernel that draws.
        state: That of the kernel's sum tree; see `Tree` in `_ring/kernels_numpy/tree.py`.
        draws: float64 `[2]`: how many there were, and the last one's beta.
    """

    def __init__(self, settings: Settings, weighted: Weighted, state: Float64, draws: Float64) -> None:
        self._settings, self._weighted, self.state = settings, weighted, state
        self._scale = SCALES.index(settings.weights)
        self._draws: Any = draws.data  # single entries of a memoryview are read and written faster

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Return `n` slots and their importance-sampling weights."""
        settings, draws = self._settings, self._draws
        if beta is None:
            beta = settings.beta.at(int(draws[0])) if isinstance(settings.beta, Anneal) else settings.beta
        # Before the generator: of a draw that is interrupted, beta may have moved alone, the generator never.
        draws[0] += 1.0
        draws[1] = beta
        items = self.state.item(4) if self._scale == 2 else 1.0
        u = check.uniforms(rng, n)
        found = self._weighted.sample(u, settings.stratified, settings.replacement, self._scale, items, beta)
        return Draw(found.leaves, found.weights, None if self._scale else found.values, beta)

    def report(self, priorities: Float64, exponent: float = 1.0) -> Callable[[], Report]:
        """Quantiles of the positive `priorities` raised to `exponent`, and the last draw's beta."""
        return partial(_report, priorities.copy(), exponent, self._draws[1])


def _report(priorities: Float64, exponent: float, beta: float) -> Report:
    positive = priorities[priorities > 0]
    quantiles = np.quantile(positive, (0.0, 0.25, 0.5, 0.75, 1.0)) if len(positive) else np.empty(0)
    return Report(tuple(float(value) for value in quantiles**exponent), beta)
