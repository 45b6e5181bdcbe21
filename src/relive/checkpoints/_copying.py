"""A buffer as objects that can be pickled, and a buffer of them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from .._base.arrays import ArraySpec, Memory
from .._base.frozen import Frozen
from .._base.types import Array, Int64
from .._flow.limiter import RateLimiter
from .._ring.lanes import BOUNDARIES
from .._ring.ring import Ring
from ..items import Item
from ..samplers import Sampler
from ..schema import Column, Schema
from ..storage import Ram
from ._filling import Filled, fill_limiter, fill_ring, fill_sampler
from ._instant import Facts, Instant, Source
from ._lane import lanes_of
from ._names import CLOCK, LIMITER, WHOLE


class Copy(Frozen):
    """All of a buffer.

    Attributes:
        schema: What one step holds.
        item: What a draw expands to.
        sampler: Which items are drawn.
        limiter: What adding and drawing wait for.
        rows: Rows of a lane.
        steps: Steps that a lane keeps.
        boundaries: The share of rows that is reserved for final observations.
        identity: Names the buffer and its copies.
        facts: What is in no array.
        arrays: The small arrays, by name.
        columns: The units of every column that are stored, lane by lane.
    """

    schema: Schema
    item: Item
    sampler: Sampler
    limiter: RateLimiter | None
    rows: int
    steps: int
    boundaries: float
    identity: str
    facts: Facts
    arrays: dict[str, Array]
    columns: list[Array]


def copied(source: Source, identity: str) -> Copy:
    """A copy of a buffer, made under its lock."""
    ring = source.ring
    instant = Instant(source)
    with source.turn.alone():
        instant.take()
        first, head = instant.first.tolist(), instant.head.tolist()
        columns = [
            np.concatenate(
                [array[_places(ring, *ends, column)] for ends in zip(range(ring.lanes), first, head, strict=True)]
            )
            for column, array in zip(source.schema.columns, ring.columns, strict=True)
        ]
        instant.check()
        # Here, since others may draw later; and `copy.copy` takes what it is given for the copy.
        facts = Facts(**{**vars(instant.facts), "rng": deepcopy(instant.facts.rng)})
    arrays = instant.arrays()
    limiter = None if source.limit is None else source.limit.limiter
    sizes = (ring.rows, ring.steps, source.boundaries)
    return Copy(source.schema, source.item, source.sampler, limiter, *sizes, identity, facts, arrays, columns)


def rebuilt(kind: Callable[..., Any], copy: Copy) -> Any:
    """A buffer of class `kind` that goes on like the one that was copied."""
    arrays, sampler = copy.arrays, copy.sampler
    lanes = lanes_of(arrays, copy.rows)

    def fill(spec: Mapping[str, ArraySpec], memory: Memory) -> None:
        fill_ring(memory, lanes, arrays[CLOCK], spec)
        whole = {name.removeprefix(WHOLE): array for name, array in arrays.items() if name.startswith(WHOLE)}
        fill_sampler(memory, sampler, lanes, copy.rows, whole, "ReplayBuffer")
        if copy.limiter is not None:
            fill_limiter(memory, arrays[LIMITER], lanes)

    choices = {"num_envs": len(lanes), "item": copy.item, "sampler": sampler, "seed": copy.facts.rng}
    choices |= {} if copy.boundaries == BOUNDARIES else {"boundaries": copy.boundaries}
    choices |= {} if copy.limiter is None else {"limiter": copy.limiter}
    storage = Filled(Ram(), fill, fresh=False)
    buffer = kind(copy.schema, len(lanes) * copy.steps, **choices, storage=storage)
    ring = buffer._ring
    for column, array, values in zip(copy.schema.columns, ring.columns, copy.columns, strict=True):
        places = [_places(ring, number, lane.first, lane.head, column) for number, lane in enumerate(lanes)]
        array[np.concatenate(places)] = values
    buffer.storage = storage.storage
    buffer._restore(copy.facts)
    buffer._identity = copy.identity
    return buffer


def _places(ring: Ring, lane: int, first: int, head: int, column: Column) -> Int64:
    """Where the units of a column are that have a lane's stored rows, and the observation after them."""
    every = column.field.every or 1
    return ring.units(np.arange(first // every, head // every + 1) * every, lane, column.field.every)
