"""The last batches of a device buffer, on their way to the file of a host."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from .._base.narrow import from_torch
from .._buffer.keeping import BatchKeeper, of_arguments
from ..batch import Batch, TorchBatch


class DeviceKeeping:
    """Copies batches of tensors for a file, without waiting.

    A CUDA device copies them to pinned memory, and the next call writes to the file what has come. On the CPU they are
    written at once. What a compiled call or a CUDA graph draws is not kept.

    Args:
        file: The file.
        last: How many batches may be on their way; older ones are dropped.
    """

    def __init__(self, file: BatchKeeper, last: int) -> None:
        self._file = file
        self._coming: deque[tuple[Any, Batch]] = deque(maxlen=2 * last)

    def took(self, batch: TorchBatch) -> TorchBatch:
        """Keep a batch, and return it."""
        self._note(batch)
        return batch

    def gave(self, ids: Tensor, td_error: Tensor) -> None:
        """Keep TD errors with the batch of these ids."""
        self._note(Batch({"ids": ids, "td_error": td_error}))

    def _note(self, batch: Batch) -> None:
        if torch.compiler.is_compiling():
            return
        if not batch["ids"].is_cuda:
            self._write(batch)
        elif not torch.cuda.is_current_stream_capturing():
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._coming.append((event, batch.map(_pinned)))
            event.record()
            self.flush()

    def flush(self, wait: bool = False) -> None:
        """Write what has come; `wait`: and what is still on its way."""
        while self._coming and (wait or self._coming[0][0].query()):
            event, batch = self._coming.popleft()
            event.synchronize()
            self._write(batch)

    def end(self) -> None:
        """Write what is still on its way, and keep no further batch."""
        self.flush(wait=True)
        self._file.end()

    def _write(self, batch: Batch) -> None:
        arrays = batch.map(from_torch)
        if "td_error" in arrays and len(arrays) == 2:
            self._file.give(arrays["ids"], arrays["td_error"].astype("float64"))
        else:
            self._file.keep(arrays)


def kept_by(before: DeviceKeeping | None, path: Any, last: Any) -> DeviceKeeping | None:
    """Begin to keep batches in a file, in place of `before`; None where that ends."""
    file = of_arguments(path, last, "DeviceBuffer.keep_batches")
    if before is not None:
        before.end()
    return None if file is None else DeviceKeeping(file, last)


def _pinned(tensor: Tensor) -> Tensor:
    there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return there.copy_(tensor.detach(), non_blocking=True)
