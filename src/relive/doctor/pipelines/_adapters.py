"""relive's buffers under the names and in the loops of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import relive

from .._pipeline import Item
from . import _lerobot, _sb3, _tianshou, _torchrl

# So many draws that an item of some 240 is missing from all of them once in 10^17 times.
_DRAWS = 10_000


class _SB3Items:
    """What a learner of Stable-Baselines3 gets from `sample`, with discounts."""

    _buffer: Any
    _gamma: float

    def items(self) -> Iterable[Item]:
        """Every item: what many draws have given."""
        return dict.fromkeys(self.sample(_DRAWS))

    def sample(self, n: int) -> list[Item]:
        """Draw items."""
        drawn = self._buffer.sample(n)
        bootstrap = (1 - drawn.dones) * (self._gamma if drawn.discounts is None else drawn.discounts)
        columns = (drawn.observations, drawn.rewards, bootstrap, drawn.next_observations)
        return [Item(*row) for row in zip(*(column.numpy()[:, 0].tolist() for column in columns), strict=True)]


class SB3(_SB3Items, _sb3.Sb3Loop):
    """`relive.sb3.ReplayBuffer` in the loop of `sb3`."""

    def _made(self, n_step: int) -> Callable[..., Any]:
        from relive.sb3 import ReplayBuffer

        return lambda *args, **choices: ReplayBuffer(*args, n_steps=n_step, gamma=self._gamma, **choices)


class AdaptedCleanRL(SB3):
    """The same, as CleanRL's loops call it: infos say nothing of time limits."""

    infos = False


class SB3Learn(_SB3Items, _sb3.Learn):
    """`DQN.learn` with `replay_buffer_class=relive.sb3.ReplayBuffer`."""

    def _choices(self, n_step: int) -> dict[str, Any]:
        from relive.sb3 import ReplayBuffer

        kwargs = {"n_steps": n_step, "gamma": self._gamma}
        return {"replay_buffer_class": ReplayBuffer, "replay_buffer_kwargs": kwargs}


class Tianshou(_tianshou.TianshouLoop):
    """`relive.tianshou.PrioritizedVectorReplayBuffer` in the loop of `tianshou`."""

    def __init__(self) -> None:
        super().__init__()
        import relive.tianshou

        self._kinds = relive.tianshou
        self._indices: Any = None  # the type of the indices of a draw

    def sample(self, n: int) -> list[Item]:
        """Draw items; a handle is what the buffer returned as the index, of one item."""
        batch, at = self._buffer.sample(n)
        self._indices = type(at)
        columns = (batch.obs, batch.rew, self._gamma * ~batch.terminated, batch.obs_next)
        rows = zip(*columns, zip(at.tolist(), at.ids.tolist(), strict=True), batch.weight, strict=True)
        return [Item(*row) for row in rows]

    def update(self, handles: list[Any], td_errors: Any) -> None:
        """Update priorities."""
        slots, ids = np.array(handles).T
        self._buffer.update_weight(self._indices.of(slots, ids), td_errors)


class TianshouCollected(_tianshou.CollectorLoop):
    """`relive.tianshou.VectorReplayBuffer` behind a `Collector`."""

    def __init__(self) -> None:
        super().__init__()
        import relive.tianshou

        self._kinds = relive.tianshou


class TorchRL(_torchrl.TorchRLCollected):
    """`relive.torchrl.TensorDictReplayBuffer` behind a `Collector`, prioritized."""

    def _made(self, size: int, n_step: int) -> Any:
        from relive.torchrl import TensorDictReplayBuffer

        return TensorDictReplayBuffer(size, n_step=n_step, gamma=self._gamma, sampler=relive.Prioritized(alpha=1.0))

    def sample(self, n: int) -> list[Item]:
        """Draw items; a handle is an id."""
        drawn = self._buffer.sample(n)
        rows = zip(self._items(drawn), drawn["index"].tolist(), drawn["_weight"].tolist(), strict=True)
        return [item._replace(handle=index, weight=weight) for item, index, weight in rows]

    def update(self, handles: list[int], td_errors: Any) -> None:
        """Update priorities."""
        self._buffer.update_priority(np.array(handles), td_errors)


class LeRobot(_lerobot.OptimizeMemory):
    """`relive.lerobot.ReplayBuffer` in the loop of `lerobot`."""

    def __init__(self) -> None:
        super().__init__()
        import relive.lerobot

        self._kinds = relive.lerobot

    def _make(self, capacity: int) -> None:
        self._buffer = self._kinds.ReplayBuffer(capacity, "cpu", optimize_memory=True)
