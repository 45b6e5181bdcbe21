"""relive, through its public API only, each call written as a user would write it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.peers.base import Peer, Spec
from benchmarks.workload import ACTION_SIZE, ALPHA, BETA, GAMMA, OBS_SIZE, Step, blocks


class Relive(Peer):
    name = package = module = "relive"
    object_ = "ReplayBuffer"
    obs_size = OBS_SIZE

    def make(self, spec: Spec) -> None:
        relive = self.lib
        schema = relive.Schema(
            obs=relive.Field((self.obs_size,), "float32"), action=relive.Field((ACTION_SIZE,), "float32")
        )
        self.buffer = relive.ReplayBuffer(
            schema,
            capacity=spec.capacity,
            num_envs=spec.num_envs,
            item=self.item(spec),
            sampler=self.sampler(spec),
            seed=0,
        )

    def item(self, spec: Spec) -> Any:
        return self.lib.Transitions(n_step=spec.n_step, gamma=GAMMA)

    def sampler(self, spec: Spec) -> Any:
        relive, settings = self.lib, {"replacement": not spec.sampler.endswith("-distinct")}
        if spec.prioritized:
            return relive.Prioritized(alpha=ALPHA, beta=BETA, **settings)
        return relive.Uniform(over="episodes" if spec.sampler == "episodes" else "steps", **settings)

    def fill(self, count: int) -> None:
        for block in blocks(count, obs_size=self.obs_size):
            self.buffer.extend(**{name: column[None] for name, column in block._asdict().items()})

    def add(self, steps: Iterable[Step]) -> None:
        buffer = self.buffer
        for obs, action, reward, next_obs, terminated, truncated in steps:
            buffer.add(
                obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated
            )

    add_lanes = add

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self.buffer.sample(n)

    def sample_torch(self, n: int, calls: int) -> None:
        for _ in range(calls):
            tuple(self.buffer.sample(n).torch().values())

    def draw(self, n: int) -> Any:
        return self.buffer.sample(n)

    def update(self, drawn: Any, error: Any) -> None:
        self.buffer.update_priorities(drawn.ids, error)
