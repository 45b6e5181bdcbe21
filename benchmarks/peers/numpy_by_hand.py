"""Not a library: preallocated arrays and `take`, what a careful user writes without any package. No priorities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.workload import Array, Step, blocks


class NumpyByHand(Peer):
    name = package = module = "numpy"
    object_ = "ndarray"
    prioritized = False

    def make(self, spec: Spec) -> None:
        if spec.n_step > 1:
            raise Unsupported("no n-step returns")
        n = self.capacity = spec.capacity
        self.position = self.size = 0
        self.rng = np.random.default_rng(0)
        self.obs: Array = np.zeros((n, spec.obs_size), np.float32)
        self.action: Array = np.zeros((n, spec.action_size), np.float32)
        self.reward: Array = np.zeros(n, np.float32)
        self.next_obs: Array = np.zeros((n, spec.obs_size), np.float32)
        self.terminated: Array = np.zeros(n, bool)
        self.truncated: Array = np.zeros(n, bool)
        self.columns = [self.obs, self.action, self.reward, self.next_obs, self.terminated, self.truncated]

    def drop(self) -> None:
        super().drop()
        self.obs = self.action = self.reward = self.next_obs = self.terminated = self.truncated = np.zeros(0)
        self.columns = []

    def fill(self, count: int) -> None:
        for block in blocks(count, *self.sizes):
            self._add_rows(block)

    def _add_rows(self, rows: Step) -> None:
        self._write(rows)

    def _write(self, rows: Sequence[Array]) -> None:
        count = len(rows[0])
        start, until_end = self.position, self.capacity - self.position
        for column, values in zip(self.columns, rows, strict=True):
            if count <= until_end:
                column[start : start + count] = values
            else:
                column[start:] = values[:until_end]
                column[: count - until_end] = values[until_end:]
        self.position = (start + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def add(self, steps: Iterable[Step]) -> None:
        for obs, action, reward, next_obs, terminated, truncated in steps:
            i = self.position
            self.obs[i] = obs
            self.action[i] = action
            self.reward[i] = reward
            self.next_obs[i] = next_obs
            self.terminated[i] = terminated
            self.truncated[i] = truncated
            self.position = (i + 1) % self.capacity
            self.size = min(self.size + 1, self.capacity)

    def add_lanes(self, steps: Iterable[Step]) -> None:
        for rows in steps:
            self._add_rows(rows)

    def _draw(self, n: int) -> list[Array]:
        index = self.rng.integers(0, self.size, n)
        return [column.take(index, axis=0) for column in self.columns]

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self._draw(n)

    def sample_torch(self, n: int, calls: int) -> None:
        import torch

        for _ in range(calls):
            [torch.from_numpy(values) for values in self._draw(n)]
