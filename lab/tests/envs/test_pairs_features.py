"""Rolling statistics against plain loops, and the promise that no bar reads a later one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from relive_lab.envs.features import (
    OBSERVATION,
    OBSERVATION_BOUND,
    Floats,
    Path,
    observe,
    rolling_correlation,
    rolling_mean,
    rolling_rms,
    rolling_zscore,
)


def naive(series: list[Floats], window: int, statistic: Callable[..., float]) -> Floats:
    """Apply `statistic` to the last `window` bars of each series, bar by bar."""
    out = []
    for bar in range(len(series[0])):
        cuts = [[float(x[k]) for k in range(bar - window + 1, bar + 1)] for x in series if bar >= window - 1]
        out.append(statistic(*cuts) if cuts else float("nan"))
    return np.array(out)


def mean(x: list[float]) -> float:
    return sum(x) / len(x)


def zscore(x: list[float]) -> float:
    return (x[-1] - mean(x)) / mean([(v - mean(x)) ** 2 for v in x]) ** 0.5


def rms(x: list[float]) -> float:
    return mean([v * v for v in x]) ** 0.5


def correlation(x: list[float], y: list[float]) -> float:
    a, b = [v - mean(x) for v in x], [v - mean(y) for v in y]
    dot = sum(p * q for p, q in zip(a, b, strict=True))
    return dot / (sum(v * v for v in a) * sum(v * v for v in b)) ** 0.5


@pytest.mark.parametrize("window", [2, 3, 20, 60])
def test_rolling_statistics_equal_plain_loops(window: int) -> None:
    rng = np.random.default_rng(window)
    x, y = rng.normal(3.0, 2.0, 150).cumsum(), rng.normal(size=150)
    np.testing.assert_allclose(rolling_mean(x, window), naive([x], window, mean), rtol=1e-12)
    np.testing.assert_allclose(rolling_zscore(x, window), naive([x], window, zscore), rtol=1e-9)
    np.testing.assert_allclose(rolling_rms(x, window), naive([x], window, rms), rtol=1e-12)
    np.testing.assert_allclose(rolling_correlation(x, y, window), naive([x, y], window, correlation), atol=1e-9)


def test_constant_windows_give_zero_not_nan() -> None:
    flat, other = np.ones(30), np.arange(30.0)
    assert (rolling_zscore(flat, 20)[19:] == 0).all()
    assert (rolling_correlation(flat, other, 20)[19:] == 0).all()


def random_path(seed: int, bars: int = 200, scale: float = 1.0) -> Path:
    rng = np.random.default_rng(seed)
    spread, a, b = (scale * rng.normal(size=bars).cumsum() for _ in range(3))
    return Path(
        level=spread,
        spread=spread,
        move=np.diff(spread, prepend=spread[0]),
        leg_a=np.diff(a, prepend=0.0),
        leg_b=np.diff(b, prepend=0.0),
        regime=np.zeros(bars, dtype=np.bool_),
    )


@pytest.mark.parametrize("bar", [59, 60, 100, 198])
def test_later_prices_change_no_earlier_observation(bar: int) -> None:
    past, future = random_path(0), random_path(1)
    mixed = Path(
        **{
            field.name: np.concatenate((getattr(past, field.name)[: bar + 1], getattr(future, field.name)[bar + 1 :]))
            for field in dataclasses.fields(Path)
        }
    )
    before, after = observe(past, 60, 20), observe(mixed, 60, 20)
    np.testing.assert_array_equal(before.observations[: bar + 1], after.observations[: bar + 1])
    assert (before.observations[bar + 1, :5] != after.observations[bar + 1, :5]).all()


def test_layout() -> None:
    path = random_path(3)
    seen = observe(path, 60, 20)
    assert OBSERVATION == ("z", "spread", "log_volatility", "correlation", "last_move", "position")
    z, v = rolling_zscore(path.level, 60), rolling_rms(path.move, 20)
    expected = np.stack(
        [
            np.clip(z, -5, 5) / 2,
            np.clip(path.spread / 5, -6, 6),
            np.log(v),
            rolling_correlation(path.leg_a, path.leg_b, 20),
            np.clip(path.move, -8, 8) / 2,
            np.zeros(200),
        ],
        axis=1,
    )
    np.testing.assert_allclose(seen.observations[59:], expected[59:], rtol=1e-6)
    assert np.isnan(seen.observations[:59, 0]).all()
    assert not np.isnan(seen.observations[59:]).any()


def test_extreme_prices_stay_inside_the_space() -> None:
    wild, still = random_path(4, scale=1e9), random_path(5, scale=0.0)
    for path in (wild, still):
        assert (np.abs(observe(path, 60, 20).observations[59:]) <= OBSERVATION_BOUND).all()
    reached = np.abs(observe(wild, 60, 20).observations[59:]).max(axis=0)
    assert (reached[[1, 2, 4]] == OBSERVATION_BOUND[[1, 2, 4]]).all()
