"""TorchRL's slice samplers: steps in one PyTorch storage, from which stretches of episodes are cut when drawn."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.workload import ALPHA, BETA, SEQUENCE_OBS_SIZE, Array, Step, blocks

END = ("next", "done")


class Torchrl(Peer):
    name = package = "torchrl"
    module = "torchrl.data"
    output = "torch"

    def __init__(self) -> None:
        super().__init__()
        self.torch: Any = importlib.import_module("torch")
        self.tensors: Any = importlib.import_module("tensordict").TensorDict
        importlib.import_module("torchrl").logger.setLevel("ERROR")


class TorchrlSlices(Torchrl):
    """A batch is flat, `[64 * 120]`; every episode is equally likely, and then every start inside it."""

    object_ = "SliceSampler"
    cached = True
    most = 10_000_000  # steps

    def make(self, spec: Spec) -> None:
        if spec.capacity > self.most:
            raise Unsupported("left out: it scans all steps, as `cache_values` does after each add")
        self.length = spec.length
        options = {"slice_len": spec.length, "end_key": END, "cache_values": self.cached, "strict_length": True}
        if spec.prioritized:
            samplers = importlib.import_module("torchrl.data.replay_buffers.samplers")
            try:
                sampler = samplers.PrioritizedSliceSampler(spec.capacity, alpha=ALPHA, beta=BETA, **options)
            except RuntimeError as error:
                wanted = "its prioritized samplers need its compiled part, which does not load with this PyTorch"
                raise Unsupported(wanted) from error
        else:
            sampler = self.lib.SliceSampler(**options)
        self.buffer = self.lib.ReplayBuffer(storage=self.lib.LazyTensorStorage(spec.capacity), sampler=sampler)

    def _steps(self, rows: Step, shape: list[int]) -> Any:
        """Convert rows to the layout of TorchRL's environments."""
        tensor, pack = self.torch.as_tensor, self.tensors
        column = (*shape, 1)
        after = {
            "reward": tensor(rows.reward, dtype=self.torch.float32).reshape(column),
            "done": tensor(rows.terminated | rows.truncated).reshape(column),
            "terminated": tensor(rows.terminated).reshape(column),
            "truncated": tensor(rows.truncated).reshape(column),
        }
        step = {"observation": tensor(rows.obs), "action": tensor(rows.action), "next": pack(after, shape)}
        return pack(step, shape)

    def fill(self, count: int) -> None:
        for block in blocks(count, obs_size=SEQUENCE_OBS_SIZE):
            self.buffer.extend(self._steps(block, [len(block.reward)]))

    def add_and_draw(self, n: int, steps: Iterable[Step]) -> None:
        buffer, rows = self.buffer, n * self.length
        for step in steps:
            buffer.add(self._steps(step, []))
            buffer.sample(rows)

    def prepare_errors(self, errors: list[Array]) -> list[Any]:
        return [self.torch.from_numpy(np.asarray(error)) for error in errors]

    def draw(self, n: int) -> Any:
        return self.buffer.sample(n * self.length, return_info=True)

    def update(self, drawn: Any, error: Any) -> None:
        index = drawn[1]["index"]
        index = index[0] if isinstance(index, tuple) else index
        self.buffer.update_priority(index.reshape(-1)[:: self.length], error)


class TorchrlPlainSlices(TorchrlSlices):
    """Without the cache, which holds until the next step is added."""

    cached = False
    most = 1_000_000
