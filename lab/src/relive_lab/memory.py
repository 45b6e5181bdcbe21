"""What recurrent agents remember between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from relive_lab.agent import Array


class Memory:
    """The memory of agents, one in each of several environments: the net's memory, the last action and reward.

    Attributes:
        state: The net's memory, float32 `[N, 2, H]`.
        action: Index of the last action, int64 `[N]`; `blank` at an episode's first step.
        reward: The last reward, float32 `[N]`; 0 at an episode's first step.
        first: Whether an episode begins, bool `[N]`.
    """

    def __init__(self, rows: int, size: int, blank: int = 0) -> None:
        self._blank = blank
        self.state = np.zeros((rows, 2, size), np.float32)
        self.action = np.full(rows, blank, np.int64)
        self.reward = np.zeros(rows, np.float32)
        self.first = np.ones(rows, bool)

    def arrays(self) -> dict[str, Array]:
        """Return all of it, for a save."""
        return {"state": self.state, "action": self.action, "reward": self.reward, "first": self.first}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take over what `arrays` returned; KeyError or ValueError if it does not fit."""
        for name, before in self.arrays().items():
            if (arrays[name].shape, arrays[name].dtype) != (before.shape, before.dtype):
                raise ValueError(f"a memory of another size, `{name}`")
            setattr(self, name, arrays[name])

    def after(self, reward: npt.ArrayLike, ended: npt.ArrayLike) -> None:
        """Take in the rewards `[N]` of the last actions; where an episode ended, `ended` `[N]`, all is forgotten."""
        self.first = np.array(ended, bool, ndmin=1)
        self.reward = np.where(self.first, 0.0, reward).astype(np.float32)
        self.action = np.where(self.first, self._blank, self.action)
        # A new array: the one before may be on its way to the replay buffer.
        self.state = np.where(self.first[:, None, None], np.float32(0.0), self.state)


class Remembering:
    """An agent's deterministic policy with a memory of its own, for whole episodes in the same environments.

    Args:
        make: Makes a memory for so many environments.
        choose: Chooses actions `[N, ...]` from observations `[N, ...]` and `memory=`.
    """

    def __init__(self, make: Callable[[int], Memory], choose: Callable[..., Array]) -> None:
        self._make, self._choose = make, choose
        self._memory: Memory | None = None

    def __call__(self, obs: Array) -> Array:
        """Choose actions `[N]` for observations `[N, ...]`."""
        if self._memory is None:
            self._memory = self._make(len(obs))
        return self._choose(obs, memory=self._memory)

    def after(self, reward: npt.ArrayLike, ended: npt.ArrayLike) -> None:
        """Take in what the actions led to; a new episode is met without a memory."""
        if self._memory is not None:
            self._memory.after(reward, ended)
