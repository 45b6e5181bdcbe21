"""Tianshou: NumPy containers with a segment tree compiled by Numba."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.workload import ALPHA, BETA, GAMMA, Step, blocks


class Tianshou(Peer):
    name = package = "tianshou"
    module = "tianshou.data"
    object_ = "PrioritizedReplayBuffer"

    def make(self, spec: Spec) -> None:
        kind = ("Prioritized" if spec.prioritized else "") + ("Vector" if spec.num_envs > 1 else "") + "ReplayBuffer"
        sizes = (spec.capacity, spec.num_envs) if spec.num_envs > 1 else (spec.capacity,)
        options = {"alpha": ALPHA, "beta": BETA} if spec.prioritized else {}
        self.buffer = getattr(self.lib, kind)(*sizes, **options)
        self.n_step = spec.n_step
        if spec.n_step > 1:
            self.algorithm: Any = importlib.import_module("tianshou.algorithm.algorithm_base").Algorithm

    def fill(self, count: int) -> None:
        # Step by step would take minutes: one step allocates the storage, then it is written column by column.
        first = Step(*(column[0] for column in next(blocks(1))))
        self.add([first])
        buffer, start = self.buffer, 0
        if buffer.maxsize != count:
            raise Unsupported("is filled whole or not at all")
        store = buffer._meta
        for block in blocks(count):
            rows = slice(start, start + len(block.reward))
            store.obs[rows], store.act[rows], store.rew[rows] = block.obs, block.action, block.reward
            store.obs_next[rows] = block.next_obs
            store.terminated[rows], store.truncated[rows] = block.terminated, block.truncated
            store.done[rows] = block.terminated | block.truncated
            start = rows.stop
        buffer._size, buffer._insertion_idx, buffer.last_index[0] = count, 0, count - 1
        if hasattr(buffer, "init_weight"):
            buffer.init_weight(np.arange(count))

    def add(self, steps: Iterable[Step]) -> None:
        buffer, batch = self.buffer, self.lib.Batch
        for obs, action, reward, next_obs, terminated, truncated in steps:
            buffer.add(
                batch(
                    obs=obs,
                    act=action,
                    rew=reward,
                    obs_next=next_obs,
                    terminated=terminated,
                    truncated=truncated,
                    info={},
                )
            )

    add_lanes = add

    def _draw(self, n: int) -> Any:
        batch, index = self.buffer.sample(n)
        if self.n_step > 1:
            import torch

            # The library folds n steps where the learner needs its targets; a network of no cost stands in here.
            self.algorithm.compute_nstep_return(
                batch, self.buffer, index, lambda _, i: torch.zeros(len(i), 1), GAMMA, self.n_step
            )
        return batch

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self._draw(n)

    def sample_torch(self, n: int, calls: int) -> None:
        import torch

        for _ in range(calls):
            batch = self._draw(n)
            [torch.from_numpy(batch[k]) for k in ("obs", "act", "rew", "obs_next", "terminated", "truncated")]

    def draw(self, n: int) -> Any:
        return self.buffer.sample(n)

    def update(self, drawn: Any, error: Any) -> None:
        self.buffer.update_weight(drawn[1], error)
