"""relive's buffers under the names and in the loops of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

import relive

from .._pipeline import Item
from . import _lerobot, _sb3, _tianshou, _torchrl
from ._loops import DRAWS, Run


class _SB3Items:
    """The items that a learner of Stable-Baselines3 gets from `sample`, with discounts."""

    _buffer: Any
    _gamma: float

    def items(self) -> Iterable[Item]:
        """Return every item that many draws have given."""
        drawn = (column.tolist() for column in self.sample(DRAWS)[:4])
        return [Item(*row) for row in dict.fromkeys(zip(*drawn, strict=True))]

    def sample(self, n: int) -> Item:
        """Draw items."""
        drawn = self._buffer.sample(n)
        bootstrap = (1 - drawn.dones) * (self._gamma if drawn.discounts is None else drawn.discounts)
        columns = (drawn.observations, drawn.rewards, bootstrap, drawn.next_observations)
        return Item(*(column[:, 0] for column in columns))


class SB3(_SB3Items, _sb3.Sb3Loop):
    """`relive.sb3.ReplayBuffer` in the loop of `sb3`."""

    def _kind(self, run: Run) -> Callable[..., Any]:
        from relive.sb3 import ReplayBuffer

        return partial(ReplayBuffer, n_steps=run.n_step, gamma=run.gamma)


class AdaptedCleanRL(SB3):
    """The same, as CleanRL's loops call it: infos say nothing of time limits."""

    infos = False


class SB3Learn(_SB3Items, _sb3.Learn):
    """`DQN.learn` with `replay_buffer_class=relive.sb3.ReplayBuffer`."""

    def _choices(self) -> dict[str, Any]:
        from relive.sb3 import ReplayBuffer

        kwargs = {"n_steps": self._n_step, "gamma": self._gamma}
        return {"replay_buffer_class": ReplayBuffer, "replay_buffer_kwargs": kwargs}


class Tianshou(_tianshou.TianshouLoop):
    """`relive.tianshou.PrioritizedVectorReplayBuffer` in the loop of `tianshou`."""

    kinds = "relive.tianshou"
    _indices: Any = None  # the type of the indices of a draw

    def sample(self, n: int) -> Item:
        """Draw items; a handle is what the buffer returned as the index, of one item."""
        batch, at = self._buffer.sample(n)
        self._indices = type(at)
        handles = np.stack([at, at.ids], 1)
        return Item(batch.obs, batch.rew, self._gamma * ~batch.terminated, batch.obs_next, handles, batch.weight)

    def update(self, handles: list[Any], td_errors: Any) -> None:
        """Update priorities."""
        slots, ids = np.array(handles).T
        self._buffer.update_weight(self._indices.of(slots, ids), td_errors)


class TianshouCollected(_tianshou.CollectorLoop):
    """`relive.tianshou.VectorReplayBuffer` behind a `Collector`."""

    kinds = "relive.tianshou"


class TorchRL(_torchrl.TorchRLCollected):
    """`relive.torchrl.TensorDictReplayBuffer` behind a `Collector`, prioritized."""

    def _made(self, run: Run) -> Any:
        from relive.torchrl import TensorDictReplayBuffer

        sampler = relive.Prioritized(alpha=1.0)
        return TensorDictReplayBuffer(run.size, n_step=run.n_step, gamma=run.gamma, sampler=sampler)

    def sample(self, n: int) -> Item:
        """Draw items; a handle is an id."""
        drawn = self._buffer.sample(n)
        return self._items(drawn)._replace(handle=drawn["index"], weight=drawn["_weight"])

    def update(self, handles: list[int], td_errors: Any) -> None:
        """Update priorities."""
        self._buffer.update_priority(np.array(handles), td_errors)


class LeRobot(_lerobot.OptimizeMemory):
    """`relive.lerobot.ReplayBuffer` in the loop of `lerobot`."""

    def _made(self, run: Run) -> Any:
        from relive.lerobot import ReplayBuffer

        return ReplayBuffer(run.size, "cpu", optimize_memory=True)
