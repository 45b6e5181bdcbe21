"""`make_vec` builds an environment that equals Gymnasium's own `SyncVectorEnv` number for number."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from needs import needs

from relive.errors import ArgumentError
from relive_lab.envs import PairsTradingVectorEnv

ID = "relive/PairsTrading-v0"


@pytest.mark.parametrize(
    "settings",
    [{}, {"mode": "dislocation", "horizon": 30}, {"data": "real", "split": "test"}, {"reward_scale": 1.0, "cost": 0.0}],
)
def test_equals_sync_vector_env(settings: dict[str, Any]) -> None:
    if settings.get("data") == "real":
        needs("skfolio")
    fast = gymnasium.make_vec(ID, num_envs=3, **settings)
    sync = gymnasium.make_vec(ID, num_envs=3, vectorization_mode="sync", **settings)
    assert isinstance(fast.unwrapped, PairsTradingVectorEnv)
    assert fast.metadata["autoreset_mode"] == sync.metadata["autoreset_mode"]
    for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(fast, name) == getattr(sync, name)
    rng = np.random.default_rng(0)
    ours, theirs = fast.reset(seed=11), sync.reset(seed=11)
    for _ in range(250):
        for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
            np.testing.assert_array_equal(mine, other)
            assert mine.dtype == other.dtype
        assert ours[-1].keys() == theirs[-1].keys()
        for key, value in theirs[-1].items():
            np.testing.assert_array_equal(ours[-1][key], value)
            assert ours[-1][key].dtype == value.dtype
        actions = rng.uniform(-1, 1, (3, 1)).astype(np.float32)
        ours, theirs = fast.step(actions), sync.step(actions)


def test_results_belong_to_the_caller() -> None:
    envs, clean = PairsTradingVectorEnv(2), PairsTradingVectorEnv(2)
    for one in (envs, clean):
        one.reset(seed=0)
    actions = np.full((2, 1), 0.5, dtype=np.float32)
    obs, reward, terminated, truncated, infos = envs.step(actions)
    for array in (obs, reward, terminated, truncated, *infos.values()):
        array[:] = True
    clean.step(actions)
    for mine, other in zip(envs.step(actions)[:-1], clean.step(actions)[:-1], strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        (np.zeros((2, 2)), "shape `(2, 2)` - at `PairsTrading-v0.step(actions)`"),
        (np.zeros(2), "shape `(2,)` - at `PairsTrading-v0.step(actions)`"),
        ("ab", "`'ab'` - at `PairsTrading-v0.step(actions)`"),
        (np.array([[0.0], [np.nan]]), "`nan` (1 of 2) - at `PairsTrading-v0.step(actions[1])`: clip or squash"),
        (np.array([[-3.0], [2.0]]), "`-3.0` (2 of 2) - at `PairsTrading-v0.step(actions[0])`: clip or squash"),
    ],
)
def test_bad_actions_are_refused(actions: Any, text: str) -> None:
    envs = PairsTradingVectorEnv(2)
    envs.reset(seed=0)
    with pytest.raises(ArgumentError, match=re.escape(f"Expected numbers in [-1, 1] of shape `(2, 1)`, got {text}")):
        envs.step(actions)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"got `0` - at `PairsTrading-v0\(num_envs\)`"):
        PairsTradingVectorEnv(0)
    with pytest.raises(ArgumentError, match=r"got `'rgb_array'` - at `PairsTrading-v0\(render_mode\)`: pass `vector"):
        gymnasium.make_vec(ID, num_envs=2, render_mode="rgb_array")
    with pytest.raises(ArgumentError, match=r"got a step before the first - at `PairsTrading-v0\.step`: call"):
        PairsTradingVectorEnv(2).step(np.zeros((2, 1)))
