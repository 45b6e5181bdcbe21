"""Small recurrent runs, and a task whose rewards and ends can be told from its observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from relive_lab import R2D2Config


class Walk(gymnasium.Env[Any, Any]):
    """Random observations and rewards; episodes of 3 to 9 steps end as `ends` says, or either way."""

    def __init__(self, shape: tuple[int, ...] = (3,), *, actions: int = 3, start: int = 0, ends: str = "both") -> None:
        self.observation_space = gymnasium.spaces.Box(-9.0, 9.0, shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(actions, start=start)
        self.ends = ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 10))
        return self._observe(), {}

    def _observe(self) -> Any:
        return self.np_random.normal(size=self.observation_space.shape).astype(np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.left -= 1
        over = self.left == 0
        terminated = over and (self.ends == "terminated" or (self.ends == "both" and self.np_random.random() < 0.5))
        return self._observe(), float(self.np_random.normal()), terminated, over and not terminated, {}


def small(**changes: Any) -> R2D2Config:
    """Make settings of a run of 240 steps."""
    settings: dict[str, Any] = {
        "env_id": "relive/TMaze-v0",
        "num_envs": 4,
        "total_steps": 240,
        "start_steps": 120,
        "batch_size": 8,
        "length": 4,
        "burn_in": 2,
        "starts": 2,
        "lstm_size": 8,
        "buffer_capacity": 400,
        "update_every": 8,
        "epsilon_steps": 200,
        "eval_every": 120,
        "eval_episodes": 3,
        "per_beta_anneal_steps": 30,
        "torch_threads": 1,
    }
    return R2D2Config(**{**settings, **changes})
