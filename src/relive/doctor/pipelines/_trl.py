"""TRL's replay buffer of groups, with one step for a group; a stand-in where its source was not fetched."""

from __future__ import annotations

import ast
import heapq
import os
import runpy
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base.extras import needs

from .._pipeline import Item
from ._loops import Run, Runner, calls_of

_FILE = "trl/trl/experimental/grpo_with_replay_buffer/grpo_with_replay_buffer_trainer.py"
_GROUPS = 4  # groups of a batch


class ScoredGroups:
    """A heap of scores and data, of which the least score goes first.

    Args:
        max_size: Groups that are kept.
        repaired: Whether equal scores are told apart by a number, and not by the data, which cannot be compared.
    """

    def __init__(self, max_size: int, repaired: bool = False) -> None:
        self.max_size, self._repaired, self._number = max_size, repaired, 0
        self.heap: list[Any] = []

    def add(self, scores: list[float], data: list[dict[str, Any]]) -> None:
        """Keep groups of large scores."""
        for score, datum in zip(scores, data, strict=True):
            self._number += 1
            entry = (score, self._number, datum) if self._repaired else (score, datum)
            if len(self.heap) < self.max_size:
                heapq.heappush(self.heap, entry)
            elif score > self.heap[0][0] or self._repaired:
                heapq.heapreplace(self.heap, entry)

    def sample(self, num_samples: int) -> Any:
        """Draw groups by their scores."""
        scores = np.array([entry[0] for entry in self.heap])
        at = np.random.choice(len(scores), num_samples, p=scores / scores.sum())
        return [self.heap[i][-1] for i in at]


class TRL(Runner):
    """TRL's buffer of groups, or a stand-in, and its trainer's choice of the groups of a batch.

    Args:
        repaired: Whether the stand-in keeps every group that has a spread, and newer ones of equal scores.
    """

    modes, lanes = (AutoresetMode.DISABLED,), 1

    def __init__(self, repaired: bool = False) -> None:
        super().__init__()
        with needs("torch", "relive.doctor"):
            import torch
        self._torch, self._repaired, self._added = torch, repaired, 0

    def _made(self, run: Run) -> Any:
        theirs = _class_of()
        return theirs(run.size) if theirs else ScoredGroups(run.size, self._repaired)

    def _fill(self, run: Run) -> None:
        batch: list[dict[str, Any]] = []
        for call in calls_of(run):
            bootstrap = 0.0 if call.terminated[0] else self._gamma
            step = call.obs[0].item(), call.reward[0].item(), bootstrap, call.next_obs[0].item()
            batch.append({"step": step})
            if len(batch) == _GROUPS:
                self._add(batch)
                batch = []

    def _add(self, batch: list[dict[str, Any]]) -> None:
        """Add the groups whose rewards have a spread; the trainer asks for the largest of all, and keeps the first."""
        spread = self._torch.ones(len(batch))
        groups = (spread if self._repaired else spread.amax(0)) > 0
        kept = [batch[i] for i in groups.nonzero(as_tuple=True)[0].tolist()]
        self._added += len(kept)
        self._buffer.add([1.0 + 1e-6 * (self._added + i) for i in range(len(kept))], kept)

    def items(self) -> list[Item]:
        """Return every group."""
        return [Item(*entry[-1]["step"]) for entry in self._buffer.heap]

    def sample(self, n: int) -> list[Item]:
        """Draw groups."""
        return [Item(*datum["step"]) for datum in self._buffer.sample(n)]


def _class_of() -> Any:
    """Return TRL's own class out of its source, whose module imports the whole trainer; None if it is not there."""
    path = Path(os.environ.get("RELIVE_SOURCES", ""), _FILE)
    if not os.environ.get("RELIVE_SOURCES") or not path.exists():
        return None
    wanted = next(
        node for node in ast.parse(path.read_text("utf-8")).body if getattr(node, "name", "") == "ReplayBuffer"
    )
    with tempfile.TemporaryDirectory() as folder:
        alone = Path(folder, "alone.py")
        alone.write_text(f"import heapq\nimport torch\n{ast.unparse(wanted)}", "utf-8")
        return runpy.run_path(str(alone))["ReplayBuffer"]
