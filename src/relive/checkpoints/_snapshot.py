"""The small arrays of a buffer at one instant: everything but the steps' fields that never change.

Copying them takes milliseconds, under the buffer's lock. They are put in order afterwards: what the ring and the
sampler keep for each row is saved for the rows that are stored, lane by lane, whatever the capacity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base import memory as _memory
from .._base.frozen import Frozen
from .._base.generators import state_of
from .._base.types import Array, Float32, Int64
from .._buffer.core import Core
from .._ring import kernels
from .._ring.lanes import HEAD, LOADED, first_rows
from ..errors import ArgumentError, message
from ..schema import Column
from ._names import CLOCK, COUNTERS, LAST_IDS, LAST_WEIGHTS, LIMITER, NEXT, ROWS, SLOTS, VALUES, WHOLE, name_of
from ._steps import in_units, rows_in


class Facts(Frozen):
    """The state of a buffer outside the arrays of its storage.

    Attributes:
        rng: The generator.
        counts: `drawn`, `updates`, `stale_updates`, `slow_adds`.
        last_ids: The ids of the last batch.
        last_weights: Its weights.
    """

    rng: np.random.Generator
    counts: dict[str, int]
    last_ids: Int64
    last_weights: Float32


def facts_of(core: Core) -> Facts:
    """Return the state of a buffer outside its arrays."""
    tally = core.tally
    return Facts(tally.rng, {**tally.counts(), "slow_adds": core.slow_adds}, tally.last_ids, tally.last_weights)


def restore(core: Core, facts: Facts) -> None:
    """Go on from what another buffer knew, but for its generator."""
    core.tally.restore(facts.counts)
    core.writer.parsed = facts.counts["slow_adds"]
    core.tally.note(facts.last_ids, facts.last_weights)


def changes_of(core: Core) -> object:
    """Return a value that differs after every call that changes the next save.

    The arrays of slots change with the counters and with updates, which are counted; the steps with the counters.
    """
    if core.lock.taken():  # inside a call, whose changes may be half done
        return _changes(core)
    with core.lock.reentrant:
        core.index.refresh()
        return _changes(core)


def _changes(core: Core) -> object:
    tally, ring = core.tally, core.ring
    spec = core.sampler.spec(ring.lanes, ring.rows)
    whole = [core.memory.host(name) for name, each in spec.items() if each.saved == "whole" and each.nbytes]
    totals = [] if core.limit is None else [core.limit.totals()]
    arrays = [ring.counters, ring.clock, tally.numbers, *whole, *totals]
    return [array.tobytes() for array in arrays], tally.written, core.slow_adds, tally.last, _state(tally.rng)


def _state(rng: np.random.Generator) -> object:
    try:
        return state_of(rng)
    except (AttributeError, ValueError, TypeError, KeyError):  # not NumPy's, which no save takes
        return rng


class Snapshot:
    """Copies of the small arrays of a buffer, which `take` makes under its lock.

    Adding waits meanwhile, so the memory for them is allocated and touched before.

    Attributes:
        facts: What is in no array.
        first: The oldest row of each lane that is stored, int64 `[L]`.
        head: The row after the newest.
    """

    def __init__(self, core: Core) -> None:
        ring, memory = core.ring, core.memory
        self._core, self._ring = core, ring
        spec = core.sampler.spec(ring.lanes, ring.rows)
        rows = {"marks": ring.marks, "given": ring.given if ring.clock[1] else None}  # before a first one it is zeros
        self._rows = {name: _Copied(array) for name, array in rows.items() if array is not None}
        self._slots = {
            name: _Copied(memory.host(name)[: ring.slots]) for name, each in spec.items() if each.saved == "slots"
        }
        self._whole = {
            name: _Copied(memory.host(name)) for name, each in spec.items() if each.saved == "whole" and each.nbytes
        }
        self._values = [
            (column, _Copied(array))
            for column, array in zip(core.schema.columns, ring.columns, strict=True)
            if column.field.writable and column.field.saved
        ]

    def take(self) -> None:
        """Copy the arrays as they are now."""
        core, ring = self._core, self._ring
        core.index.refresh()
        self.facts = facts_of(core)
        self._counters, self._clock = ring.counters.copy(), ring.clock.copy()
        self._counters[:, LOADED] = 0
        self._limiter = {} if core.limit is None else {LIMITER: core.limit.totals()}
        if self._clock[1] and ring.given is not None:
            self._rows.setdefault("given", _Copied(ring.given))
        values = [copied for _, copied in self._values]
        for each in (*self._rows.values(), *self._slots.values(), *self._whole.values(), *values):
            each.take()
        self.head = self._counters[:, HEAD]
        self.first: Int64 = first_rows(self._counters, ring.rows)
        lanes = np.arange(ring.lanes)
        self._next = {
            name_of(column.keys): array[ring.units(self.head, lanes, column.field.every)]
            for column, array in zip(core.schema.columns, ring.columns, strict=True)
            if column.field.saved
        }

    def check(self) -> None:
        """Check that no other process has written since.

        Raises:
            ReliveError: One has.
        """
        self._core.access.unmoved(self._counters)

    def generator(self) -> dict[str, Any]:
        """Return the generator's state as JSON.

        Raises:
            ArgumentError: It is not one of NumPy's.
        """
        rng = self.facts.rng
        try:
            if type(rng) is np.random.Generator:
                return state_of(rng)
            got = type(rng).__name__
        except (ValueError, TypeError, KeyError):
            got = type(rng.bit_generator).__name__
        raise ArgumentError(message("a generator of NumPy's", f"`{got}`", "ReplayBuffer.rng", "set `buffer.rng`"))

    def arrays(self) -> dict[str, Array]:
        """Return all of them by name; those of rows and slots follow the order of stored rows, lane by lane."""
        named = {ROWS + name: self._of_rows(each.copy) for name, each in self._rows.items()}
        named |= {SLOTS + name: self._of_slots(each.copy) for name, each in self._slots.items()}
        named |= {WHOLE + name: each.copy for name, each in self._whole.items()}
        named |= {NEXT + name: array for name, array in self._next.items()}
        named |= {VALUES + name_of(column.keys): self._of_units(column, each.copy) for column, each in self._values}
        facts = self.facts
        return {
            COUNTERS: self._counters,
            CLOCK: self._clock,
            **self._limiter,
            LAST_IDS: facts.last_ids,
            LAST_WEIGHTS: facts.last_weights,
            **named,
        }

    def _of_rows(self, blocks: Array) -> Array:
        lanes, block = blocks.shape[1:]
        found = np.empty((self.head - self.first).sum(), blocks.dtype)
        stored = np.stack([np.arange(lanes), self.first, self.head], axis=1)
        kernels.active().copy_ranges([blocks.reshape(-1)], lanes, block, stored, [found])
        return found

    def _of_units(self, column: Column, values: Array) -> Array:
        """Return the units of a column that files of steps would have."""
        lanes, every = self._ring.lanes, column.field.every
        units = in_units(np.stack([np.arange(lanes), self.first, self.head], axis=1), every)
        found = np.empty((rows_in(units), *values.shape[1:]), values.dtype)
        rows, block = (values[:-1], self._ring.marks.shape[2]) if every is None else (values, 1)
        kernels.active().copy_ranges([rows], lanes, block, np.ascontiguousarray(units), [found])
        return found

    def _of_slots(self, slots: Array) -> Array:
        return self._of_rows(slots.reshape(self._ring.rows, self._ring.lanes, 1))


class _Copied:
    """An array, and the memory for a copy of it."""

    def __init__(self, array: Array) -> None:
        self._array, self.copy = array, _memory.zeros(array.shape, array.dtype)
        self.copy.fill(0)  # or its pages would be taken from the system when it is copied

    def take(self) -> None:
        self.copy[...] = self._array
