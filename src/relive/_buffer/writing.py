"""Write recomputed values back to stored steps: latents, recurrent states, values, rewards."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from operator import call, setitem
from typing import Any, NamedTuple

import numpy as np

from .._base import check
from .._base.check import integers
from .._base.narrow import as_array
from .._base.types import Array, Bool, Int64
from .._ring.lanes import GONE, anchors_in, items_of
from .._ring.plans import State
from .._schema.step_parser import canonical
from ..errors import ArgumentError, ReliveError, message
from ..schema import Field, Schema
from .arguments import stale
from .core import Core

_AT = "ReplayBuffer.write"
# Rows of a lane that the next writes of another process may take: values do not reach them.
_MARGIN = 64


class Value(NamedTuple):
    """Values for a column: its number in the schema, the steps at which it is kept, and a value for each id."""

    number: int
    every: int | None
    values: Array


def write(core: Core, ids: Any, fields: Mapping[str, Any]) -> int:
    """Implement `ReplayBuffer.write`."""
    check.unmasked(ids, f"{_AT}(ids)", ArgumentError)
    given = as_array(ids)
    values = parsed(core.schema, given.shape, fields)
    which = integers(given.reshape(-1), f"{_AT}(ids)")
    if not core.access.may_write:
        raise ReliveError(message("the process that made the buffer", "another one", _AT))
    return put(core, which, values)


def put(core: Core, which: Int64, values: list[Value]) -> int:
    """Write values to the steps with these ids, `[n]`; how many were written."""
    with core.lock.alone():
        core.access.look()
        rows = core.ring.kernel.standing(which)
        if not core.access.alone:
            rows[_soon_overwritten(core, which)] = -1
        if rows.min(initial=0) < 0:
            written = rows >= 0
            _check_issued(core, which, written)
            which, rows, values = which[written], rows[written], _of(values, written)
        places = [rows if every is None else _kept(core, which, number, every) for number, every, _ in values]
        # Looked at again behind all that takes long: what is written late reaches the step that took the row.
        while not core.access.alone and (soon := _soon_overwritten(core, which)).any():
            which, values, places = which[~soon], _of(values, ~soon), [each[~soon] for each in places]
        jobs = [
            partial(setitem, items_of(core.ring.columns[value.number], 1), each, items_of(value.values, 1))
            for value, each in zip(values, places, strict=True)
        ]
        # One call into C, which no signal handler can interrupt: all fields are written, or none.
        deque(map(call, jobs), maxlen=0)
        core.tally.written += len(which)
        _check_still_there(core, which)
        return len(which)


def _of(values: list[Value], some: Bool) -> list[Value]:
    return [value._replace(values=value.values[some]) for value in values]


def parsed(schema: Schema, lead: tuple[int, ...], fields: Mapping[str, Any]) -> list[Value]:
    """Parse the fields to write into columns and their values.

    Raises:
        ArgumentError: No field is given, or one that is not writable.
        SchemaError: A value of another shape or dtype.
    """
    if not fields:
        raise ArgumentError(message("a field to write", "none", _AT))
    known = {column.keys: (number, column) for number, column in enumerate(schema.columns) if column.field.writable}
    found = []
    for keys, value in _leaves((), fields, schema.tree):
        if keys not in known:
            names = ", ".join(f"`{'.'.join(each)}`" for each in known) or "none"
            at, remedy = f"{_AT}({'.'.join(keys)})", "declare it as `Field(..., writable=True)`"
            raise ArgumentError(message(f"a writable field ({names})", f"`{'.'.join(keys)}`", at, remedy))
        number, column = known[keys]
        array = canonical(value, column, lead, 0)
        each = array.reshape(math.prod(lead), *column.field.shape)
        found.append(Value(number, column.field.every, each))
    return found


def _leaves(keys: tuple[str, ...], value: Any, tree: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each value with its keys; mappings nest as the schema does."""
    if isinstance(tree, Field) or not isinstance(value, Mapping):
        yield keys, value
        return
    for name, child in value.items():
        yield from _leaves((*keys, name), child, tree.get(name, {}) if isinstance(tree, Mapping) else {})


def _soon_overwritten(core: Core, ids: Int64) -> Bool:
    """Mark the steps that other processes may overwrite during this call."""
    rows, lanes = np.divmod(ids, core.ring.lanes)
    soon = rows < core.ring.counters[lanes, GONE] + min(_MARGIN, core.ring.rows // 4)
    return np.asarray(soon & core.access.shared(lanes))


def _check_issued(core: Core, ids: Int64, written: Bool) -> None:
    """Check that ids without a stored step are those of overwritten ones, or -1."""
    _, states = core.ring.locate(ids)
    if states is not None:
        unknown = ~written & (states == State.NEVER_ISSUED) & (ids != -1)
        if unknown.any():
            raise stale(ids, states, unknown, _AT, "steps")


def _kept(core: Core, ids: Int64, number: int, every: int) -> Int64:
    """Return the rows in which a field kept at every `every`-th step has these steps.

    Raises:
        ArgumentError: At one of them no item starts, so that the field is not kept.
    """
    rows, lanes = np.divmod(ids, core.ring.lanes)
    kept = anchors_in(core.ring.marks[core.ring.at(rows, lanes)])
    if not kept.all():
        path = core.schema.columns[number].path
        wanted = f"steps at which items start, as `{path.removeprefix('$.')}` is kept at every {every} steps"
        got = f"`{ids[~kept][0]}` ({int((~kept).sum())} of {len(ids)})"
        raise ArgumentError(message(wanted, got, f"{_AT}(ids)", "give `batch.ids`"))
    return core.ring.units(rows, lanes, every)


def _check_still_there(core: Core, ids: Int64) -> None:
    gone = core.access.gone(ids)
    if gone is not None and gone.any():
        what = f"`{ids[gone][0]}` overwritten by a writer ({int(gone.sum())} of {len(ids)})"
        remedy = "its next step may have got the value; this process was stopped for long, or lanes have too few rows"
        raise ReliveError(message("steps that stay while values are written", what, _AT, remedy))
