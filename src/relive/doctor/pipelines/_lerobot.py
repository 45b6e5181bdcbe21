"""LeRobot's buffer as its learner makes it, and the loop of its actor.

LeRobot wants an older PyTorch than other libraries. Where it is not installed, `StandIn` does the same as its version
0.4.4 in other words.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from .._pipeline import Item
from ._loops import Run, Runner, calls_of

Array = np.ndarray[Any, Any]
State = Mapping[str, Array]
_KEY = "observation.state"
_EACH = 40  # draws for each step: one is missing from all of them once in 10^15 times


class StandIn:
    """Columns that are written and read one after the other, without a lock.

    Args:
        capacity: Steps that are kept.
        optimize_memory: The next observation is that of the next place, and is not stored.
    """

    def __init__(self, capacity: int, optimize_memory: bool) -> None:
        self._capacity, self._optimizes = capacity, optimize_memory
        self._rng, self._position, self._size = np.random.default_rng(0), 0, 0
        self._states, self._next_states, self._actions, self._rewards = np.empty((4, capacity), np.float32)
        self._dones, self._truncateds = np.empty((2, capacity), bool)

    def __len__(self) -> int:
        return self._size

    def add(self, state: State, action: Array, reward: float, next_state: State, done: bool, truncated: bool) -> None:
        """Write a step, and then move on."""
        at = self._position
        self._states[at] = state[_KEY].item()
        if not self._optimizes:
            self._next_states[at] = next_state[_KEY].item()
        self._actions[at] = action.item()
        self._rewards[at] = reward
        self._dones[at] = done
        self._truncateds[at] = truncated
        self._position = (at + 1) % self._capacity
        self._size = min(self._size + 1, self._capacity)

    def sample(self, batch_size: int) -> dict[str, Any]:
        """Draw items: all but the newest, and that one, too, when the buffer is full."""
        high = self._size - 1 if self._optimizes and self._size < self._capacity else self._size
        at = self._rng.integers(high, size=min(batch_size, self._size))
        state = self._states[at]
        next_state = self._states[(at + 1) % self._capacity] if self._optimizes else self._next_states[at]
        reward = self._rewards[at]
        done = self._dones[at].astype(np.float32)
        states = {_KEY: state[:, None]}, {_KEY: next_state[:, None]}
        return {"state": states[0], "reward": reward, "done": done, "next_state": states[1]}


class OptimizeMemory(Runner):
    """The buffer as the learner makes it, and one robot, which the actor resets itself."""

    modes, lanes, batch, threads = (AutoresetMode.DISABLED,), 1, 4, True
    optimizes = True

    def _made(self, run: Run) -> Any:
        try:
            kind = importlib.import_module("lerobot.rl.buffer").ReplayBuffer
        except ImportError:
            return StandIn(run.size, self.optimizes)
        return kind(run.size, "cpu", [_KEY], _same, use_drq=False, optimize_memory=self.optimizes)

    def _fill(self, run: Run) -> None:
        for call in calls_of(run):
            self._add(*map(itemgetter(0), call[:6]))

    def _add(self, obs: Any, action: Any, reward: Any, next_obs: Any, terminated: bool, truncated: bool) -> None:
        values = np.array([obs.item(), next_obs.item(), action], np.float32).reshape(3, 1, 1)
        columns = values if isinstance(self._buffer, StandIn) else importlib.import_module("torch").from_numpy(values)
        state, after = {_KEY: columns[0]}, {_KEY: columns[1]}
        self._buffer.add(state, columns[2], float(reward), after, bool(terminated), bool(truncated))

    def items(self) -> Iterable[Item]:
        """Return every item that many draws have given."""
        return dict.fromkeys(self.sample(_EACH * len(self._buffer)))

    def sample(self, n: int) -> list[Item]:
        """Draw at least so many items; a batch has no more of them than there are steps."""
        found = list[Item]()
        while len(found) < n:
            drawn = self._buffer.sample(n)
            obs, after = drawn["state"][_KEY], drawn["next_state"][_KEY]
            columns = obs[:, 0].tolist(), drawn["reward"].tolist(), drawn["done"].tolist(), after[:, 0].tolist()
            found += [Item(*row) for row in zip(*columns, strict=True)]
        return [item._replace(bootstrap=self._gamma * (1 - item.bootstrap)) for item in found]


class NextStates(OptimizeMemory):
    """The same with `optimize_memory=False`, its default: next observations are stored."""

    optimizes = False


def _same(images: Any) -> Any:
    return images
