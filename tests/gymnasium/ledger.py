"""Environments whose observations say where they are, and a ledger of what happened, to compare items with."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

TERMINATED, TRUNCATED, CUT = range(1, 4)
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
        over = self.t == length_of(self.lane, self.episode)
        truncated = over and (self.lane + self.episode) % 2 == 0
        return self._obs(), float(reward), over and not truncated, truncated, {}


class LastAxis(gymnasium.ObservationWrapper):  # type: ignore[misc]
    """Frames along the last axis."""

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(observation, 0, -1))


def length_of(lane: Any, episode: Any) -> Any:
    return 1 + (lane * 5 + episode * episode * 3) % 13


def reward_of(lane: Any, episode: Any, t: Any) -> Any:
    """Return small integers, so that sums are exact enough to tell any two windows apart."""
    return (lane * 7 + episode * 11 + t * 3) % 31 - 15


def stacking(lane: int, stack: int, pad: str, axis: int) -> gymnasium.Env:  # type: ignore[type-arg]
    """Make one environment inside Gymnasium's own frame stack."""
    padding = "reset" if pad == "first" else "zero"
    env = gymnasium.wrappers.FrameStackObservation(Located(lane), stack, padding_type=padding)
    return LastAxis(env) if axis == -1 else env


class Ledger:
    """The course of every episode, `[lane, episode]`: by the environments' own rules, or cut by a reset."""

    def __init__(self, lanes: int, episodes: int) -> None:
        lane, episode = np.ogrid[:lanes, :episodes]
        self.length = length_of(lane, episode)
        self.how = np.where((lane + episode) % 2, TERMINATED, TRUNCATED)

    @property
    def begin(self) -> np.ndarray:
        """The number of each episode's first step in its lane."""
        return np.cumsum(self.length, axis=1) - self.length

    def live(self, frames: np.ndarray) -> np.ndarray:
        """Return which lanes' episodes go on at these frames, which no reset has cut."""
        lane, episode, t = frames.astype(int).T - 1
        return t < self.length[lane, episode]

    def cut(self, frames: np.ndarray) -> None:
        """Note a reset at these frames, which cuts the episodes that go on."""
        lane, episode, t = frames[self.live(frames)].astype(int).T - 1
        self.length[lane, episode], self.how[lane, episode] = t, CUT

    def at(self, lane: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return episode and step of the steps of these numbers."""
        begin = self.begin
        rows = np.arange(len(begin))[:, None] * FAR
        episode = (np.searchsorted((begin + rows).ravel(), number + lane * FAR, "right") - 1) % begin.shape[1]
        return episode, number - begin[lane, episode]


def frames_of(lane: np.ndarray, episode: np.ndarray, t: np.ndarray, stack: int, pad: str, axis: int) -> np.ndarray:
    """Compute the stacked observations of these steps from the numbers alone."""
    back = t[..., None] - np.arange(stack - 1, -1, -1)
    shown = np.maximum(back, 0)
    parts = [np.broadcast_to(x[..., None], back.shape) for x in (lane, episode)]
    frames = np.stack([*parts, shown], axis=-1).astype(np.float32) + 1
    if pad == "zero":
        frames[back < 0] = 0
    return np.moveaxis(frames, -2, -1) if axis == -1 else frames
