"""Powers, masses and weights: accuracy, exact values, limits, and how bad input is reported."""

from __future__ import annotations

import math

import numpy as np
from back_ends import both


@both
def test_powers(kernels):
    """Check for 4e-15 at ordinary exponents; exact at 0, 1, and 1 ** e; monotone limits at the ends."""
    rng = np.random.default_rng(0)
    x = np.concatenate([10.0 ** rng.uniform(-6, 6, 20_000), rng.uniform(0.99, 1.01, 1000), [1e-6, 0.5, 2.0]])
    for exponent in (0.1, 0.4, 0.5, 0.6, 0.7, 0.9, 1.5, -0.4):
        true = np.power(x.astype(np.longdouble), np.longdouble(exponent))
        error = np.abs(kernels.power(x, exponent) / true - 1.0).max()
        assert error < 4e-15, exponent
    far = 10.0 ** rng.uniform(-300, 300, 20_000)
    true = np.power(far.astype(np.longdouble), np.longdouble(0.6))
    assert np.abs(kernels.power(far, 0.6) / true - 1.0).max() < 1e-13
    assert kernels.power(np.array([0.0, 1.0, 5.0]), 0.0).tolist() == [0.0, 1.0, 1.0]
    np.testing.assert_array_equal(kernels.power(x, 1.0), x)
    for exponent in (0.37, 1.0, 2.0):
        assert kernels.power(np.array([0.0, 1.0]), exponent).tolist() == [0.0, 1.0]
        ends = kernels.power(np.array([5e-324, 1e-310, 1e-200, 1.0, 1e200, 1.7e308]), exponent)
        assert (np.diff(ends) >= 0.0).all()
        assert ends[0] >= 2.0**-1000
        assert ends[-1] <= 2.0**960


@both
def test_masses(kernels):
    """Check (|td| + eps) ** alpha and the largest raw priority; one bad value among many is reported as NaN."""
    td = np.array([-3.0, 0.0, 1.0])
    values, largest = kernels.mass(td, 0.5, 0.6)
    np.testing.assert_allclose(values, [3.5**0.6, 0.5**0.6, 1.5**0.6], rtol=1e-14)
    assert largest == 3.5
    assert kernels.mass(td, 0.0, 0.6)[0][1] == 0.0
    assert kernels.mass(td[:0], 1e-6, 0.6)[1] == 0.0
    for bad in (np.nan, -np.nan, np.inf, -np.inf):
        for at in (0, 7, 40):
            spoilt = np.ones(41)
            spoilt[at] = bad
            assert math.isnan(kernels.mass(spoilt, 1e-6, 0.6)[1])


@both
def test_weights(kernels):
    """Check (reference / value) ** beta in float32, exactly 1 for the reference itself; the smallest of any number."""
    values = np.random.default_rng(0).random(100) + 0.01
    for beta in (0.0, 0.4, 1.0):
        weights = kernels.weights(values, float(values.min()), beta)
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights, (values.min() / values) ** beta, rtol=1e-6)
        assert weights.max() == weights[values.argmin()] == 1.0
    for n in (1, 7, 8, 9, 100):
        assert kernels.smallest(values[:n]) == values[:n].min()
