"""Importance-sampling weights `(N * P)**-beta`: their divisor, and an exponent that may move with every draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .._base import check
from .._base.arrays import ArraySpec
from .._base.types import Float32, Float64
from .._ring import kernels
from .anneal import Anneal

# What weights are divided by: the largest in the batch, the largest in the buffer, nothing.
SCALES = ("batch", "buffer", "none")


class Weighed(Protocol):
    """The settings of a sampler whose items have weights."""

    @property
    def beta(self) -> float | Anneal: ...
    @property
    def weights(self) -> str | None: ...


def check_weights(settings: Weighed, name: str) -> None:
    """Check `beta` and `weights`; make an integer beta a float.

    Raises:
        ArgumentError: One is outside its limits.
    """
    if isinstance(settings.beta, Anneal):
        for value in (settings.beta.start, settings.beta.end):
            check.real(value, f"{name}(beta)", low=0.0)
    else:
        object.__setattr__(settings, "beta", check.real(settings.beta, f"{name}(beta)", low=0.0))
    check.one_of(settings.weights, SCALES, f"{name}(weights)")


def beta_at(beta: float | Anneal, call: int) -> float:
    """Return `beta`, or that of the `Anneal`."""
    return beta.at(call) if isinstance(beta, Anneal) else beta


class ImportanceWeights:
    """The weights of one index.

    Args:
        beta_at: The sampler's.
        scale: What weights are divided by; None: weights are 1.
        draws: float64 `[2]`, as `SPEC`: how many draws there were, and the last one's beta.
    """

    SPEC = ArraySpec((2,), np.dtype(np.float64))

    def __init__(self, beta_at: Callable[[int], float], scale: str | None, draws: Float64) -> None:
        self._beta_at, self.scale = beta_at, scale
        self._draws: Any = draws.data  # single entries of a memoryview are read and written faster

    @property
    def beta(self) -> float:
        """The exponent of the last draw."""
        return float(self._draws[1])

    def next(self, beta: float | None) -> float:
        """Note a draw; return its exponent, `beta` if it is given.

        To be called before the generator: of an interrupted draw beta may have moved alone, the generator never.
        """
        draws = self._draws
        if beta is None:
            beta = self._beta_at(int(draws[0]))
        draws[0] += 1.0
        draws[1] = beta
        return beta

    def weights(self, values: Float64, reference: float, beta: float) -> Float32:
        """Return `(reference / value) ** beta`; ones where `beta` is 0."""
        if beta == 0.0:
            return np.ones(len(values), np.float32)
        return kernels.active().weights(values, reference, beta)
