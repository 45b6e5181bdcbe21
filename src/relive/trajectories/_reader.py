"""A directory of trajectories to read from: whole ones, or single rows by arithmetic, compared with their checksums."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import _kernels
from .._memory import Arena
from .._types import Array, Int64
from ..errors import StorageError, message
from ._block import Block, read_block
from ._catalog import file_name
from ._files import Folder, reported, size_of
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
                os.close(file)

    def _open(self, request: Request) -> int:
        record, name = request.record, file_name(int(request.record["id"]))
        file = self.folder.open(name)
        size = int(record["start"]) + _plan(request).nbytes
        if size_of(file) != size:
            got = f"{size_of(file)}"
            os.close(file)
            raise StorageError(message(f"a file of {size} bytes", got, f"{self.folder.path}/{name}"))
        return file

    def _read(self, files: list[int], requests: Sequence[Request], outs: Mapping[Path, Array]) -> None:
        counts = [len(request.rows) for request in requests]
        rows = np.concatenate([request.rows for request in requests])
        places = np.concatenate([request.places for request in requests])
        of = np.repeat(np.arange(len(requests)), counts)
        handles = np.repeat(np.array(files, np.int64), counts)
        plans = [_plan(request) for request in requests]
        starts = np.array([int(request.record["start"]) for request in requests])
        widths = np.array([plan.width for plan in plans])
        tables = starts + np.array([plan.table for plan in plans])
        table_rows = np.array([plan.table_row for plan in plans])
        for path, out in outs.items():
            found = [plan.layout.source(path) for plan in plans]
            slots = [plan.slots[source] for plan, (source, _) in zip(plans, found, strict=True)]
            row = rows + (np.array([later for _, later in found]) * widths)[of]
            offsets = (starts + np.array([slot.offset for slot in slots]))[of] + row * slots[0].row
            failed, sums = self._kernels.read_rows(handles, offsets, places, out)
            told = np.zeros((len(rows), 1), np.uint32)
            where = (tables + 4 * np.array([slot.number for slot in slots]))[of] + row * table_rows[of]
            self._kernels.read_rows(handles, where, np.arange(len(rows)), told)
            bad = np.flatnonzero(sums != told[:, 0])
            if failed >= 0 or len(bad):
                first = failed if failed >= 0 else int(bad[0])
                name = file_name(int(requests[int(of[first])].record["id"]))
                got = f"other bytes in row {int(rows[first])} of `{'.'.join(path)}`"
                raise StorageError(message("a file as it was written", got, f"{self.folder.path}/{name}"))


def _plan(request: Request) -> Plan:
    return plan_of(request.layout, int(request.record["length"]), int(request.record["width"]))
