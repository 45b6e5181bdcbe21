"""Small environments and settings, so that a whole run takes a fraction of a second."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from relive_lab import SACConfig


class Toy(gymnasium.Env[Any, Any]):
    """Reward 1 minus the squared distance of the action to the middle of its bounds; episodes of 10 steps.

    `ends` says how: `truncated`, or `terminated`.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...] = (3,),
        action_shape: tuple[int, ...] = (2,),
        *,
        low: Any = -1.0,
        high: Any = 1.0,
        obs_dtype: Any = np.float32,
        ends: str = "truncated",
    ) -> None:
        limits = (0, 255) if obs_dtype == np.uint8 else (-5.0, 5.0)
        self.observation_space = gymnasium.spaces.Box(*limits, obs_shape, obs_dtype)
        low, high = (np.broadcast_to(np.float32(bound), action_shape) for bound in (low, high))
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.ends = ends
        self.seeds: list[int | None] = []

    def _observe(self) -> Any:
        space = self.observation_space
        return self.np_random.uniform(0, 5, space.shape).astype(space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.bar = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        action = np.asarray(action)  # vector environments hand out bare numbers where the shape is ()
        assert self.action_space.contains(action), action
        self.bar += 1
        over, reward = self.bar == 10, self._reward(action)
        return self._observe(), reward, over and self.ends == "terminated", over and self.ends == "truncated", {}

    def _reward(self, action: Any) -> float:
        middle = (self.action_space.low + self.action_space.high) / 2
        return 1.0 - float(np.square(action - middle).mean())


def small(**changes: Any) -> SACConfig:
    """Make settings of a run of 120 steps."""
    settings: dict[str, Any] = {
        "env_id": "Toy",
        "total_steps": 120,
        "start_steps": 40,
        "update_every": 4,
        "batch_size": 16,
        "hidden_sizes": (8, 8),
        "buffer_capacity": 500,
        "eval_every": 60,
        "eval_episodes": 3,
        "learning_rate": 1e-3,
        "per_beta_anneal_steps": 20,
    }
    return SACConfig(**{**settings, **changes})
