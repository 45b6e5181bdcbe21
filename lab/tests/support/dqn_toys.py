"""Small environments with discrete actions, so that a whole run of deep Q-learning takes a moment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from trainer_toys import Toy

from relive_lab import DQNConfig


class Signs(Toy):
    """Reward 1 for naming the sign of the first number; episodes of 10 steps, ended as `ends` says."""

    def __init__(self, *, ends: str = "truncated", first: int = 0, actions: int = 2) -> None:
        super().__init__(ends=ends)
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(actions, start=first)
        self.first = first

    def _reward(self, action: Any) -> float:
        return float(action - self.first == self._answer())

    def _observe(self) -> Any:
        self.seen = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.seen

    def _answer(self) -> int:
        return int(self.seen[0] > 0)


class Drift(Signs):
    """A dot on an image moves one pixel to the left or to the right, for a whole episode; name which.

    One frame does not tell. `layout` is the order of the image's axes, of which `C` may be missing.
    """

    def __init__(self, layout: str = "HW", side: int = 9, dtype: Any = np.uint8) -> None:
        super().__init__()
        self.layout, self.side = layout, side
        self.shape = tuple({"H": side, "W": side, "C": 2}[axis] for axis in layout)
        self.observation_space = gymnasium.spaces.Box(0, 255 if dtype == np.uint8 else 1, self.shape, dtype)

    def _observe(self) -> Any:
        if self.bar == 0:
            self.place, self.move = int(self.np_random.integers(self.side)), int(self.np_random.integers(2))
        else:
            self.place = (self.place + 2 * self.move - 1) % self.side
        image = np.zeros(self.shape, self.observation_space.dtype)
        np.moveaxis(image, self.layout.index("W"), 0)[self.place] = self.observation_space.high.max()
        return image

    def _answer(self) -> int:
        return self.move


def small(**changes: Any) -> DQNConfig:
    """Make settings of a run of 120 steps."""
    settings: dict[str, Any] = {
        "env_id": "Signs",
        "total_steps": 120,
        "start_steps": 40,
        "batch_size": 16,
        "hidden_sizes": (16,),
        "buffer_capacity": 1_000,
        "update_every": 4,
        "learning_rate": 1e-3,
        "target_every": 5,
        "tau": 1.0,
        "n_step": 1,
        "eval_every": 60,
        "eval_episodes": 3,
        "epsilon_steps": 100,
        "per_beta_anneal_steps": 20,
    }
    return DQNConfig(**{**settings, **changes})
