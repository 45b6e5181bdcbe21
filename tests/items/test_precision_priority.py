"""One priority from the variance of an item's noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive.errors import PriorityError

LARGE = 1.7976931348623157e308
SMALL = 5e-324
variances = st.lists(st.floats(0.0, LARGE), max_size=20)
positive = st.floats(SMALL, LARGE)


def test_the_formula():
    rng = np.random.default_rng(0)
    variance = rng.exponential(size=100)
    for scale, floor in ((0.5, 0.3), (3.0, 0.1)):
        found = relive.precision_priority(variance, scale, floor)
        np.testing.assert_allclose(found, scale / (variance + floor * scale), rtol=1e-12)


@given(variances, positive, positive)
def test_priorities_are_positive_bounded_and_fall_with_the_variance(variance, scale, floor):
    found = relive.precision_priority(np.array(variance), scale, floor)
    assert found.dtype == np.float64
    assert found.shape == (len(variance),)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    with np.errstate(over="ignore"):
        assert (found <= np.float64(1.0) / floor).all()
    order = np.argsort(variance, kind="stable")
    assert (np.diff(found[order]) <= 0).all()


@given(st.floats(1e-100, 1e100), st.floats(1e-3, 1e3), st.integers(1, 5))
def test_only_the_ratio_counts_and_limits_are_reached(scale, ratio, rows):
    floor = 0.25
    found = relive.precision_priority(np.full(rows, ratio * scale), scale, floor)
    np.testing.assert_allclose(found, 1 / (ratio + floor), rtol=1e-12)
    assert relive.precision_priority([0.0], scale, floor) == [4.0]
    np.testing.assert_allclose(relive.precision_priority([1e9 * scale], scale, floor), 1e-9, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_tensors_are_taken(dtype):
    variance = torch.tensor([0, 1, 4], dtype=dtype)
    if dtype.is_floating_point:
        variance.requires_grad_()
    assert relive.precision_priority(variance, 2.0, floor=0.5).tolist() == [2.0, 1.0, 0.4]


def test_the_buffer_draws_by_them():
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field(), action=relive.Field()), 100, sampler=relive.Prioritized(alpha=1.0, beta=0.0)
    )
    for t in range(2):
        buffer.add(obs=t, action=0.0, reward=0.0, next_obs=t + 1, terminated=False, truncated=t == 1)
    ids = np.arange(2)
    buffer.update_priorities(ids, relive.precision_priority([0.0, 1.7], 1.0))
    shares = np.bincount(buffer.sample(10_000).ids, minlength=2) / 10_000
    np.testing.assert_allclose(shares, [0.87, 0.13], atol=0.01)


@pytest.mark.parametrize(
    ("variance", "text"),
    [
        ([1.0, -1.0], "got `-1.0` (1 of 2) - at `precision_priority(noise_variance)[1]`"),
        ([math.nan, math.inf], "got `nan` (2 of 2) - at `precision_priority(noise_variance)[0]`"),
        ([0.5, 1.0, math.inf], "got `inf` (1 of 3) - at `precision_priority(noise_variance)[2]`"),
    ],
)
def test_what_is_refused(variance, text):
    with pytest.raises(PriorityError) as caught:
        relive.precision_priority(variance, 1.0)
    assert str(caught.value).startswith(f"Expected a finite variance >= 0, {text}")
