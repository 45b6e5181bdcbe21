"""A device buffer's arrays in RAM, which take over what is new while the device goes on."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._base.types import Array, Int64
from .._buffer.choices import Choices
from .._buffer.core import Access, Tally
from .._buffer.wiring import assemble
from .._ring.lanes import HEAD, OLDEST, READY, first_rows, ranges
from .._ring.ring import TOUCHED
from ..buffer import ReplayBuffer
from ..checkpoints._snapshot import Facts, restore
from ..storage import Ram
from ._layout import Layout
from ._ops_call import storage
from ._ops_write import unit_at
from ._random import philox_of
from ._state import ANCHORS_SEEN, DRAWN, ROW_COUNTERS, SEEN, STALE, UPDATED, State

COUNTS = {"drawn": DRAWN, "updates": UPDATED, "stale_updates": STALE}
# Bytes that come over at a time; a device has as much page-locked memory on the host.
PORTION = 64 << 20


class Instant(NamedTuple):
    """All that changes in place, as it was at one instant: copies on the device. Rows that are stored stay as they are.

    Attributes:
        arrays: All but the fields of the steps that are never written back, by their names in a storage.
        next: For each array of fields what stands behind the newest step of each lane, uint8 `[L, bytes]`.
        flags: int64 `[8]`.
        key: int64 `[2]`.
        position: int64 `[1]`.
        last: Ids and weights of the last batch.
    """

    arrays: dict[str, Tensor]
    next: dict[str, Tensor]
    flags: Tensor
    key: Tensor
    position: Tensor
    last: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, layout: Layout, state: State, last: tuple[Tensor, Tensor] | None) -> Instant:
        """The instant after the calls that were made so far; does not wait."""
        device = state.marks.device
        at = storage(layout, state.counters[:, HEAD], torch.arange(layout.lanes, device=device))
        if last is None:
            last = torch.zeros(0, dtype=torch.int64, device=device), torch.zeros(0, device=device)
        return cls(
            arrays={
                name: array.clone()
                for name, array in state.arrays().items()
                if name not in state.columns or name in layout.writable
            },
            next={array: data[at] for array, data in state.rows.items() if array not in layout.writable},
            flags=state.flags.clone(),
            key=state.key.clone(),
            position=state.position.clone(),
            last=(last[0].clone(), last[1].clone()),
        )


class Ahead:
    """Holds writes back that could reach rows which are still being copied.

    Args:
        layout: The sizes.
        moved: The lock of all calls; waiting for it lets go of it.

    Attributes:
        claimed: Rows that a lane has claimed at most, so far.
        begun: As many it had at the instant.
    """

    def __init__(self, layout: Layout, moved: threading.Condition) -> None:
        self._layout, self._moved = layout, moved
        self.claimed = self.begun = 0
        self._limit: int | None = None  # rows that a lane may claim after the instant; None: nothing is being copied

    def write(self) -> None:
        """Wait until a call may write; the caller has the lock."""
        most = self._layout.most_claimed
        while self._limit is not None and self.claimed - self.begun + most > self._limit:
            self._moved.wait()
        self.claimed += most

    def begin(self, since: int | None) -> None:
        """Copies begin of what each lane claimed since so many rows, or None: of all; the caller has the lock."""
        rows = self._layout.rows if since is None else min(self.claimed - since, self._layout.rows)
        self.begun, self._limit = self.claimed, self._layout.depth - 1 - rows

    def allow(self, limit: int | None) -> None:
        """Each lane may claim as many rows after the instant; None: any number."""
        with self._moved:
            self._limit = limit
            self._moved.notify_all()


class Twin:
    """A buffer's arrays in RAM.

    Args:
        choices: What the buffer is built from.
        layout: Its sizes.
        state: Its tensors.
    """

    def __init__(self, choices: Choices, layout: Layout, state: State) -> None:
        self._choices, self._layout, self._state = choices, layout, state
        self._keeps = (*choices.sampler.keeps, TOUCHED)
        self._spec = choices.spec(choices.window, self._keeps)
        self._memory = Ram().open(self._spec, choices.identity)
        self._from = _Transfer(state.marks.device)
        self._head: Int64 | None = None  # the rows before it are here
        self._claimed: int | None = None  # what `Ahead` had counted at the last instant

    def begin(self, last: tuple[Tensor, Tensor] | None, ahead: Ahead | None = None) -> Instant:
        """An instant that `follow` goes on to, if it is given `ahead`; the caller has the buffer's lock."""
        instant = Instant.of(self._layout, self._state, last)
        self._from.begin()
        if ahead is not None:
            ahead.begin(self._claimed)
        return instant

    def follow(self, instant: Instant, ahead: Ahead) -> None:
        """Take over the steps that are new at an instant; waits for the device."""
        layout, claimed = self._layout, ahead.begun
        head = self._take_new(instant, ahead)
        lanes = torch.arange(layout.lanes)
        behind = storage(layout, torch.from_numpy(head), lanes).numpy()
        for array, tensor in instant.next.items():
            self._bytes_of(array)[behind] = self._from.fetch(tensor)
        self._head, self._claimed = head, claimed

    def _take_new(self, instant: Instant, ahead: Ahead) -> Int64:
        """All rows that are not here, the oldest first; the row after the newest of each lane."""
        layout = self._layout
        counters = self._from.fetch(instant.arrays[ROW_COUNTERS]).copy()
        head, stored = counters[:, HEAD], first_rows(counters, layout.rows)
        first = np.maximum(head - layout.depth + 1, 0 if self._head is None else self._head)
        step = max(PORTION // (layout.lanes * sum(layout.widths.values()) or 1), 1)
        for begin in range(0, int((head - first).max()), step):
            start = np.minimum(first + begin, head)
            needed = np.maximum(start, stored)
            free = needed + layout.depth - 1 - head
            ahead.allow(int(free[needed < head].min(initial=layout.depth)))
            self._take(*ranges(start, np.minimum(start + step, head)))
        return head.copy()

    def _take(self, lanes: Int64, rows: Int64) -> None:
        """The fields of rows."""
        layout, state = self._layout, self._state
        of_lanes, of_rows = torch.from_numpy(lanes), torch.from_numpy(rows)
        at = storage(layout, of_rows, of_lanes)
        for array in state.rows.keys() - layout.writable:
            self._bytes_of(array)[at.numpy()] = self._from.rows(state.rows[array], at)
        for part in layout.states:
            if part.writable:
                continue
            units = torch.unique(unit_at(layout, part, of_rows, of_lanes))
            self._bytes_of(part.array)[units.numpy()] = self._from.rows(state.states[part.array], units)

    def _bytes_of(self, array: str) -> Array:
        """The rows of an array of fields, uint8 `[n, bytes]`."""
        return self._flat(array).reshape(-1, self._layout.widths[array])

    def _flat(self, array: str) -> Array:
        found: Array = self._memory.host(array).reshape(-1).view(np.uint8)
        return found

    def buffer(self, instant: Instant, tally: Tally | None = None) -> ReplayBuffer:
        """An ordinary buffer over these arrays, which draws on as the device does from an instant on.

        Args:
            instant: It began last.
            tally: Of the buffer before, whose saves it goes on with.
        """
        for name, tensor in instant.arrays.items():
            flat, to = tensor.view(-1).view(torch.uint8), self._flat(name)
            for begin in range(0, len(flat), PORTION):
                to[begin : begin + PORTION] = self._from.fetch(flat[begin : begin + PORTION])
        for name in {SEEN, ANCHORS_SEEN} & self._spec.keys():
            self._memory.host(name)[...] = self._memory.host(ROW_COUNTERS)[:, [OLDEST, READY, HEAD]]
        rng = np.random.Generator(philox_of(instant.key, instant.position))
        access = Access(self._choices.window, self._keeps)
        core = assemble(self._choices, Ram(), self._memory, access, rng, fresh=False)
        core.writer.resume()
        flags: list[int] = instant.flags.tolist()
        counts = {name: flags[number] for name, number in COUNTS.items()} | {"slow_adds": 0}
        ids, weights = (tensor.cpu().numpy() for tensor in instant.last)
        restore(core, Facts(rng, counts, ids, weights))
        if tally is not None:
            core.tally.identity, core.tally.saver = tally.identity, tally.saver
        return ReplayBuffer._of(core)


class _Transfer:
    """Copies tensors to the host: of a CUDA device on a stream of its own, through page-locked memory.

    Args:
        device: Where they are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._locked = torch.empty(0, dtype=torch.uint8)

    def begin(self) -> None:
        """Later copies come behind the calls that were made so far; later calls do not wait for them."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def fetch(self, tensor: Tensor) -> Array:
        """The elements of a tensor, in memory that the next call writes over."""
        return self._fetched(tensor, None)

    def rows(self, data: Tensor, at: Tensor) -> Array:
        """The rows `at`, int64 `[n]` on the host, of a tensor, in memory that the next call writes over."""
        return self._fetched(data, at)

    def _fetched(self, tensor: Tensor, at: Tensor | None) -> Array:
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            if at is not None:
                tensor = tensor.index_select(0, at.to(self._device))
            if self._stream is None:
                return np.asarray(tensor.cpu())
            if len(self._locked) < tensor.nbytes:
                self._locked = torch.empty(max(tensor.nbytes, PORTION), dtype=torch.uint8, pin_memory=True)
            found = self._locked[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            found.copy_(tensor, non_blocking=True)
            self._stream.synchronize()
            return np.asarray(found)
