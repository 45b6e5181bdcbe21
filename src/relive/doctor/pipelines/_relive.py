"""relive itself: behind the Recorder, and in a loop that adds every call."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import relive

from .._pipeline import Item
from ._loops import calls_of


class Recorded:
    """A prioritized `relive.ReplayBuffer` behind `relive.gymnasium.Recorder`."""

    def __init__(self) -> None:
        self._buffer: Any = None
        self._capacity: int | None = None

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
        """Fill the buffer; where `capacity` is that of the run before, the buffer of that run is overwritten."""
        env = make_env()
        if self._buffer is None or capacity is None or capacity != self._capacity:
            self._buffer = relive.ReplayBuffer(
                relive.Schema.from_spaces(env.observation_space, env.action_space),
                capacity or 2 * num_envs * calls,
                num_envs=num_envs,
                item=relive.Transitions(n_step=n_step, gamma=gamma),
                sampler=relive.Prioritized(alpha=1.0),
            )
        self._capacity = capacity
        self._collect(make_env, num_envs, calls, autoreset_mode, reset_at)

    def _collect(
        self, make_env: Any, num_envs: int, calls: int, mode: AutoresetMode, reset_at: Collection[int]
    ) -> None:
        from relive.gymnasium import Recorder

        envs = Recorder(SyncVectorEnv([make_env] * num_envs, autoreset_mode=mode), self._buffer)
        envs.reset()
        for number in range(calls):
            if number in reset_at:
                envs.reset()
            _, _, terminated, truncated, _ = envs.step(np.zeros(num_envs, np.int64))
            ended = terminated | truncated
            if mode is AutoresetMode.DISABLED and ended.any():
                envs.reset(options={"reset_mask": ended})

    def items(self) -> Iterable[Item]:
        """Every item that can be drawn."""
        ids = self._buffer.column("ids")
        drawable = []
        for number in ids[ids >= 0].tolist():
            try:
                self._buffer.read([number])
            except relive.StaleId:  # its window is not complete yet
                continue
            drawable.append(number)
        return _items(self._buffer.read(np.array(drawable, np.int64)))

    def sample(self, n: int) -> list[Item]:
        """Draw items; a handle is an id."""
        return _items(self._buffer.sample(n))

    def update(self, handles: list[int], td_errors: Any) -> None:
        """Update priorities."""
        self._buffer.update_priorities(np.array(handles, np.int64), td_errors)


class ByHand(Recorded):
    """The same buffer in a loop that adds every call, as if every autoreset mode were the same."""

    def _collect(
        self, make_env: Any, num_envs: int, calls: int, mode: AutoresetMode, reset_at: Collection[int]
    ) -> None:
        for call in calls_of(make_env, num_envs, calls, mode, reset_at):
            step = call._asdict()
            del step["reset"]  # the loop says nothing of it
            self._buffer.add(**step)


def _items(batch: Any) -> list[Item]:
    columns = (batch.obs, batch.reward, batch.discount, batch.next_obs, batch.ids.tolist(), batch.weights)
    return [Item(*values) for values in zip(*columns, strict=True)]
