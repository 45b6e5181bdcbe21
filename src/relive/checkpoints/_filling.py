"""Putting what was saved into the arrays of a new buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .._base.arrays import ArraySpec, Memory
from .._base.capabilities import completed
from .._base.types import Array, Int64
from .._flow.limit import BEFORE, BEGUN, NAME, SPEC
from .._ring import kernels
from .._ring.lanes import HEAD, OLDEST, READY, STEPS
from ..errors import StorageError, message
from ..samplers import Sampler
from ._lane import Lane
from ._manifest import damaged


def check_fresh(memory: Memory) -> None:
    """Check that nothing stands in arrays that are about to be filled.

    Raises:
        StorageError: They are those of an earlier buffer.
    """
    if not memory.fresh:
        raise StorageError(message("a storage without arrays of an earlier buffer", "one with them", "$.storage"))


def fill_ring(memory: Memory, lanes: Sequence[Lane], clock: Int64, names: Mapping[str, ArraySpec]) -> None:
    """Fill the ring's counters and what it keeps for each row."""
    memory.host("ring/clock")[:] = clock
    memory.host("ring/counters")[:] = [lane.counters for lane in lanes]
    _set(memory.host("ring/marks"), lanes, [lane.marks for lane in lanes])
    for name in ("given", "arrival"):
        if f"ring/{name}" in names:
            _set(memory.host(f"ring/{name}"), lanes, [lane.kept.get(name) for lane in lanes])


def _set(array: Array, lanes: Sequence[Lane], values: Sequence[Array | None]) -> None:
    """Write what there is for the rows of each lane into an array `[blocks, L, K]`."""
    some = [
        (number, lane, rows) for number, (lane, rows) in enumerate(zip(lanes, values, strict=True)) if rows is not None
    ]
    if some:
        ranges = np.array([(number, lane.first, lane.head) for number, lane, _ in some])
        given = some[0][2] if len(some) == 1 else np.concatenate([rows for *_, rows in some])
        _, count, block = array.shape
        kernels.active().set_ranges([array.reshape(-1)], count, block, ranges, [given])


def fill_limiter(memory: Memory, totals: Array, lanes: Sequence[Lane]) -> None:
    """Let a limiter go on from what was counted.

    Raises:
        ValueError: No limiter counted that.
    """
    steps = sum(int(lane.counters[STEPS]) for lane in lanes)
    good = (
        totals.dtype == np.int64 and totals.shape == SPEC.shape[1:] and bool(((totals >= 0) & (totals < 2**62)).all())
    )
    if not (good and totals[BEFORE] <= steps and totals[BEGUN] == 1):
        raise ValueError("invalid counts of a limiter")
    memory.host(NAME)[0] = totals


def fill_sampler(
    memory: Memory, sampler: Sampler, lanes: Sequence[Lane], rows: int, whole: Mapping[str, Array], at: str
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
            _set(places, lanes, [lane.slots[name] for lane in lanes])
        elif wanted.saved == "seen":
            array[:] = [lane.counters[[OLDEST, READY, HEAD]] for lane in lanes]
        elif wanted.saved == "whole":
            array[:] = whole.get(name, 0)


def check_sampler(sampler: Sampler, lanes: Sequence[Lane], rows: int, whole: Mapping[str, Array]) -> None:
    """Check that saved arrays can be those of a sampler.

    Raises:
        ValueError, KeyError: They cannot.
    """
    for name, wanted in sampler.spec(len(lanes), rows).items():
        if wanted.saved == "slots":
            good = all(lane.slots[name].dtype == wanted.dtype for lane in lanes)
        else:
            found = whole[name] if wanted.saved == "whole" and wanted.nbytes else None
            good = found is None or (found.shape == wanted.shape and found.dtype == wanted.dtype)
        if not good:
            raise ValueError(f"invalid {name}")
    sound = completed(sampler, Sampler).sound
    if not all(sound(lane.slots, whole, lane.drawable()) for lane in lanes):
        raise ValueError("invalid priorities")
