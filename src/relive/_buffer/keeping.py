"""The last batches of a buffer, copied into a mapped file as the learner gets them. `kept.py` has the file's layout."""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
import warnings
import zlib
from _thread import RLock
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._base import check, forks
from .._base.generators import state_of
from .._base.types import Array, Bytes, Int64, Leaves
from .._disk.files import let_go, reported
from .._disk.replacing import replacing
from .._ring.kernels import active
from .._ring.lanes import HEAD as ROWS
from ..batch import Batch, arrays_in
from ..errors import ArgumentError, PriorityError, ReliveError, ReliveWarning, StorageError, message
from .arguments import ids_of, td_errors
from .core import Core
from .kept import (
    FORMAT,
    GIVEN,
    HEAD,
    HEADER,
    LINE,
    MAGIC,
    MOST_SLOTS,
    PAGE,
    SlotLayout,
    header_of,
    lined,
    opened,
    state_in,
)

_AT, _ROOM = "ReplayBuffer.keep_batches", 512  # bytes for the generator's state, if it does not need more
_FEW = 256  # lanes
_NUMBER = struct.Struct("<Q")
_ANOTHER = "choose another path"


class StateReader:
    """The state of a generator, as it is from draw to draw.

    NumPy's `state` takes longer than the copy of a batch. Of the usual generator the numbers are read where they lie;
    where that does not give what `state` says, it is asked each time.
    """

    def __init__(self, rng: Any) -> None:
        self.rng, self._parts = rng, None
        self._bits = rng.bit_generator if type(rng) is np.random.Generator else None
        if type(self._bits) is np.random.PCG64:
            import ctypes

            at = self._bits.ctypes.state_address
            inner = ctypes.c_void_p.from_address(at).value or 0
            numbers, half = (ctypes.c_ubyte * 32).from_address(inner), (ctypes.c_ubyte * 8).from_address(at + 8)
            parts = memoryview(numbers).cast("B"), memoryview(half).cast("B")
            if state_in(b"".join(parts)) == self._bits.state:
                self._parts = parts

    def read(self) -> bytes:
        """Return the state, as `state_in` reads it; nothing where it is not known."""
        if self._parts is not None:
            return b"".join(self._parts)
        with suppress(ValueError, TypeError, KeyError):  # a class that saves do not know
            return b"" if self._bits is None else json.dumps(state_of(self.rng)).encode()
        return b""


class Slot(NamedTuple):
    """A slot in memory.

    Attributes:
        layout: Of its batch.
        length: Of the layout's text.
        head: Bytes of its head and of the generator's room.
        places: The fields with their paths.
        errors: The TD errors.
    """

    layout: SlotLayout
    length: int
    head: Bytes
    places: Leaves
    errors: Array

    @classmethod
    def at(cls, layout: SlotLayout, memory: Any, begin: int, room: int) -> Slot:
        """Return the slot at `begin`."""
        *views, errors = layout.view(memory, begin + LINE + room)
        places = [(path, view) for (path, _, _), view in zip(layout.fields, views, strict=True)]
        return cls(layout, len(layout.text), np.ndarray(LINE + room, np.uint8, memory, begin), places, errors)


