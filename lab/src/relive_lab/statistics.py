"""How runs over several seeds are compared (Agarwal et al. 2021, arXiv:2108.13264), in NumPy alone.

A run is a row of evaluations; a comparison has the same seeds in every arm. Intervals are percentile bootstraps over
seeds, drawn from a generator of their own, so that the same numbers give the same interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from relive.errors import ArgumentError, message

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A statistic and its interval.

    >>> print(Estimate(1.7284, 1.6981, 1.7469))
    1.728 [1.698, 1.747]
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return self.text(".3f")

    def __format__(self, spec: str) -> str:
        return self.text(spec or ".3f")

    def text(self, spec: str, separator: str = " ") -> str:
        """Return value and interval, each formatted by `spec`."""
        return f"{self.value:{spec}}{separator}[{self.low:{spec}}, {self.high:{spec}}]"


def iqm(values: npt.ArrayLike) -> Any:
    """Return the interquartile mean along the last axis: the mean without the lowest and the highest quarter.

    `[..., S]` gives `[...]`; `S // 4` values are left out on either side, as `scipy.stats.trim_mean` does.

    >>> float(iqm([0.0, 1.0, 2.0, 300.0]))
    1.5
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


class Bootstrap(TypedDict, total=False):
    """Options of every interval: `resamples` (5,000), `confidence` (the share inside, 0.95), and `seed` (0)."""

    resamples: int
    confidence: float
    seed: int


def interval(values: npt.ArrayLike, statistic: Callable[[Array], Any] = iqm, **options: Unpack[Bootstrap]) -> Estimate:
    """Estimate a statistic over seeds with its stratified percentile bootstrap interval.

    Args:
        values: Float `[S]`, or `[S, tasks]`: seeds are then redrawn within each task, never across.
        statistic: Reduces the last axis of `[..., S * tasks]`.
        **options: See `Bootstrap`.

    Returns:
        The statistic of `values`, and its interval.

    Raises:
        ArgumentError: There is no value, or one is not finite.

    >>> print(interval([1.0, 1.0, 1.0]))
    1.000 [1.000, 1.000]
    """
    table = _finite(values, "interval")
    table = table[:, None] if table.ndim == 1 else table

    def redraw(rng: np.random.Generator, resamples: int) -> Any:
        rows = rng.integers(len(table), size=(resamples, *table.shape))
        return statistic(np.take_along_axis(table[None], rows, axis=1).reshape(resamples, -1))

    return _estimate(statistic(table.reshape(-1)), redraw, **options)


def probability_of_improvement(better: npt.ArrayLike, base: npt.ArrayLike, **options: Unpack[Bootstrap]) -> Estimate:
    """Estimate the probability that a run of one arm beats a run of the other (Mann-Whitney); ties count half.

    Args:
        better: Float `[S]`; larger is better. Infinities are legal, and tie with each other.
        base: Float `[S']`. Both arms are redrawn.
        **options: See `Bootstrap`.

    Raises:
        ArgumentError: An arm is empty or holds NaN.

    >>> probability_of_improvement([2.0, 3.0], [1.0, 2.0]).value
    0.875
    """
    a, b = (_numbers(values, "probability_of_improvement") for values in (better, base))
    wins = (a[:, None] > b) + 0.5 * (a[:, None] == b)

    def redraw(rng: np.random.Generator, resamples: int) -> Any:
        # A resample is fully described by how often each run is in it.
        first, second = (rng.multinomial(len(x), np.full(len(x), 1 / len(x)), size=resamples) for x in (a, b))
        return np.einsum("ri,ij,rj->r", first, wins, second, optimize=True) / wins.size

    return _estimate(wins.mean(), redraw, **options)


