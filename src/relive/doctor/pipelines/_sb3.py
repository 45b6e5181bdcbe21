"""Stable-Baselines3's own buffers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base.extras import needs

from .._pipeline import Item
from ._loops import calls_of


class Sb3Loop:
    """Its buffers in a loop over a Gymnasium vector environment, with `TimeLimit.truncated` in the infos."""

    infos = True  # CleanRL's loops pass no information about time limits

    def __init__(self) -> None:
        with needs("sb3", "relive.doctor"):
            from stable_baselines3.common import buffers
        self._buffers = buffers
        self._buffer: Any = None
        self._gamma = 0.0

    def run(
        self,
        make_env: Any,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: AutoresetMode,
        capacity: int | None = None,
        reset_at: Collection[int] = (),
    ) -> None:
        """Fill a new buffer."""
        env = make_env()
        self._gamma = gamma
        size, spaces = capacity or 2 * num_envs * calls, (env.observation_space, env.action_space)
        self._buffer = self._made(n_step)(size, *spaces, "cpu", n_envs=num_envs)
        for call in calls_of(make_env, num_envs, calls, autoreset_mode, reset_at):
            done = call.terminated | call.truncated if self.infos else call.terminated
            infos = [{"TimeLimit.truncated": bool(cut)} if self.infos else {} for cut in call.truncated]
            self._buffer.add(call.obs, call.next_obs, call.action, call.reward, done, infos)

    def _made(self, n_step: int) -> Callable[..., Any]:
        """Their class for windows of this length."""
        if n_step == 1:
            made: Callable[..., Any] = self._buffers.ReplayBuffer
            return made
        return partial(self._buffers.NStepReplayBuffer, n_steps=n_step, gamma=self._gamma)

    def items(self) -> Iterable[Item]:
        """Every item; the buffer chooses environments at random, so each slot is read until each has been seen."""
        buffer = self._buffer
        slots = np.arange(buffer.size())
        if buffer.optimize_memory_usage and buffer.full:
            slots = np.delete(slots, buffer.pos)  # which it never draws
        at = np.repeat(slots, 48)
        drawn = buffer._get_samples(at)
        discounts = getattr(drawn, "discounts", None)
        discount = np.full(len(at), self._gamma) if discounts is None else discounts.numpy()[:, 0]
        bootstrap = (1 - drawn.dones.numpy()[:, 0]) * discount
        columns = (drawn.observations.numpy()[:, 0], drawn.rewards.numpy()[:, 0], bootstrap)
        rows = zip(at.tolist(), *columns, drawn.next_observations.numpy()[:, 0], strict=True)
        return [Item(*row[1:]) for row in dict.fromkeys(tuple(map(float, row)) for row in rows)]


class CleanRL(Sb3Loop):
    """The same, as CleanRL's loops call it: `dones` are the terminations, and infos say nothing of time limits."""

    infos = False


class Learn(Sb3Loop):
    """Its own path: `DQN.learn` in a `DummyVecEnv`.

    There is one mode: the `VecEnv` resets within `step`, as SAME_STEP does, environments that do not reset themselves.
    `reset_at` begins another `learn` there.
    """

    modes = (AutoresetMode.DISABLED,)

    def run(
        self,
        make_env: Any,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: AutoresetMode,
        capacity: int | None = None,
        reset_at: Collection[int] = (),
    ) -> None:
        """Let `DQN` collect, without training."""
        from stable_baselines3 import DQN
        from stable_baselines3.common.vec_env import DummyVecEnv

        self._gamma = gamma
        choices = self._choices(n_step)
        model = DQN(
            "MlpPolicy",
            DummyVecEnv([make_env] * num_envs),
            buffer_size=capacity or 2 * num_envs * calls,
            learning_starts=10**9,
            train_freq=1,
            n_steps=n_step,
            gamma=gamma,
            policy_kwargs={"net_arch": [1]},
            device="cpu",
            **choices,
        )
        for begin, end in pairwise([0, *sorted(reset_at), calls]):
            model.learn((end - begin) * num_envs)
        self._buffer = model.replay_buffer

    def _choices(self, n_step: int) -> dict[str, Any]:
        """Arguments of the algorithm that say which buffer it makes; by itself it takes windows into account."""
        return {}


class OptimizedMemory(Learn):
    """Its own path with `optimize_memory_usage`; one-step targets only."""

    def _choices(self, n_step: int) -> dict[str, Any]:
        kwargs = {"handle_timeout_termination": False}
        return {"optimize_memory_usage": True, "replay_buffer_kwargs": kwargs}
