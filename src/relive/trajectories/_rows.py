"""Rows of trajectories, copied from memory or read from open files, each to its position in a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .._base.nests import Path
from .._base.types import Array, Int64
from .._disk.rows import copy_rows, read_fields
from . import _frames
from ._block import TrajectoryBlock
from ._index import Table
from ._layout import BEGINS, FieldLayout
from ._open_files import OpenFile
from ._plan import plan_of_all

_SIZES = ("start", "length", "width", "bytes")


class WantedRows(NamedTuple):
    """Rows of trajectories, and their positions in the batch.

    Attributes:
        table: The trajectories.
        which: The position in `table` of each row's trajectory, those of one together; -1 for rows to pass over.
        rows: Each row's number in its trajectory.
        targets: Each row's position in the batch.
    """

    table: Table
    which: Int64
    rows: Int64
    targets: Int64

    def of(self, chosen: Sequence[int]) -> WantedRows:
        """Return the rows of these trajectories of the table."""
        if len(chosen) == len(self.table):
            return self
        place = np.full(len(self.table) + 1, -1)  # the last one is for -1
        place[chosen] = np.arange(len(chosen))
        return self._replace(table=self.table.take(chosen), which=place[self.which])

    @property
    def layout(self) -> FieldLayout:
        """The fields of the trajectories, where they have the same."""
        layout: FieldLayout = self.table.layouts[self.table.records["layout"][0]]
        return layout


def copy_held(wanted: WantedRows, blocks: Sequence[TrajectoryBlock], outs: Mapping[Path, Array]) -> None:
    """Copy rows of trajectories in memory, which store the same fields, to their targets."""
    paths, later = zip(*map(blocks[0].entry.layout.source, outs), strict=True)
    held = [[block.arrays[path] for path in paths] for block in blocks]
    widths = wanted.table.records["width"]
    copy_rows(held, wanted.which, wanted.rows, wanted.targets, list(outs.values()), later, widths)


@lru_cache(maxsize=256)
def _fields_of(layout: FieldLayout, paths: tuple[Path, ...]) -> tuple[list[Path], Int64]:
    """Return those of the paths whose rows are not compressed, and where these are, as in `read_fields`."""
    (parts, _), slots = layout.kept, {column.path: k for k, column in enumerate(layout.stored)}
    plain, found = list[Path](), list[tuple[int, ...]]()
    for path in paths:
        stored, shift = layout.source(path)
        if stored not in layout.compressed:
            k, at = slots[stored], parts[stored].start if stored in parts else -1
            plain.append(path)
            found.append((2 + k, layout.stored[k].nbytes, shift, at, k))
    return plain, np.array(found, np.int64).reshape(-1, 5)


def read_files(wanted: WantedRows, files: Sequence[OpenFile], outs: Mapping[Path, Array]) -> tuple[Path, int] | None:
    """Read rows of open files to their targets, and compare them with their checksums.

    Returns:
        Field and position of the first row that does not match; None if there is none.
    """
    layout, which = wanted.layout, wanted.which
    places = np.frombuffer(b"".join([file.places for file in files]), np.int64).reshape(len(files), -1)
    kept = [file.rows for file in files]
    plain, fields = _fields_of(layout, tuple(outs))
    field, bad = read_fields(places, kept, which, wanted.rows, wanted.targets, fields, [outs[path] for path in plain])
    if bad >= 0:
        return plain[field], bad
    if not layout.compressed:
        return None
    here = np.flatnonzero(which >= 0)
    chosen, targets = which[here], wanted.targets[here]
    start, length, width, ends = (wanted.table.records[name].astype(np.int64) for name in _SIZES)
    plan = plan_of_all(layout, length, width)
    first, most = (start + plan.frames)[chosen], (ends - plan.nbytes - start)[chosen]
    tables = [_tables(wanted, places, kept, shift) for shift in range(1 + bool(layout.shared))]
    for path in outs:
        stored, shift = layout.source(path)
        if stored in layout.compressed:
            column = next(column for column in layout.packed if column.path == stored)
            (sums, begins), k = tables[shift], layout.packed.index(column)
            spans, expected = begins[here, k : k + 2], sums[here, layout.stored.index(column)]
            bad = _frames.read(places[chosen, 0], first, most, spans, expected, outs[path], targets)
            if bad >= 0:
                return path, int(here[bad])
    return None


def places_of(table: Table, layout: FieldLayout, files: Sequence[int]) -> list[bytes]:
    """Return for each file, of these descriptors, where everything is in it, as in `read_fields`."""
    start, length, width, _ = (table.records[name].astype(np.int64) for name in _SIZES)
    plan = plan_of_all(layout, length, width)
    places = np.empty((len(files), 4 + len(plan.starts)), np.int64)
    places[:, 0], places[:, 1] = files, width
    places[:, 2:] = start[:, None] + np.array([plan.table, 0 * plan.table, *plan.starts]).T
    return [row.tobytes() for row in places]


def _tables(wanted: WantedRows, places: Int64, kept: Sequence[Array | None], shift: int) -> tuple[Array, Int64]:
    """Read the checksums of all fields, and the places where frames begin and end, for each row.

    One row of the table has the checksums of all fields; those of a shared field are one step further down.
    """
    layout, (parts, _), every = wanted.layout, wanted.layout.kept, np.arange(len(wanted.rows))
    sums: Array = np.zeros((len(every), len(layout.stored)), np.uint32)
    begins: Int64 = np.zeros((len(every), len(layout.packed) + 1), np.int64)
    # A row of the file has where its frames begin, and the next row goes on.
    fields = [(0, 4 * sums.shape[1], shift, 0, -1), (1, 8 * len(layout.packed), shift, parts[BEGINS].start, -1)]
    read_fields(places, kept, wanted.which, wanted.rows, every, np.array(fields), [sums, begins])
    return sums, begins
