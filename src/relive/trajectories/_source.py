"""Where trajectories that are not in memory are read from, and the source of relive's own files.

Rows are located by arithmetic and compared with their checksums.
"""

from __future__ import annotations

import errno
import itertools
import weakref
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._base.memory import Arena
from .._base.nests import Path
from .._base.types import Array, Int64
from .._disk.files import Folder, at_once, kept_open, let_go, read_at, read_into, reported, size_of
from .._disk.rows import checksums, read_rows, scatter_rows
from ..errors import CorruptionError, StorageError, event, message
from . import _frames, _open_files
from ._block import TrajectoryBlock, memory_of, read_header
from ._entry import Entry, file_name
from ._index import Table
from ._layout import FieldLayout
from ._metadata import Metadata
from ._plan import FilePlan

_NUMBERS = itertools.count()
_OFTEN = 8  # draws from a file after which its narrow fields are kept in memory
_LOADED = 8  # files of which they are read in one draw
_MOST_NARROW = 256 << 20  # bytes of the narrow fields of all of them
_SUMS, _BEGINS = (), ("",)  # paths of no field: the table of checksums, and where frames begin


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


class HeldRows:
    """Arrays of trajectories in memory, from which rows are copied into a batch.

    Args:
        wanted: The rows.
        arrays: For each of the trajectories its arrays by path, the same fields for all; None or empty: not in memory.
        count: Rows of the batch.

    Attributes:
        missing: Positions in `wanted` of rows whose trajectory is not in memory.
    """

    def __init__(self, wanted: WantedRows, arrays: Sequence[Mapping[Path, Array] | None], count: int) -> None:
        self._wanted, self._arrays = wanted, [each for each in arrays if each]
        numbers = np.full(len(arrays), -1)
        numbers[[bool(each) for each in arrays]] = np.arange(len(self._arrays))
        found = numbers[wanted.which]
        self.missing = np.flatnonzero(found < 0)
        self._which, self._rows = np.full(count, -1), dict[int, Int64]()
        self._which[wanted.targets] = found

    def take(self, path: Path, shift: int, out: Array) -> bool:
        """Copy the rows of a field, `shift` steps further down, to their places in `out`; False if it is not there."""
        if not self._arrays or path not in self._arrays[0]:
            return False
        if shift not in self._rows:
            self._rows[shift] = np.zeros(len(self._which), np.int64)
            self._rows[shift][self._wanted.targets] = self._wanted.shifted(shift)
        scatter_rows([each[path] for each in self._arrays], self._which, self._rows[shift], out)
        return True


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
            self.read_some(wanted.of(np.arange(first, min(first + most, count))), outs)

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
        known = wanted.table.known
        files: list[_open_files.OpenFile] = []
        try:
            new = [self._open(wanted.table, k, id_, checksum, files) for k, (id_, checksum) in enumerate(known)]
            with reported(self.folder.path, "read the trajectories' files"):
                self._keep_narrow(wanted.table, files)
                self._fill(wanted, files, np.flatnonzero(new), outs)
        except BaseException:
            for file in files:
                let_go(file.fd)
            raise
        for (id_, _), file in zip(known, files, strict=True):
            kept = _open_files.OPEN.setdefault((self._number, id_), file)
            if kept is not file:  # another thread has opened it, too, or a new one of this name
                if kept.checksum == file.checksum:
                    kept.draws, kept.narrow = max(kept.draws, file.draws), kept.narrow or file.narrow
                let_go(file.fd)
        _open_files.shrink(kept_open())

    def _open(self, table: Table, k: int, id_: int, checksum: int, files: list[_open_files.OpenFile]) -> bool:
        """Append the open file of a trajectory to `files`; returns whether it has just been opened."""
        key = self._number, id_
        kept = _open_files.OPEN.pop(key, None)
        if kept is not None and kept.checksum == checksum:
            kept.draws += 1
            files.append(kept)
            return False
        if kept is not None:  # the name belongs to a new file by now
            let_go(kept.fd)
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
        file.fd, file.draws = fd, file.draws + 1
        files.append(file)
        with reported(self._at(table, k), "read the file"):
            found = size_of(fd)
        if found != size:
            raise CorruptionError(message(f"a file of {size} bytes", f"{found}", self._at(table, k)))
        return True

    def _keep_narrow(self, table: Table, files: list[_open_files.OpenFile]) -> None:
        """Read the narrow fields of files that are drawn from often: a draw then reads only the wide ones from them."""
        often = [k for k, file in enumerate(files) if file.draws >= _OFTEN and not file.narrow]
        if not often:
            return
        known = (*_open_files.OPEN.values(), *_open_files.CLOSED.values(), *files)
        left = _MOST_NARROW - sum(array.nbytes for file in known for array in file.narrow.values())
        for k in often[:_LOADED]:
            files[k].draws = 0  # where they are not kept, it is tried again later
            entry = table[k]
            plan, stored = entry.plan, entry.layout.stored
            narrow = [number for number, column in enumerate(stored) if column.path in entry.layout.narrow]
            nbytes = sum(plan.steps[number] * entry.width * stored[number].nbytes for number in narrow)
            nbytes += plan.frames - plan.table + plan.rows * 8 * (len(entry.layout.packed) + 1)
            if narrow and nbytes <= left:
                files[k].narrow = self._narrow(files[k].fd, entry, narrow)
                left -= nbytes

    def _narrow(self, fd: int, entry: Entry, numbers: Sequence[int]) -> dict[Path, Array]:
        """Read stored fields of an open file by path, with its checksums; none if a row does not match its own."""
        plan, stored = entry.plan, entry.layout.stored
        sums: Any = np.empty((plan.rows, len(stored)), np.uint32)
        sound = read_into(fd, entry.start + plan.table, [sums.reshape(-1).view(np.uint8).data])
        found: dict[Path, Array] = {_SUMS: sums}
        if plan.begins:
            begins: Int64 = np.empty(plan.begins, np.int64)
            sound &= read_into(fd, entry.start, [begins.view(np.uint8).data])
            found[_BEGINS] = _rows_of(begins, len(entry.layout.packed))
        for number in numbers:
            column, steps = stored[number], plan.steps[number]
            array: Any = np.empty((steps * entry.width, *column.shape), column.stored)
            found[column.path] = array
            sound &= read_into(fd, entry.start + plan.starts[number], [array.reshape(-1).view(np.uint8).data])
            sound &= np.array_equal(checksums(array), sums[: len(array), number])
        return found if sound else {}  # a draw of the damaged row says so

    def _at(self, table: Table, k: int) -> str:
        return f"{self.folder.path}/{file_name(int(table.records['id'][k]))}"

    def _check_layout(self, table: Table, layout: FieldLayout, file: int) -> None:
        """Compare a layout with a file's header, once: the index has no checksums for field names."""
        if not any(layout is known for known in self._checked):
            at = self._at(table, 0)
            if read_header(file, at).entry.layout != layout:
                raise CorruptionError(event(_mismatch(table[0], int(table.records["checksum"][0])), at))
            self._checked.append(layout)

    def _check_marks(self, table: Table, handles: Int64, offsets: Int64, new: Int64) -> None:
        """Check that new files are those in the index: a different file of the same size has valid rows, too."""
        if not len(new):
            return
        marks = np.zeros((len(new), 1), np.uint32)
        read_rows(handles[new], offsets[new], np.arange(len(new)), marks)
        other = np.flatnonzero(marks[:, 0] != table.records["checksum"][new])
        if len(other):
            k = int(new[other[0]])
            raise CorruptionError(event(_mismatch(table[k], int(marks[other[0], 0])), self._at(table, k)))

    def _fill(
        self, wanted: WantedRows, files: list[_open_files.OpenFile], new: Int64, outs: Mapping[Path, Array]
    ) -> None:
        """Read rows of open files, field by field, and compare them with their checksums."""
        layout, rows = wanted.layout, _FileRows(wanted, files, len(next(iter(outs.values()))))
        self._check_layout(wanted.table, layout, files[0].fd)
        self._check_marks(wanted.table, rows.files, wanted.table.records["bytes"] - 4, new)
        slots = {column.path: k for k, column in enumerate(layout.stored)}
        packed = {column.path: k for k, column in enumerate(layout.packed)}
        tables = [rows.tables(shift) for shift in ((0, 1) if layout.shared else (0,))]
        for path, out in outs.items():
            stored, shift = layout.source(path)
            sums, begins = tables[shift]
            k, targets = slots[stored], wanted.targets
            if stored in packed:
                bad = rows.unpack(begins[targets, packed[stored] :][:, :2], sums[targets, k], out)
            else:
                read, failed, found = rows.take(stored, rows.plan.starts[k], layout.stored[k].nbytes, shift, out)
                if not len(read):
                    continue
                wrong = found != sums[targets[read], k]
                at = failed if failed >= 0 else int(wrong.argmax())
                bad = int(read[at]) if failed >= 0 or wrong[at] else -1
            if bad >= 0:
                what = f"Row {int(wanted.rows[bad])} of `{'.'.join(path)}` does not match its checksum"
                raise CorruptionError(event(what, self._at(wanted.table, int(wanted.which[bad]))))


