"""cpprb: ring and segment trees in C++ behind Cython."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Spec
from benchmarks.workload import ALPHA, BETA, GAMMA, Step, blocks


class Cpprb(Peer):
    name = package = module = "cpprb"
    object_ = "PrioritizedReplayBuffer"

    def make(self, spec: Spec) -> None:
        fields = {
            "obs": {"shape": spec.obs_size},
            "act": {"shape": spec.action_size},
            "rew": {},
            "next_obs": {"shape": spec.obs_size},
            "done": {"dtype": np.bool_},
            "truncated": {"dtype": np.bool_},
        }
        options = {}
        if spec.n_step > 1:
            options["Nstep"] = {"size": spec.n_step, "gamma": GAMMA, "rew": "rew", "next": "next_obs"}
        self.beta = {"beta": BETA} if spec.prioritized else {}
        if spec.prioritized:
            self.buffer = self.lib.PrioritizedReplayBuffer(spec.capacity, fields, alpha=ALPHA, **options)
        else:
            self.buffer = self.lib.ReplayBuffer(spec.capacity, fields, **options)

    def fill(self, count: int) -> None:
        for block in blocks(count, *self.sizes):
            self.add_lanes([block])

    def add(self, steps: Iterable[Step]) -> None:
        buffer = self.buffer
        for obs, action, reward, next_obs, terminated, truncated in steps:
            buffer.add(obs=obs, act=action, rew=reward, next_obs=next_obs, done=terminated, truncated=truncated)
            if terminated or truncated:
                buffer.on_episode_end()

    def add_lanes(self, steps: Iterable[Step]) -> None:
        buffer = self.buffer
        for obs, action, reward, next_obs, terminated, truncated in steps:
            buffer.add(obs=obs, act=action, rew=reward, next_obs=next_obs, done=terminated, truncated=truncated)

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self.buffer.sample(n, **self.beta)

    def sample_torch(self, n: int, calls: int) -> None:
        import torch

        for _ in range(calls):
            batch = self.buffer.sample(n, **self.beta)
            {name: torch.from_numpy(values) for name, values in batch.items()}

    def draw(self, n: int) -> Any:
        return self.buffer.sample(n, beta=BETA)

    def update(self, drawn: Any, error: Any) -> None:
        self.buffer.update_priorities(drawn["indexes"], error)
