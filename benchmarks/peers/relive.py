"""relive, through its public API only, each call written as a user would write it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.peers.base import Peer, Spec
from benchmarks.workload import ALPHA, BETA, GAMMA, Step, blocks


class Relive(Peer):
    name = package = module = "relive"
    object_ = "ReplayBuffer"

    def make(self, spec: Spec) -> None:
        relive = self.lib
        schema = relive.Schema(obs=relive.Field((spec.obs_size,)), action=relive.Field((spec.action_size,)))
        self.buffer = relive.ReplayBuffer(
            schema,
            capacity=spec.capacity,
            num_envs=spec.num_envs,
            item=self.item(spec),
            sampler=self.sampler(spec),
            storage=self.storage(),
            seed=0,
        )

    def item(self, spec: Spec) -> Any:
        return self.lib.Transitions(n_step=spec.n_step, gamma=GAMMA)

    def storage(self) -> Any:
        return self.lib.Ram()

    def sampler(self, spec: Spec) -> Any:
        relive, settings = self.lib, {"replacement": not spec.sampler.endswith("-distinct")}
        if spec.prioritized:
            return relive.Prioritized(alpha=ALPHA, beta=BETA, **settings)
        return relive.Uniform(over="episodes" if spec.sampler == "episodes" else "steps", **settings)

    def fill(self, count: int) -> None:
        for block in blocks(count, *self.sizes):
            self.buffer.extend(**{name: column[None] for name, column in block._asdict().items()})

    def add(self, steps: Iterable[Step]) -> None:
        buffer = self.buffer
        for obs, action, reward, next_obs, terminated, truncated in steps:
            buffer.add(
                obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated
            )

    add_lanes = add

    def add_without_next(self, steps: Iterable[Step]) -> None:
        buffer = self.buffer
        for obs, action, reward, _, terminated, truncated in steps:
            buffer.add(obs=obs, action=action, reward=reward, terminated=terminated, truncated=truncated)

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
