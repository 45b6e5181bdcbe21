"""Saves of a device buffer: its tensors, of which later saves copy and write the rows that are new."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._base.types import Array, Int64
from .._buffer.choices import Choices
from .._buffer.saved_as import described
from .._buffer.schemas import fields_of
from .._device_samplers import Draws
from .._disk import tensors as disk
from .._disk.device_counts import APPLIED, DRAWN, UPDATED
from .._disk.tensor_writer import TensorWriter, portions_of
from ..checkpoints import _manifest
from ..checkpoints._save_task import Basis, SaveContents, SavePlace, SaveTask, planned
from ..checkpoints._saving import Saver
from ..checkpoints._steps import RANGES, batches
from ._fields import TensorField
from ._ring import LanesRing

if TYPE_CHECKING:
    from ..checkpoints._saved import Saved

STEPS_FORMAT = "relive.device-steps.1"
PORTION = 64 << 20  # bytes that come over at a time; a CUDA device has as much page-locked memory on the host


class Copies:
    """Copies a buffer's tensors to RAM, oldest rows first, while calls write others; and saves them.

    Args:
        choices: What the buffer is built from.
        ring: Its rows.
        draws: Its sampler.
        generator: Of its draws; None: PyTorch's default one, which is not saved.
        lock: Of all calls; waiting for it lets go of it.
        turn: Returns the turn of a call, ordered after the one before on any stream.
    """

    def __init__(
        self,
        choices: Choices,
        ring: LanesRing,
        draws: Draws,
        generator: torch.Generator | None,
        lock: threading.Condition,
        turn: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.choices, self.ring, self.draws, self.generator, self.lock = choices, ring, draws, generator, lock
        self.turn, self.saver = turn, Saver(os.urandom(16).hex())
        self.moved = Transfer(ring.lane.device)
        self._written = 0  # calls since the instant
        self._limit: int | None = None  # of these; None: nothing is being copied

    @property
    def taken(self) -> bool:
        """True in a thread that is in the middle of a save."""
        return self.saver.taken

    def save(self, path: str, *, keep: int = 1, wait: bool = True, verify: bool = False) -> Saved:
        """Save, with the arguments of `DeviceBuffer.save`."""
        return self.saver.save(partial(DeviceTask, self), path, keep, wait, verify)

    def wait(self) -> None:
        """Wait until a call may write a row; the caller has the lock."""
        while self._limit is not None and self._written >= self._limit:
            self.lock.wait()
        self._written += 1

    def begin(self, free: int) -> None:
        """Let as many calls write from this instant on; the caller has the lock."""
        self._written, self._limit = 0, free

    def allow(self, free: int | None) -> None:
        """Let as many calls write since the instant; None: any number."""
        with self.lock:
            self._limit = free
            self.lock.notify_all()

    def observed(self) -> list[TensorField]:
        """List the parts of the observation."""
        return [field for field in self.ring.fields if field.observed]

    def small(self) -> dict[str, Tensor]:
        """Return all tensors that are written in place, finals included, by name; no copies."""
        ring = self.ring
        found = ring.tensors() | {f"draws.{name}": tensor for name, tensor in self.draws.tensors().items()}
        found |= {f"finals.{name_in(field)}": ring.data[field][ring.size : -1] for field in self.observed()}
        return found | {f"fields.{name_in(field)}": ring.data[field] for field in ring.fields if field.writable}


class DeviceTask(SaveTask):
    """A save of a device buffer.

    Args:
        copies: The buffer.
        place: The directory.
    """

    def __init__(self, copies: Copies, place: SavePlace) -> None:
        super().__init__(place)
        self._copies = copies
        self._rows: dict[TensorField, Array] = {}

    def choices(self) -> dict[str, object]:
        """Return what the buffer was built from, as JSON."""
        made, ring = self._copies.choices, self._copies.ring
        return {
            "schema": fields_of(made.schema),
            "num_envs": made.num_envs,
            "rows": made.rows,
            "steps": made.steps,
            "boundaries": made.boundaries,
            "item": described(made.item),
            "sampler": described(made.sampler),
            "window": made.window.facts,
            "digest": made.identity.hex(),
            "device": {"kind": ring.lane.device.type, "rows": ring.rows, "masks": ring.holes},
        }

    def take(self, basis: Basis | None) -> float:
        """Copy what changes in place, then the new rows."""
        copies, ring = self._copies, self._copies.ring
        begun = time.perf_counter()
        with copies.turn():
            call = int(ring.call)
            # The row of the next call has the newest steps' successors.
            first, head = np.array([max(call + 1 - ring.rows, 0)]), np.array([call + 1])
            self._kept, self._new = planned(first, head, basis)
            self._head = np.array([call])
            small = {name: tensor.clone() for name, tensor in copies.small().items()}
            copies.moved.begin()
            self._free = ring.rows - call - max(field.every for field in ring.fields)
            oldest = int(self._new[0, 1])
            copies.begin(oldest + self._free)
            own = copies.generator
            self._generator = None if own is None else own.get_state()
            self._tally = ring.counts.tolist()
        stopped = time.perf_counter() - begun
        try:
            self._copy_rows()
        finally:
            copies.allow(None)
        self._small = {name: copies.moved.fetch(tensor).copy() for name, tensor in small.items()}
        return stopped

    def _copy_rows(self) -> None:
        """Copy the rows that are to be written, the oldest first."""
        copies, ring = self._copies, self._copies.ring
        fields = [field for field in ring.fields if not field.writable]
        row = sum(width(ring, field) for field in fields) or 1
        pieces: dict[TensorField, list[Array]] = {field: [] for field in fields}
        for ranges in batches(self._new, max(PORTION // row, 1)):
            for _, begin, end in ranges.tolist():
                copies.allow(begin + self._free)
                for field in fields:
                    at = torch.from_numpy(places(ring, field, begin, end))
                    pieces[field].append(copies.moved.rows(ring.data[field], at).reshape(-1).view(np.uint8).copy())
        self._rows = {field: np.concatenate(found) for field, found in pieces.items() if found}

    def contents(self) -> SaveContents:
        """Return what is to be written."""
        arrays = {f"fields.{name_in(field)}": rows for field, rows in self._rows.items()} | {RANGES: self._new}
        tensors = {name: disk.Tensor.of(array.dtype, array.shape) for name, array in arrays.items()}
        portions = chain.from_iterable(portions_of(*each) for each in arrays.items())
        steps = TensorWriter(tensors, portions, {"format": STEPS_FORMAT})
        updates, applied = self._tally[UPDATED], self._tally[APPLIED]
        known = {"drawn": self._tally[DRAWN], "updates": updates, "stale_updates": updates - applied}
        counts = dict.fromkeys(_manifest.COUNTS, 0) | known
        return SaveContents(self._kept, self._new, self._head, steps, self._arrays, counts, {})

    def _arrays(self) -> Mapping[str, Array]:
        own = {} if self._generator is None else {"generator": self._generator.numpy()}
        return self._small | own

    def check(self) -> None:
        """Do nothing: no other process writes here."""

    def release(self) -> None:
        """Let calls write, and forget the copies."""
        self._copies.allow(None)
        self._rows, self._small = {}, {}


def places(ring: LanesRing, field: TensorField, begin: int, end: int) -> Int64:
    """Return the places of a field's values of the calls `[begin, end)`, all lanes of each."""
    calls = np.arange(begin, end) % ring.rows
    units = np.unique(calls // field.every) if field.every > 1 else calls
    return (units[:, None] * ring.lanes + np.arange(ring.lanes)).reshape(-1)


def width(ring: LanesRing, field: TensorField) -> int:
    """Return the bytes of a row of all lanes."""
    return ring.data[field][:1].numel() * ring.data[field].element_size() * ring.lanes


def name_in(field: TensorField) -> str:
    return ".".join(field.keys)


class Transfer:
    """Copies tensors to the host: of a CUDA device on a stream of its own, through page-locked memory.

    Args:
        device: Where they are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._locked = torch.empty(0, dtype=torch.uint8)

    def begin(self) -> None:
        """Order later copies after the calls that were made so far; later calls do not wait for them."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def fetch(self, tensor: Tensor) -> Array:
        """Return the bytes of a tensor, in memory that the next call writes over."""
        return self._fetched(tensor, None)

    def rows(self, data: Tensor, at: Tensor) -> Array:
        """Return the bytes of the rows `at`, int64 `[n]` on the host, in memory that the next call writes over."""
        return self._fetched(data, at)

    def _fetched(self, tensor: Tensor, at: Tensor | None) -> Array:
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            if at is not None:
                tensor = tensor.index_select(0, at.to(self._device))
            flat = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
            if self._stream is None:
                return np.asarray(flat.cpu())
            if len(self._locked) < flat.nbytes:
                self._locked = torch.empty(max(flat.nbytes, PORTION), dtype=torch.uint8, pin_memory=True)
            found = self._locked[: flat.nbytes]
            found.copy_(flat, non_blocking=True)
            self._stream.synchronize()
            return np.asarray(found)
