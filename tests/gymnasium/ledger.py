"""Environments whose observations say where they are, and a ledger of what happened to compare items with."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

NONE, TERMINATED, TRUNCATED, CUT = range(4)
FAR = 1 << 40


class Located(gymnasium.Env):  # type: ignore[misc]
    """Frames `[lane + 1, episode + 1, step + 1]`; every other episode ends by a time limit."""

    def __init__(self, lane: int) -> None:
        self.lane, self.episode, self.t = lane, -1, 0
        self.observation_space = gymnasium.spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float32)

    def _obs(self) -> np.ndarray:
        return np.array([self.lane + 1, self.episode + 1, self.t + 1], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = reward_of(self.lane, self.episode, self.t)
        self.t += 1
        over = self.t == 1 + (self.lane * 5 + self.episode * self.episode * 3) % 13
        truncated = over and (self.lane + self.episode) % 2 == 0
        return self._obs(), float(reward), over and not truncated, truncated, {}


class LastAxis(gymnasium.ObservationWrapper):  # type: ignore[misc]
    """Frames along the last axis."""

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(observation, 0, -1))


def reward_of(lane: Any, episode: Any, t: Any) -> Any:
    """Return small integers, so that sums are exact enough to tell any two windows apart."""
    return (lane * 7 + episode * 11 + t * 3) % 31 - 15


def stacking(lane: int, stack: int, pad: str, axis: int) -> gymnasium.Env:  # type: ignore[type-arg]
    """Make one environment inside Gymnasium's own frame stack."""
    padding = "reset" if pad == "first" else "zero"
    env = gymnasium.wrappers.FrameStackObservation(Located(lane), stack, padding_type=padding)
    return LastAxis(env) if axis == -1 else env


class Ledger:
    """Everything that happened, by lane: episode and step of every absolute step, and how episodes ended."""

    def __init__(self, lanes: int, steps: int) -> None:
        shape = (lanes, steps + 40)
        self.lived = np.zeros(lanes, int)
        self.episode, self.t = np.zeros(shape, int), np.zeros(shape, int)  # of every absolute step
        self.begin, self.length = np.zeros(shape, int), np.full(shape, FAR)  # of every episode
        self.how = np.full(shape, NONE)

    def step(self, lane: int, frame: np.ndarray, terminated: bool, truncated: bool) -> None:
        """Note a stored step that began at `frame`."""
        _, episode, t = (int(x) - 1 for x in frame)
        at = self.lived[lane]
        if t == 0:
            self.begin[lane, episode] = at
        assert at == self.begin[lane, episode] + t
        # Where the observation after this step would stand, if the episode goes on.
        self.episode[lane, at : at + 2], self.t[lane, at : at + 2] = episode, [t, t + 1]
        self.lived[lane] += 1
        if terminated or truncated:
            self.end(lane, episode, t + 1, TERMINATED if terminated else TRUNCATED)

    def cut(self, lane: int, frame: np.ndarray) -> None:
        """Note a reset of the lane in mid-episode, at `frame`."""
        _, episode, t = (int(x) - 1 for x in frame)
        if t and self.how[lane, episode] == NONE:
            self.end(lane, episode, t, CUT)

    def end(self, lane: int, episode: int, length: int, how: int) -> None:
        self.length[lane, episode], self.how[lane, episode] = length, how


def frames_of(lane: np.ndarray, episode: np.ndarray, t: np.ndarray, stack: int, pad: str, axis: int) -> np.ndarray:
    """Compute the stacked observations of these steps from the numbers alone."""
    back = t[..., None] - np.arange(stack - 1, -1, -1)
    shown = np.maximum(back, 0)
    parts = [np.broadcast_to(x[..., None], back.shape) for x in (lane, episode)]
    frames = np.stack([*parts, shown], axis=-1).astype(np.float32) + 1
    if pad == "zero":
        frames[back < 0] = 0
    return np.moveaxis(frames, -2, -1) if axis == -1 else frames
