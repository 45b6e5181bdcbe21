"""TRL's replay buffer of groups, with one step for a group; a stand-in where its source was not fetched."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .._pipeline import Item
from ._loops import OneLane, Run, calls_of
from ._sources import imported
from ._stand_ins import ScoredGroups

_MODULE = "trl/experimental/grpo_with_replay_buffer/grpo_with_replay_buffer_trainer"
_BATCH = 4  # groups of a batch


class TheirGroups:
    """The calls of the stand-in, of TRL's own buffer and trainer."""

    def __init__(self, module: Any, size: int) -> None:
        import torch

        self._torch, self._buffer = torch, module.ReplayBuffer(size)
        self._trainer = module.GRPOWithReplayBufferTrainer
        self.add, self.sample = self._buffer.add, self._buffer.sample

    @property
    def heap(self) -> list[Any]:
        """The groups that are stored."""
        stored: list[Any] = self._buffer.heap
        return stored

    def groups(self, spread: list[float]) -> list[int]:
        """List the groups of a batch that the trainer adds, of one completion each."""
        chosen: list[int] = []

        def update(groups: Any, *_: Any) -> None:
            chosen.extend(groups.nonzero(as_tuple=True)[0].tolist())

        trainer = SimpleNamespace(replay_buffer=self._buffer, update_replay_buffer=update, num_generations=1)
        column = self._torch.tensor(spread)
        self._trainer.update_with_replay_buffer(trainer, column, column, None, None, None, None, {}, len(spread))
        return chosen


class TRL(OneLane):
    """TRL's buffer of groups and its trainer's choice of the groups of a batch, or a stand-in."""

    def _made(self, run: Run) -> Any:
        self._added, theirs = 0, imported("trl", _MODULE, {"accelerate": {}})
        return TheirGroups(theirs, run.size) if theirs else ScoredGroups(run.size, self._repaired)

    def _fill(self, run: Run) -> None:
        """Add batches of groups that all have a spread, and larger scores than those before."""
        batch: list[dict[str, Any]] = []
        for call in calls_of(run):
            batch.append({"step": call.item(self._gamma)})
            if len(batch) == _BATCH:
                kept = [batch[i] for i in self._buffer.groups([1.0] * _BATCH)]
                self._added += len(kept)
                self._buffer.add([1.0 + 1e-6 * (self._added + i) for i in range(len(kept))], kept)
                batch = []

    def items(self) -> list[Item]:
        """Return every group."""
        return [Item(*entry[-1]["step"]) for entry in self._buffer.heap]

    def sample(self, n: int) -> list[Item]:
        """Draw groups."""
        return [Item(*datum["step"]) for datum in self._buffer.sample(n)]
