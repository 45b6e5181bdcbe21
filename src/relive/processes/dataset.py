"""Batches as a data set of PyTorch's, for its `DataLoader` and the worker processes of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from .._base import check
from .._base.nests import mapped
from .._buffer.arguments import too_many
from .._buffer.core import Core
from .._buffer.drawing import sample
from .._flow.transform import Change, Transform
from ..batch import Batch
from ..errors import ArgumentError, message
from .joining import joined

_AT = "ReplayBuffer.dataset"
_INSTEAD = (
    "workers that are started anew open `storage=Shared()` or `Mapped(path)`, also of `relive.load(path, storage=...)`;"
    ' `multiprocessing_context="fork"` shows them the steps that a buffer in `Ram` has then'
)


class Batches(IterableDataset[Batch]):
    """See `ReplayBuffer.dataset`.

    Args:
        core: Of the buffer.
        draw: Its `sample`.
        batch_size: Items of a batch.
        batches: How many; None: no end.
        transform: What changes a batch, as in `prefetch`.
    """

    def __init__(
        self, core: Core, draw: Callable[[int], Batch], batch_size: Any, batches: Any, transform: Change | None
    ) -> None:
        self._size = check.integer(batch_size, f"{_AT}(batch_size)", minimum=1)
        if self._size > core.most:
            raise too_many(core.most, self._size, f"{_AT}(batch_size)")
        self._batches = None if batches is None else check.integer(batches, f"{_AT}(batches)", minimum=1)
        self._change = Transform(transform, f"{_AT}(transform)")
        self._core, self._draw, self._given, self._loaded = core, draw, 0, False
        self._name = getattr(core.storage, "address", None)
        self._worker = False  # this process is one, and draws with a generator of its own

    def __iter__(self) -> Iterator[Batch]:
        """Draw batches as tensors; in a worker its share of them, from a buffer opened there."""
        worker, wanted = get_worker_info(), self._batches
        if worker is not None:
            if not self._worker:  # one that persists draws on in its next iteration
                self._join(worker.seed)
            wanted = None if wanted is None else (wanted - worker.id + worker.num_workers - 1) // worker.num_workers
        self._given, self._loaded = self._given if self._loaded else 0, False
        while wanted is None or self._given < wanted:
            seed = self._change.seed(self._core.tally.rng)
            batch = self._change(self._draw(self._size), seed)
            self._given += 1
            yield Batch(mapped(lambda value: value, batch.torch()))  # of a type that a loader makes anew
        self._given = 0

    def _join(self, seed: int) -> None:
        """Open the buffer in a worker."""
        if self._name is not None:
            self._core = joined(self._name, self._core.item, self._core.sampler, seed)
            self._draw = partial(sample, self._core)
        else:
            self._core.tally.rng = check.generator(seed)
        self._worker = True

    def state_dict(self) -> dict[str, Any]:
        """Return how many batches were given, and the state of the buffer's generator."""
        return {"given": self._given, "generator": self._core.tally.rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on where `state` was taken, given the same steps."""
        self._core.tally.rng.bit_generator.state = state["generator"]
        self._given, self._loaded = check.integer(state["given"], f"{_AT}(given)", minimum=0), True

    def __getstate__(self) -> dict[str, Any]:
        if self._name is None:
            got = f"`{self._core.storage!r}`"
            raise ArgumentError(message("a storage that other processes open", got, _AT, _INSTEAD))
        chosen = _Chosen(self._core.item, self._core.sampler)
        return {**vars(self), "_core": chosen, "_draw": None}


class _Chosen:
    """The choices of a buffer whose steps a worker opens by name."""

    def __init__(self, item: Any, sampler: Any) -> None:
        self.item, self.sampler = item, sampler
