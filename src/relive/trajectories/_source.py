"""Where trajectories that are not in memory are read from, and the source of relive's own files.

Rows are located by arithmetic and compared with their checksums.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import _kernels
from .._files import Folder, at_once, kept_open, let_go, read_into, reported, size_of
from .._memory import Arena
from .._types import Array, Int64
from ..errors import StorageError, event, message
from ._block import Block, memory_of, read_header
from ._index import Table
from ._layout import Entry, Layout, Plan, file_name
from ._metadata import Metadata
from .trajectory import Path

_NUMBERS = itertools.count()
# Files that stay open for the next draw, of all buffers together: source and trajectory, descriptor and checksum. Those
# that were used last come last. Whoever reads takes a file out and puts it back, so no file is closed under a reader.
# There is no lock: operations of a dictionary are atomic, and a finalizer may run at any line of this module.
_OPEN: dict[tuple[int, int], tuple[int, int]] = {}


class Rows(NamedTuple):
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

    def of(self, chosen: Int64) -> Rows:
        """The rows of these trajectories of the table."""
        if len(chosen) == len(self.table):
            return self
        place = np.full(len(self.table), -1)
        place[chosen] = np.arange(len(chosen))
        which = place[self.which]
        here = which >= 0
        return Rows(self.table.take(chosen), which[here], self.rows[here], self.targets[here])


class Source(Protocol):
    """A directory of files of one format."""

    folder: Folder

    def block(self, entry: Entry) -> Block:
        """Read a whole trajectory."""
        ...

    def metadata(self, entry: Entry) -> Metadata:
        """What a trajectory has once."""
        ...

    def read(self, wanted: Rows, outs: Mapping[Path, Array]) -> None:
        """Read single rows: each row of the fields in `outs` goes to its target there.

        Raises:
            StorageError: A file is missing, has another size, or a row does not match its checksum.
        """
        ...

    def forget(self, id_: int) -> None:
        """Close a trajectory's file if it is kept open, so that deleting it frees its space."""
        ...

    def close(self) -> None:
        """Close everything."""
        ...


