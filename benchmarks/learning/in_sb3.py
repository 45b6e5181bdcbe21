"""DQN and SAC of Stable-Baselines3, with its buffer, with relive's, and with prioritized replay."""

from __future__ import annotations

from typing import Any

from stable_baselines3 import DQN, SAC
from stable_baselines3.common.callbacks import BaseCallback

import relive.sb3
from benchmarks.learning.evaluation import Course

# DQN's are those of RL Baselines3 Zoo; SAC's learning rate is, its nets and batches are smaller.
SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1_000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "sac": {"learning_rate": 1e-3, "batch_size": 128, "policy_kwargs": {"net_arch": [64, 64]}},
}
CLASSES = {"dqn": (DQN, relive.sb3.PrioritizedDQN), "sac": (SAC, relive.sb3.PrioritizedSAC)}


class Watch(BaseCallback):
    """Tells a course of every step."""

    def __init__(self, course: Course) -> None:
        super().__init__()
        self._course = course

    def _on_step(self) -> bool:
        self._course.at(self.num_timesteps, lambda obs: self.model.predict(obs, deterministic=True)[0])
        return True


def run(task: str, replay: str, course: Course) -> None:
    """Train once; `replay` is `own`, `relive` or `prioritized`."""
    plain, prioritized = CLASSES[task]
    settings = dict(SETTINGS[task], seed=course.seed, device="cpu")
    if replay == "relive":
        settings["replay_buffer_class"] = relive.sb3.ReplayBuffer
    model = (prioritized if replay == "prioritized" else plain)("MlpPolicy", course.env_id, **settings)
    model.learn(course.steps, callback=Watch(course))
