"""The file of a buffer's last batches: its layout, and how it is read. `keeping.py` writes it.

A header, then a slot for each of the last batches. A slot is a head, the generator's state, the fields' names, dtypes
and shapes as JSON, the fields, and the TD errors that came for them; each begins at a multiple of 64. A batch's number
is written before all else of it, and again when all of it is there: where both differ, the batch is torn.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._base import check
from .._base.frozen import Frozen
from .._base.generators import generator_of
from .._base.narrow import dtype_of
from .._base.nests import nested, paths
from .._base.system import AT_ONCE, PLAIN
from .._base.types import Array, Float64, Int64, Leaves
from .._disk.files import let_go, read_at, reported, size_of
from .._disk.json_files import damaged, json_in
from ..batch import Batch
from ..errors import MissingSave, StorageError, message
from .schemas import DTYPES

MAGIC, FORMAT, PAGE, LINE = b"relive\0B", 1, 4096, 64
HEADER = struct.Struct("<8sIIQI")  # magic, format, slots, bytes of a slot, bytes for the generator; then a CRC-32
# Number, number again, time, rows of the longest lane, bytes of the names, their CRC-32, bytes of the state, and 1 once
# the TD errors are there.
HEAD = struct.Struct("<QQdqIIII")
GIVEN = 44  # in a head
PCG64 = struct.Struct("<16s16sII")
MOST_SLOTS, _MOST_AXES, _DEEPEST, _TRIES = 1 << 16, 64, 30, 3


Described = tuple[tuple[str, ...], np.dtype[Any], tuple[int, ...]]


class SlotLayout:
    """The places of a batch's fields in a slot.

    Attributes:
        fields: Of each its path, dtype and shape.
        items: Items of the batch, and so TD errors.
        lanes: Of the buffer; 0: not known.
        text: All of it as JSON.
        crc: The CRC-32 of that.
        ids: Which field has the ids; None: none.
        places: Where each field begins, counted from the end of the generator's room.
        errors: Where the TD errors begin.
        nbytes: Up to their end.
    """

    def __init__(self, fields: Sequence[Described], items: int, lanes: int) -> None:
        self.fields, self.items, self.lanes = fields, items, lanes
        listed = [(path, dtype.name, shape) for path, dtype, shape in fields if dtype.name in DTYPES]
        self.text = json.dumps({"items": items, "lanes": lanes, "fields": listed}).encode()
        self.crc, self.places, end = zlib.crc32(self.text), list[int](), lined(len(self.text))
        ids = (("ids",), np.dtype(np.int64), (items,))
        self.ids = next((k for k, field in enumerate(self.fields) if field == ids), None)
        for _, dtype, shape in fields:
            self.places.append(end)
            end += lined(math.prod(shape) * dtype.itemsize) if dtype.name in DTYPES else 0
        self.errors, self.nbytes = end, end + lined(8 * items)

    @classmethod
    def of(cls, arrays: Leaves, lanes: int) -> SlotLayout:
        """Return the layout of a batch with these arrays."""
        items = next((len(array) for path, array in arrays if path == ("ids",) and array.ndim), 0)
        return cls([(path, array.dtype, array.shape) for path, array in arrays], items, lanes)

    @classmethod
    def read(cls, text: bytes) -> SlotLayout:
        """Read a layout from JSON.

        Raises:
            ValueError, KeyError, TypeError: It is damaged.
            MissingExtra: A field is of bfloat16, and `ml_dtypes` is not installed.
        """
        facts = json_in(text)
        fields = []
        for path, name, shape in facts["fields"]:
            sizes = shape if len(shape) <= _MOST_AXES else [-1]
            if not (0 < len(path) <= _DEEPEST and all(type(key) is str for key in path)) or name not in DTYPES:
                raise ValueError("invalid field")
            if not all(type(size) is int and 0 <= size < 2**62 for size in (*sizes, facts["items"], facts["lanes"])):
                raise ValueError("invalid sizes")
            fields.append((tuple(path), dtype_of(name, "$"), tuple(sizes)))
        made = cls(fields, facts["items"], facts["lanes"])
        if made.text != text:
            raise ValueError("other names than were written")
        return made

    def view(self, memory: Any, at: int) -> list[Array]:
        """Return the fields in `memory`, and behind them the TD errors; the names begin at `at`."""
        views: list[Array] = [
            np.ndarray(shape, dtype.newbyteorder("<"), memory, at + place)
            if dtype.name in DTYPES
            else np.empty(shape, dtype)  # is not kept: no reader would know the dtype
            for (_, dtype, shape), place in zip(self.fields, self.places, strict=True)
        ]
        return [*views, np.ndarray(self.items, np.float64, memory, at + self.errors)]


def lined(nbytes: int) -> int:
    """Round up to a multiple of 64."""
    return -(-nbytes // LINE) * LINE


class KeptFacts(Frozen):
    """The facts about a kept batch besides its fields; see `KeptBatch`."""

    number: int
    time: float = math.nan
    torn: bool = True
    td_error: Float64 | None = None
    ages: Int64 | None = None
    generator: np.random.Generator | None = None


class KeptBatch(Batch):
    """A batch as a learner got it, read back by `kept_batches`.

    Its fields are those of the batch. A field that has the name of an attribute here is reached by its key.

    Attributes:
        number: The number of the batch, from 1 on, among all that were kept.
        time: When the learner got it, in seconds since 1970.
        torn: Whether the process ended while it was being copied; then it has no fields, and the learner never got it.
        td_error: What `update_priorities` was given for it, float64 `[B]`, NaN included; None: nothing.
        ages: Rows of each item's lane that were newer, int64 `[B]`; None where that is not known.
        generator: The buffer's generator as it was before the draw; None where that is not known.

    >>> import numpy as np
    >>> kept = KeptBatch({"reward": np.ones(3)}, KeptFacts(number=12, torn=False))
    >>> kept.number, kept.torn, kept.reward.sum()
    (12, False, np.float64(3.0))
    """

    __slots__ = ("_facts",)
    _facts: KeptFacts

    def __init__(self, fields: Mapping[str, Any], facts: KeptFacts) -> None:
        super().__init__(fields)
        object.__setattr__(self, "_facts", facts)

    @property
    def number(self) -> int:
        """The number of the batch."""
        return self._facts.number

    @property
    def time(self) -> float:
        """The time at which the learner got it."""
        return self._facts.time

    @property
    def torn(self) -> bool:
        """True where it is not whole."""
        return self._facts.torn

    @property
    def td_error(self) -> Float64 | None:
        """The TD errors that came for it."""
        return self._facts.td_error

    @property
    def ages(self) -> Int64 | None:
        """The ages of its items."""
        return self._facts.ages

    @property
    def generator(self) -> np.random.Generator | None:
        """The generator before the draw."""
        return self._facts.generator

    def __repr__(self) -> str:
        shown = super().__repr__().partition("(")[2]
        gap = "" if shown == ")" else "," if shown.startswith("\n") else ", "
        return f"KeptBatch({self.number}{', torn' if self.torn else ''}{gap}{shown}"

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptBatch, (dict(self), self._facts)


def kept_batches(path: str | os.PathLike[str]) -> list[KeptBatch]:
    """Read the batches that a buffer's `keep_batches` left in a file, also while the buffer goes on.

    Args:
        path: The file.

    Returns:
        The batches, oldest first, in arrays of their own. One that was being copied when the process was killed is
        `torn` and has no fields.

    Raises:
        StorageError: There is no such file, it is of another kind, or it is damaged.
        MissingExtra: A field is of bfloat16, and `ml_dtypes` is not installed.

    >>> import os, relive, tempfile
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100, seed=0)
    >>> step = dict(obs=0.0, action=0.0, reward=1.0, next_obs=1.0, terminated=True, truncated=False)
    >>> path, ids = os.path.join(tempfile.mkdtemp(), "batches"), buffer.add(**step)
    >>> buffer.keep_batches(path, last=4)
    >>> for _ in range(6):
    ...     batch = buffer.sample(2)
    >>> [(kept.number, kept.reward.tolist()) for kept in relive.kept_batches(path)]
    [(3, [1.0, 1.0]), (4, [1.0, 1.0]), (5, [1.0, 1.0]), (6, [1.0, 1.0])]
    """
    at = os.path.abspath(check.path(path, "kept_batches(path)"))
    fd = opened(at, "`buffer.keep_batches(path)` makes one")
    try:
        with reported(at, "read the file"):
            slots, nbytes, room = header_of(fd, at)
            found = [_slot(fd, at, number, slots, nbytes, room) for number in range(slots if nbytes else 0)]
    finally:
        let_go(fd)
    return sorted((batch for batch in found if batch is not None), key=lambda batch: batch.number)


def opened(at: str, remedy: str) -> int:
    """Open a file of kept batches.

    Raises:
        StorageError: There is none, or it is of another kind.
    """
    wanted = "a file of kept batches"
    try:
        fd = os.open(at, os.O_RDONLY | PLAIN | AT_ONCE)
    except FileNotFoundError:
        raise MissingSave(message(wanted, "none", at, remedy)) from None
    except OSError as error:
        raise StorageError(message(wanted, f"`{error.strerror}`", at, remedy)) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or read_at(fd, 0, len(MAGIC)) != MAGIC:
            raise StorageError(message(wanted, "something else", at, remedy))
    except BaseException:
        let_go(fd)
        raise
    return fd


def header_of(fd: int, at: str) -> tuple[int, int, int]:
    """Read the number of slots, the bytes of one, and those of the generator's room.

    Raises:
        StorageError: They do not fit the file, or it is of a later format.
    """
    head = read_at(fd, 0, HEADER.size + 4)
    with damaged(at):
        if len(head) < HEADER.size + 4:
            raise ValueError("a short file")
        _, kind, slots, nbytes, room = HEADER.unpack(head[:-4])
        if kind != FORMAT:
            raise StorageError(message(f"format {FORMAT}", f"format {kind}", at, "use the relive that wrote it"))
        fits = size_of(fd) == PAGE + slots * nbytes and 0 < slots <= MOST_SLOTS
        if zlib.crc32(head[:-4]) != int.from_bytes(head[-4:], "little") or not fits:
            raise ValueError("the header does not fit the file")
        if nbytes and LINE + room > nbytes:
            raise ValueError("the header does not fit itself")
    return slots, nbytes, room


def state_in(state: bytes) -> Any:
    """Read a generator's state: JSON, or the numbers of PCG64, 40 bytes."""
    if len(state) != PCG64.size:
        return json_in(state)
    number, step, half, left = PCG64.unpack(state)
    numbers = {"state": int.from_bytes(number, "little"), "inc": int.from_bytes(step, "little")}
    return {"bit_generator": "PCG64", "state": numbers, "has_uint32": half, "uinteger": left}


