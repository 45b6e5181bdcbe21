"""Where trajectories that are not in memory are read from, and the source of relive's own files.

Rows are located by arithmetic and compared with their checksums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import _kernels
from .._files import Folder, let_go, reported, size_of
from .._memory import Arena
from .._types import Array, Int64
from ..errors import StorageError, event, message
from ._block import Block, read_block, read_header
from ._entry import Entry, file_name, mismatch
from ._layout import Layout, Plan
from .trajectory import Path


class Request(NamedTuple):
    """Rows of one trajectory, and their positions in the batch."""

    entry: Entry
    rows: Int64
    targets: Int64


class Source(Protocol):
    """A directory of files of one format."""

    folder: Folder

    def block(self, entry: Entry) -> Block:
        """Read a whole trajectory."""
        ...

    def read(self, requests: Sequence[Request], outs: Mapping[Path, Array]) -> None:
        """Read single rows: for each request, row `rows[i]` of every field goes to `outs[path][targets[i]]`.

        Raises:
            StorageError: A file is missing, has another size, or a row does not match its checksum.
        """
        ...


class SafetensorsSource:
    """relive's own files. A batch opens each file once, and reads little more than the bytes it returns."""

    def __init__(self, folder: Folder, arena: Arena) -> None:
        self.folder, self._arena = folder, arena
        self._kernels: Any = _kernels.active()
        self._checked: list[Layout] = []

    def block(self, entry: Entry) -> Block:
        """Read a whole trajectory."""
        return read_block(self.folder, entry, self._arena)

    def read(self, requests: Sequence[Request], outs: Mapping[Path, Array]) -> None:
        """Read single rows of many trajectories.

        Raises:
            StorageError: A file is missing, has another size, or a row does not match its checksum.
        """
        files: list[int] = []
        try:
            for request in requests:
                files.append(self._open(request.entry))
            with reported(self.folder.path, "read the trajectories' files"):
                alike: dict[Plan, list[int]] = {}
                for k, request in enumerate(requests):
                    alike.setdefault(request.entry.plan, []).append(k)
                for plan, members in alike.items():
                    self._read_alike(plan, [files[k] for k in members], [requests[k] for k in members], outs)
        finally:
            for file in files:
                let_go(file)

    def _at(self, entry: Entry) -> str:
        return f"{self.folder.path}/{file_name(entry.id)}"

    def _open(self, entry: Entry) -> int:
        file = self.folder.open(file_name(entry.id))
        try:
            with reported(self._at(entry), "read the file"):
                size, found = entry.start + entry.plan.nbytes, size_of(file)
            if found != size:
                raise StorageError(message(f"a file of {size} bytes", f"{found}", self._at(entry)))
        except BaseException:
            let_go(file)
            raise
        return file

    def _check_layout(self, entry: Entry, file: int) -> None:
        """Compare a layout with a file's header, once: the index has no checksums for field names."""
        at = self._at(entry)
        if read_header(file, size_of(file), at).layout != entry.layout:
            raise StorageError(event(f"`trajectory_{entry.id}` has other fields than its index entry", at))
        self._checked.append(entry.layout)

    def _check_marks(self, plan: Plan, files: Int64, starts: Int64, requests: Sequence[Request]) -> None:
        """Check that each file is the one in the index: a different file of the same size has valid rows, too."""
        marks = np.zeros((len(files), 1), np.uint32)
        self._kernels.read_rows(files, starts + plan.mark, np.arange(len(files)), marks)
        other = np.flatnonzero(marks[:, 0] != [request.entry.checksum for request in requests])
        if len(other):
            entry, found = requests[int(other[0])].entry, int(marks[int(other[0]), 0])
            raise StorageError(event(mismatch(entry, found), self._at(entry)))

    def _read_alike(
        self, plan: Plan, files: list[int], requests: Sequence[Request], outs: Mapping[Path, Array]
    ) -> None:
        """Read from files with the same offsets: one call reads all rows of a field."""
        if plan.layout not in self._checked:
            self._check_layout(requests[0].entry, files[0])
        starts = np.array([request.entry.start for request in requests])
        self._check_marks(plan, np.array(files, np.int64), starts, requests)
        which = np.repeat(np.arange(len(requests)), [len(request.rows) for request in requests])
        rows = np.concatenate([request.rows for request in requests])
        targets = np.concatenate([request.targets for request in requests])
        handles, starts = np.array(files, np.int64)[which], starts[which]
        order = np.arange(len(rows))
        # One table row has the checksums of all fields; those of a shared field are one step further down.
        expected = {}
        for shift in (0, 1) if plan.layout.shared else (0,):
            expected[shift] = np.zeros((len(rows), len(plan.slots)), np.uint32)
            offsets = starts + plan.table + (rows + shift * plan.width) * plan.table_row
            self._kernels.read_rows(handles, offsets, order, expected[shift])
        for path, out in outs.items():
            stored, shift = plan.layout.source(path)
            slot = plan.slots[stored]
            offsets = starts + slot.offset + (rows + shift * plan.width) * slot.row
            failed, sums = self._kernels.read_rows(handles, offsets, targets, out)
            bad = np.flatnonzero(sums != expected[shift][:, slot.number])
            if failed >= 0 or len(bad):
                first = failed if failed >= 0 else int(bad[0])
                what = f"Row {int(rows[first])} of `{'.'.join(path)}` does not match its checksum"
                raise StorageError(event(what, self._at(requests[int(which[first])].entry)))
