"""Rollouts `[T, B, ...]` in files, of which single steps are drawn: each library in its own way of keeping these."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Unsupported


class TrajectoryPeer(Peer):
    """One buffer in a directory; every draw is handed over as PyTorch tensors."""

    output = "torch"
    mapped = False  # reads through mappings, which the system does not count as reading
    kept: Any = None  # the files that the question keeps with it

    def open(self, directory: Path, cache: int) -> None:
        """Make an empty buffer that keeps trajectories in `directory`, and `cache` of them in memory, too."""

    def rollout(self, fields: Mapping[str, Any]) -> Any:
        """Put a rollout into the form in which this library is given it; not timed."""
        return fields

    def store(self, rollouts: Sequence[Any]) -> None:
        """Add rollouts in one call."""
        self.buffer.add_trajectories(rollouts)

    def wait(self) -> None:
        """Return when all that was added has been written."""

    def window(self, count: int) -> None:
        """Draw from the newest `count` trajectories from now on; 0 draws from all."""
        self.buffer.sample_window_size = count

    def draw(self, n: int) -> Mapping[str, Any]:
        """Draw `n` steps."""
        batch: Mapping[str, Any] = self.buffer.sample(n)
        return batch

    def checkpoint(self, directory: Path) -> None:
        """Save all trajectories in `directory`."""
        self.buffer.save_checkpoint(str(directory))

    def close(self) -> None:
        """Close the files."""
        self.buffer.close()


class ReliveTrajectories(TrajectoryPeer):
    name = package = module = "relive"
    object_ = "TrajectoryReplayBuffer"

    def __init__(self) -> None:
        super().__init__()
        importlib.import_module("torch")  # before memory is weighed

    def open(self, directory: Path, cache: int) -> None:
        self.buffer = self.lib.TrajectoryReplayBuffer(directory, cache_size=cache, sample_window_size=0, seed=0)

    def wait(self) -> None:
        self.buffer.sync()

    def draw(self, n: int) -> Mapping[str, Any]:
        batch: Mapping[str, Any] = self.buffer.sample(n).torch()
        return batch


class RlinfTrajectories(TrajectoryPeer):
    """Keeps `curr_obs` and `next_obs` both, as its own rollouts have them; one `.pt` file a trajectory."""

    name = package = "rlinf"
    module = "rlinf.data.replay_buffer"
    object_ = "TrajectoryReplayBuffer"

    def __init__(self) -> None:
        super().__init__()
        # Its own is that of a Ray worker; with another one the buffer does without Ray.
        self.lib.get_logger = lambda: logging.getLogger("rlinf")

    def open(self, directory: Path, cache: int) -> None:
        self.buffer = self.lib.TrajectoryReplayBuffer(
            cache_size=cache, sample_window_size=0, auto_save=True, auto_save_path=str(directory)
        )

    def rollout(self, fields: Mapping[str, Any]) -> Any:
        return self.lib.Trajectory(model_weights_id="0", **tensors(fields))

    def wait(self) -> None:
        # It has no call to wait for its writers but the one that ends them for good.
        self.buffer.close()
        self.buffer._save_executor = ThreadPoolExecutor(max_workers=20)
        self.buffer._checkpoint_executor = ThreadPoolExecutor(max_workers=20)


class TorchSave(TrajectoryPeer):
    """No library: `torch.save` from a thread, `torch.load(mmap=True)`, and rows by index.

    Whoever writes this knows that the next observations repeat, and keeps the last one only.
    """

    name = "torchsave"
    package = module = "torch"
    object_ = "save"
    mapped = True

    def open(self, directory: Path, cache: int) -> None:
        directory.mkdir()
        self.directory, self.rng = directory, np.random.default_rng(0)
        self.thread = ThreadPoolExecutor(max_workers=1)
        self.writes: list[Future[None]] = []
        self.count = self.newest = 0
        self.shape = 0, 0

    def rollout(self, fields: Mapping[str, Any]) -> Any:
        return tensors(fields)

    def store(self, rollouts: Sequence[Any]) -> None:
        for fields in rollouts:
            self.shape = fields["rewards"].shape[:2]
            self.writes.append(self.thread.submit(self._write, self.count, fields))
            self.count += 1

    def _write(self, number: int, fields: Mapping[str, Any]) -> None:
        cat = self.lib.cat
        now, later = fields["curr_obs"], fields["next_obs"]
        kept = {name: value for name, value in fields.items() if name not in ("curr_obs", "next_obs")}
        kept["obs"] = {name: cat([value, later[name][-1:]]) for name, value in now.items()}
        self.lib.save(kept, self._path(number))

    def _path(self, number: int) -> str:
        return os.path.join(self.directory, f"{number}.pt")

    def wait(self) -> None:
        for write in self.writes:
            write.result()
        self.writes.clear()

    def window(self, count: int) -> None:
        self.newest = count

    def draw(self, n: int) -> Mapping[str, Any]:
        torch, (length, width) = self.lib, self.shape
        first = self.count - self.newest if self.newest else 0
        row, lane = np.divmod(self.rng.integers(0, (self.count - first) * length * width, n), width)
        which, step = np.divmod(row, length)
        batch: dict[str, Any] = {}
        for number in np.unique(which).tolist():
            kept = torch.load(self._path(first + number), mmap=True, weights_only=True)
            places = np.flatnonzero(which == number)
            t, b, to = (torch.from_numpy(index) for index in (step[places], lane[places], places))
            for name, values in kept.pop("obs").items():
                for group, rows in (("curr_obs", t), ("next_obs", t + 1)):
                    self._put(batch.setdefault(group, {}), name, values, (rows, b), to, n)
            for name, values in kept.items():
                self._put(batch, name, values, (t, b), to, n)
        return batch

    def _put(self, batch: dict[str, Any], name: str, values: Any, rows: tuple[Any, Any], to: Any, n: int) -> None:
        if name not in batch:
            batch[name] = self.lib.empty((n, *values.shape[2:]), dtype=values.dtype)
        batch[name][to] = values[rows]

    def checkpoint(self, directory: Path) -> None:
        raise Unsupported("no checkpoints")

    def close(self) -> None:
        self.thread.shutdown()


def tensors(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of nested mappings as PyTorch tensors of the same memory."""
    import torch

    return {k: tensors(v) if isinstance(v, Mapping) else torch.from_numpy(v) for k, v in fields.items()}
