"""Each library's own way to save a buffer, as its documentation has it."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Spec
from benchmarks.peers.cpprb import Cpprb
from benchmarks.peers.relive import Relive
from benchmarks.peers.sb3 import StableBaselines3
from benchmarks.peers.tianshou import Tianshou
from benchmarks.workload import Step, blocks


class SavingPeer(Peer):
    """A library that saves buffers.

    Attributes:
        written: Bytes that the last save of each kind wrote.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, float] = {}

    def save(self, path: Path) -> int | None:
        """Save the buffer; returns the bytes written, None where that is all that is there."""
        raise NotImplementedError

    def load(self, path: Path) -> Any:
        """Build a buffer of it."""
        raise NotImplementedError


class ReliveSaves(Relive, SavingPeer):
    def save(self, path: Path) -> int:
        return int(self.buffer.save(path).bytes_written)

    def load(self, path: Path) -> Any:
        return self.lib.load(path)


class StableBaselines3Saves(StableBaselines3, SavingPeer):
    def save(self, path: Path) -> None:
        importlib.import_module("stable_baselines3.common.save_util").save_to_pkl(path, self.buffer)

    def load(self, path: Path) -> Any:
        return importlib.import_module("stable_baselines3.common.save_util").load_from_pkl(path)


class TianshouSaves(Tianshou, SavingPeer):
    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            pickle.dump(self.buffer, file)

    def load(self, path: Path) -> Any:
        with path.open("rb") as file:
            return pickle.load(file)


class CpprbSaves(Cpprb, SavingPeer):
    def save(self, path: Path) -> None:
        self.buffer.save_transitions(str(path.with_suffix(".npz")))

    def load(self, path: Path) -> Any:
        other = Cpprb()
        if self.spec is not None:
            other.make(self.spec)
        other.buffer.load_transitions(str(path.with_suffix(".npz")))
        return other.buffer


class TorchrlSaves(SavingPeer):
    name, package = "torchrl-plain", "torchrl"
    module = "torchrl.data"
    object_ = "TensorDictReplayBuffer"
    prioritized = False
    output = "torch"

    def make(self, spec: Spec) -> None:
        self.buffer = self.lib.TensorDictReplayBuffer(storage=self.lib.LazyTensorStorage(spec.capacity), batch_size=256)

    def fill(self, count: int) -> None:
        for block in blocks(count):
            self._extend(block)

    def add(self, steps: Any) -> None:
        several = [*steps]
        obs, action, reward, *rest = (np.array(column) for column in zip(*several, strict=True))
        self._extend(Step(obs, action, reward.astype(np.float32), *rest))

    def save(self, path: Path) -> None:
        self.buffer.dumps(path)

    def load(self, path: Path) -> Any:
        other = self.lib.TensorDictReplayBuffer(storage=self.lib.LazyTensorStorage(len(self.buffer)), batch_size=256)
        other.loads(path)
        return other

    def _extend(self, block: Step) -> None:
        import torch
        from tensordict import TensorDict

        fields = {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in block._asdict().items()}
        self.buffer.extend(TensorDict(fields, [len(block.reward)]))


class CopyOfBytes(SavingPeer):
    """Writes what relive has to store, 105 bytes a step, and reads it into memory: no checksums, no structure."""

    name = "limit"

    def version(self) -> str:
        return ""

    def make(self, spec: Spec) -> None:
        self.buffer = np.ones(105 * spec.capacity, np.uint8)

    def fill(self, count: int) -> None:
        pass

    def add(self, steps: Sequence[Step]) -> None:  # type: ignore[override]
        pass

    def save(self, path: Path) -> None:
        path.write_bytes(self.buffer.data)

    def load(self, path: Path) -> Any:
        return path.read_bytes()
