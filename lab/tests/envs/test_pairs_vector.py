"""`make_vec` builds an environment that equals Gymnasium's own `SyncVectorEnv` number for number."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from needs import needs

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
