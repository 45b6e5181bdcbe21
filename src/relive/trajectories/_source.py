"""A directory of trajectories to read from: whole ones, or single rows by arithmetic, compared with their checksums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import _kernels
from .._memory import Arena
from .._types import Array, Int64
from ..errors import StorageError, message
from ._block import Block, read_block, read_header
from ._catalog import file_name
from ._files import Folder, let_go, reported, size_of
from ._layout import Layout, Plan, plan_of
from .trajectory import Path


class Source(Protocol):
    """Where trajectories that are not in memory are read from."""

    folder: Folder

    def block(self, record: Any) -> Block:
        """A whole trajectory, by its record in the index."""
        ...

    def rows(self, record: Any, layout: Layout, rows: Int64, places: Int64, outs: Mapping[Path, Array]) -> None:
        """Fill `outs[path][places[i]]` with row `rows[i]` of every field of a trajectory.

        Raises:
            StorageError: The file is not there, has another size, or a row is not what was written.
        """
        ...


class Request(NamedTuple):
    """Rows of one trajectory, and their places in a batch."""

    record: Any
    layout: Layout
    rows: Int64
    places: Int64


class Files:
    """relive's own files."""

    def __init__(self, folder: Folder, arena: Arena) -> None:
        self.folder, self._arena = folder, arena
        self._kernels: Any = _kernels.active()
        self._known: list[Layout] = []

    def block(self, record: Any) -> Block:
        """The whole file."""
        return read_block(self.folder, file_name(int(record["id"])), self._arena, int(record["checksum"]))

    def rows(self, record: Any, layout: Layout, rows: Int64, places: Int64, outs: Mapping[Path, Array]) -> None:
        """Single rows of one trajectory."""
        self.batch([Request(record, layout, rows, places)], outs)

    def batch(self, requests: Sequence[Request], outs: Mapping[Path, Array]) -> None:
        """Single rows of many: each file is opened once, and little is read but the bytes that are returned.

        Raises:
            StorageError: A file is not there, has another size, or a row is not what was written.
        """
        files: list[int] = []
        try:
            for request in requests:
                files.append(self._open(request))
            with reported(self.folder.path, "files that can be read"):
                self._read(files, requests, outs)
        finally:
            for file in files:
                let_go(file)

    def _open(self, request: Request) -> int:
        record, name = request.record, file_name(int(request.record["id"]))
        file = self.folder.open(name)
        try:
            size, found = int(record["start"]) + _plan(request).nbytes, size_of(file)
            if found != size:
                raise StorageError(message(f"a file of {size} bytes", f"{found}", f"{self.folder.path}/{name}"))
        except BaseException:
            let_go(file)
            raise
        return file

    def _read(self, files: list[int], requests: Sequence[Request], outs: Mapping[Path, Array]) -> None:
        alike: dict[Plan, list[int]] = {}
        for k, request in enumerate(requests):
            alike.setdefault(_plan(request), []).append(k)
        for plan, members in alike.items():
            self._read_alike(plan, [files[k] for k in members], [requests[k] for k in members], outs)

    def _learn(self, layout: Layout, file: int, name: str) -> None:
        """Compare a layout with what a file says of itself, once: the index has no checksums for its names."""
        at = f"{self.folder.path}/{name}"
        if read_header(file, size_of(file), at).layout != layout:
            raise StorageError(message("the fields that the index names", "others", at))
        self._known.append(layout)

    def _compare(self, plan: Plan, files: Int64, starts: Int64, requests: Sequence[Request]) -> None:
        """Whether each file is the one that the index means: another of the same size has good rows, too."""
        marks = np.zeros((len(files), 1), np.uint32)
        self._kernels.read_rows(files, starts + plan.mark, np.arange(len(files)), marks)
        other = np.flatnonzero(marks[:, 0] != [int(request.record["checksum"]) for request in requests])
        if len(other):
            at = f"{self.folder.path}/{file_name(int(requests[int(other[0])].record['id']))}"
            raise StorageError(message("the file that was written", "another one", at))

    def _read_alike(
        self, plan: Plan, files: list[int], requests: Sequence[Request], outs: Mapping[Path, Array]
    ) -> None:
        """Read from files with the same offsets: all rows of one field by one call."""
        if plan.layout not in self._known:
            self._learn(plan.layout, files[0], file_name(int(requests[0].record["id"])))
        starts = np.array([int(request.record["start"]) for request in requests])
        self._compare(plan, np.array(files, np.int64), starts, requests)
        of = np.repeat(np.arange(len(requests)), [len(request.rows) for request in requests])
        rows = np.concatenate([request.rows for request in requests])
        places = np.concatenate([request.places for request in requests])
        handles, starts = np.array(files, np.int64)[of], starts[of]
        order = np.arange(len(rows))
        # Checksums of all fields stand together, row by row; those of a shared field stand a step later.
        told = {}
        for later in (0, 1) if plan.layout.shared else (0,):
            told[later] = np.zeros((len(rows), len(plan.slots)), np.uint32)
            where = starts + plan.table + (rows + later * plan.width) * plan.table_row
            self._kernels.read_rows(handles, where, order, told[later])
        for path, out in outs.items():
            source, later = plan.layout.source(path)
            slot = plan.slots[source]
            offsets = starts + slot.offset + (rows + later * plan.width) * slot.row
            failed, sums = self._kernels.read_rows(handles, offsets, places, out)
            bad = np.flatnonzero(sums != told[later][:, slot.number])
            if failed >= 0 or len(bad):
                first = failed if failed >= 0 else int(bad[0])
                name = file_name(int(requests[int(of[first])].record["id"]))
                got = f"other bytes in row {int(rows[first])} of `{'.'.join(path)}`"
                raise StorageError(message("a file as it was written", got, f"{self.folder.path}/{name}"))


def _plan(request: Request) -> Plan:
    return plan_of(request.layout, int(request.record["length"]), int(request.record["width"]))
