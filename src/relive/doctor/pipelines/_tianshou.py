"""Tianshou's own buffers, judged through its own n-step code."""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base.extras import needs

from .._pipeline import Item
from .._world import Counter
from ._loops import Run, Runner, calls_of


class TianshouLoop(Runner):
    """`PrioritizedVectorReplayBuffer` in a loop over a Gymnasium vector environment."""

    kinds = "tianshou.data"  # where its buffers' classes are

    def __init__(self) -> None:
        super().__init__()
        with needs("tianshou", "relive.doctor"):
            import tianshou.data
            from tianshou.algorithm.algorithm_base import Algorithm
        self._data, self._returns = tianshou.data, Algorithm.compute_nstep_return
        self._kinds = importlib.import_module(self.kinds)

    def _made(self, run: Run) -> Any:
        return self._kinds.PrioritizedVectorReplayBuffer(run.size, run.num_envs, alpha=1.0, beta=0.4)

    def _fill(self, run: Run) -> None:
        for call in calls_of(run):
            fields = {"obs": call.obs, "act": call.action, "rew": call.reward, "obs_next": call.next_obs}
            flags = {"terminated": call.terminated, "truncated": call.truncated}
            step = self._data.Batch(**fields, **flags, done=call.terminated | call.truncated, info={})
            self._buffer.add(step, buffer_ids=np.arange(run.num_envs))

    def items(self) -> Item:
        """Return every item."""
        return self._items(self._buffer.sample_indices(0))

    def sample(self, n: int) -> Item:
        """Draw items; a handle is a slot."""
        batch, at = self._buffer.sample(n)
        # One-step targets, which are all that table C needs; `items` judges its n-step code.
        return Item(batch.obs, batch.rew, self._gamma * ~batch.terminated, batch.obs_next, at, batch.weight)

    def update(self, handles: list[int], td_errors: Any) -> None:
        """Update priorities."""
        self._buffer.update_weight(np.array(handles), td_errors)

    def _items(self, at: Any) -> Item:
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
        return Item(batch.obs, zero.copy(), one - zero, buffer[last].obs_next)


class CollectorLoop(TianshouLoop):
    """Its own path: a `Collector`; the library resets by itself, so there is one mode. No priorities."""

    modes = (AutoresetMode.DISABLED,)
    ignore_obs_next = False
    sample = update = None  # type: ignore[assignment]

    def _made(self, run: Run) -> Any:
        choices = {"ignore_obs_next": True} if self.ignore_obs_next else {}
        return self._kinds.VectorReplayBuffer(run.size, run.num_envs, **choices)

    def _fill(self, run: Run) -> None:
        """Let a `Collector` fill the buffer; `reset_at` calls its `reset_env`."""
        from tianshou.algorithm.random import MARLRandomDiscreteMaskedOffPolicyAlgorithm as Random
        from tianshou.env import DummyVectorEnv

        envs = DummyVectorEnv([run.make_env] * run.num_envs)
        collector = self._data.Collector(Random(action_space=Counter.action_space), envs, self._buffer)
        collector.reset()
        for begin, end in pairwise([0, *sorted(run.reset_at), run.calls]):
            if begin:
                collector.reset_env()
            collector.collect(n_step=(end - begin) * run.num_envs, random=True)


class IgnoreObsNext(CollectorLoop):
    """The same with `ignore_obs_next=True`."""

    ignore_obs_next = True