class BatchKeeper:
    """The writer of a file of kept batches. A forked child leaves the file to its parent.

    Args:
        path: The file; one of kept batches is replaced.
        last: How many batches it has.

    Raises:
        StorageError: The file cannot be made, or is of another kind.
    """

    def __init__(self, path: str, last: int) -> None:
        self.path, self._last = path, last
        self._number, self._size, self._room = 0, 0, 0
        self._lock, self._active, self._copy, self._facts = RLock(), True, active().keep_arrays, HEAD
        self._newest: tuple[int, Array | None] = 0, None  # number and ids
        self._place: StateReader | None = None
        self._slots: list[Slot | None] = [None] * last
        if os.path.lexists(path):
            fd = opened(path, _ANOTHER)
            try:
                header_of(fd, path)
            finally:
                let_go(fd)
        self._mapping = self._made()
        forks.tell(self)

    def _forked(self) -> None:
        """Leave the file to the parent."""
        self._active, self._lock = False, RLock()

    def end(self) -> None:
        """Keep no further batch; the file stays."""
        self._active = False

    def keep(self, batch: Batch, state: bytes = b"", rows: int = -1, lanes: int = 0) -> None:
        """Copy a batch into the file.

        Args:
            batch: As the learner gets it.
            state: The generator before the draw, as `StateReader.read` returns it.
            rows: Of the buffer's longest lane; -1: not known.
            lanes: Of the buffer; 0: not known.
        """
        if not self._active:
            return
        arrays = arrays_in(batch)
        with self._lock:
            number = self._number + 1
            known = self._slots[number % self._last]
            if known is None or known.layout.lanes != lanes or not self._kept(known, number, arrays, state, rows):
                layout = SlotLayout.of(arrays, lanes)
                if LINE + self._room + layout.nbytes > self._size and not self._grown(layout.nbytes, len(state)):
                    return
                known = self._begun(number, layout)
                self._kept(known, number, arrays, state, rows)
            self._number = number
            self._newest = number, None if known.layout.ids is None else arrays[known.layout.ids][1]

    def _kept(self, slot: Slot, number: int, arrays: Leaves, state: bytes, rows: int) -> bool:
        """Copy a batch into a slot; False if this is for batches of other fields."""
        size = len(state) if len(state) <= self._room else 0
        facts = self._facts.pack(number, 0, time.time(), rows, slot.length, slot.layout.crc, size, 0, state)
        return self._copy(arrays, slot.places, slot.head, facts)

    def _begun(self, number: int, layout: SlotLayout) -> Slot:
        """Make the slot of a batch ready for its fields; the one before is no longer whole."""
        index = number % self._last
        self._slots[index] = None
        begin = PAGE + index * self._size
        text = begin + LINE + self._room
        _NUMBER.pack_into(self._mapping, begin, number)
        self._mapping[text : text + len(layout.text)] = layout.text
        made = self._slots[index] = Slot.at(layout, self._mapping, begin, self._room)
        return made

    def give(self, ids: Any, td_error: Any) -> int:
        """Store the TD errors of a batch with it; return the number of the batch, 0 where none has these ids."""
        with self._lock:
            number, newest = self._newest
            number = number if ids is newest else self._numbered(ids_of(ids, _AT))
            known = self._slots[number % self._last]
            if not (number and self._active) or known is None:
                return 0
            head, errors = known.head, known.errors
            head[GIVEN] = 0
            plain = type(td_error) is np.ndarray and td_error.dtype.kind in "fiu" and td_error.shape == errors.shape
            errors[:] = td_error if plain else td_errors(td_error, errors)
            head[GIVEN] = 1
            return number

    def _numbered(self, ids: Int64) -> int:
        """Return the number of the newest batch that has these ids, 0 where none has."""
        wanted = ids.tobytes()
        for number in range(self._number, max(self._number - self._last, 0), -1):
            known = self._slots[number % self._last]
            place = None if known is None else known.layout.ids
            if known is not None and place is not None and known.places[place][1].tobytes() == wanted:
                return number
        return 0

    def state_before(self, core: Core) -> bytes:
        """Return the state of a buffer's generator; nothing where it is not NumPy's own."""
        rng = core.tally.rng
        if self._place is None or self._place.rng is not rng:
            self._place = StateReader(rng)
        return self._place.read()

    def sample(self, core: Core, draw: Callable[..., Batch], batch_size: Any, *, beta: Any = None) -> Batch:
        """Draw a batch by `draw`, which is for the learner, and keep it."""
        state = self.state_before(core)
        batch = draw(batch_size, beta=beta)
        self.drew(core, batch, state)
        return batch

    def drew(self, core: Core, batch: Batch, state: bytes = b"") -> None:
        """Keep a batch of a buffer's steps."""
        heads = core.ring.counters[:, ROWS]
        # After a learner's step NumPy's `max` costs as much as the copy of a batch.
        rows = max(heads.tolist()) if len(heads) <= _FEW else int(heads.max())
        self.keep(batch, state, rows, len(heads))

    def around(self, core: Core, calls: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Return `sample` and `update_priorities`, where they are among `calls`, as calls that keep batches."""
        found: dict[str, Callable[..., Any]] = {}
        if "sample" in calls:
            found["sample"] = partial(self.sample, core, calls["sample"])
        if "update_priorities" in calls:
            found["update_priorities"] = partial(self.update, calls["update_priorities"])
        return found

    def update(self, apply: Callable[[Any, Any], int], ids: Any, td_error: Any) -> int:
        """Store TD errors with their batch, then apply them; errors about them name the batch.

        Raises:
            PriorityError, StaleId, ArgumentError: As `apply` does.
        """
        try:
            number = self.give(ids, td_error)
        except (ReliveError, TypeError, ValueError):  # `apply` has the words for them
            number = 0
        try:
            return apply(ids, td_error)
        except PriorityError as error:
            if number:
                error.args = (f"{error}; `relive batches {self.path}` shows the batch, number {number}",)
            raise

    def _grown(self, nbytes: int, state: int) -> bool:
        """Make room for batches of so many bytes, in a new file that has those of the old one; False if it cannot."""
        before, old = self._size, self._mapping
        self._room = self._room or max(_ROOM, lined(state + state // 4))
        self._facts = struct.Struct(f"{HEAD.format}{LINE - HEAD.size}x{self._room}s")
        self._size = -(-(LINE + self._room + nbytes) // PAGE) * PAGE
        try:
            self._mapping = self._made(old, before)
        except StorageError as error:
            self._active = False
            warnings.warn(f"No further batch is kept. {error}", ReliveWarning, stacklevel=4)
            return False
        self._slots = [
            None if slot is None else Slot.at(slot.layout, self._mapping, PAGE + index * self._size, self._room)
            for index, slot in enumerate(self._slots)
        ]
        return True

    def _made(self, old: Any = None, before: int = 0) -> mmap.mmap:
        """Make the file, with the slots of the old one, of `before` bytes each, and let it take that one's place."""
        size = PAGE + self._last * self._size
        with reported(self.path, "make the file"), replacing(self.path) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.write(bytes(size))
                file.flush()
            made = mmap.mmap(file.fileno(), size)
            head = HEADER.pack(MAGIC, FORMAT, self._last, self._size, self._room)
            made[: len(head) + 4] = head + zlib.crc32(head).to_bytes(4, "little")
            for index in range(self._last if before else 0):
                begin, there = PAGE + index * self._size, PAGE + index * before
                made[begin : begin + before] = old[there : there + before]
        return made


def begun(core: Core, path: Any, last: Any) -> None:
    """Implement `ReplayBuffer.keep_batches`."""
    made, before = of_arguments(path, last, _AT), core.tally.keeping
    if before is not None:
        before.end()
    core.tally.keeping = made


def of_arguments(path: Any, last: Any, at: str) -> BatchKeeper | None:
    """Make what `keep_batches` asks for; None where it ends."""
    count = check.integer(last, f"{at}(last)", minimum=2)
    if count > MOST_SLOTS:
        raise ArgumentError(message(f"at most {MOST_SLOTS}", f"`{count}`", f"{at}(last)"))
    return None if path is None else BatchKeeper(os.path.abspath(check.path(path, f"{at}(path)")), count)
