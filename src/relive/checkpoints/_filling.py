"""Putting what was saved into the arrays of a new buffer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .._base.arrays import ArraySpec, Memory
from .._base.capabilities import completed
from .._base.types import Array, Int64
from .._buffer.saved_as import built
from .._disk.json_files import damaged
from .._flow.limit import BEFORE, BEGUN, NAME, SPEC
from .._ring import kernels
from .._ring.lanes import HEAD, OLDEST, READY
from .._ring.ring import GIVEN
from ..errors import StorageError, message
from ..samplers import Carried, Sampler
from ._lanes import Lanes
from ._reading import OpenSave


def check_fresh(memory: Memory) -> None:
    """Check that nothing stands in arrays that are about to be filled.

    Raises:
        StorageError: They are those of an earlier buffer.
    """
    if not memory.fresh:
        raise StorageError(message("a storage without arrays of an earlier buffer", "one with them", "$.storage"))


def fill_ring(memory: Memory, lanes: Lanes, begin: int, clock: Int64, names: Mapping[str, ArraySpec]) -> None:
    """Fill the ring's counters, marks and given priorities in the lanes from `begin` on."""
    memory.host("ring/clock")[:] = clock
    memory.host("ring/counters")[begin : begin + len(lanes)] = lanes.counters
    _set(memory.host("ring/marks"), lanes, begin, lanes.marks)
    if f"ring/{GIVEN}" in names and lanes.given is not None:
        _set(memory.host(f"ring/{GIVEN}"), lanes, begin, lanes.given)


def _set(array: Array, lanes: Lanes, begin: int, values: Array) -> None:
    """Write what there is for each row into an array `[blocks, L, K]`, from the lane `begin` on."""
    ranges = np.stack([begin + np.arange(len(lanes)), lanes.first, lanes.head], axis=1)
    _, count, block = array.shape
    kernels.active().set_ranges([array.reshape(-1)], count, block, ranges, [values])


def check_limiter(totals: Array, steps: int) -> None:
    """Check that this can have been counted in a buffer that was given so many steps.

    Raises:
        ValueError: No limiter counted that.
    """
    good = (
        totals.dtype == np.int64 and totals.shape == SPEC.shape[1:] and bool(((totals >= 0) & (totals < 2**62)).all())
    )
    if not (good and totals[BEFORE] <= steps and totals[BEGUN] == 1):
        raise ValueError("invalid counts of a limiter")


def fill_limiter(memory: Memory, totals: Array, steps: int) -> None:
    """Let a limiter go on from what was counted in a buffer that was given so many steps.

    Raises:
        ValueError: No limiter counted that.
    """
    check_limiter(totals, steps)
    memory.host(NAME)[0] = totals


def fill_sampler(
    memory: Memory, sampler: Sampler, lanes: Lanes, rows: int, whole: Mapping[str, Array], at: str
) -> None:
    """Fill the sampler's arrays with those of the same sampler over the same rows.

    Raises:
        CorruptionError: They are not those of such a sampler.
    """
    with damaged(at):
        check_sampler(sampler, lanes, rows, whole)
    for name, wanted in sampler.spec(len(lanes), rows).items():
        array = memory.host(f"sampler/{name}")
        if wanted.saved == "slots":
            places = array[: len(lanes) * rows].reshape(rows, len(lanes), 1)
            _set(places, lanes, 0, lanes.slots[name])
        elif wanted.saved == "seen":
            array[:] = lanes.counters[:, [OLDEST, READY, HEAD]]
        elif wanted.saved == "whole":
            array[:] = whole.get(name, 0)


def check_sampler(sampler: Sampler, lanes: Lanes, rows: int, whole: Mapping[str, Array]) -> None:
    """Check that saved arrays can be those of a sampler.

    Raises:
        ValueError, KeyError: They cannot.
    """
    for name, wanted in sampler.spec(len(lanes), rows).items():
        if wanted.saved == "slots":
            good = lanes.slots[name].dtype == wanted.dtype
        else:
            found = whole[name] if wanted.saved == "whole" and wanted.nbytes else None
            good = found is None or (found.shape == wanted.shape and found.dtype == wanted.dtype)
        if not good:
            raise ValueError(f"invalid {name}")
    if not completed(sampler, Sampler).sound(lanes.slots, whole, lanes.drawable()):
        raise ValueError("invalid priorities")


def carried_by(save: OpenSave, at: Int64) -> Carried | None:
    """Read the priorities of a save for the sampler of another buffer; None where its sampler has none to give.

    Args:
        save: The save.
        at: The rows, as positions among all rows.

    Raises:
        CorruptionError: The saved arrays are not those of its sampler.
    """
    facts, lanes, whole = save.manifest.choices["sampler"], save.lanes, save.whole()
    slots = {name: array[at] for name, array in lanes.slots.items()}
    with damaged(save.at):
        if facts["kind"] == "Ranked":  # of earlier versions
            return Carried(slots["ranks"], float(whole["ranks.state"][0]))
        saved: Sampler | None = built("sampler", facts)
        carried = None if saved is None else completed(saved, Sampler).carried
        if saved is None or carried is None:
            return None
        check_sampler(saved, lanes, save.rows, whole)
        return carried(slots, whole)
