"""What the tests of `relive.sb3` have in common: environments that keep a ledger, and models that live in them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv

GAMMA = 0.5


def small() -> dict[str, Any]:
    return {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}  # a new one: SB3 writes into it


class Counting(gymnasium.Env[Any, Any]):
    """Observations and goals say lane, episode and step; `lived` says how long episodes were, and how they ended."""

    lived: dict[tuple[int, int], tuple[int, str]]

    def __init__(self, lane: int, kind: str = "box", continuous: bool = False, shortest: int = 2) -> None:
        self.lane, self.kind, self.shortest, self.episode, self.t = lane, kind, shortest, -1, 0
        self.lived = {}
        box = spaces.Box(-1e6, 1e6, (3,), np.float32)
        many = {"code": box, "achieved_goal": box, "desired_goal": box, "step": spaces.Discrete(100)}
        self.observation_space = box if kind == "box" else spaces.Dict(many)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32) if continuous else spaces.Discrete(2)

    def _obs(self) -> Any:
        code = np.array([self.lane, self.episode, self.t], np.float32)
        far = np.full(3, -1, np.float32)
        return (
            {"code": code, "achieved_goal": code, "desired_goal": far, "step": self.t} if self.kind != "box" else code
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = reward_of(self.lane, self.episode, self.t)
        self.t += 1
        over = self.t == self.shortest + (3 * self.lane + 5 * self.episode) % 7
        how = ("terminated" if self.episode % 2 else "truncated") if over else "goes on"
        self.lived[self.lane, self.episode] = self.t, how
        info = {"place": (self.lane, self.episode, self.t - 1)}
        return self._obs(), reward, how == "terminated", how == "truncated", info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, infos: Any) -> np.ndarray:
        """Count the steps to the goal; infos have to be those of the steps."""
        for info, achieved in zip(infos, achieved_goal, strict=True):
            assert info.get("place", (*achieved[:2], achieved[2] - 1)) == (*achieved[:2], achieved[2] - 1)
        return (desired_goal - achieved_goal)[:, 2] + 1000 * np.abs(desired_goal - achieved_goal)[:, :2].sum(axis=1)


def reward_of(lane: Any, episode: Any, t: Any) -> Any:
    return (lane * 7.0 + episode * 11 + t * 3) % 31 - 15


def envs_of(lanes: int = 2, **choices: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda lane=lane: Counting(lane, **choices) for lane in range(lanes)])


def ledger(envs: Any) -> dict[tuple[int, int], tuple[int, str]]:
    """Return every episode: its steps, and how it ended; one that was left has "cut"."""
    found: dict[tuple[int, int], tuple[int, str]] = {}
    for env in envs:
        inner = env.unwrapped
        for key, (steps, how) in inner.lived.items():
            found[key] = steps, "cut" if how == "goes on" and key[1] < inner.episode else how
    return found


def drawable(lived: dict[tuple[int, int], tuple[int, str]], n: int) -> set[tuple[int, int, int]]:
    """Return every step whose window is complete."""
    return {
        (*key, t) for key, (steps, how) in lived.items() for t in range(steps if how != "goes on" else steps - n + 1)
    }


def judge(samples: Any, lived: dict[tuple[int, int], tuple[int, str]], n: int) -> set[tuple[int, int, int]]:
    """Compare every item with what happened; return which they are."""
    code = samples.observations if torch.is_tensor(samples.observations) else samples.observations["code"]
    following = samples.next_observations
    following = following if torch.is_tensor(following) else following["code"]
    items = [tuple(row) for row in code.int().tolist()]
    for i, (lane, episode, t) in enumerate(items):
        steps, how = lived[lane, episode]
        m = min(n, steps - t)
        assert following[i].tolist() == [lane, episode, t + m]
        expected = sum(GAMMA**k * reward_of(lane, episode, t + k) for k in range(m))
        assert samples.rewards[i].item() == pytest.approx(expected, abs=1e-4)
        assert samples.dones[i].item() == (t + m == steps and how == "terminated")
        if n > 1:
            assert samples.discounts[i].item() == pytest.approx(GAMMA**m)
    return set(items)


def built(kind: Any, **choices: Any) -> Any:
    continuous = not issubclass(kind, DQN) and "QRDQN" not in kind.__name__
    choices = {"buffer_size": 400, "learning_starts": 20, "batch_size": 16, "seed": 3, **small(), **choices}
    return kind("MlpPolicy", envs_of(continuous=continuous), **choices)
