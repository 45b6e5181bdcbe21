"""Where trajectories that are not in memory are read from, and the source of relive's own files.

Rows are located by arithmetic and compared with their checksums.
"""

from __future__ import annotations

import errno
import itertools
import weakref
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .._base.memory import Arena
from .._base.nests import Path
from .._base.types import Array, Int64
from .._disk.files import Folder, at_once, kept_open, let_go, read_at, read_into, reported, size_of
from .._disk.rows import checksums, read_rows
from ..errors import CorruptionError, StorageError, event, message
from . import _frames, _open_files
from ._block import TrajectoryBlock, memory_of, read_header
from ._entry import Entry, file_name
from ._index import Table
from ._layout import BEGINS, SUMS, FieldLayout
from ._metadata import Metadata
from ._rows import WantedRows, places_of, read_files

_NUMBERS = itertools.count()
_OFTEN = 8  # draws from a file after which its narrow fields are kept in memory
_LOADED = 8  # files of which they are read in one draw
_MOST_NARROW = 256 << 20  # bytes of the narrow fields of all of them


class Source(Protocol):
    """A directory of files of one format."""

    folder: Folder

    def name(self, entry: Entry) -> str:
        """Return the name of a trajectory's file."""

    def at(self, entry: Entry) -> str:
        """Return the path of a trajectory's file, for errors."""
        return f"{self.folder.path}/{self.name(entry)}"

    def block(self, entry: Entry) -> TrajectoryBlock:
        """Read a whole trajectory."""

    def metadata(self, entry: Entry) -> Metadata:
        """Read the fields that a trajectory has once."""

    def read(self, wanted: WantedRows, outs: Mapping[Path, Array]) -> None:
        """Read single rows of trajectories with the same fields: each row of those in `outs` goes to its target there.

        Raises:
            CorruptionError: A file has another size, or a row does not match its checksum.
            StorageError: A file is missing.
        """
        most, count = self.most(), len(wanted.table)
        for first in range(0, count, most):
            self.read_some(wanted.of(range(first, min(first + most, count))), outs)

    def most(self) -> int:
        """Return the number of files that are read from at once."""

    def read_some(self, wanted: WantedRows, outs: Mapping[Path, Array]) -> None:
        """Read from files all of which are open meanwhile."""

    def forget(self, id_: int | None = None) -> None:
        """Close a trajectory's file if it is kept open, so that deleting it frees its space; None: all files."""

    def close(self) -> None:
        """Close everything."""
        self.forget()
        self.folder.close()


