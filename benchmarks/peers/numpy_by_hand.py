"""Not a library: preallocated arrays and `take`, what a careful user writes without any package. No priorities.

`numpy` returns batches that the caller owns, as every library does; `numpy-out` writes each batch over the one before,
which spares fresh memory and leaves the caller to see that nobody still reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.workload import ACTION_SIZE, OBS_SIZE, Array, Step, blocks


class NumpyByHand(Peer):
    name = package = module = "numpy"
    object_ = "ndarray"
    prioritized = False
    obs_size = OBS_SIZE

    def make(self, spec: Spec) -> None:
        if spec.n_step > 1:
            raise Unsupported("no n-step returns")
        n = self.capacity = spec.capacity
        self.position = self.size = 0
        self.rng = np.random.default_rng(0)
        self.obs: Array = np.zeros((n, self.obs_size), np.float32)
        self.action: Array = np.zeros((n, ACTION_SIZE), np.float32)
        self.reward: Array = np.zeros(n, np.float32)
        self.next_obs: Array = np.zeros((n, self.obs_size), np.float32)
        self.terminated: Array = np.zeros(n, bool)
        self.truncated: Array = np.zeros(n, bool)
        self.columns = [self.obs, self.action, self.reward, self.next_obs, self.terminated, self.truncated]

    def drop(self) -> None:
        super().drop()
        self.obs = self.action = self.reward = self.next_obs = self.terminated = self.truncated = np.zeros(0)
        self.columns = []

    def fill(self, count: int) -> None:
        for block in blocks(count, obs_size=self.obs_size):
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


class NumpyReusedOutputs(NumpyByHand):
    name = "numpy-out"

    def make(self, spec: Spec) -> None:
        super().make(spec)
        self.outputs: dict[int, list[Array]] = {}

    def drop(self) -> None:
        super().drop()
        self.outputs = {}

    def _draw(self, n: int) -> list[Array]:
        if n not in self.outputs:
            self.outputs[n] = [np.empty((n, *column.shape[1:]), column.dtype) for column in self.columns]
        index = self.rng.integers(0, self.size, n)
        for column, values in zip(self.columns, self.outputs[n], strict=True):
            column.take(index, axis=0, out=values, mode="clip")  # "clip": the default would buffer what it writes
        return self.outputs[n]
