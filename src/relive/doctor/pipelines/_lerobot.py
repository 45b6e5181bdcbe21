"""A stand-in for LeRobot's buffer as its learner makes it, and the loop of its actor.

LeRobot wants an older PyTorch than other libraries. This one does the same in other words: with `optimize_memory=True`,
as in the learner, the next observation is that of the next place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from gymnasium.vector import AutoresetMode

from .._pipeline import Item
from ._loops import calls_of


class OptimizeMemory:
    """The buffer, and one robot, which the actor resets itself."""

    modes, lanes = (AutoresetMode.DISABLED,), 1

    def __init__(self) -> None:
        self._capacity = self._added = 0
        self._gamma = 0.0
        self._stored: dict[int, tuple[float, float, bool]] = {}

    def run(
        self,
        make_env: Any,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: AutoresetMode,
        capacity: int | None = None,
        reset_at: Collection[int] = (),
    ) -> None:
        """Fill a new buffer."""
        self._gamma = gamma
        self._make(capacity or 2 * calls)
        for call in calls_of(make_env, num_envs, calls, autoreset_mode, reset_at):
            columns = (call.obs, call.action, call.reward, call.next_obs, call.terminated, call.truncated)
            self._add(*(column[0] for column in columns))

    def _make(self, capacity: int) -> None:
        self._capacity, self._added, self._stored = capacity, 0, {}

    def _add(self, obs: Any, action: Any, reward: Any, next_obs: Any, terminated: bool, truncated: bool) -> None:
        self._stored[self._added % self._capacity] = float(obs[0]), float(reward), bool(terminated)
        self._added += 1

    def items(self) -> Iterable[Item]:
        """Every item that it may draw: all but the newest, and that one, too, when the buffer is full."""
        size = min(self._added, self._capacity)
        for place in range(size if size == self._capacity else size - 1):
            obs, reward, done = self._stored[place]
            after, _, _ = self._stored[(place + 1) % self._capacity]
            yield Item(obs, reward, 0.0 if done else self._gamma, after)