class SafetensorsSource(Source):
    """relive's own files. A draw reads little more than it returns, and leaves files open for the next one."""

    def __init__(self, folder: Folder, arena: Arena | None = None) -> None:
        self.folder, self._arena, self._number = folder, arena or Arena(), next(_NUMBERS)
        self._checked: list[FieldLayout] = []
        weakref.finalize(self, _open_files.forget_all, self._number).atexit = False

    def name(self, entry: Entry) -> str:
        """Return the name of a trajectory's file."""
        return file_name(entry.id)

    def block(self, entry: Entry) -> TrajectoryBlock:
        """Read a whole trajectory; its header is compared with the entry, and every row with its checksum."""
        at = self.at(entry)
        with self.folder.reading(self.name(entry)) as fd:
            header = read_header(fd, at, entry.id)
            found, plan, stored = header.entry, header.entry.plan, header.entry.layout.stored
            shapes: list[tuple[tuple[int, ...], Any]]
            shapes = [((n * found.width, *c.shape), c.stored) for c, n in zip(stored, plan.steps, strict=True)]
            shapes += [((plan.begins,), "int64"), ((plan.padding,), "uint8")]
            shapes += [((plan.rows, len(stored)), "uint32"), ((1,), "uint32")]
            try:
                *fields, begins, padding, table, mark = memory_of(shapes, self._arena)
            except MemoryError as error:  # possibly a sparse file that claims a huge size
                raise StorageError(message("a file that fits in memory", f"{found.bytes} bytes", at)) from error
            arrays = dict(zip((c.path for c in stored), fields, strict=True))
            plain = [array for path, array in arrays.items() if path not in found.layout.compressed]
            parts = [array.reshape(-1).view(np.uint8).data for array in (begins, *plain, padding, table)]
            whole = read_into(fd, found.start, parts) and read_into(fd, found.bytes - 4, [mark.view(np.uint8).data])
            if not whole:
                raise CorruptionError(event(f"The file ends before its {found.bytes} bytes", at))
            if plan.begins:
                _unpack(fd, found, begins, table, arrays, at)
        checksum = zlib.crc32(table.data, found.checksum)
        found = found._replace(checksum=checksum)
        block = TrajectoryBlock(found, arrays, header.metadata)
        bad = np.argwhere(block.checksums(table) != table)
        if len(bad) or padding.any() or checksum != mark[0]:
            where = f"Row {bad[0][0]} of `{'.'.join(stored[bad[0][1]].path)}`" if len(bad) else "The header"
            raise CorruptionError(event(f"{where} does not match its checksum", at))
        if found != entry:
            raise CorruptionError(event(_mismatch(entry, checksum), at))
        return block

    def metadata(self, entry: Entry) -> Metadata:
        """Read the fields that a trajectory has once."""
        with self.folder.reading(self.name(entry)) as file:
            return read_header(file, self.at(entry)).metadata

    def forget(self, id_: int | None = None) -> None:
        """Close a trajectory's file if it is kept open, so that deleting it frees its space; None: all files."""
        if id_ is None:
            _open_files.forget_all(self._number)
        else:
            _open_files.forget((self._number, id_))

    def most(self) -> int:
        """Return the number of files that are read from at once."""
        return at_once()

    def read_some(self, wanted: WantedRows, outs: Mapping[Path, Array]) -> None:
        """Read from files all of which are open meanwhile."""
        table, files, new = wanted.table, list[_open_files.OpenFile](), list[int]()
        known = table.known
        try:
            for k, (id_, checksum) in enumerate(known):
                kept = _open_files.OPEN.pop((self._number, id_), None)
                if kept is not None and kept.checksum != checksum:  # the name belongs to a new file by now
                    let_go(kept.fd)
                    kept = None
                if kept is None:
                    self._open(table, k, id_, checksum, files)
                    new.append(k)
                else:
                    files.append(kept)
                files[k].draws += 1
            with reported(self.folder.path, "read the trajectories' files"):
                self._keep_narrow(table, files)
                self._fill(wanted, files, new, outs)
        except BaseException:
            for file in files:
                let_go(file.fd)
            raise
        for (id_, _), file in zip(known, files, strict=True):
            kept = _open_files.OPEN.setdefault((self._number, id_), file)
            if kept is not file:  # another thread has opened it, too, or a new one of this name
                if kept.checksum == file.checksum:
                    kept.draws, kept.rows = max(kept.draws, file.draws), file.rows if kept.rows is None else kept.rows
                let_go(file.fd)
        if new:
            _open_files.shrink(kept_open())

    def _open(self, table: Table, k: int, id_: int, checksum: int, files: list[_open_files.OpenFile]) -> None:
        """Append the file of a trajectory to `files`, opened."""
        key = self._number, id_
        name, size = file_name(id_), int(table.records["bytes"][k])
        try:
            fd = self.folder.open(name)
        except StorageError as error:
            if getattr(error.__cause__, "errno", None) not in (errno.EMFILE, errno.ENFILE):
                raise
            _open_files.shrink(0)
            fd = self.folder.open(name)
        file = _open_files.CLOSED.pop(key, None)
        if file is None or file.checksum != checksum:
            file = _open_files.OpenFile(fd, checksum)
        file.fd = fd
        files.append(file)
        at = f"{self.folder.path}/{name}"
        with reported(at, "read the file"):
            found = size_of(fd)
        if found != size:
            raise CorruptionError(message(f"a file of {size} bytes", f"{found}", at))

    def _keep_narrow(self, table: Table, files: list[_open_files.OpenFile]) -> None:
        """Read the narrow fields of files that are drawn from often: a draw then reads only the wide ones from them."""
        often = [k for k, file in enumerate(files) if file.draws >= _OFTEN and file.rows is None]
        if not often:
            return
        known = (*_open_files.OPEN.values(), *_open_files.CLOSED.values(), *files)
        left = _MOST_NARROW - sum(file.rows.nbytes for file in known if file.rows is not None)
        for k in often[:_LOADED]:
            files[k].draws = 0  # where they are not kept, it is tried again later
            entry = table[k]
            nbytes = entry.plan.rows * entry.layout.kept[1]
            if entry.layout.narrow and nbytes <= left:
                files[k].rows = self._narrow(files[k].fd, entry)
                left -= nbytes

    def _narrow(self, fd: int, entry: Entry) -> Array | None:
        """Read what is kept of each row of an open file; None if a row does not match its checksum."""
        plan, layout, (parts, nbytes) = entry.plan, entry.layout, entry.layout.kept
        rows, sums = np.zeros((plan.rows, nbytes), np.uint8), np.empty((plan.rows, len(plan.starts)), np.uint32)
        sound = read_into(fd, entry.start + plan.table, [sums.view(np.uint8).reshape(-1).data])
        rows[:, parts[SUMS]] = sums.view(np.uint8)
        if plan.begins:
            begins: Int64 = np.empty(plan.begins, np.int64)
            sound &= read_into(fd, entry.start, [begins.view(np.uint8).data])
            rows[:, parts[BEGINS]] = _rows_of(begins, len(layout.packed)).view(np.uint8)
        for k, column in enumerate(layout.stored):
            if column.path in layout.narrow:
                array = np.empty((plan.steps[k] * entry.width, column.nbytes), np.uint8)
                sound &= read_into(fd, entry.start + plan.starts[k], [array.reshape(-1).data])
                sound &= np.array_equal(checksums(array), sums[: len(array), k])
                rows[: len(array), parts[column.path]] = array
        return rows if sound else None  # a draw of the damaged row says so

    def _check_layout(self, table: Table, layout: FieldLayout, file: int) -> None:
        """Compare a layout with a file's header, once: the index has no checksums for field names."""
        if not any(layout is known for known in self._checked):
            at = self.at(table[0])
            if read_header(file, at).entry.layout != layout:
                raise CorruptionError(event(_mismatch(table[0], int(table.records["checksum"][0])), at))
            self._checked.append(layout)

    def _check_new(self, table: Table, layout: FieldLayout, files: Sequence[_open_files.OpenFile]) -> None:
        """Check that new files are those in the index: a different file of the same size has valid rows, too."""
        marks, handles = np.zeros((len(files), 1), np.uint32), np.array([file.fd for file in files])
        read_rows(handles, table.records["bytes"].astype(np.int64) - 4, np.arange(len(files)), marks)
        other = np.flatnonzero(marks[:, 0] != table.records["checksum"])
        if len(other):
            entry = table[int(other[0])]
            raise CorruptionError(event(_mismatch(entry, int(marks[other[0], 0])), self.at(entry)))
        for file, places in zip(files, places_of(table, layout, handles.tolist()), strict=True):
            file.places = places

    def _fill(
        self, wanted: WantedRows, files: list[_open_files.OpenFile], new: list[int], outs: Mapping[Path, Array]
    ) -> None:
        """Read rows of open files, and compare them with their checksums."""
        self._check_layout(wanted.table, wanted.layout, files[0].fd)
        if new:
            self._check_new(wanted.table.take(new), wanted.layout, [files[k] for k in new])
        bad = read_files(wanted, files, outs)
        if bad is not None:
            path, row = bad
            what = f"Row {int(wanted.rows[row])} of `{'.'.join(path)}` does not match its checksum"
            raise CorruptionError(event(what, self.at(wanted.table[int(wanted.which[row])])))


