"""A reaching task like FetchReach with sparse rewards: Stable-Baselines3's SAC with goals in hindsight, and without.

The hand starts at the middle of a cube of 30 cm and moves at most 3 cm a step. It is rewarded only within 5 cm of its
goal. An episode takes 50 steps, and no success ends it.

    pip install 'relive[sb3]'
    python examples/reaching_sb3.py --steps 5000
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC

from relive.sb3 import HerReplayBuffer, ReplayBuffer

HALF, NEAR, FASTEST = 0.15, 0.05, 0.03  # metres; the last one a step


class Reaching(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """A hand with inertia; observations are its position and velocity, goals are positions."""

    def __init__(self) -> None:
        place = spaces.Box(-1.0, 1.0, (3,), np.float64)
        moving = spaces.Box(-1.0, 1.0, (6,), np.float64)
        self.observation_space = spaces.Dict(observation=moving, achieved_goal=place, desired_goal=place)
        self.action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)

    def _observe(self) -> dict[str, np.ndarray]:
        moving = np.concatenate([self.hand, self.velocity])
        return {"observation": moving, "achieved_goal": self.hand.copy(), "desired_goal": self.goal.copy()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode with a new goal somewhere in the cube."""
        super().reset(seed=seed)
        self.hand, self.velocity = np.zeros(3), np.zeros(3)
        self.goal = self.np_random.uniform(-HALF, HALF, 3)
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Move the hand: half of the velocity is the last one's; walls stop it."""
        self.velocity = 0.5 * self.velocity + 0.5 * FASTEST * np.clip(action, -1.0, 1.0)
        self.hand = np.clip(self.hand + self.velocity, -HALF, HALF)
        reward = float(self.compute_reward(self.hand, self.goal, {}))
        return self._observe(), reward, False, False, {"is_success": reward == 0}

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """Return 0 near the goal, else -1."""
        return np.where(np.linalg.norm(achieved_goal - desired_goal, axis=-1) < NEAR, 0.0, -1.0)


def train(steps: int, hindsight: bool, seed: int, episodes: int = 50) -> float:
    """Train, and return the share of evaluation episodes that end near their goal."""
    env = gymnasium.wrappers.TimeLimit(Reaching(), 50)
    goals = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
    model = SAC(
        "MultiInputPolicy",
        env,
        replay_buffer_class=HerReplayBuffer if hindsight else ReplayBuffer,
        replay_buffer_kwargs=goals if hindsight else {},
        learning_starts=min(500, steps // 2),
        gamma=0.95,
        learning_rate=1e-3,
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    successes = 0
    for episode in range(episodes):
        obs, info = env.reset(seed=10_000 + episode)
        ended = False
        while not ended:
            action, _ = model.predict(obs, deterministic=True)
            obs, _, terminated, truncated, info = env.step(action)
            ended = terminated or truncated
        successes += info["is_success"]
    return successes / episodes


def main() -> None:
    """Train with hindsight and without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5_000, help="environment steps of a run (default 5000)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for hindsight in (True, False):
        share = train(args.steps, hindsight, args.seed)
        print(f"{'with' if hindsight else 'without'} hindsight: {share:.0%} of 50 episodes end near their goal")


if __name__ == "__main__":
    main()
