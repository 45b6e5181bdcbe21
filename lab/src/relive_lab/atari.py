"""Atari games as deep Q-learning sees them (Mnih et al. 2015), by Gymnasium's wrappers where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, TransformReward

from relive.errors import ArgumentError, message
from relive_lab.checks import needs

with needs("atari", "relive_lab"):
    import ale_py
    import cv2  # noqa: F401 (Gymnasium's preprocessing needs it)

Env = gymnasium.Env[Any, Any]
NOOP, FIRE = 0, 1


def make(env_id: str, kwargs: Mapping[str, Any], *, training: bool) -> Env:
    """Build a game: up to 30 idle frames at the start, 4 frames a step, the last two merged, 84 x 84 grey.

    Games that wait for the button get it pressed. In training every life is an episode, and rewards are their signs;
    otherwise an episode is a whole game and its return the score.

    An unknown game is an ArgumentError.
    """
    gymnasium.register_envs(ale_py)
    try:
        env: Env = gymnasium.make(env_id, **{**kwargs, "frameskip": 1})
    except gymnasium.error.UnregisteredEnv as error:
        raise ArgumentError(message("an Atari game of ale-py", f"`{env_id}` ({error})", "env_id")) from error
    env = AtariPreprocessing(env)
    if training:
        env = LifeIsEpisode(env)
    if env.unwrapped.get_action_meanings()[FIRE:][:1] == ["FIRE"]:  # type: ignore[attr-defined]
        env = FireAtReset(env)
    return TransformReward(env, lambda reward: float(np.sign(float(reward)))) if training else env


class LifeIsEpisode(gymnasium.Wrapper[Any, Any, Any, Any]):
    """End an episode with each life, but begin a new game only when the game is over.

    Gymnasium's own option starts the game anew at every life, so that later stages are never seen.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._lives, self._over = 0, True

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step; terminated also where a life was lost."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._over = terminated or truncated
        before, self._lives = self._lives, self._ale_lives()
        return obs, reward, terminated or self._lives < before, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Go on with the game that lost a life, with an idle step; otherwise start a new one."""
        if self._over or seed is not None:
            obs, info = self.env.reset(seed=seed, options=options)
        else:
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            if terminated or truncated:
                obs, info = self.env.reset()
        self._over, self._lives = False, self._ale_lives()
        return obs, info

    def _ale_lives(self) -> int:
        return int(self.unwrapped.ale.lives())  # type: ignore[attr-defined]


class FireAtReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Press the button at the start of an episode: some games never start without it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and press it."""
        self.env.reset(seed=seed, options=options)
        obs, _, terminated, truncated, info = self.env.step(FIRE)
        return self.env.reset(options=options) if terminated or truncated else (obs, info)