class SafetensorsSource:
    """relive's own files. A draw reads little more than it returns, and leaves files open for the next one."""

    def __init__(self, folder: Folder, arena: Arena | None = None) -> None:
        self.folder, self._arena, self._number = folder, arena or Arena(), next(_NUMBERS)
        self._kernels: Any = _kernels.active()
        self._checked: list[Layout] = []

    def block(self, entry: Entry) -> Block:
        """Read a whole trajectory; its header is compared with the entry, and every row with its checksum."""
        name = file_name(entry.id)
        at = f"{self.folder.path}/{name}"
        with self.folder.reading(name) as fd:
            header = read_header(fd, at, entry.id)
            found, plan, stored = header.entry, header.entry.plan, header.entry.layout.stored
            shapes: list[tuple[tuple[int, ...], Any]]
            shapes = [((n * found.width, *c.shape), c.stored) for c, n in zip(stored, plan.steps, strict=True)]
            shapes += [((plan.padding,), "uint8"), ((plan.rows, len(stored)), "uint32"), ((1,), "uint32")]
            try:
                arrays = memory_of(shapes, self._arena)
            except MemoryError as error:  # possibly a sparse file that claims a huge size
                raise StorageError(message("a file that fits in memory", f"{found.bytes} bytes", at)) from error
            if not read_into(fd, found.start, [array.reshape(-1).view(np.uint8).data for array in arrays]):
                raise StorageError(event(f"The file ends before its {found.bytes} bytes", at))
        *fields, padding, table, mark = arrays
        checksum = zlib.crc32(table.tobytes(), found.checksum)
        found = found._replace(checksum=checksum)
        block = Block(found, dict(zip((c.path for c in stored), fields, strict=True)), header.metadata)
        bad = np.argwhere(block.checksums != table)
        if len(bad) or padding.any() or checksum != mark[0]:
            where = f"Row {bad[0][0]} of `{'.'.join(stored[bad[0][1]].path)}`" if len(bad) else "The header"
            raise StorageError(event(f"{where} does not match its checksum", at))
        if found != entry:
            raise StorageError(event(_mismatch(entry, checksum), at))
        return block

    def metadata(self, entry: Entry) -> Metadata:
        """What a trajectory has once."""
        name = file_name(entry.id)
        with self.folder.reading(name) as file:
            return read_header(file, f"{self.folder.path}/{name}").metadata

    def forget(self, id_: int) -> None:
        """Close a trajectory's file if it is kept open, so that deleting it frees its space."""
        _forget((self._number, id_))

    def close(self) -> None:
        """Close everything."""
        for key in tuple(_OPEN):
            if key[0] == self._number:
                _forget(key)
        self.folder.close()

    def read(self, wanted: Rows, outs: Mapping[Path, Array]) -> None:
        """Read single rows of many trajectories, of a bounded number at once.

        Raises:
            StorageError: A file is missing, has another size, or a row does not match its checksum.
        """
        layouts = wanted.table.records["layout"]
        for number in np.unique(layouts).tolist():
            alike, most = np.flatnonzero(layouts == number), at_once()
            for first in range(0, len(alike), most):
                self._read_alike(wanted.of(alike[first : first + most]), outs)

    def _read_alike(self, wanted: Rows, outs: Mapping[Path, Array]) -> None:
        """Read from files with the same fields, all of which are open meanwhile."""
        known = wanted.table.records[["id", "checksum"]].tolist()
        files: list[int] = []
        try:
            new = [self._open(wanted.table, k, id_, checksum, files) for k, (id_, checksum) in enumerate(known)]
            with reported(self.folder.path, "read the trajectories' files"):
                self._fill(wanted, np.array(files), np.flatnonzero(new), outs)
        except BaseException:
            for fd in files:
                let_go(fd)
            raise
        for (id_, checksum), fd in zip(known, files, strict=True):
            if _OPEN.setdefault((self._number, id_), (fd, checksum))[0] != fd:
                let_go(fd)  # another thread has opened it, too
        _shrink(kept_open())

    def _open(self, table: Table, k: int, id_: int, checksum: int, files: list[int]) -> bool:
        """Append the open file of a trajectory to `files`; returns whether it has just been opened."""
        kept = _OPEN.pop((self._number, id_), None)
        if kept is not None and kept[1] == checksum:
            files.append(kept[0])
            return False
        if kept is not None:  # the name belongs to a new file by now
            let_go(kept[0])
        name, size = file_name(id_), int(table.records["bytes"][k])
        try:
            files.append(self.folder.open(name))
        except StorageError as error:
            if getattr(error.__cause__, "errno", None) not in (errno.EMFILE, errno.ENFILE):
                raise
            _shrink(0)
            files.append(self.folder.open(name))
        with reported(self._at(table, k), "read the file"):
            found = size_of(files[-1])
        if found != size:
            raise StorageError(message(f"a file of {size} bytes", f"{found}", self._at(table, k)))
        return True

    def _at(self, table: Table, k: int) -> str:
        return f"{self.folder.path}/{file_name(int(table.records['id'][k]))}"

    def _check_layout(self, table: Table, layout: Layout, file: int) -> None:
        """Compare a layout with a file's header, once: the index has no checksums for field names."""
        if not any(layout is known for known in self._checked):
            at = self._at(table, 0)
            if read_header(file, at).entry.layout != layout:
                raise StorageError(event(_mismatch(table[0], int(table.records["checksum"][0])), at))
            self._checked.append(layout)

    def _check_marks(self, table: Table, files: Int64, offsets: Int64, new: Int64) -> None:
        """Check that new files are those in the index: a different file of the same size has valid rows, too."""
        if not len(new):
            return
        marks = np.zeros((len(new), 1), np.uint32)
        self._kernels.read_rows(files[new], offsets[new], np.arange(len(new)), marks)
        other = np.flatnonzero(marks[:, 0] != table.records["checksum"][new])
        if len(other):
            k = int(new[other[0]])
            raise StorageError(event(_mismatch(table[k], int(marks[other[0], 0])), self._at(table, k)))

    def _fill(self, wanted: Rows, files: Int64, new: Int64, outs: Mapping[Path, Array]) -> None:
        """Read rows of open files: one call reads all rows of a field, whatever the files' lengths."""
        table, which, rows, targets = wanted
        layout = table.layouts[table.records["layout"][0]]
        start, length, widths = (table.records[name].astype(np.int64) for name in ("start", "length", "width"))
        plan, width = Plan(layout, length, widths), widths[which]
        self._check_layout(table, layout, int(files[0]))
        self._check_marks(table, files, start + plan.mark, new)
        handles, begins, order = files[which], start[which], np.arange(len(rows))
        slots = {column.path: k for k, column in enumerate(layout.stored)}
        # One table row has the checksums of all fields; those of a shared field are one step further down.
        expected = {}
        for shift in (0, 1) if layout.shared else (0,):
            expected[shift] = np.zeros((len(rows), len(slots)), np.uint32)
            at = begins + plan.table[which] + (rows + shift * width) * (4 * len(slots))
            self._kernels.read_rows(handles, at, order, expected[shift])
        for path, out in outs.items():
            stored, shift = layout.source(path)
            k = slots[stored]
            at = begins + plan.starts[k][which] + (rows + shift * width) * layout.stored[k].nbytes
            failed, sums = self._kernels.read_rows(handles, at, targets, out)
            bad = np.flatnonzero(sums != expected[shift][:, k])
            if failed >= 0 or len(bad):
                first = failed if failed >= 0 else int(bad[0])
                what = f"Row {int(rows[first])} of `{'.'.join(path)}` does not match its checksum"
                raise StorageError(event(what, self._at(table, int(which[first]))))


def _mismatch(entry: Entry, checksum: int) -> str:
    """What to say of a sound file with this checksum that is not the one in the index."""
    if checksum == entry.checksum:
        return f"`trajectory_{entry.id}` has other fields or another shape than its index entry"
    found = f"checksum {checksum:#010x}, expected {entry.checksum:#010x}"
    return f"`trajectory_{entry.id}` does not match its index entry ({found})"


def _shrink(most: int) -> None:
    """Close all but the `most` files that were used last."""
    while len(_OPEN) > most:
        with contextlib.suppress(StopIteration, RuntimeError):  # another thread has changed it
            _forget(next(iter(_OPEN)))


def _forget(key: tuple[int, int]) -> None:
    """Close a file, if it is kept."""
    kept = _OPEN.pop(key, None)
    if kept is not None:
        let_go(kept[0])