def _rows_of(begins: Int64, fields: int) -> Int64:
    """Return for each row the beginnings of its fields' frames, and the end of the last, `[rows, fields + 1]`."""
    return np.concatenate([begins[:-1].reshape(-1, fields), begins[fields::fields, None]], axis=1)


def _unpack(fd: int, entry: Entry, begins: Int64, table: Array, arrays: Mapping[Path, Array], at: str) -> None:
    """Read the frames of an open file into the arrays of their fields, and compare them with the table of checksums.

    Raises:
        CorruptionError: A frame is not what was written.
    """
    layout, plan = entry.layout, entry.plan
    start, nbytes = entry.start + plan.frames, entry.bytes - entry.start - plan.nbytes
    places = _rows_of(begins, len(layout.packed))
    for k, column in enumerate(layout.packed):
        out = arrays[column.path]
        files, starts, ends = (np.full(len(out), number, np.int64) for number in (fd, start, nbytes))
        sums = table[: len(out), layout.stored.index(column)]
        bad = _frames.read(files, starts, ends, places[: len(out), k : k + 2], sums, out, np.arange(len(out)))
        if bad >= 0:
            raise CorruptionError(event(f"Row {bad} of `{'.'.join(column.path)}` does not match its checksum", at))
    gap = nbytes - int(begins[-1])
    if not (0 <= gap < 4 and _frames.exact(entry, begins) and read_at(fd, start + nbytes - gap, gap) == bytes(gap)):
        raise CorruptionError(event("The rows of compressed fields do not fill their part of the file", at))


def _mismatch(entry: Entry, checksum: int) -> str:
    """Describe a sound file with this checksum that is not the one in the index."""
    if checksum == entry.checksum:
        return f"`trajectory_{entry.id}` has other fields or another shape than its index entry"
    found = f"checksum {checksum:#010x}, expected {entry.checksum:#010x}"
    return f"`trajectory_{entry.id}` does not match its index entry ({found})"
