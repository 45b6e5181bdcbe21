"""The statistics of a comparison, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relive.errors import ArgumentError
from relive_lab import statistics as st


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 6.0], 3.0),  # 3 // 4 = 0: nothing is left out
        ([0.0, 1.0, 2.0, 300.0], 1.5),
        ([-100.0, 1.0, 2.0, 3.0, 100.0], 2.0),  # one on either side
        ([5.0, 1.0, 2.0, 8.0, 3.0, 9.0, -4.0, 4.0], 3.5),  # 2, 3, 4, 5
    ],
)
def test_iqm(values: list[float], expected: float) -> None:
    assert st.iqm(values) == expected


def test_iqm_reduces_the_last_axis() -> None:
    assert st.iqm([[0.0, 1.0, 2.0, 300.0], [1.0, 1.0, 1.0, 1.0]]).tolist() == [1.5, 1.0]


def test_interval_of_two_values_is_exact() -> None:
    # Resamples of (0, 1) have means 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4: both tails are heavier than 2.5 %.
    assert st.interval([0.0, 1.0]) == st.Estimate(0.5, 0.0, 1.0)
    # The inner half of that distribution begins and ends at its steps, 1/4 and 3/4.
    assert st.interval([0.0, 1.0], confidence=0.4) == st.Estimate(0.5, 0.5, 0.5)


def test_interval_agrees_with_the_normal_law() -> None:
    values = np.random.default_rng(0).normal(size=400)
    found = st.interval(values, lambda x: x.mean(axis=-1))
    error = values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_interval_redraws_within_a_task() -> None:
    # Each task is constant, so that any redrawing within it gives the same numbers; across tasks it would not.
    table = np.array([[0.0, 10.0], [0.0, 10.0], [0.0, 10.0]])
    assert st.interval(table) == st.Estimate(5.0, 5.0, 5.0)


def test_the_same_numbers_give_the_same_interval() -> None:
    values = np.random.default_rng(0).normal(size=30)
    assert st.interval(values) == st.interval(values)
    assert st.interval(values) != st.interval(values, seed=1)


def test_probability_of_improvement() -> None:
    # Pairs: 2>1, 2=2 (half), 3>1, 3>2.
    assert st.probability_of_improvement([2.0, 3.0], [1.0, 2.0]).value == 0.875
    assert st.probability_of_improvement([1.0, 2.0], [2.0, 3.0]).value == 0.125
    assert st.probability_of_improvement([5.0, 6.0, 7.0], [1.0]) == st.Estimate(1.0, 1.0, 1.0)


def test_censored_times_tie_with_each_other() -> None:
    times, base = -np.array([10.0, math.inf]), -np.array([20.0, math.inf])
    # 10 beats 20 and never; never loses to 20 and ties with never.
    assert st.probability_of_improvement(times, base).value == (1 + 1 + 0 + 0.5) / 4


def test_interval_of_the_probability_covers_its_extremes() -> None:
    found = st.probability_of_improvement([0.0, 2.0], [1.0])
    assert found == st.Estimate(0.5, 0.0, 1.0)


def test_paired_difference() -> None:
    assert st.paired_difference([3.0, 5.0], [1.0, 2.0]) == st.Estimate(2.5, 2.0, 3.0)
    # Pairing removes what the seeds share.
    base = np.random.default_rng(1).normal(scale=100.0, size=20)
    assert st.paired_difference(base + 1.0, base).low == pytest.approx(1.0)


def test_final_takes_the_last_evaluations() -> None:
    assert st.final([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]).tolist() == [3.0]
    assert st.final([[2.0, 4.0]]).tolist() == [3.0]


def test_time_to_threshold() -> None:
    times = [25, 50, 75, 100]
    curves = [
        [0.0, 3.0, 3.0, 0.0],  # (0+3+3)/3 = 2 at 75
        [9.0, 0.0, 0.0, 0.0],  # 3 at 75: one high evaluation is enough for the mean
        [0.0, 0.0, 3.0, 3.0],  # 2 at 100
        [0.0, 0.0, 0.0, 3.0],  # never
    ]
    assert st.time_to_threshold(times, curves, 2.0).tolist() == [75.0, 75.0, 100.0, math.inf]
    assert st.time_to_threshold(times, curves, 3.0, trailing=1).tolist() == [50.0, 25.0, 75.0, 100.0]
    assert st.time_to_threshold([25, 50], [[9.0, 9.0]], 2.0).tolist() == [math.inf]


def test_an_estimate_prints_with_its_interval() -> None:
    assert str(st.Estimate(1.7284, 1.698, 1.747)) == "1.728 [1.698, 1.747]"
    assert f"{st.Estimate(0.5, -1.0, 1.0):+.1f}" == "+0.5 [-1.0, +1.0]"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: st.interval([]), "Expected one number for every run, got `[]` - at `interval`"),
        (lambda: st.interval([1.0, math.inf]), "Expected finite numbers, got `[1.0, inf]` - at `interval`"),
        (
            lambda: st.probability_of_improvement([math.nan], [1.0]),
            "Expected one number for every run, got `[nan]` - at `probability_of_improvement`",
        ),
        (
            lambda: st.paired_difference([1.0], [1.0, 2.0]),
            "Expected one run of each arm for every seed, got shapes `(1,)` and `(2,)` - at `paired_difference`",
        ),
    ],
)
def test_what_is_refused(call: object, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()  # type: ignore[operator]
    assert str(caught.value) == text
