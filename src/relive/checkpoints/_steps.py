"""The rows of a buffer's steps, as files hold them: ranges of lanes, and the columns' values one range after another.

A column has an entry for every row of a range; a field with `every=k` has one for every *unit* of k rows that begins in
front of the range's end. Units that are still being written are not among them: a save has these beside the lanes'
counters. Neither are writable fields: a save has all of theirs there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import numpy as np

from .._base.types import Bytes, Int64
from .._disk.blocks import Packing
from .._disk.tensor_writer import Portion, TensorWriter, portions_of
from .._disk.tensors import Tensor
from .._ring import lanes
from ..schema import Column, Schema
from ._copy_on_overwrite import CopyOnOverwrite
from ._names import name_of

RANGES = "relive/ranges"
FORMATS = ("relive.steps.1", "relive.steps.2")  # the second: with fields in compressed blocks
_PIECE = 2 << 20  # bytes that are copied at once


def ranges_of(lanes: Sequence[int] | Int64, first: Int64, last: Int64) -> Int64:
    """Return the nonempty ranges `[first, last)` of rows of lanes, int64 `[n, 3]`: lane, first, last."""
    found = np.stack([np.asarray(lanes, np.int64), first, last], axis=1)
    return np.ascontiguousarray(found[first < last])


def clipped(ranges: Int64, first: Int64) -> Int64:
    """Clip ranges to the rows from `first` of their lanes on."""
    return ranges_of(ranges[:, 0], np.maximum(ranges[:, 1], first[ranges[:, 0]]), ranges[:, 2])


def rows_in(ranges: Int64) -> int:
    """Count the rows in ranges."""
    return int((ranges[:, 2] - ranges[:, 1]).sum())


def since(ranges: Int64, first: Int64) -> tuple[Int64, Int64, Int64]:
    """List the rows in ranges from `first` of their lanes on: lanes, rows, and positions among all of them."""
    lane, begin, end = ranges.T
    which, rows = lanes.ranges(np.maximum(begin, first[lane]), end)
    return lane[which], rows, rows + (np.cumsum(end - begin) - end)[which]


def in_units(ranges: Int64, every: int | None) -> Int64:
    """Convert ranges to units of `every` rows."""
    if every is None:
        return ranges
    return np.concatenate([ranges[:, :1], ranges[:, 1:] // every], axis=1)


def steps_writer(schema: Schema, guard: CopyOnOverwrite, ranges: Int64) -> TensorWriter:
    """Make the writer of the file of the rows in `ranges`."""
    tensors = {RANGES: Tensor(ranges.dtype, ranges.shape)}
    portions = [portions_of(RANGES, ranges)]
    fixed = {number: column for number, column in enumerate(schema.columns) if not column.field.writable}
    packed = {number: column for number, column in fixed.items() if column.field.compress}
    fixed = {number: column for number, column in fixed.items() if number not in packed}
    for every in dict.fromkeys(column.field.every for column in fixed.values()):
        units = in_units(ranges, every)
        columns = {number: c for number, c in fixed.items() if c.field.every == every}
        for column in columns.values():
            field = column.field
            tensors[name_of(column.keys)] = Tensor.of(field.dtype, (rows_in(units), *field.shape))
        portions.append(_portions(guard, columns, units))
    # A checksum of their own: where the ranges are, there are fields, too, in the same chunk.
    metadata = {"format": FORMATS[bool(packed)], RANGES: str(zlib.crc32(ranges.data))}
    for number, column in packed.items():
        units = in_units(ranges, column.field.every)
        packing = Packing(name_of(column.keys), rows_in(units), column.field.nbytes)
        tensors |= packing.tensors
        metadata |= packing.metadata
        portions.append(packing.portions(_blocks(guard, number, column, units, packing.rows)))
    opened = [name_of(column.keys) for column in packed.values()]
    return TensorWriter(tensors, chain(*portions), metadata, opened)


def batches(ranges: Int64, most: int) -> Iterator[Int64]:
    """Yield ranges, in order, some at a time with at most `most` rows together; long ones are cut."""
    ends = np.cumsum(ranges[:, 2] - ranges[:, 1])
    for begin in range(0, rows_in(ranges), most):
        end = min(begin + most, int(ends[-1]))
        i, j = np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end, "left")
        some = ranges[i : j + 1].copy()
        some[0, 1] = some[0, 2] - (ends[i] - begin)
        some[-1, 2] -= ends[j] - end
        yield some


def _blocks(guard: CopyOnOverwrite, number: int, column: Column, units: Int64, rows: int) -> Iterator[Bytes]:
    """Yield some units of a column at a time; the next ones overwrite them."""
    stage: Bytes = np.empty(rows * column.field.nbytes, np.uint8)
    for some in batches(units, rows):
        found = stage[: rows_in(some) * column.field.nbytes]
        guard.copy((number,), some, [found])
        yield found


def _portions(guard: CopyOnOverwrite, columns: Mapping[int, Column], units: Int64) -> Iterator[Portion]:
    """Yield some units of all columns at a time: fields lie together in records, each of which is read once."""
    names = tuple(name_of(column.keys) for column in columns.values())
    widths = [column.field.nbytes for column in columns.values()]
    for some in batches(units, max(1, _PIECE // sum(widths))):
        count = rows_in(some)
        yield Portion(names, tuple(count * width for width in widths), partial(guard.copy, tuple(columns), some))
