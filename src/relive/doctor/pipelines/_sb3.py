"""Stable-Baselines3's own buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base.extras import needs

from .._pipeline import Item
from .._world import Counter
from ._loops import Run, Runner, calls_of


class Sb3Loop(Runner):
    """Its buffers in a loop over a Gymnasium vector environment, with `TimeLimit.truncated` in the infos."""

    infos = True  # CleanRL's loops pass no information about time limits

    def __init__(self) -> None:
        super().__init__()
        with needs("sb3", "relive.doctor"):
            from stable_baselines3.common import buffers
        self._buffers = buffers

    def _made(self, run: Run) -> Any:
        spaces = Counter.observation_space, Counter.action_space
        return self._kind(run)(run.size, *spaces, "cpu", n_envs=run.num_envs)

    def _fill(self, run: Run) -> None:
        for call in calls_of(run):
            done = call.terminated | call.truncated if self.infos else call.terminated
            infos = [{"TimeLimit.truncated": bool(cut)} if self.infos else {} for cut in call.truncated]
            self._buffer.add(call.obs, call.next_obs, call.action, call.reward, done, infos)

    def _kind(self, run: Run) -> Callable[..., Any]:
        """Choose their class for windows of this length."""
        if run.n_step == 1:
            kind: Callable[..., Any] = self._buffers.ReplayBuffer
            return kind
        return partial(self._buffers.NStepReplayBuffer, n_steps=run.n_step, gamma=run.gamma)

    def items(self) -> Iterable[Item]:
        """Return every item; environments are chosen at random, so each slot is read until each has been seen."""
        buffer = self._buffer
        slots = np.arange(buffer.size())
        if buffer.optimize_memory_usage and buffer.full:
            slots = np.delete(slots, buffer.pos)  # which it never draws
        at = np.repeat(slots, 48)
        drawn = buffer._get_samples(at)
        discounts = getattr(drawn, "discounts", None)
        discount = np.full(len(at), self._gamma) if discounts is None else discounts.numpy()[:, 0]
        bootstrap = (1 - drawn.dones.numpy()[:, 0]) * discount
        columns = (at, drawn.observations[:, 0], drawn.rewards[:, 0], bootstrap, drawn.next_observations[:, 0])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [Item(*row[1:]) for row in dict.fromkeys(rows)]


class CleanRL(Sb3Loop):
    """The same, as CleanRL's loops call it: `dones` are the terminations, and infos say nothing of time limits."""

    infos = False


class Learn(Sb3Loop):
    """Its own path: `DQN.learn` in a `DummyVecEnv`.

    There is one mode: the `VecEnv` resets within `step`, as SAME_STEP does, environments that do not reset themselves.
    `reset_at` begins another `learn` there.
    """

    modes = (AutoresetMode.DISABLED,)

    def _made(self, run: Run) -> Any:
        """Leave the buffer to `DQN`."""

    def _fill(self, run: Run) -> None:
        """Let `DQN` collect, without training."""
        from stable_baselines3 import DQN
        from stable_baselines3.common.vec_env import DummyVecEnv

        model = DQN(
            "MlpPolicy",
            DummyVecEnv([run.make_env] * run.num_envs),
            buffer_size=run.size,
            learning_starts=10**9,
            train_freq=1,
            n_steps=run.n_step,
            gamma=run.gamma,
            policy_kwargs={"net_arch": [1]},
            device="cpu",
            **self._choices(),
        )
        for begin, end in pairwise([0, *sorted(run.reset_at), run.calls]):
            model.learn((end - begin) * run.num_envs)
        self._buffer = model.replay_buffer

    def _choices(self) -> dict[str, Any]:
        """Return arguments that choose the algorithm's buffer; by itself it takes windows into account."""
        return {}


class OptimizedMemory(Learn):
    """Its own path with `optimize_memory_usage`; one-step targets only."""

    def _choices(self) -> dict[str, Any]:
        kwargs = {"handle_timeout_termination": False}
        return {"optimize_memory_usage": True, "replay_buffer_kwargs": kwargs}
