"""Tianshou's own buffers, judged through its own n-step code."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base.extras import needs

from .._pipeline import Item
from ._loops import calls_of


class TianshouLoop:
    """`PrioritizedVectorReplayBuffer` in a loop over a Gymnasium vector environment."""

    def __init__(self) -> None:
        with needs("tianshou", "relive.doctor"):
            import tianshou.data
            from tianshou.algorithm.algorithm_base import Algorithm
        self._data, self._returns = tianshou.data, Algorithm.compute_nstep_return
        self._kinds: Any = tianshou.data  # where its buffers' classes are
        self._buffer: Any = None
        self._capacity: int | None = None
        self._n_step, self._gamma = 1, 0.0

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
        self._n_step, self._gamma = n_step, gamma
        if self._buffer is None or capacity is None or capacity != self._capacity:
            kind = self._kinds.PrioritizedVectorReplayBuffer
            self._buffer = kind(capacity or 2 * num_envs * calls, num_envs, alpha=1.0, beta=0.4)
        self._capacity = capacity
        for call in calls_of(make_env, num_envs, calls, autoreset_mode, reset_at):
            fields = {"obs": call.obs, "act": call.action, "rew": call.reward, "obs_next": call.next_obs}
            flags = {"terminated": call.terminated, "truncated": call.truncated}
            step = self._data.Batch(**fields, **flags, done=call.terminated | call.truncated, info={})
            self._buffer.add(step, buffer_ids=np.arange(num_envs))

    def items(self) -> Iterable[Item]:
        """Every item."""
        return self._items(self._buffer.sample_indices(0))

    def sample(self, n: int) -> list[Item]:
        """Draw items; a handle is a slot."""
        batch, at = self._buffer.sample(n)
        # One-step targets, which are all that table C needs; `items` judges its n-step code.
        columns = (batch.obs, batch.rew, self._gamma * ~batch.terminated, batch.obs_next, at.tolist(), batch.weight)
        return [Item(*values) for values in zip(*columns, strict=True)]

    def update(self, handles: list[int], td_errors: Any) -> None:
        """Update priorities."""
        self._buffer.update_weight(np.array(handles), td_errors)

    def _items(self, at: Any) -> list[Item]:
        import torch

        buffer, last = self._buffer, at

        def constant(value: float) -> Any:
            def target(_: Any, after: Any) -> Any:
                nonlocal last
                last = after
                return torch.full((len(after), 1), value, dtype=torch.float64)

            return target

        # Of a target that is linear in V, its values at V = 0 and V = 1 tell reward and discount.
        batch = buffer[at]
        zero, one = (
            self._returns(batch, buffer, at, constant(value), self._gamma, self._n_step).returns.numpy().reshape(-1)
            for value in (0.0, 1.0)
        )
        return [Item(*row) for row in zip(batch.obs, zero.copy(), one - zero, buffer[last].obs_next, strict=True)]


class CollectorLoop(TianshouLoop):
    """Its own path: a `Collector`; the library resets by itself, so there is one mode. No priorities."""

    modes = (AutoresetMode.DISABLED,)
    ignore_obs_next = False
    sample = update = None  # type: ignore[assignment]

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
        """Let a `Collector` fill a new buffer; `reset_at` calls its `reset_env`."""
        from tianshou.algorithm.random import MARLRandomDiscreteMaskedOffPolicyAlgorithm as Random
        from tianshou.env import DummyVectorEnv

        self._n_step, self._gamma = n_step, gamma
        space = make_env().action_space
        choices = {"ignore_obs_next": True} if self.ignore_obs_next else {}
        self._buffer = self._kinds.VectorReplayBuffer(capacity or 2 * num_envs * calls, num_envs, **choices)
        collector = self._data.Collector(
            Random(action_space=space), DummyVectorEnv([make_env] * num_envs), self._buffer
        )
        collector.reset()
        for begin, end in pairwise([0, *sorted(reset_at), calls]):
            if begin:
                collector.reset_env()
            collector.collect(n_step=(end - begin) * num_envs, random=True)


class IgnoreObsNext(CollectorLoop):
    """The same with `ignore_obs_next=True`."""

    ignore_obs_next = True
