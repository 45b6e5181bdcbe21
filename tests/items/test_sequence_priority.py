"""One priority from the TD errors of a sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import relive


@pytest.mark.parametrize("eta", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("time_major", [False, True])
def test_largest_and_mean_over_the_steps_that_exist(eta, time_major):
    rng = np.random.default_rng(0)
    td, mask = rng.normal(size=(50, 7)), rng.random((50, 7)) < 0.6
    mask[3] = False
    expected = []
    for errors, valid in zip(np.abs(td), mask, strict=True):
        kept = [error for error, exists in zip(errors, valid, strict=True) if exists]
        expected.append(eta * max(kept) + (1 - eta) * sum(kept) / len(kept) if kept else 0.0)
    td[~mask] = rng.choice([np.nan, np.inf, -1e9], size=(~mask).sum())
    given = (td.T, mask.T) if time_major else (td, mask)
    priority = relive.sequence_priority(*given, eta, time_major=time_major)
    np.testing.assert_allclose(priority, expected, rtol=1e-12)
    assert priority.dtype == np.float64


def test_what_is_wrong_under_a_step_that_exists_is_refused_by_the_buffer():
    priority = relive.sequence_priority([[1.0, np.nan]], [[True, True]])
    assert np.isnan(priority).all()


def test_tensors_are_taken():
    td, mask = torch.tensor([[1.0, -3.0]]), torch.tensor([[True, True]])
    assert relive.sequence_priority(td, mask, eta=0.5).tolist() == [2.5]
