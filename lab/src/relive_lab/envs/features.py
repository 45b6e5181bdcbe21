"""Rolling statistics and the observation layout, vectorised over the bars of a price path.

A statistic at bar t reads the last `window` bars up to and including t, never a later one. Series are float64 `[N]`;
the first `window - 1` values of a statistic are NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The layout of an observation: what each column is divided by and where it is clipped. It is fixed, so that a policy
# trained on one source of prices can be run on the other.
Z_CLIP, Z_SCALE = 5.0, 2.0
SPREAD_SCALE, SPREAD_CLIP = 5.0, 6.0
LOG_VOLATILITY_CLIP = 10.0
MOVE_CLIP, MOVE_SCALE = 8.0, 2.0

#: Names of the observation's columns, in order.
OBSERVATION = ("z", "spread", "log_volatility", "correlation", "last_move", "position")
#: Largest absolute value of each column.
OBSERVATION_BOUND = np.array(
    [Z_CLIP / Z_SCALE, SPREAD_CLIP, LOG_VOLATILITY_CLIP, 1.0, MOVE_CLIP / MOVE_SCALE, 1.0], dtype=np.float32
)


@dataclass(frozen=True, kw_only=True)
class Path:
    """One stretch of prices, `N` bars, in units of the quiet per-bar volatility of the spread.

    Attributes:
        level: the cumulated spread; its rolling z-score is observed, float64 `[N]`.
        spread: the distance from the spread's mean that a trader looks at, float64 `[N]`.
        move: what one unit of the spread earned from bar i - 1 to bar i, float64 `[N]`.
        leg_a: return of the first stock at each bar, float64 `[N]`.
        leg_b: return of the second stock at each bar, float64 `[N]`.
        regime: True in a break or dislocation, bool `[N]`.
    """

    level: Floats
    spread: Floats
    move: Floats
    leg_a: Floats
    leg_b: Floats
    regime: npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A path with its observations, bar by bar; slices of it are episodes. Other fields are those of `Path`.

    Attributes:
        observations: the columns of `OBSERVATION`, position 0, float32 `[N, 6]`; NaN before the first full window.
        z: the unclipped z-score, float64 `[N]`.
        label: what a picture's title says about these bars.
    """

    observations: npt.NDArray[np.float32]
    z: Floats
    spread: Floats
    move: Floats
    regime: npt.NDArray[np.bool_]
    label: str = ""

    def cut(self, first: int, last: int, label: str) -> Observed:
        """Return bars `first` to `last`, both included, as views."""
        part = slice(first, last + 1)
        names = ("observations", "z", "spread", "move", "regime")
        return Observed(**{name: getattr(self, name)[part] for name in names}, label=label)


def _windows(x: Floats, window: int) -> Floats:
    return np.lib.stride_tricks.sliding_window_view(x, window)


def _lead(values: Floats, size: int) -> Floats:
    """Put NaN in front of `values`, so that there is one for each of `size` bars."""
    return np.concatenate((np.full(size - len(values), np.nan), values))


def rolling_mean(x: Floats, window: int) -> Floats:
    """Return the mean of the last `window` values at every bar.

    >>> rolling_mean(np.array([1.0, 3.0, 5.0]), 2).tolist()
    [nan, 2.0, 4.0]
    """
    return _lead(_windows(x, window).mean(axis=-1), len(x))


def rolling_zscore(x: Floats, window: int) -> Floats:
    """Return each bar's distance from the mean of the last `window` bars, in their standard deviations, or 0.

    >>> rolling_zscore(np.array([1.0, 3.0, 5.0]), 2).tolist()
    [nan, 1.0, 1.0]
    """
    views = _windows(x, window)
    distance = views[:, -1] - views.mean(axis=-1)
    deviation = views.std(axis=-1)
    return _lead(np.divide(distance, deviation, out=np.zeros_like(distance), where=deviation > 1e-12), len(x))


def rolling_rms(x: Floats, window: int) -> Floats:
    """Return the root mean square of the last `window` values at every bar.

    >>> rolling_rms(np.array([0.0, 3.0, 4.0, 3.0]), 2).round(3).tolist()
    [nan, 2.121, 3.536, 3.536]
    """
    return _lead(np.sqrt(_windows(x * x, window).mean(axis=-1)), len(x))


def rolling_correlation(a: Floats, b: Floats, window: int) -> Floats:
    """Return the Pearson correlation of the last `window` pairs at every bar; 0 if either series is constant.

    >>> rolling_correlation(np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 0.0]), 3).round(6).tolist()
    [nan, nan, -1.0]
    """
    left, right = (x - x.mean(axis=-1, keepdims=True) for x in (_windows(a, window), _windows(b, window)))
    scale = np.sqrt((left * left).sum(axis=-1) * (right * right).sum(axis=-1))
    product = (left * right).sum(axis=-1)
    values = np.divide(product, scale, out=np.zeros_like(product), where=scale > 1e-12)
    return _lead(np.clip(values, -1.0, 1.0), len(a))


def observe(path: Path, z_window: int, stat_window: int) -> Observed:
    """Observe every bar of a path: the z-score over `z_window` bars, volatility and correlation over `stat_window`."""
    z = rolling_zscore(path.level, z_window)
    volatility = rolling_rms(path.move, stat_window)
    observations = np.zeros((len(z), len(OBSERVATION)), dtype=np.float32)
    observations[:, 0] = np.clip(z, -Z_CLIP, Z_CLIP) / Z_SCALE
    observations[:, 1] = np.clip(path.spread / SPREAD_SCALE, -SPREAD_CLIP, SPREAD_CLIP)
    # The floor keeps the logarithm finite where prices stood still.
    observations[:, 2] = np.clip(np.log(np.maximum(volatility, 1e-6)), -LOG_VOLATILITY_CLIP, LOG_VOLATILITY_CLIP)
    observations[:, 3] = rolling_correlation(path.leg_a, path.leg_b, stat_window)
    observations[:, 4] = np.clip(path.move, -MOVE_CLIP, MOVE_CLIP) / MOVE_SCALE
    return Observed(observations=observations, z=z, spread=path.spread, move=path.move, regime=path.regime)
