"""The one place that wires the parts of a buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .._base.arrays import ArraySpec, Memory, Section
from .._base.capabilities import completed
from .._base.forks import importing
from .._base.memory import Arena, available_bytes
from .._flow.call_lock import CallLock
from .._ring.ring import TOUCHED, Ring, given_if
from ..errors import ArgumentError, message
from ..samplers import Index
from ..schema import Schema
from ..storage import Storage
from .adding import Adding
from .choices import Choices
from .core import Access, Core, Readers
from .notices import ALL, Notices
from .tally import Tally

Fill = Callable[[Mapping[str, ArraySpec], Memory], bool]


def alone(choices: Choices, storage: Storage, rng: np.random.Generator, fill: Fill | None = None) -> Core:
    """Wire the core of a buffer whose arrays `storage` opens for this process alone.

    Args:
        choices: What it is built from.
        storage: Where the bytes live.
        rng: The generator of its draws.
        fill: Fills the new arrays before anything reads them; returns whether they still count as new ones, and not as
            those of an earlier buffer.
    """
    keeps = (*given_if(choices.sampler.prioritizes), TOUCHED)
    spec = choices.spec(choices.window, keeps)
    memory = storage.open(spec, choices.identity)
    fresh = None if fill is None else fill(spec, memory)
    return assemble(choices, storage, memory, Access(choices.window, keeps), rng, fresh)


def assemble(
    choices: Choices,
    storage: Storage,
    memory: Memory,
    access: Access,
    rng: np.random.Generator,
    fresh: bool | None = None,
) -> Core:
    """Wire the core of a buffer over arrays that a storage has opened.

    Args:
        choices: What it is built from.
        storage: Where the bytes live.
        memory: The arrays.
        access: How draws and writes meet other processes.
        rng: The generator of its draws.
        fresh: Whether the arrays count as new and zero; None: as `memory` says.
    """
    schema, sampler, lock = choices.schema, choices.sampler, CallLock()
    notices = Notices(lock)
    written = ring_of(schema, choices.rows, choices.steps, memory, access, notices, fresh)
    claims = access.bind(written)
    ring = access.seen(choices.window, written)
    fresh_sampler = getattr(memory, "fresh_sampler", memory.fresh) if fresh is None else fresh
    of_sampler = Section(memory, "sampler/", fresh_sampler)
    index = access.following(completed(sampler.index(ring, of_sampler), Index))
    if sampler.prioritizes and (index.update is None or index.priorities is None):
        got = f"`{type(sampler).__name__}`, whose index has no `{'priorities' if index.update else 'update'}`"
        raise ArgumentError(message("an index that has the methods of a sampler with priorities", got, "$.sampler"))
    refresh = access.refreshing(index.refresh)
    limit = None
    if choices.limiter is not None:
        with importing:
            from .._flow.limit import Limit

        limit = Limit(choices.limiter, written.counters, memory, held=lock.reentrant.held, lock=lock.reentrant)
    writer = Adding(schema, written, refresh, sampler, notices, lock, claims)
    native = writer.call(several=False), writer.call(several=True)
    arrays = choices.ring_spec(access.window, access.keeps)
    return Core(
        choices=choices,
        schema=schema,
        item=choices.item,
        sampler=sampler,
        storage=storage,
        memory=of_sampler,
        ring=ring,
        index=index,
        update=index.update if sampler.prioritizes else None,
        refresh=refresh,
        try_update=access.updating(index.try_update),
        expander=choices.item.bind(schema, ring, Arena()),
        readers=Readers(choices.item, schema, ring),
        writer=writer,
        native=native,
        calls=native if limit is None else (writer.call(False, limit), writer.call(True, limit)),
        access=access,
        lock=lock,
        notices=notices,
        limit=limit,
        tally=Tally(rng),
        nbytes=sum(wanted.nbytes for wanted in arrays.values()),
        most=available_bytes() // schema.nbytes,
    )


def ring_of(
    schema: Schema, rows: int, steps: int, memory: Memory, access: Access, notices: Notices, fresh: bool | None = None
) -> Ring:
    """Make the ring that this process writes to: lanes of `rows` rows that keep `steps` steps."""
    arrays = Section(memory, "ring/", fresh)
    ring = Ring(schema, access.window, rows, steps, arrays, access.keeps, notices.note, access.busy)
    ring.kernel.watched = ALL
    return ring
