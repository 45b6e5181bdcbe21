"""Buffers that several processes share: children of the one that made them add, and that one draws."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from benchmarks.peers.base import Spec, Unsupported
from benchmarks.peers.cpprb import Cpprb
from benchmarks.peers.relive import Relive
from benchmarks.peers.torchrl import Torchrl
from benchmarks.workload import ACTION_SIZE, ALPHA, BETA, OBS_SIZE, Step


class Sharing(Protocol):
    """The methods of a peer that the question about processes needs, besides those of all."""

    def writing(self, lane: int) -> Any:
        """Return a function that adds one step, or with a leading axis several; called in a child process."""

    def open(self) -> None:
        """Let another process open the buffer, to draw from it, and a second one, to add; close both."""


@runtime_checkable
class Elsewhere(Protocol):
    """A peer whose processes are another interpreter's: it is asked for the figures alone."""

    def rounds(self, several: int, seconds: float, rounds: int, batch: int) -> list[tuple[float, list[float]]]:
        """Let writers add and a learner draw: microseconds a step of all writers, and of each cycle, round by round."""

    def openings(self, times: int) -> list[float]:
        """Open the buffer from another process, to draw and to add: microseconds each."""


class ReliveShared(Relive):
    def storage(self) -> Any:
        return self.lib.Shared()

    def drop(self) -> None:
        if self.buffer is not None:
            self.buffer.close()
        super().drop()

    def writing(self, lane: int) -> Any:
        writer = self.buffer.writer([lane])

        def write(step: Step) -> None:
            (writer.extend if np.ndim(step.reward) else writer.add)(**step._asdict())

        return write

    def open(self) -> None:
        name = self.buffer.storage.name
        self.lib.open(name).close()
        self.lib.Writer(name, env_ids=[0]).close()


class CpprbShared(Cpprb):
    object_ = "MPPrioritizedReplayBuffer"

    def make(self, spec: Spec) -> None:
        fields = {"obs": {"shape": OBS_SIZE}, "act": {"shape": ACTION_SIZE}, "rew": {}, "next_obs": {"shape": OBS_SIZE}}
        fields |= {"done": {"dtype": np.bool_}, "truncated": {"dtype": np.bool_}}
        self.buffer = self.lib.MPPrioritizedReplayBuffer(spec.capacity, fields, alpha=ALPHA)
        self.beta = {"beta": BETA}

    def writing(self, lane: int) -> Any:
        add = self.buffer.add

        def write(step: Step) -> None:
            add(
                obs=step.obs,
                act=step.action,
                rew=step.reward,
                next_obs=step.next_obs,
                done=step.terminated,
                truncated=step.truncated,
            )

        return write

    def open(self) -> None:
        raise Unsupported("its other processes are children of the one that made it")


class TorchrlShared(Torchrl):
    """Steps in tensors that are files, without priorities: its prioritized samplers belong to one process."""

    object_ = "LazyMemmapStorage"

    def make(self, spec: Spec) -> None:
        self.buffer = self.lib.ReplayBuffer(storage=self.lib.LazyMemmapStorage(spec.capacity), shared=True)
        flags, reward = np.zeros((2, 1), bool), np.zeros(1, np.float32)
        obs, action = np.zeros((1, OBS_SIZE), np.float32), np.zeros((1, ACTION_SIZE), np.float32)
        self.writing(0)(Step(obs, action, reward, obs, *flags))  # makes the files, so that children have them, too

    def writing(self, lane: int) -> Any:
        tensor, float32 = self.torch.as_tensor, self.torch.float32

        def write(step: Step) -> None:
            several = np.ndim(step.reward) > 0
            fields = {**step._asdict(), "reward": tensor(step.reward, dtype=float32)}
            made = self.tensors({name: tensor(value) for name, value in fields.items()}, list(np.shape(step.reward)))
            (self.buffer.extend if several else self.buffer.add)(made)

        return write

    def draw(self, n: int) -> Any:
        return self.buffer.sample(n)

    def update(self, drawn: Any, error: Any) -> None:
        """Do nothing: it has no priorities, so a cycle is a draw."""

    def open(self) -> None:
        raise Unsupported("its other processes are children of the one that made it")