class _FileRows:
    """Rows of open files: one call reads all rows of a field, whatever the files' lengths.

    Args:
        wanted: The rows.
        files: The files of the trajectories.
        count: Rows of the batch.

    Attributes:
        files: Their descriptors.
        plan: The offsets in all of them.
    """

    def __init__(self, wanted: WantedRows, files: Sequence[_open_files.OpenFile], count: int) -> None:
        records = wanted.table.records
        self._start, length, width = (records[name].astype(np.int64) for name in ("start", "length", "width"))
        self.files, self.plan = np.array([file.fd for file in files], np.int64), FilePlan(wanted.layout, length, width)
        self._wanted, self._count, self._every = wanted, count, np.arange(len(wanted.rows))
        self._held = HeldRows(wanted, [file.narrow for file in files], count)

    def take(self, path: Path, begins: Int64, nbytes: int, shift: int, out: Array) -> tuple[Int64, int, Array]:
        """Copy and read the rows of a field.

        Returns:
            The positions of those that were read, the first of these that failed, or -1, and their checksums.
        """
        read = self._held.missing if self._held.take(path, shift, out) else self._every
        if not len(read):
            return read, -1, np.empty(0, np.uint32)
        which = self._wanted.which[read]
        at = (self._start + begins)[which] + self._wanted.shifted(shift)[read] * nbytes
        return read, *read_rows(self.files[which], at, self._wanted.targets[read], out)

    def tables(self, shift: int) -> tuple[Array, Int64]:
        """Read the checksums of all fields, and the places where frames begin and end, for each row of the batch.

        One row of the table has the checksums of all fields; those of a shared field are one step further down.
        """
        layout = self._wanted.layout
        sums, begins = np.zeros((self._count, len(layout.stored)), np.uint32), np.zeros((self._count, 0), np.int64)
        self.take(_SUMS, self.plan.table, 4 * len(layout.stored), shift, sums)
        if layout.packed:  # a row of the file has where its frames begin, and the next row goes on
            begins = np.zeros((self._count, len(layout.packed) + 1), np.int64)
            self.take(_BEGINS, 0 * self._start, 8 * len(layout.packed), shift, begins)
        return sums, begins

    def unpack(self, places: Int64, sums: Array, out: Array) -> int:
        """Read and decompress the frames of a field; returns the first row that is not what was written, or -1."""
        which, targets, ends = self._wanted.which, self._wanted.targets, self._wanted.table.records["bytes"]
        first, last = self._start + self.plan.frames, ends - self.plan.nbytes - self._start
        return _frames.read(self.files[which], first[which], last[which], places, sums, out, targets)


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
