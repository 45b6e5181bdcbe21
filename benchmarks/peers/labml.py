"""labml-nn's annotated prioritized replay: plain Python lists as trees, the seed of many hand-written buffers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.workload import ACTION_SIZE, ALPHA, BETA, OBS_SIZE, Step, blocks


class Labml(Peer):
    name = "labml"
    package = "labml-nn"
    module = "labml_nn.rl.dqn.replay_buffer"
    object_ = "ReplayBuffer"

    def make(self, spec: Spec) -> None:
        if not spec.prioritized or spec.n_step > 1:
            raise Unsupported("prioritized one-step replay only")
        n = 1 << (spec.capacity - 1).bit_length()  # its trees want a power of two
        buffer = self.buffer = self.lib.ReplayBuffer(2, ALPHA)
        # The class reserves Atari frames; the same trees over this workload's fields instead.
        buffer.capacity = n
        buffer.priority_sum = [0.0] * (2 * n)
        buffer.priority_min = [float("inf")] * (2 * n)
        buffer.data = {
            "obs": np.zeros((n, OBS_SIZE), np.float32),
            "action": np.zeros((n, ACTION_SIZE), np.float32),
            "reward": np.zeros(n, np.float32),
            "next_obs": np.zeros((n, OBS_SIZE), np.float32),
            "done": np.zeros(n, bool),
        }

    def fill(self, count: int) -> None:
        for block in blocks(count):
            self.add([Step(*row) for row in zip(*block, strict=True)])

    def add(self, steps: Iterable[Step]) -> None:
        buffer = self.buffer
        for obs, action, reward, next_obs, terminated, _ in steps:
            buffer.add(obs, action, reward, next_obs, terminated)

    def add_lanes(self, steps: Iterable[Step]) -> None:
        for rows in steps:
            self.add([Step(*row) for row in zip(*rows, strict=True)])

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self.buffer.sample(n, BETA)

    def draw(self, n: int) -> Any:
        return self.buffer.sample(n, BETA)

    def update(self, drawn: Any, error: Any) -> None:
        self.buffer.update_priorities(drawn["indexes"], error)
