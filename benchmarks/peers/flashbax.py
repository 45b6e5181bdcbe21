"""Flashbax: everything compiled by XLA; the state is donated, so that it is written in place."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.workload import ALPHA, BETA, Array, Step, blocks

FILL = 32_768  # steps a call while filling; one shape, so one compilation


class Flashbax(Peer):
    """The flat buffer: it keeps each observation once and reads pairs of consecutive steps."""

    name = package = module = "flashbax"
    object_ = "make_prioritised_flat_buffer"
    output = "jax"

    def __init__(self) -> None:
        super().__init__()
        self.jax: Any = importlib.import_module("jax")

    def make(self, spec: Spec) -> None:
        if spec.n_step > 1:
            raise Unsupported("no n-step returns")
        jax = self.jax
        self.spec_made = spec
        self.adder = self._library(1, add_sequences=False)
        example = {
            "obs": np.zeros(spec.obs_size, np.float32),
            "action": np.zeros(spec.action_size, np.float32),
            "reward": np.float32(0),
            "terminated": np.bool_(False),
            "truncated": np.bool_(False),
        }
        self.buffer = self.adder.init(jax.tree_util.tree_map(jax.numpy.asarray, example))
        self.jit_add = jax.jit(self.adder.add, donate_argnums=0)
        if spec.prioritized:
            self.jit_update = jax.jit(self.adder.set_priorities, donate_argnums=0)
        self.jit_sample: dict[int, Any] = {}
        self.keys = list(jax.random.split(jax.random.PRNGKey(0), 4096))
        self.key = 0

    def _library(self, batch: int, *, add_sequences: bool) -> Any:
        spec = self.spec_made
        options: dict[str, Any] = {"priority_exponent": ALPHA} if spec.prioritized else {}
        build = self.lib.make_prioritised_flat_buffer if spec.prioritized else self.lib.make_flat_buffer
        return build(
            max_length=spec.capacity,
            min_length=1,
            sample_batch_size=batch,
            add_sequences=add_sequences,
            add_batch_size=None if spec.num_envs == 1 else spec.num_envs,
            **options,
        )

    def fill(self, count: int) -> None:
        add = self.jax.jit(self._library(1, add_sequences=True).add, donate_argnums=0)
        size = min(FILL, count)
        for _ in range(-(-count // size)):
            block = next(blocks(size))
            self.buffer = add(self.buffer, {k: v for k, v in block._asdict().items() if k != "next_obs"})
        self._wait()

    def _wait(self) -> None:
        self.jax.block_until_ready(self.buffer)

    def add(self, steps: Iterable[Step]) -> None:
        state, add, f32, flag = self.buffer, self.jit_add, np.float32, np.bool_
        for obs, action, reward, _, terminated, truncated in steps:
            state = add(
                state,
                {
                    "obs": obs,
                    "action": action,
                    "reward": f32(reward),
                    "terminated": flag(terminated),
                    "truncated": flag(truncated),
                },
            )
        self.buffer = state
        self._wait()

    def add_lanes(self, steps: Iterable[Step]) -> None:
        state, add = self.buffer, self.jit_add
        for obs, action, reward, _, terminated, truncated in steps:
            state = add(
                state,
                {"obs": obs, "action": action, "reward": reward, "terminated": terminated, "truncated": truncated},
            )
        self.buffer = state
        self._wait()

    def _sampler(self, n: int) -> Any:
        if n not in self.jit_sample:
            library = self._library(n, add_sequences=False)

            def with_weights(state: Any, key: Any) -> Any:
                batch = library.sample(state, key)
                # The library gives probabilities; the weights, largest 1, belong to what a learner needs.
                return batch, (batch.probabilities / batch.probabilities.min()) ** -BETA

            self.jit_sample[n] = self.jax.jit(with_weights if self.spec_made.prioritized else library.sample)
        return self.jit_sample[n]

    def _draw(self, sampler: Any) -> Any:
        self.key = (self.key + 1) % 4096
        return self.jax.block_until_ready(sampler(self.buffer, self.keys[self.key]))

    def sample(self, n: int, calls: int) -> None:
        sampler = self._sampler(n)
        for _ in range(calls):
            self._draw(sampler)

    def sample_torch(self, n: int, calls: int) -> None:
        from_dlpack = importlib.import_module("torch").from_dlpack
        sampler = self._sampler(n)
        for _ in range(calls):
            leaves = self.jax.tree_util.tree_leaves(self._draw(sampler))
            [from_dlpack(leaf) for leaf in leaves]

    def prepare_errors(self, errors: list[Array]) -> list[Any]:
        return [self.jax.numpy.asarray(error) for error in errors]

    def draw(self, n: int) -> Any:
        return self._draw(self._sampler(n))

    def update(self, drawn: Any, error: Any) -> None:
        self.buffer = self.jit_update(self.buffer, drawn[0].indices, error)
        self._wait()
