"""Stable-Baselines3: NumPy storage, PyTorch tensors out, uniform draws only."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.workload import ACTION_SIZE, GAMMA, OBS_SIZE, Step, blocks


class StableBaselines3(Peer):
    name = "sb3"
    package = "stable-baselines3"
    module = "stable_baselines3.common.buffers"
    object_ = "ReplayBuffer"
    prioritized = False
    output = "torch"

    def make(self, spec: Spec) -> None:
        from gymnasium import spaces

        observation = spaces.Box(-np.inf, np.inf, (OBS_SIZE,), np.float32)
        action = spaces.Box(-1, 1, (ACTION_SIZE,), np.float32)
        options = {"n_steps": spec.n_step, "gamma": GAMMA} if spec.n_step > 1 else {}
        kind = self.lib.NStepReplayBuffer if spec.n_step > 1 else self.lib.ReplayBuffer
        self.buffer = kind(spec.capacity, observation, action, device="cpu", n_envs=spec.num_envs, **options)

    def fill(self, count: int) -> None:
        # Its own `add` takes one step a call: the storage is written column by column instead.
        buffer, start = self.buffer, 0
        if buffer.buffer_size != count:
            raise Unsupported("is filled whole or not at all")
        for block in blocks(count):
            rows = slice(start, start + len(block.reward))
            buffer.observations[rows, 0], buffer.next_observations[rows, 0] = block.obs, block.next_obs
            buffer.actions[rows, 0], buffer.rewards[rows, 0] = block.action, block.reward
            buffer.dones[rows, 0] = block.terminated | block.truncated
            buffer.timeouts[rows, 0] = block.truncated
            start = rows.stop
        buffer.full, buffer.pos = True, 0

    def add(self, steps: Iterable[Step]) -> None:
        buffer, time_limit, other = self.buffer, {"TimeLimit.truncated": True}, dict[str, bool]()
        for obs, action, reward, next_obs, terminated, truncated in steps:
            buffer.add(
                obs[None],
                next_obs[None],
                action[None],
                np.array([reward]),
                np.array([terminated or truncated]),
                [time_limit if truncated else other],
            )

    def add_lanes(self, steps: Iterable[Step]) -> None:
        buffer = self.buffer
        none: list[dict[str, bool]] = [{}] * buffer.n_envs
        for obs, action, reward, next_obs, terminated, truncated in steps:
            infos = none
            if truncated.any():
                infos = none.copy()
                for i in truncated.nonzero()[0]:
                    infos[i] = {"TimeLimit.truncated": True}
            buffer.add(obs, next_obs, action, reward, terminated | truncated, infos)

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self.buffer.sample(n)

    sample_torch = sample
