"""Stacks of four frames, of which each library keeps one frame a step where it can."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import cycle, islice

import numpy as np

from benchmarks.peers.base import Peer, Spec
from benchmarks.peers.cpprb import Cpprb
from benchmarks.peers.relive import Relive
from benchmarks.peers.sb3 import StableBaselines3
from benchmarks.peers.tianshou import Tianshou
from benchmarks.workload import ALPHA, BETA, FRAME, STACK, Array, Step, frame_steps


class AddedOneByOne(Peer):
    """Every library fills its own storage: what it knows about stacks goes into that, and it is quick enough."""

    def fill(self, count: int) -> None:
        self.add(islice(cycle(self.prepare_steps(frame_steps())), count))


class ReliveFrames(AddedOneByOne, Relive):
    def make(self, spec: Spec) -> None:
        relive = self.lib
        schema = relive.Schema(
            obs=relive.Field(FRAME, "uint8", stack=STACK, pad="first"), action=relive.Field((), "int64")
        )
        self.buffer = relive.ReplayBuffer(
            schema, capacity=spec.capacity, sampler=relive.Prioritized(alpha=ALPHA, beta=BETA), seed=0
        )


def on_huge_pages(count: int) -> Array:
    """Return frames whose memory NumPy has asked the system to back by huge pages, which it does not for `zeros`."""
    frames = np.empty((count, *FRAME), np.uint8)
    frames.fill(0)
    return frames


class CopyLimit(AddedOneByOne):
    """No library: the bytes of a batch out of a store of single frames, at known rows, into memory that is reused.

    Both stacks of an item are copied side by side, so that three of the second one's frames come from the caches.
    """

    name = package = module = "numpy"
    object_ = "ndarray"
    prioritized = False

    def version(self) -> str:
        return ""  # a property of the machine

    def make(self, spec: Spec) -> None:
        self.capacity, self.position = spec.capacity, 0
        self.frames: Array = on_huge_pages(spec.capacity)
        self.batches: dict[int, tuple[list[Array], Array]] = {}
        self.turn = 0

    def drop(self) -> None:
        super().drop()
        self.frames, self.batches = np.zeros(0), {}

    def add(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.frames[self.position] = step.obs[-1]
            self.position = (self.position + 1) % self.capacity

    def sample(self, n: int, calls: int) -> None:
        if n not in self.batches:
            rng = np.random.default_rng(0)
            both = np.concatenate([np.arange(STACK), 1 + np.arange(STACK)])
            starts = rng.integers(0, self.capacity - STACK, (64, n, 1))
            self.batches[n] = list((starts + both).reshape(64, -1)), on_huge_pages(n * 2 * STACK)
        rows, out = self.batches[n]
        for _ in range(calls):
            self.turn = (self.turn + 1) % 64
            self.frames.take(rows[self.turn], axis=0, out=out, mode="clip")  # the default mode would buffer its writes


@cache
def channels_last() -> list[Step]:
    """Return the same steps with stacks `[84, 84, 4]` in new memory, and `next_obs` that of the following `obs`."""
    steps = []
    stack = None
    for step in frame_steps():
        obs = np.ascontiguousarray(step.obs.transpose(1, 2, 0)) if stack is None else stack
        stack = np.ascontiguousarray(step.next_obs.transpose(1, 2, 0))
        steps.append(step._replace(obs=obs, next_obs=stack))
        if step.terminated or step.truncated:
            stack = None
    return steps


class CpprbFrames(AddedOneByOne, Cpprb):
    """`stack_compress` wants the frames of a stack last; environments made for it give them so."""

    def make(self, spec: Spec) -> None:
        fields = {
            "obs": {"shape": (*FRAME, STACK), "dtype": np.uint8},
            "act": {"dtype": np.int64},
            "rew": {},
            "done": {"dtype": np.bool_},
            "truncated": {"dtype": np.bool_},
        }
        self.beta = {"beta": BETA}
        self.buffer = self.lib.PrioritizedReplayBuffer(
            spec.capacity, fields, alpha=ALPHA, next_of="obs", stack_compress="obs"
        )

    def prepare_steps(self, steps: Sequence[Step]) -> Sequence[Step]:
        return channels_last()


class TianshouFrames(AddedOneByOne, Tianshou):
    def make(self, spec: Spec) -> None:
        self.n_step = 1
        self.buffer = self.lib.PrioritizedReplayBuffer(
            spec.capacity,
            alpha=ALPHA,
            beta=BETA,
            stack_num=STACK,
            ignore_obs_next=True,
            save_only_last_obs=True,
        )


class StableBaselines3Frames(AddedOneByOne, StableBaselines3):
    """It keeps whole stacks, but `next_obs` as the following `obs`; no priorities."""

    def make(self, spec: Spec) -> None:
        from gymnasium import spaces

        self.buffer = self.lib.ReplayBuffer(
            spec.capacity,
            spaces.Box(0, 255, (STACK, *FRAME), np.uint8),
            spaces.Discrete(6),
            device="cpu",
            optimize_memory_usage=True,
            handle_timeout_termination=False,
        )

    def add(self, steps: Iterable[Step]) -> None:
        buffer, other = self.buffer, dict[str, bool]()
        for obs, action, reward, next_obs, terminated, truncated in steps:
            buffer.add(
                obs[None],
                next_obs[None],
                np.array([action]),
                np.array([reward]),
                np.array([terminated or truncated]),
                [other],
            )
