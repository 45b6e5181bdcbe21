"""Not a library: preallocated arrays and `take`, what a careful user writes without any package. No priorities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.workload import ACTION_SIZE, OBS_SIZE, Array, Step, blocks


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
        self.obs = np.zeros((n, OBS_SIZE), np.float32)
        self.action = np.zeros((n, ACTION_SIZE), np.float32)
        self.reward = np.zeros(n, np.float32)
        self.next_obs = np.zeros((n, OBS_SIZE), np.float32)
        self.terminated = np.zeros(n, bool)
        self.truncated = np.zeros(n, bool)
        self.columns = (self.obs, self.action, self.reward, self.next_obs, self.terminated, self.truncated)
        self.outputs: dict[int, tuple[Array, ...]] = {}

    def drop(self) -> None:
        super().drop()
        self.obs = self.action = self.reward = self.next_obs = self.terminated = self.truncated = np.zeros(0)
        self.columns, self.outputs = (), {}

    def fill(self, count: int) -> None:
        for block in blocks(count):
            self._add_rows(block)

    def _add_rows(self, rows: Step) -> None:
        count = len(rows.reward)
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

    def _draw(self, n: int) -> tuple[Array, ...]:
        # `out=` with mode="clip" is take's quickest form: no fresh pages, no buffered copy for the bounds check.
        if n not in self.outputs:
            self.outputs[n] = tuple(np.empty((n, *c.shape[1:]), c.dtype) for c in self.columns)
        out = self.outputs[n]
        index = self.rng.integers(0, self.size, n)
        for column, values in zip(self.columns, out, strict=True):
            column.take(index, axis=0, out=values, mode="clip")
        return out

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self._draw(n)

    def sample_torch(self, n: int, calls: int) -> None:
        import torch

        as_tensor: Any = torch.from_numpy
        for _ in range(calls):
            [as_tensor(values) for values in self._draw(n)]
