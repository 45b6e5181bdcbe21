"""Rows of trajectories, copied from memory or read from open files, each to its position in a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .._base.nests import Path
from .._base.types import Array, Int64
from .._disk.rows import RowsRead, put_rows, read_rows, scatter_rows
from . import _frames
from ._block import TrajectoryBlock
from ._index import Table
from ._layout import BEGINS, SUMS, FieldLayout
from ._open_files import OpenFile
from ._plan import plan_of_all


class WantedRows(NamedTuple):
    """Rows of trajectories, and their positions in the batch.

    Attributes:
        table: The trajectories.
        which: The position in `table` of each row's trajectory.
        rows: Each row's number in its trajectory.
        targets: Each row's position in the batch.
    """

    table: Table
    which: Int64
    rows: Int64
    targets: Int64

    def of(self, chosen: Int64) -> WantedRows:
        """Return the rows of these trajectories of the table."""
        if len(chosen) == len(self.table):
            return self
        place = np.full(len(self.table), -1)
        place[chosen] = np.arange(len(chosen))
        which = place[self.which]
        here = which >= 0
        return WantedRows(self.table.take(chosen), which[here], self.rows[here], self.targets[here])

    @property
    def layout(self) -> FieldLayout:
        """The fields of the trajectories, where they have the same."""
        layout: FieldLayout = self.table.layouts[self.table.records["layout"][0]]
        return layout

    def shifted(self, steps: int) -> Int64:
        """Return the rows so many steps further down."""
        if not steps:
            return self.rows
        further: Int64 = self.rows + steps * self.table.records["width"][self.which]
        return further


def copy_held(wanted: WantedRows, blocks: Sequence[TrajectoryBlock], outs: Mapping[Path, Array]) -> None:
    """Copy rows of trajectories in memory, which store the same fields, to their targets."""
    shifted = dict[int, Int64]()
    for path, out in outs.items():
        if not shifted:
            which = np.full(len(out), -1)
            which[wanted.targets] = wanted.which
        stored, shift = blocks[0].entry.layout.source(path)
        if shift not in shifted:
            shifted[shift] = np.zeros(len(out), np.int64)
            shifted[shift][wanted.targets] = wanted.shifted(shift)
        scatter_rows([block.arrays[stored] for block in blocks], which, shifted[shift], out)


class FileRows:
    """Rows of open files: one call reads all rows of a field, whatever the files' lengths.

    Args:
        wanted: The rows.
        files: The files of the trajectories.

    Attributes:
        files: Their descriptors.
        plan: The offsets in all of them.
        shifts: The steps by which rows of fields may be shifted.
        every: The positions of all rows in `wanted`.
        missing: Those of the rows of which nothing is kept.
    """

    def __init__(self, wanted: WantedRows, files: Sequence[OpenFile]) -> None:
        layout, records = wanted.layout, wanted.table.records
        self._start, length, width = (records[name].astype(np.int64) for name in ("start", "length", "width"))
        self.files, self.plan = np.array([file.fd for file in files], np.int64), plan_of_all(layout, length, width)
        self._wanted, self._layout, (self._parts, nbytes) = wanted, layout, layout.kept
        there = [file.rows is not None for file in files]
        blocks = [file.rows for file in files if file.rows is not None]
        held = np.array(there)[wanted.which]
        self._held, self.missing, self.every = np.flatnonzero(held), np.flatnonzero(~held), np.arange(len(held))
        self.shifts = (0, 1) if layout.shared else (0,)
        self._kept = [np.empty((len(self._held), nbytes), np.uint8) for _ in self.shifts]
        which = (np.cumsum(there) - 1)[wanted.which[held]]
        for shift, kept in enumerate(self._kept):
            scatter_rows(blocks, which, wanted.shifted(shift)[held], kept)

    def put(self, shift: int, outs: Mapping[Path, Array], targets: Int64) -> None:
        """Copy what is kept of rows to their targets in arrays."""
        kept = [self._kept[shift][:, self._parts[path]] for path in outs]
        put_rows([out.reshape(len(out), -1).view(np.uint8) for out in outs.values()], targets[self._held], kept)

    def read(self, rows: Int64, begins: Int64 | int, nbytes: int, shift: int, targets: Int64, out: Array) -> RowsRead:
        """Read these rows of a field; return the first that failed, or -1, and their checksums."""
        which = self._wanted.which[rows]
        at = (self._start + begins)[which] + self._wanted.shifted(shift)[rows] * nbytes
        return read_rows(self.files[which], at, targets[rows], out)

    def tables(self, shift: int) -> tuple[Array, Int64]:
        """Read the checksums of all fields, and the places where frames begin and end, for each row.

        One row of the table has the checksums of all fields; those of a shared field are one step further down.
        """
        count, packed = len(self.every), len(self._layout.packed)
        sums: Array = np.zeros((count, len(self._layout.stored)), np.uint32)
        begins: Int64 = np.zeros((count, packed + bool(packed)), np.int64)
        tables: dict[Path, Array] = {SUMS: sums} | ({BEGINS: begins} if packed else {})
        self.put(shift, tables, self.every)
        if len(self.missing):
            self.read(self.missing, self.plan.table, 4 * sums.shape[1], shift, self.every, sums)
            if packed:  # a row of the file has where its frames begin, and the next row goes on
                self.read(self.missing, 0, 8 * packed, shift, self.every, begins)
        return sums, begins

    def unpack(self, places: Int64, sums: Array, out: Array) -> int:
        """Read and decompress the frames of a field; returns the first row that is not what was written, or -1."""
        which, targets, ends = self._wanted.which, self._wanted.targets, self._wanted.table.records["bytes"]
        first: Int64 = self._start + self.plan.frames
        last: Int64 = ends.astype(np.int64) - self.plan.nbytes - self._start
        return _frames.read(self.files[which], first[which], last[which], places, sums, out, targets)
