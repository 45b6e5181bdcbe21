"""rlox: rings and a sum tree in Rust; a draw copies row by row into new arrays."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.workload import ALPHA, BETA, Array, Step, blocks


class Rlox(Peer):
    name = package = module = "rlox"
    object_ = "PrioritizedReplayBuffer"

    def make(self, spec: Spec) -> None:
        if spec.n_step > 1 or spec.num_envs > 1:
            raise Unsupported("single steps of one environment only")
        self.seeds = count()  # it takes a seed with each draw
        if spec.prioritized:
            self.buffer = self.lib.PrioritizedReplayBuffer(spec.capacity, *self.sizes, ALPHA, BETA)
        else:
            self.buffer = self.lib.ReplayBuffer(spec.capacity, *self.sizes)

    def fill(self, count: int) -> None:
        for block in blocks(count, *self.sizes):
            if hasattr(self.buffer, "push_batch"):
                rows = (np.ravel(column) for column in (block.obs, block.next_obs, block.action, block.reward))
                self.buffer.push_batch(*rows, np.uint8(block.terminated), np.uint8(block.truncated))
            else:
                self.add([Step(*row) for row in zip(*block, strict=True)])

    def add(self, steps: Iterable[Step]) -> None:
        push = self.buffer.push
        for obs, action, reward, next_obs, terminated, truncated in steps:
            push(obs, action, reward, terminated, truncated, next_obs)

    def add_without_next(self, steps: Iterable[Step]) -> None:
        push = self.buffer.push
        for obs, action, reward, _, terminated, truncated in steps:
            push(obs, action, reward, terminated, truncated)

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self.buffer.sample(n, next(self.seeds))

    def sample_torch(self, n: int, calls: int) -> None:
        import torch

        for _ in range(calls):
            {name: torch.from_numpy(values) for name, values in self.buffer.sample(n, next(self.seeds)).items()}

    def draw(self, n: int) -> Any:
        return self.buffer.sample(n, next(self.seeds))

    def update(self, drawn: Any, error: Any) -> None:
        self.buffer.update_priorities(drawn["indices"], error)

    def prepare_errors(self, errors: list[Array]) -> list[Any]:
        return [np.float64(error) for error in errors]  # it takes no other dtype
