"""Tests of fit, in a few lines of NumPy."""

from __future__ import annotations

import math

import numpy as np

# The chance of a false alarm per test. Seeds are fixed, so a test that passed keeps passing.
P_MIN = 1e-6


def chi_square_p(counts: np.ndarray, probabilities: np.ndarray, least: float = 10.0) -> float:
    """Compute the upper-tail p-value of Pearson's test; cells that expect fewer than `least` are pooled.

    Raises ValueError where pooling leaves fewer than two cells: such a test could not fail.

    The tail is Wilson and Hilferty's cube-root approximation, good to a few per cent even at 1e-6.
    """
    expected = probabilities * counts.sum()
    order = np.argsort(expected, kind="stable")
    cells_observed, cells_expected = [], []
    pooled_observed = pooled_expected = 0.0
    for observed, expects in zip(counts[order], expected[order], strict=True):
        pooled_observed += observed
        pooled_expected += expects
        if pooled_expected >= least:
            cells_observed.append(pooled_observed)
            cells_expected.append(pooled_expected)
            pooled_observed = pooled_expected = 0.0
    if cells_expected:  # what is left over joins the largest cell
        cells_observed[-1] += pooled_observed
        cells_expected[-1] += pooled_expected
    freedom = len(cells_expected) - 1
    if freedom < 1:
        raise ValueError(f"{counts.sum()} draws leave {len(cells_expected)} cell of {len(counts)}: nothing to compare")
    o, e = np.array(cells_observed), np.array(cells_expected)
    return chi_square_tail(float(((o - e) ** 2 / e).sum()), freedom)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """Return the chance of a larger value than `statistic`, by Wilson and Hilferty's cube root."""
    spread = 2.0 / (9.0 * freedom)
    z = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(z / math.sqrt(2))


def largest_z(counts: np.ndarray, reference: np.ndarray, draws: int) -> float:
    """Return the largest standardised difference of two vectors of inclusion counts, each out of `draws` batches."""
    share = (counts + reference) / (2 * draws)
    deviation = np.sqrt(2 * draws * np.maximum(share * (1 - share), 1 / draws))
    return float((np.abs(counts - reference) / deviation).max())
