"""A buffer as objects that can be pickled, and a buffer of them again."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Protocol, TypeVar

import numpy as np

from .._base.arrays import ArraySpec, Memory
from .._base.frozen import Frozen
from .._base.memory import zeros_together
from .._base.types import Array, Int64
from .._buffer.choices import Choices
from .._buffer.core import Core
from .._buffer.wiring import alone
from .._ring import kernels
from .._ring.ring import Ring
from ..schema import Column
from ..storage import Ram
from ._filling import fill_limiter, fill_ring, fill_sampler
from ._lanes import lanes_of
from ._names import CLOCK, LIMITER, WHOLE
from ._saving import Saver
from ._snapshot import Facts, Snapshot, restore
from ._steps import rows_in

B = TypeVar("B", covariant=True)
_PIECE = 4 << 20  # bytes that are copied, and given back, together


class BufferClass(Protocol[B]):
    """The class of a buffer: `ReplayBuffer`, or one that inherits from it."""

    def _of(self, core: Core) -> B:
        """Make a buffer of its parts."""


class BufferCopy(Frozen):
    """All of a buffer.

    Attributes:
        choices: What it was built from.
        identity: Names the buffer and its copies.
        known: Tokens of the saves that it goes on from.
        facts: What is in no array.
        arrays: The small arrays, by name.
        columns: The stored units of all columns, lane by lane, in pieces of about 4 MiB: of each piece an array for
            every column.
    """

    choices: Choices
    identity: str
    known: tuple[str, ...]
    facts: Facts
    arrays: dict[str, Array]
    columns: list[Array]

    def __deepcopy__(self, memo: dict[int, object]) -> BufferCopy:
        """Return one whose arrays are the same: they are a copy already."""
        own = {name: deepcopy(getattr(self, name), memo) for name in ("choices", "facts")}
        return BufferCopy(**{**vars(self), **own})


def copied(core: Core) -> BufferCopy:
    """Copy a buffer under its lock."""
    ring = core.ring
    snapshot = Snapshot(core)
    columns = list[Array]()

    def take() -> None:
        snapshot.take()
        columns.clear()
        stored = [_units(ring, n, c, snapshot.first, snapshot.head) for n, c in enumerate(core.schema.columns)]
        pieces = 1 + sum(rows_in(units) * rows[0].nbytes for units, rows, _ in stored) // _PIECE
        for number in range(pieces):
            parts = [_part(units, number, pieces) for units, _, _ in stored]
            shapes = [(rows_in(part), *rows.shape[1:]) for part, (_, rows, _) in zip(parts, stored, strict=True)]
            made = zeros_together([(shape, rows.dtype) for shape, (_, rows, _) in zip(shapes, stored, strict=True)])
            for part, values, (_, rows, block) in zip(parts, made, stored, strict=True):
                kernels.active().copy_ranges([rows], ring.lanes, block, part, [values])
            columns.extend(made)

    with core.lock.alone():
        core.access.still(take)
        snapshot.check()
        # Here, since others may draw later; and `copy.copy` takes what it is given for the copy.
        facts = Facts(**{**vars(snapshot.facts), "rng": deepcopy(snapshot.facts.rng)})
    saver = core.tally.saver
    known = () if saver is None else tuple(saver.known)
    return BufferCopy(core.choices, core.tally.identity, known, facts, snapshot.arrays(), columns)


def rebuilt(kind: BufferClass[B], copy: BufferCopy) -> B:
    """Build a buffer of class `kind` that resumes where the copied one was; `copy.columns` is empty then."""
    arrays, choices = copy.arrays, copy.choices
    lanes = lanes_of(arrays, choices.rows)

    def fill(spec: Mapping[str, ArraySpec], memory: Memory) -> bool:
        fill_ring(memory, lanes, 0, arrays[CLOCK], spec)
        whole = {name.removeprefix(WHOLE): array for name, array in arrays.items() if name.startswith(WHOLE)}
        fill_sampler(memory, choices.sampler, lanes, choices.rows, whole, "ReplayBuffer")
        if choices.limiter is not None:
            fill_limiter(memory, arrays[LIMITER], lanes.steps)
        return False

    core = alone(choices, Ram(), copy.facts.rng, fill)
    stored = [_units(core.ring, n, c, lanes.first, lanes.head) for n, c in enumerate(core.schema.columns)]
    pieces = len(copy.columns) // len(stored)
    copy.columns.reverse()
    for number in range(pieces):  # each is given back before the next one needs memory
        for units, rows, block in stored:
            part, values = _part(units, number, pieces), [copy.columns.pop()]
            kernels.active().set_ranges([rows], core.ring.lanes, block, part, values)
    restore(core, copy.facts)
    core.tally.identity, core.tally.saver = copy.identity, Saver(copy.identity, known=copy.known)
    return kind._of(core)


def _units(ring: Ring, number: int, column: Column, first: Int64, head: Int64) -> tuple[Int64, Array, int]:
    """Return the ranges of a column's units that hold the lanes' stored rows and the observation after them.

    With them its array, and how many units of a lane lie together in it.
    """
    every = column.field.every
    units = np.stack([np.arange(ring.lanes), first // (every or 1), head // (every or 1) + 1], axis=1)
    return units, ring.columns[number][: -1 if every is None else None], ring.marks.shape[2] if every is None else 1


def _part(units: Int64, number: int, pieces: int) -> Int64:
    """Take the ranges of the piece `number`, of so many of about the same size."""
    lane, first, last = units.T
    ends = np.cumsum(last - first)
    begin, end = (int(ends[-1]) * n // pieces for n in (number, number + 1))
    low, high = np.maximum(first, last - ends + begin), np.minimum(last, last - ends + end)
    return np.asarray(np.stack([lane, low, high], axis=1)[low < high])
