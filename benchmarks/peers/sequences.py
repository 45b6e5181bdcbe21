"""Sequences of steps, drawn from a stream of them: each library in its own way of keeping these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.peers.base import Spec, Unsupported
from benchmarks.peers.cpprb import Cpprb
from benchmarks.peers.flashbax import FILL, Flashbax
from benchmarks.peers.numpy_by_hand import NumpyByHand
from benchmarks.peers.relive import Relive
from benchmarks.workload import ACTION_SIZE, ALPHA, BETA, SEQUENCE_OBS_SIZE, Array, Step, blocks


class ReliveSequences(Relive):
    def item(self, spec: Spec) -> Any:
        return self.lib.Sequences(spec.length, starts=spec.starts)

    def draw(self, n: int) -> Any:
        batch = self.buffer.sample(n)
        tuple(batch.values())  # masks, flags and discounts are worked out when they are read
        return batch

    def add_and_draw(self, n: int, steps: Iterable[Step]) -> None:
        buffer = self.buffer
        for obs, action, reward, next_obs, terminated, truncated in steps:
            buffer.add(
                obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated
            )
            self.draw(n)


class NumpySequences(NumpyByHand):
    """A ring without `next_obs`; a sequence starts anywhere and runs on behind an episode's end, as the flags tell."""

    def make(self, spec: Spec) -> None:
        super().make(spec)
        self.offsets = np.arange(spec.length)
        self.next_obs = np.zeros(0)
        self.columns = [self.obs, self.action, self.reward, self.terminated, self.truncated]

    def _add_rows(self, rows: Step) -> None:
        self._write([rows.obs, rows.action, rows.reward, rows.terminated, rows.truncated])

    def add_and_draw(self, n: int, steps: Iterable[Step]) -> None:
        length = len(self.offsets)
        for obs, action, reward, _, terminated, truncated in steps:
            i = self.position
            self.obs[i] = obs
            self.action[i] = action
            self.reward[i] = reward
            self.terminated[i] = terminated
            self.truncated[i] = truncated
            self.position = (i + 1) % self.capacity
            self.size = min(self.size + 1, self.capacity)
            oldest = self.position - self.size
            starts = oldest + self.rng.integers(0, self.size - length + 1, n)
            index = (starts[:, None] + self.offsets) % self.capacity
            [column.take(index, axis=0) for column in self.columns]


class CpprbSequences(Cpprb):
    """It knows no sequences: a stretch of the stream, cut by the caller at every `starts`-th step, is one item.

    Every step is stored `length / starts` times. To let a sequence start at any step would store it `length` times,
    so where that is asked only every `PERIOD`-th start can be drawn.
    """

    PERIOD = 40
    MOST = 1_000_000  # steps

    def make(self, spec: Spec) -> None:
        if spec.capacity > self.MOST:
            raise Unsupported("left out: it stores each step three times")
        self.length = length = spec.length
        self.period = spec.starts if spec.starts > 1 else self.PERIOD
        self.beta = {"beta": BETA} if spec.prioritized else {}
        fields = {
            "obs": {"shape": (length, SEQUENCE_OBS_SIZE)},
            "act": {"shape": (length, ACTION_SIZE)},
            "rew": {"shape": length},
            "done": {"shape": length, "dtype": np.bool_},
            "truncated": {"shape": length, "dtype": np.bool_},
        }
        kind = self.lib.PrioritizedReplayBuffer if spec.prioritized else self.lib.ReplayBuffer
        self.buffer = kind(spec.capacity // self.period, fields, **({"alpha": ALPHA} if spec.prioritized else {}))
        # The newest steps twice, one length apart, so that the last `length` of them always lie side by side.
        shapes: list[tuple[tuple[int, ...], type]] = [
            ((SEQUENCE_OBS_SIZE,), np.float32),
            ((ACTION_SIZE,), np.float32),
            ((), np.float32),
            ((), np.bool_),
            ((), np.bool_),
        ]
        self.recent: list[Array] = [np.zeros((2 * length, *shape), dtype) for shape, dtype in shapes]
        self.seen = 0

    def fill(self, count: int) -> None:
        names = ("obs", "act", "rew", "done", "truncated")
        left = count // self.period
        while left:
            block = next(blocks(self.period * left + self.length, obs_size=SEQUENCE_OBS_SIZE))
            columns = (block.obs, block.action, block.reward, block.terminated, block.truncated)
            items = min(left, (len(block.reward) - self.length) // self.period + 1)
            rows = np.arange(items)[:, None] * self.period + np.arange(self.length)
            for some in np.array_split(rows, -(-items // 256)):
                self.buffer.add(**{name: column[some] for name, column in zip(names, columns, strict=True)})
            left -= items

    def add_and_draw(self, n: int, steps: Iterable[Step]) -> None:
        buffer, length, period = self.buffer, self.length, self.period
        obss, actions, rewards, ends, cuts = self.recent
        for obs, action, reward, _, terminated, truncated in steps:
            i = self.seen % length
            obss[i] = obss[i + length] = obs
            actions[i] = actions[i + length] = action
            rewards[i] = rewards[i + length] = reward
            ends[i] = ends[i + length] = terminated
            cuts[i] = cuts[i + length] = truncated
            self.seen += 1
            if self.seen >= length and self.seen % period == 0:
                part = slice(i + 1, i + 1 + length)
                buffer.add(obs=obss[part], act=actions[part], rew=rewards[part], done=ends[part], truncated=cuts[part])
            buffer.sample(n, **self.beta)


class FlashbaxSequences(Flashbax):
    """Its trajectory buffers; a sequence runs on behind an episode's end, as the flags tell."""

    object_ = "make_prioritised_trajectory_buffer"

    def _library(self, batch: int, *, add_sequences: bool) -> Any:
        spec = self.spec_made
        build = self.lib.make_prioritised_trajectory_buffer if spec.prioritized else self.lib.make_trajectory_buffer
        return build(
            add_batch_size=1,
            sample_batch_size=batch,
            sample_sequence_length=spec.length,
            period=spec.starts,
            min_length_time_axis=spec.length,
            max_length_time_axis=spec.capacity,
            **({"priority_exponent": ALPHA} if spec.prioritized else {}),
        )

    def fill(self, count: int) -> None:
        size = min(FILL, count)
        for _ in range(-(-count // size)):
            block = next(blocks(size, obs_size=SEQUENCE_OBS_SIZE))
            step = {name: column[None] for name, column in block._asdict().items() if name != "next_obs"}
            self.buffer = self.jit_add(self.buffer, step)
        self._wait()

    def add_and_draw(self, n: int, steps: Iterable[Step]) -> None:
        sampler, add, f32, flag = self._sampler(n), self.jit_add, np.float32, np.bool_
        for obs, action, reward, _, terminated, truncated in steps:
            step = {
                "obs": obs[None, None],
                "action": action[None, None],
                "reward": np.full((1, 1), reward, f32),
                "terminated": np.full((1, 1), terminated, flag),
                "truncated": np.full((1, 1), truncated, flag),
            }
            self.buffer = add(self.buffer, step)
            self._draw(sampler)
