"""One save as it is read: its manifest, its small arrays, and its steps, every byte compared with a checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

import numpy as np

from .._base.generators import generator_of
from .._base.priorities import valid
from .._base.types import Array, Bool, Int64
from .._buffer.schemas import schema_of
from .._disk.blocks import Entries, entries
from .._disk.files import Folder
from .._disk.json_files import damaged
from .._disk.tensors import Tensor, TensorReader
from .._ring import kernels
from .._ring.lanes import HEAD, sizes_in
from .._ring.plans import Window
from ..errors import CorruptionError, StorageError, event, message
from ..schema import Column, Schema
from . import _manifest
from ._lanes import Lanes, lanes_of
from ._manifest import File, Manifest
from ._names import COUNTERS, LAST_IDS, LAST_WEIGHTS, NEXT, VALUES, WHOLE, name_of
from ._save_task import Basis, StepsFile
from ._steps import RANGES, batches, clipped, in_units, ranges_of, rows_in

_PIECE = 2 << 20  # bytes that are read at once: they are still in the processor's cache when they are copied


def tokens_after(folder: Folder, number: int, names: Iterable[str] | None = None) -> Iterator[str]:
    """Yield the tokens of later saves than `number` of a directory, or of those among its files `names`."""
    numbers = map(_manifest.number_of, folder.sizes() if names is None else names)
    for later in {found for found in numbers if found is not None and found > number}:
        with suppress(StorageError):  # damaged, or of files without a manifest
            yield _manifest.read(folder, later).token


class Piece(NamedTuple):
    """Units of lanes.

    Attributes:
        ranges: The ranges of these units, int64 `[n, 3]`: lane, first, last.
        values: For each column their values in order.
    """

    ranges: Int64
    values: list[Array]


def _as_they_are(ranges: Int64) -> Int64:
    return ranges


class OpenSave:
    """A save of a directory; to be closed, or used in a `with` block.

    Args:
        folder: The directory.
        number: The save.

    Attributes:
        manifest: What it consists of.
        schema: The fields of a step.
        window: That of the item.
        rows: Rows of a lane.
        steps: Steps that a lane keeps.
        boundaries: The share of rows that is reserved for final observations.
        counts_rows: Whether it is of a version whose `capacity` counted rows: each of them may hold a step.
        lanes: The lanes' counters and rows.
        arrays: All small arrays by name.

    Raises:
        CorruptionError: Something is damaged.
        StorageError: Something cannot be read.
    """

    def __init__(self, folder: Folder, number: int) -> None:
        self.manifest: Manifest = _manifest.read(folder, number)
        self.at = f"{folder.path}/{_manifest.manifest_name(number)}"
        self._folder, self._open, self._names = folder, ExitStack(), folder.sizes()
        facts = self.manifest.choices
        if "device" in facts:
            wanted, remedy = "a save of a `ReplayBuffer`", '`relive.load(path, device=...)` loads it, also on `"cpu"`'
            raise StorageError(message(wanted, "one of a `DeviceBuffer`", self.at, remedy))
        with damaged(self.at):
            self.schema: Schema = schema_of(facts["schema"])
            self.rng = generator_of(self.manifest.generator)
            self.window = Window(**facts["window"])
            if not all(type(value) in (int, bool) and 0 <= value < 2**62 for value in vars(self.window).values()):
                raise ValueError("invalid window")
        self.rows, self.steps, self.boundaries = sizes_in(facts)
        self.counts_rows = "steps" not in facts
        try:
            with self._reader(_manifest.state_name(number), self.manifest.state) as state, damaged(state.at):
                self.lanes = self._lanes_of(state, facts["num_envs"])
            self.parts = self._parts()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close its files."""
        self._open.close()

    def __enter__(self) -> OpenSave:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def basis(self) -> Basis:
        """The files that a further save of the same buffer can build upon."""
        return Basis(self.manifest.token, self.lanes.head, tuple(part for part, _ in self.parts))

    def later(self) -> Iterator[str]:
        """Yield the tokens of later saves that the directory had when this one was opened."""
        return tokens_after(self._folder, self.manifest.number, self._names)

    def pieces(self, columns: Sequence[Column], named: Callable[[Int64], Int64] = _as_they_are) -> Iterator[Piece]:
        """Yield all units of columns that are kept at the same steps, writable ones or others, piece by piece.

        The open units come last.

        The values are overwritten when the next piece is asked for.

        Args:
            columns: The columns.
            named: Says of ranges of units what they are to be in the pieces: other lanes, or more ranges.
        """
        names, every = [name_of(column.keys) for column in columns], columns[0].field.every
        width = max(1, _PIECE // sum(column.field.nbytes for column in columns))
        if columns[0].field.writable:
            values = [_typed(self.arrays[VALUES + name], column) for name, column in zip(names, columns, strict=True)]
            yield Piece(named(in_units(self._stored, every)), values)
        for part, reader in () if columns[0].field.writable else self.parts:
            units = in_units(part.ranges, every)
            streams = [self.entries_of(part, reader, column).stream() for column in columns]
            for some in batches(named(units), width):
                count = rows_in(some)
                yield Piece(some, [_typed(s.rows(count), c) for s, c in zip(streams, columns, strict=True)])
        yield self._open_units(columns, named)

    def fill(self, column: Column, named: Callable[[Int64], Int64], target: Array) -> None:
        """Read all units of a column into the memory of the only lane of a ring.

        Args:
            column: The column.
            named: As for `pieces`; units of lane -1 are left out.
            target: The lane's memory `[depth, ...]`, contiguous, which its units go round in.
        """
        for part, reader in self.parts:
            units = in_units(part.ranges, column.field.every)
            found, done = self.entries_of(part, reader, column), 0
            for lane, first, last in named(units).tolist():
                while first < last:
                    at = first % len(target)
                    count = min(last - first, len(target) - at)
                    if lane >= 0:
                        found.read(done, target[at : at + count])
                    first, done = first + count, done + count
        piece = self._open_units([column], named)
        kernels.active().set_ranges([target], 1, 1, piece.ranges, piece.values)

    def value(self, column: Column, lane: int, row: int) -> Array:
        """Read the value of one row of a lane in a column without `every`."""
        name = name_of(column.keys)
        if column.field.writable:
            before = (self.lanes.head - self.lanes.first)[:lane].sum()
            written: Array = _typed(self.arrays[VALUES + name], column)[before + row - self.lanes.first[lane]]
            return written
        for part, reader in self.parts:
            lanes, first, last = part.ranges.T
            found = np.flatnonzero((lanes == lane) & (first <= row) & (row < last))
            if len(found):
                at = int((last - first)[: found[0]].sum()) + row - int(first[found[0]])
                value: Array = _typed(self.entries_of(part, reader, column).rows(at, at + 1), column)[0]
                return value
        raise KeyError(row)

    @property
    def _stored(self) -> Int64:
        """All stored rows as ranges, those of no rows among them."""
        return np.stack([np.arange(len(self.lanes)), self.lanes.first, self.lanes.head], axis=1)

    def damage(self) -> Iterator[str]:
        """Yield the places where data differ from their checksums, file by file; all of it is read."""
        for name, file in self.manifest.files:
            with self._reader(name, file) as reader:
                for offset in reader.damage():
                    yield f"{reader.at}, offset {offset}"

    def _open_units(self, columns: Sequence[Column], named: Callable[[Int64], Int64]) -> Piece:
        """Return the units of columns that were still being written, which are saved with the lanes' counters."""
        values = [_typed(self.arrays[NEXT + name_of(column.keys)], column) for column in columns]
        head = self.lanes.head // (columns[0].field.every or 1)
        return Piece(named(ranges_of(np.arange(len(head)), head, head + 1)), values)

    def _reader(self, name: str, file: File) -> TensorReader:
        if name not in self._names:
            raise CorruptionError(message(f"the file `{name}`", "none", self._folder.path))
        return TensorReader(self._folder, name, file.nbytes, file.checksum)

    def _parts(self) -> list[tuple[StepsFile, TensorReader]]:
        found = []
        for file in self.manifest.steps:
            reader = self._open.enter_context(self._reader(_manifest.steps_name(file.number), file))
            with damaged(reader.at):
                found.append((StepsFile(file, self._checked(reader.rows(RANGES))), reader))
        self._check_ranges(found)
        return found

    def _checked(self, ranges: Array) -> Int64:
        if ranges.dtype != np.int64 or ranges.shape[1:] != (3,):
            raise ValueError("invalid ranges")
        lane, first, last = ranges.T
        if not ((lane >= 0) & (lane < len(self.lanes))).all():
            raise ValueError("invalid lanes")
        if not ((first >= 0) & (first < last) & (last <= self.lanes.head[lane])).all():
            raise ValueError("invalid rows")
        return ranges

    def _check_ranges(self, parts: Sequence[tuple[StepsFile, TensorReader]]) -> None:
        """Check that every stored row is in exactly one file."""
        firsts = self.lanes.first
        ranges = np.concatenate([np.empty((0, 3), np.int64), *(part.ranges for part, _ in parts)])
        live = clipped(ranges, firsts)
        live = live[np.lexsort((live[:, 1], live[:, 0]))]
        lane, first, last = live.T
        # Each begins where the one before it in its lane ends, and the last one ends with the lane.
        begins, ends = np.append(True, lane[1:] != lane[:-1])[: len(lane)], np.append(lane[1:] != lane[:-1], True)
        good = (first == np.where(begins, firsts[lane], np.append(0, last)[:-1])).all()
        whole = ranges_of(np.arange(len(firsts)), firsts, self.lanes.head)
        if not (good and np.array_equal(live[ends[: len(lane)]][:, [0, 2]], whole[:, [0, 2]])):
            raise CorruptionError(event("Its files do not have each of its rows once", self.at))

    @property
    def kept(self) -> list[Column]:
        """The columns that files of steps have."""
        return [column for column in self.schema.columns if not column.field.writable]

    def entries_of(self, part: StepsFile, reader: TensorReader, column: Column) -> Entries:
        """Return the entries of a column in a file of steps.

        Raises:
            CorruptionError: Another array than the schema says.
        """
        count = rows_in(in_units(part.ranges, column.field.every))
        wanted = Tensor.of(column.field.dtype, (count, *column.field.shape))
        return entries(reader, name_of(column.keys), wanted, compressed=column.field.compress is not None)

    def _check_shape(self, reader: TensorReader, name: str, column: Column, count: int) -> None:
        if reader.tensors.get(name) != Tensor.of(column.field.dtype, (count, *column.field.shape)):
            raise CorruptionError(event(f"`{name}` has another shape than the schema says", reader.at))

    def _lanes_of(self, state: TensorReader, lanes: int) -> Lanes:
        if state.tensors[COUNTERS].shape[0] != lanes:
            raise ValueError("counters of other lanes")
        for column in self.schema.columns:
            if column.field.saved:
                self._check_shape(state, NEXT + name_of(column.keys), column, lanes)
        self.arrays = arrays = {name: state.rows(name) for name in state.tensors}
        ids, weights = arrays[LAST_IDS], arrays[LAST_WEIGHTS]
        rows = ids // lanes
        if ids.dtype != np.int64 or weights.dtype != np.float32 or not ids.shape == weights.shape == (len(ids),):
            raise ValueError("invalid last batch")
        if not valid(weights).all():
            raise ValueError("invalid weights")
        found = lanes_of(arrays, self.rows)
        if not ((ids >= 0) & (rows < arrays[COUNTERS][ids % lanes, HEAD])).all():
            raise ValueError("ids of no step")
        if not found.fit():
            raise ValueError("counters that do not fit the rows")
        self.lanes = found
        for column in self.schema.columns:
            if column.field.writable and column.field.saved:
                count = rows_in(in_units(self._stored, column.field.every))
                self._check_shape(state, VALUES + name_of(column.keys), column, count)
        return found

    def whole(self) -> dict[str, Array]:
        """Return the sampler's arrays that are neither by slot nor rebuilt."""
        return {name.removeprefix(WHOLE): a for name, a in self.arrays.items() if name.startswith(WHOLE)}


def unread(reader: TensorReader, column: Column, lost: Bool) -> str:
    """Compose the text about rows of a column that a file of steps has lost."""
    return f"{reader.at}: {lost.sum()} of {len(lost)} rows of `{name_of(column.keys)}` are not what was written"


def _typed(values: Array, column: Column) -> Array:
    """Convert values to the column's dtype: complex numbers are stored as pairs."""
    kind = column.field.dtype
    return np.ascontiguousarray(values).view(kind)[..., 0] if kind.char == "D" else values
