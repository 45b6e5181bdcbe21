"""Quantiles are NumPy's own, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from relive._base.arrays import QUARTERS, quantiles


@pytest.mark.parametrize("points", [QUARTERS, (0.95,), (0.1, 0.5, 0.999)])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 100, 4_097])
def test_quantiles_are_those_of_numpy(count: int, points: tuple[float, ...]) -> None:
    rng = np.random.default_rng(count)
    for values in (rng.random(count), rng.exponential(size=count) * 1e300, rng.integers(0, 9, count), np.ones(count)):
        assert quantiles(values, points) == np.quantile(values, points).tolist()


def test_there_are_none_of_no_values() -> None:
    assert quantiles(np.empty(0)) == []
