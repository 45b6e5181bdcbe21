"""Initial priorities from an actor (Ape-X, Horgan et al. 2018, arXiv:1803.00933): a learner's, by the actor's nets."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import relive
from relive.errors import ReliveWarning

CHUNK = 16  # steps of every lane that are judged at once, at least
SPARE = 64  # rows of a lane beyond the steps that wait
_NO_IDS = np.empty(0, np.int64)

Judge = Callable[[relive.Batch], npt.NDArray[Any]]


class Outbox:
    """Between a `Recorder` and a `Writer`: adds steps some time later, with the priorities of the items they start.

    A small buffer of the actor's own makes the items, so they are those that the learner draws later. A step waits
    until its item is complete, and until there are as many as are judged at once. A step at which no item starts is
    given the priority of the item that started last. Where items start depends on how many steps the writer's lanes
    were given before; that is asked for again after a gap, as when a shard was started again.

    Args:
        writer: Where steps go: a `relive.Writer`, or one of shards.
        item: What the learner draws.
        eps: Added to the size of the errors, as the sampler adds it later.
        judge: The errors of a batch of items, of either sign, `[B]`.

    Attributes:
        held: The most steps of a lane that wait.
    """

    def __init__(self, writer: Any, item: Any, eps: float, judge: Judge) -> None:
        self.writer, self.num_envs = writer, writer.num_envs
        self._item, self._eps, self._judge = item, eps, judge
        self._starts, (self._chunk, self.held) = getattr(item, "starts", 1), waiting(item)
        self._number: npt.NDArray[np.int64] = np.zeros(self.num_envs, np.int64)
        self._buffer: relive.ReplayBuffer | None = None
        self._gaps = 0  # of the writer
        self._steps: list[dict[str, npt.NDArray[Any]]] = []
        self._ids: list[npt.NDArray[np.int64]] = []
        self._latest = np.full(self.num_envs, eps)

    @property
    def env_ids(self) -> tuple[int, ...]:
        """The writer's lanes."""
        lanes: tuple[int, ...] = self.writer.env_ids
        return lanes

    def add(self, **step: Any) -> npt.NDArray[np.int64]:
        """Take one step of every lane; ids are not known yet."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReliveWarning)  # the learner's buffer says the same, and of its own size
            buffer = self._begun(step)
            self._ids.append(buffer.add(**step))
        self._steps.append({name: np.array(value) for name, value in step.items()})
        if len(self._steps) >= self.held:
            self._send(self._chunk, buffer)
        return _NO_IDS

    def cut(self, env_ids: Any = None) -> None:
        """End the streams of the writer's lanes `env_ids`."""
        self.flush()
        if self._buffer is not None:
            self._buffer.cut()
        self.writer.cut(env_ids)

    def flush(self) -> None:
        """Add all that was taken; items end where it ends."""
        if self._steps and self._buffer is not None:
            ended = copy.deepcopy(self._buffer)  # the streams go on
            ended.cut()
            while self._steps:
                self._send(min(self._chunk, len(self._steps)), ended)

    def _begun(self, step: dict[str, Any]) -> relive.ReplayBuffer:
        """Return the buffer; first, and after a gap, a new one, whose stand-ins let items start as in the learner's."""
        gaps = self.writer.gaps
        if self._buffer is not None and gaps == self._gaps:
            return self._buffer
        self.flush()
        self._gaps, self._number = gaps, self.writer.lane_steps()
        lanes, rows = self.num_envs, 4 * self.held + self._starts + SPARE  # a step can take two
        self._buffer = relive.ReplayBuffer(self.writer.schema, rows * lanes, num_envs=lanes, item=self._item)
        for lane, before in enumerate((self._number % self._starts).tolist()):
            for _ in range(before):
                self._buffer.add(env_ids=[lane], **{name: np.asarray(value)[[lane]] for name, value in step.items()})
        self._buffer.cut()
        return self._buffer

    def _send(self, count: int, buffer: relive.ReplayBuffer) -> None:
        """Add the first `count` steps, judged by the items that `buffer` has of them."""
        times = np.arange(count)[:, None]
        anchors = (self._number + times) % self._starts == 0
        priority = np.zeros((count + 1, self.num_envs))
        priority[0] = self._latest
        if anchors.any():
            errors = self._judge(buffer.read(np.stack(self._ids[:count])[anchors]))
            priority[1:][anchors] = np.abs(errors) + self._eps
        latest = np.maximum.accumulate(np.where(anchors, times + 1, 0))
        priority = np.take_along_axis(priority, latest, axis=0)
        steps = {name: np.stack([step[name] for step in self._steps[:count]], axis=1) for name in self._steps[0]}
        self.writer.extend(**steps, priority=priority.T)
        self._latest = priority[-1]
        self._number += count
        del self._steps[:count], self._ids[:count]


def waiting(item: Any) -> tuple[int, int]:
    """Return the steps of a lane that an `Outbox` judges at once, and the most that wait with it."""
    starts, span = getattr(item, "starts", 1), getattr(item, "steps", 1) + item.n_step - 1
    chunk = -(-CHUNK // starts) * starts
    return chunk, chunk + span - 1
