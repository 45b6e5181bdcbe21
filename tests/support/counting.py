"""Environments whose observations say which environment, episode and step they belong to, so that nothing can hide."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

KINDS = ("array", "dict", "tuple")


def code(number: int, episode: int, step: int) -> np.ndarray:
    return np.array([number, episode, step], np.float32)


class Counting(gymnasium.Env):  # type: ignore[misc]
    """Episode e of environment i lasts `2 + (i + e) % 4` steps; odd episodes terminate, even ones are truncated."""

    def __init__(self, number: int = 0, kind: str = "array") -> None:
        self.number, self.kind, self.episode, self.t = number, kind, -1, 0
        box = gymnasium.spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.observation_space = {
            "array": box,
            "dict": gymnasium.spaces.Dict({"code": box, "step": gymnasium.spaces.Discrete(100)}),
            "tuple": gymnasium.spaces.Tuple((box, gymnasium.spaces.Discrete(100))),
        }[kind]
        self.action_space = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float32)

    def _obs(self) -> Any:
        now = code(self.number, self.episode, self.t)
        return {"array": now, "dict": {"code": now, "step": self.t}, "tuple": (now, self.t)}[self.kind]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        ended = self.t == length(self.number, self.episode)
        terminated = ended and self.episode % 2 == 1
        return self._obs(), float(self.t), terminated, ended and not terminated, {}


def length(number: int, episode: int) -> int:
    return 2 + (number + episode) % 4
