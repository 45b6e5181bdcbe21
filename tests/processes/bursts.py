"""A shared buffer whose lanes a writer fills in bursts; rows say which step they are."""

from __future__ import annotations

from typing import Any

import numpy as np

import relive

LANES = 2
SCHEMA = relive.Schema(obs=relive.Field(dtype=np.int64), action=relive.Field())


class Bursts:
    """The buffer and its writer, which closes with it.

    Args:
        steps: That each lane keeps.
        kinds: Of priorities: 1, 2 ... in turn.
        episode: After so many steps episodes end.
        shared: False: in memory of its own, and the buffer is its own writer.
        choices: Of the buffer.
    """

    def __init__(self, steps: int, kinds: int, episode: int = 2**40, shared: bool = True, **choices: Any) -> None:
        storage = relive.Shared() if shared else relive.Ram()
        self.buffer = relive.ReplayBuffer(SCHEMA, LANES * steps, num_envs=LANES, storage=storage, **choices)
        self.writer: Any = self.buffer.writer() if shared else self.buffer
        self.kinds, self.episode, self.steps = kinds, episode, 0

    def burst(self, steps: int) -> None:
        """Add so many steps to each lane."""
        if steps:
            rows = np.tile(np.arange(self.steps, self.steps + steps), (LANES, 1))
            ends, zeros = rows % self.episode == self.episode - 1, np.zeros((LANES, steps), np.float32)
            given = {"priority": 1.0 + rows % self.kinds} if self.buffer.sampler.prioritizes else {}
            flags = {"terminated": ends, "truncated": ends & False}
            self.writer.extend(obs=rows, next_obs=rows + 1, action=zeros, reward=zeros, **flags, **given)
            self.steps += steps

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.writer.close()
        self.buffer.close()
