"""relive itself: behind the Recorder, and in a loop that adds every call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import relive
from relive._base.types import Float64

from .._draws import BATCH
from .._pipeline import Item
from ._loops import calls_of


class Recorded:
    """A prioritized `relive.ReplayBuffer` behind `relive.gymnasium.Recorder`."""

    threads = True

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

    def items(self) -> Item:
        """Every item that can be drawn."""
        ids = self._buffer.column("ids")
        drawable = []
        for number in ids[ids >= 0].tolist():
            try:
                self._buffer.read([number])
            except relive.StaleId:  # its window is not complete yet
                continue
            drawable.append(number)
        return columns(self._buffer.read(np.array(drawable, np.int64)))

    def sample(self, n: int) -> Item:
        """Draw items; a handle is an id."""
        return columns(self._buffer.sample(n))

    def update(self, handles: list[int], td_errors: Any) -> None:
        """Update priorities."""
        self._buffer.update_priorities(np.array(handles, np.int64), td_errors)

    def arrays(self) -> Mapping[str, Any]:
        """Copies of what is stored: a draw is compared with what was there before it."""
        return {name: self._buffer.column(name) for name in ("obs", "action", "reward", "terminated", "truncated")}

    def choose(self, masses: Float64, n: int) -> Any:
        """Draw steps of a buffer in which they have these priorities."""
        buffer = weighed(masses)
        return np.concatenate([buffer.sample(BATCH).ids for _ in range(n // BATCH)])


class ByHand(Recorded):
    """The same buffer in a loop that adds every call, as if every autoreset mode were the same."""

    def _collect(
        self, make_env: Any, num_envs: int, calls: int, mode: AutoresetMode, reset_at: Collection[int]
    ) -> None:
        for call in calls_of(make_env, num_envs, calls, mode, reset_at):
            step = call._asdict()
            del step["reset"]  # the loop says nothing of it
            self._buffer.add(**step)


def weighed(masses: Float64, make: Any = relive.ReplayBuffer, given: Any = np.asarray) -> Any:
    """Build a buffer of steps of which each has its position as its id and its share of the mass as its priority.

    Args:
        masses: One number for each step.
        make: The class of the buffer.
        given: Turns arrays into what the buffer takes.
    """
    lanes = 1024
    # A device buffer takes priorities above 2**18 for equal.
    shares = np.pad(masses, (0, -len(masses) % lanes)) * (2**18 / masses.max())
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    sampler = relive.Prioritized(alpha=1.0, eps=0.0)
    buffer = make(schema, len(shares), num_envs=lanes, sampler=sampler, seed=0)
    obs, never = given(np.zeros(lanes, np.float32)), given(np.zeros(lanes, bool))
    for priority in shares.reshape(-1, lanes):
        step = {"obs": obs, "action": obs, "reward": obs, "next_obs": obs, "priority": given(priority)}
        buffer.add(**step, terminated=never, truncated=never)
    return buffer


def columns(batch: Any) -> Item:
    """The items of a batch of relive's."""
    return Item(batch.obs, batch.reward, batch.discount, batch.next_obs, batch.ids, batch.weights)