def paired_difference(better: npt.ArrayLike, base: npt.ArrayLike, **options: Unpack[Bootstrap]) -> Estimate:
    """Estimate the mean difference between two arms that share seeds; seeds are redrawn in pairs.

    Args:
        better: Float `[S]`.
        base: Float `[S]`, in the same order of seeds.
        **options: See `Bootstrap`.

    Raises:
        ArgumentError: The arms have different lengths, are empty, or hold what is not finite.

    >>> paired_difference([3.0, 5.0], [1.0, 2.0]).value
    2.5
    """
    a, b = _paired(better, base, "paired_difference")
    return interval(a - b, lambda values: values.mean(axis=-1), **options)


def ratio_of_medians(base: npt.ArrayLike, other: npt.ArrayLike, **options: Unpack[Bootstrap]) -> Estimate:
    """Estimate the ratio of the medians of two arms that share seeds; seeds are redrawn in pairs.

    Arguments and errors are those of `paired_difference`; values are positive.

    >>> print(ratio_of_medians([4.0, 6.0], [2.0, 3.0]))
    2.000 [2.000, 2.000]
    """
    pairs = np.stack(_paired(base, other, "ratio_of_medians"), axis=1)

    def ratio(drawn: Array) -> Any:
        medians = np.median(drawn, axis=-2)
        return medians[..., 0] / medians[..., 1]

    def redraw(rng: np.random.Generator, resamples: int) -> Any:
        return ratio(pairs[rng.integers(len(pairs), size=(resamples, len(pairs)))])

    return _estimate(ratio(pairs), redraw, **options)


def final(returns: npt.ArrayLike, last: int = 5) -> Array:
    """Return the mean of each run's `last` evaluations, or of all if a run has fewer: float `[S, E]` to `[S]`.

    >>> final([[0.0, 1.0, 3.0]], last=2).tolist()
    [2.0]
    """
    mean: Array = np.asarray(returns, np.float64)[:, -last:].mean(axis=1)
    return mean


def time_to_threshold(times: npt.ArrayLike, returns: npt.ArrayLike, threshold: float, trailing: int = 3) -> Array:
    """Return the time at which each run's trailing mean first reaches a threshold.

    Args:
        times: Episodes or steps at each evaluation, `[E]`.
        returns: Float `[S, E]`.
        threshold: The same for every arm; take it from the baseline.
        trailing: Evaluations averaged.

    Returns:
        Float64 `[S]`; infinity where the run ended first (censored).

    >>> time_to_threshold([10, 20, 30, 40], [[0, 3, 3, 3], [0, 0, 0, 1]], threshold=2.0).tolist()
    [30.0, inf]
    """
    table, at = np.asarray(returns, np.float64), np.asarray(times, np.float64)
    if table.shape[1] < trailing:
        return np.full(len(table), np.inf)
    means = np.lib.stride_tricks.sliding_window_view(table, trailing, axis=1).mean(axis=-1)
    reached = means >= threshold
    first: Array = np.where(reached.any(axis=1), at[trailing - 1 + reached.argmax(axis=1)], np.inf)
    return first


def _estimate(
    value: Any,
    redraw: Callable[[np.random.Generator, int], Any],
    *,
    resamples: int = 5_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(redraw(np.random.default_rng(seed), resamples), (tail, 1.0 - tail))
    return Estimate(float(value), float(low), float(high))


def _numbers(values: npt.ArrayLike, at: str) -> Array:
    array = np.asarray(values, np.float64)
    if not array.size or np.isnan(array).any():
        raise ArgumentError(message("one number for every run", f"`{array.tolist()}`", at))
    return array


def _finite(values: npt.ArrayLike, at: str) -> Array:
    array = _numbers(values, at)
    if not np.isfinite(array).all():
        raise ArgumentError(message("finite numbers", f"`{array.tolist()}`", at))
    return array


def _paired(one: npt.ArrayLike, other: npt.ArrayLike, at: str) -> tuple[Array, Array]:
    a, b = _finite(one, at), _finite(other, at)
    if a.shape != b.shape:
        got = f"shapes `{a.shape}` and `{b.shape}`"
        raise ArgumentError(message("one run of each arm for every seed", got, at))
    return a, b