def _slot(fd: int, at: str, index: int, slots: int, nbytes: int, room: int) -> KeptBatch | None:
    """Read the batch of a slot, again where another one takes its place meanwhile; None: there is none yet."""
    begin = PAGE + index * nbytes
    number = 0
    for _ in range(_TRIES):
        raw = bytearray(read_at(fd, begin, nbytes))
        with damaged(at):
            number, end, time, rows, length, checksum, place, given = HEAD.unpack_from(raw)
            if number == end == 0:
                return None
            if number == end == int.from_bytes(read_at(fd, begin, 8), "little"):
                if number % slots != index or length + room + LINE > nbytes or place > room:
                    raise ValueError(f"slot {index}")
                text = bytes(raw[LINE + room : LINE + room + length])
                if zlib.crc32(text) != checksum:
                    raise ValueError(f"the names in slot {index}")
                layout = SlotLayout.read(text)
                if LINE + room + layout.nbytes > nbytes:
                    raise ValueError(f"the sizes in slot {index}")
                return _batch(layout, raw, room, KeptFacts(number, time), rows, place, given)
    return KeptBatch({}, KeptFacts(number))


def _batch(
    layout: SlotLayout, raw: bytearray, room: int, facts: KeptFacts, rows: int, place: int, given: int
) -> KeptBatch:
    *views, errors = (view.copy() for view in layout.view(raw, LINE + room))
    fields = nested((path, view) for (path, _, _), view in zip(layout.fields, views, strict=True))
    if [path for path, _ in paths(fields)] != [path for path, _, _ in layout.fields]:
        raise ValueError("a name twice")
    ids = fields.get("ids")
    known = isinstance(ids, np.ndarray) and ids.dtype == np.int64 and layout.lanes > 0 and rows >= 0
    state = bytes(raw[LINE : LINE + place])
    return KeptBatch(
        fields,
        facts.__replace__(
            torn=False,
            td_error=errors if given == 1 else None,
            ages=rows - 1 - np.asarray(ids) // layout.lanes if known else None,
            generator=generator_of(state_in(state)) if state else None,
        ),
    )
