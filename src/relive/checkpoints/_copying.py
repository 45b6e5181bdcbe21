"""A buffer as objects that can be pickled, and a buffer of them again."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np

from .._base.arrays import ArraySpec, Memory
from .._base.frozen import Frozen
from .._base.types import Array, Int64
from .._buffer.choices import Choices
from .._buffer.core import Core, opened
from .._ring.ring import Ring
from ..schema import Column
from ..storage import Ram
from ._filling import fill_limiter, fill_ring, fill_sampler
from ._lane import lanes_of
from ._names import CLOCK, LIMITER, WHOLE
from ._snapshot import Facts, Snapshot, restore

if TYPE_CHECKING:
    from ..buffer import ReplayBuffer


class Copy(Frozen):
    """All of a buffer.

    Attributes:
        choices: What it was built from.
        identity: Names the buffer and its copies.
        facts: What is in no array.
        arrays: The small arrays, by name.
        columns: The units of every column that are stored, lane by lane.
    """

    choices: Choices
    identity: str
    facts: Facts
    arrays: dict[str, Array]
    columns: list[Array]


def copied(core: Core) -> Copy:
    """A copy of a buffer, made under its lock."""
    ring = core.ring
    snapshot = Snapshot(core)
    with core.lock.alone():
        snapshot.take()
        first, head = snapshot.first.tolist(), snapshot.head.tolist()
        columns = [
            np.concatenate(
                [array[_places(ring, *ends, column)] for ends in zip(range(ring.lanes), first, head, strict=True)]
            )
            for column, array in zip(core.schema.columns, ring.columns, strict=True)
        ]
        snapshot.check()
        # Here, since others may draw later; and `copy.copy` takes what it is given for the copy.
        facts = Facts(**{**vars(snapshot.facts), "rng": deepcopy(snapshot.facts.rng)})
    return Copy(core.choices, core.tally.identity, facts, snapshot.arrays(), columns)


def rebuilt(kind: type[ReplayBuffer], copy: Copy) -> ReplayBuffer:
    """A buffer of class `kind` that goes on like the one that was copied."""
    arrays, choices = copy.arrays, copy.choices
    lanes = lanes_of(arrays, choices.rows)

    def fill(spec: Mapping[str, ArraySpec], memory: Memory) -> bool:
        fill_ring(memory, lanes, arrays[CLOCK], spec)
        whole = {name.removeprefix(WHOLE): array for name, array in arrays.items() if name.startswith(WHOLE)}
        fill_sampler(memory, choices.sampler, lanes, choices.rows, whole, "ReplayBuffer")
        if choices.limiter is not None:
            fill_limiter(memory, arrays[LIMITER], lanes)
        return False

    core = opened(choices, Ram(), copy.facts.rng, fill)
    for column, array, values in zip(core.schema.columns, core.ring.columns, copy.columns, strict=True):
        places = [_places(core.ring, number, lane.first, lane.head, column) for number, lane in enumerate(lanes)]
        array[np.concatenate(places)] = values
    restore(core, copy.facts)
    core.tally.identity = copy.identity
    return kind._of(core)


def _places(ring: Ring, lane: int, first: int, head: int, column: Column) -> Int64:
    """Where the units of a column are that have a lane's stored rows, and the observation after them."""
    every = column.field.every or 1
    return ring.units(np.arange(first // every, head // every + 1) * every, lane, column.field.every)
