"""The threshold rule, and the returns that learned policies are measured against."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from depth import LONG

from relive_lab.envs import Episodes, ThresholdPolicy, evaluate


def seen(spread: float, position: float) -> np.ndarray:
    return np.array([0, spread / 5, 0, 0, 0, position], dtype=np.float32)


@pytest.mark.parametrize(
    ("spread", "position", "expected"),
    [
        (2.5, 0, -1),
        (-2.5, 0, 1),
        (1.9, 0, 0),
        (1.9, -1, -1),
        (-1.9, 1, 1),
        (-0.1, -1, 0),
        (0.1, 1, 0),
        (0.0, 1, 0),
        (-2.5, -1, 1),
        (200.0, 0, -1),
    ],
)
def test_threshold_rule(spread: float, position: float, expected: float) -> None:
    policy = ThresholdPolicy(2.0)
    assert policy(seen(spread, position)).tolist() == [expected]
    both = policy(np.stack([seen(spread, position), seen(0.0, 0.0)]))
    assert both.tolist() == [[expected], [0]]
    assert both.dtype == np.float32


# Returns over 4,000 episodes have a standard error of .02, .018 and .012; fewer are drawn here, hence the margin.
EPISODES = 2_000 if LONG else 400


@pytest.mark.parametrize(
    ("threshold", "settings", "expected", "margin"),
    [
        (2.0, {"cost": 0.5}, 1.86, 0.09),
        (3.0, {"cost": 1.0}, 1.19, 0.08),
        (1.5, {"cost": 0.5, "mode": "dislocation", "sigma": 0.3}, 0.275, 0.06),
    ],
)
def test_reference_returns(threshold: float, settings: dict[str, Any], expected: float, margin: float) -> None:
    returns = evaluate(ThresholdPolicy(threshold), episodes=EPISODES, seed=0, **settings)
    assert returns.mean() == pytest.approx(expected, abs=margin * (2_000 / EPISODES) ** 0.5)


def test_the_same_episodes_can_be_played_again() -> None:
    settings = {"horizon": 60, "cost": 1.0}
    held_out = Episodes(4, 20, **settings)
    for threshold in (2.0, 1.0, 2.0):
        policy = ThresholdPolicy(threshold)
        expected = evaluate(policy, episodes=4, seed=20, **settings)
        assert np.array_equal(held_out(policy), expected)
        assert np.array_equal(pickle.loads(pickle.dumps(held_out))(policy), expected)


def test_evaluate_runs_the_environment() -> None:
    policy = ThresholdPolicy(2.0)
    returns = evaluate(policy, episodes=4, seed=20, horizon=60)
    env = gymnasium.make("relive/PairsTrading-v0", horizon=60)
    for lane in range(4):
        obs, _ = env.reset(seed=20 + lane)
        total, truncated = 0.0, False
        while not truncated:
            obs, reward, _, truncated, _ = env.step(policy(obs))
            total += reward
        assert returns[lane] == total
