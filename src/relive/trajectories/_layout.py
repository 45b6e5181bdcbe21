"""One trajectory as its file and the index describe it: its fields, and where each row of them is.

The file is safetensors, with a table of checksums, one for every row of every field.

A row is one chunk-step of one environment: row `t * B + b` of `[T, B, ...]`. Its offset is computed, not stored. A
*shared* `next_obs` is `curr_obs` one step later: `curr_obs` has T + 1 steps, `next_obs` is not written, and its row k
is row k + B of `curr_obs`. The last four bytes, the *mark*, are the checksum of header and table. The index has it,
too, so a different file of the same size under the same name is noticed.

Rows of a *compressed* field are zstd frames of different sizes. They stand between table and mark; the file begins with
where each of them does. The table has their CRC-32, so that damage is found before anything is decompressed.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, Generic, NamedTuple, TypeAlias, TypeVar, get_type_hints

import numpy as np

from .._base import narrow
from .._base.nests import Path
from .._base.types import Int64
from .._disk import safetensors
from .._disk.files import json_in
from ..errors import SchemaError, message
from ._metadata import Metadata, to_json
from .trajectory import Trajectory

# A value for fields that a trajectory lacks, or one each for some of them by dotted name; None: none may be missing.
Fill: TypeAlias = float | Mapping[str, float] | None
N = TypeVar("N", int, Int64)

FORMATS = ("relive.trajectory.1", "relive.trajectory.2")  # the second: with compressed fields
CHECKSUMS, MARK, PADDING = "relive/crc32", "relive/checksum", "relive/padding"
BEGINS, FRAMES = "relive/begins", "relive/frames"
DTYPES = safetensors.CODES.keys() - {"complex64"}
_COMPRESSIBLE = ("uint8", "int8", "bool")
MOST_WEIGHTS = 40  # bytes of a `model_weights_id`
MOST_ID = 2**53
_MOST_INT = 2**31 - 1
_DEEPEST = 30  # levels of nesting; axes after `[T, B]`
LEAST_COMPRESSED = 1024  # bytes of a row that is worth a frame of its own
_ZSTD_BLOCK = 1 << 17  # bytes that a part of a frame holds at most
_NARROW = 32  # the part of a row that fields may take and be kept in memory, without a cache


def most_of_frame(width: int) -> int:
    """Bytes that a frame of a row of so many bytes takes at most."""
    return width + width // 128 + 64


@dataclass(frozen=True)
class Column:
    """One field: its path, and dtype and shape of one row."""

    path: Path
    dtype: str
    shape: tuple[int, ...]

    @property
    def stored(self) -> np.dtype[Any]:
        """The dtype of its arrays: of raw bits for numbers that NumPy lacks."""
        return narrow.stored(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * self.stored.itemsize


@dataclass(frozen=True)
class Layout:
    """The fields of a trajectory.

    Attributes:
        columns: All fields, ordered by path.
        shared: Those `next_obs` that are `curr_obs` one step later, and are not stored.
        compressed: Those stored fields whose rows are compressed in files.
    """

    columns: tuple[Column, ...]
    shared: frozenset[Path]
    compressed: frozenset[Path] = frozenset()

    def source(self, path: Path) -> tuple[Path, int]:
        """The stored field that has the rows of `path`, and by how many steps they are shifted there."""
        return (("curr_obs", *path[1:]), 1) if path in self.shared else (path, 0)

    def steps(self, path: Path, length: N) -> N:
        """Stored steps of a field, in a trajectory of `length` steps."""
        return length + (("next_obs", *path[1:]) in self.shared and path[0] == "curr_obs")

    @cached_property
    def stored(self) -> tuple[Column, ...]:
        """The columns that are written, in file order: the widest dtypes first, so that all are aligned."""
        kept = [column for column in self.columns if column.path not in self.shared]
        return tuple(sorted(kept, key=lambda c: (-c.stored.itemsize, c.path)))

    @cached_property
    def packed(self) -> tuple[Column, ...]:
        """The columns that are compressed, in the order of `stored`."""
        return tuple(column for column in self.stored if column.path in self.compressed)

    def compressing(self, compress: bool = True) -> Layout:
        """With the fields compressed for which this pays, numbers of one byte in rows of at least 1 KiB; or none."""
        chosen = (c.path for c in self.stored if c.dtype in _COMPRESSIBLE and c.nbytes >= LEAST_COMPRESSED)
        return replace(self, compressed=frozenset(chosen if compress else ()))

    @property
    def nbytes(self) -> int:
        """Bytes of one row of all stored fields, with its checksums; nothing is compressed."""
        return sum(column.nbytes + 4 for column in self.stored)

    @cached_property
    def narrow(self) -> frozenset[Path]:
        """The narrowest stored fields that, with the checksums of all fields, take a small part of a row."""
        columns = sorted((c for c in self.stored if c.path not in self.compressed), key=lambda column: column.nbytes)
        sums = itertools.accumulate(column.nbytes for column in columns)
        most = self.nbytes / _NARROW - 4 * len(self.stored)
        return frozenset(column.path for column, total in zip(columns, sums, strict=True) if total <= most)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.columns, self.shared, self.compressed))


class Plan(Generic[N]):
    """Where everything is in a file, which follows from layout, length and width; or in many files, given arrays.

    Attributes:
        steps: Of each stored field.
        starts: Of each stored field, in bytes from the end of the header; of no meaning for compressed ones.
        begins: How many numbers at the start of the data say where frames begin, and where the last one ends.
        padding: Bytes behind the fields, which align the table; a tensor of its own, as safetensors requires.
        table: Start of the checksums, `rows` for each field.
        frames: Start of the frames of compressed fields.
        nbytes: Bytes behind the header, all but the frames: the mark stands behind them.
        least: Bytes that the frames take at least.
        most: Bytes that the frames take at most; a little more than what is in them.
    """

    def __init__(self, layout: Layout, length: N, width: N) -> None:
        self.layout: Layout = layout
        self.length: N = length
        self.width: N = width
        self.steps: list[N] = [layout.steps(column.path, length) for column in layout.stored]
        self.starts: list[N] = []
        self.rows: N = (length + bool(layout.shared)) * width
        self.begins: N = self.rows * len(layout.packed) + bool(layout.packed)
        end: N = 8 * self.begins
        self.least: N = 0 * length
        self.most: N = 0 * length
        for column, steps in zip(layout.stored, self.steps, strict=True):
            self.starts.append(end)
            rows = steps * width
            if column.path in layout.compressed:
                self.least = self.least + rows * (4 * -(-column.nbytes // _ZSTD_BLOCK))
                self.most = self.most + rows * (most_of_frame(column.nbytes) + 4)
            else:
                end = end + rows * column.nbytes
        self.padding: N = -end % 4
        self.table: N = end + self.padding
        self.frames: N = self.table + self.rows * (4 * len(self.starts))
        self.nbytes: N = self.frames + 4

    def fits(self, nbytes: N) -> Any:
        """Whether a file can have so many bytes behind its header."""
        frames = nbytes - self.nbytes
        return (frames >= self.least) & (frames <= self.most) & (frames % 4 == 0)

    def tensors(self, packed: int) -> dict[str, dict[str, Any]]:
        """What the header says of each tensor, by name; of one file with so many bytes of frames."""
        tensors: dict[str, dict[str, Any]] = {}
        padding, table, frames = int(self.padding), int(self.table), int(self.frames)
        if self.begins:
            tensors[BEGINS] = safetensors.tensor("int64", [int(self.begins)], 0, 8 * int(self.begins))
        for column, steps, start in zip(self.layout.stored, self.steps, self.starts, strict=True):
            rows, name = (int(steps), int(self.width)), "/".join(column.path)
            nbytes = math.prod(rows) * column.nbytes
            if column.path not in self.layout.compressed:
                tensors[name] = safetensors.tensor(column.dtype, rows + column.shape, int(start), nbytes)
        if padding:
            tensors[PADDING] = safetensors.tensor("uint8", [padding], table - padding, padding)
        tensors[CHECKSUMS] = safetensors.tensor("uint32", [int(self.rows), len(self.starts)], table, frames - table)
        if self.begins:
            tensors[FRAMES] = safetensors.tensor("uint8", [packed], frames, packed)
        tensors[MARK] = safetensors.tensor("uint32", [1], frames + packed, 4)
        return tensors


@lru_cache(maxsize=256)
def plan_of(layout: Layout, length: int, width: int) -> Plan[int]:
    """The plan of a layout and size, from a cache."""
    return Plan(layout, length, width)


class Fact(NamedTuple):
    """How one fact of an entry is kept.

    Attributes:
        column: Its column of the index.
        dtype: Its dtype in a table of entries; `S` is text in UTF-8.
        least: Its smallest value.
        most: Its largest value; of text the most bytes.
    """

    column: str
    dtype: str
    least: int
    most: int

    def check(self, *values: Any) -> None:
        """Refuse what the index cannot hold.

        Raises:
            ValueError: A value is of another type or outside the limits.
        """
        kind = str if self.dtype[0] == "S" else int
        if set(map(type, values)) != {kind}:
            raise ValueError(f"invalid `{self.column}`, not {'text' if kind is str else 'an integer'}")
        sizes = [len(value.encode()) for value in values] if kind is str else values
        for found in (min(sizes), max(sizes)):
            if not self.least <= found <= self.most:
                raise ValueError(f"invalid `{self.column}` ({found}{' bytes' * (kind is str)})"[:80])


class Entry(NamedTuple):
    """One trajectory. These facts make the columns of the index, and the dtype of a table of entries.

    Attributes:
        id: Its number, which never changes and names its file.
        length: Steps, T.
        width: Environments, B.
        layout: Its fields; in the index, and in tables, their number there.
        start: Bytes of the file's header.
        bytes: Bytes of the file; of the arrays if the trajectory is only in memory.
        checksum: CRC-32 of the file's header and checksum table.
        max_episode_length: As given with the trajectory; in the file's header, too.
        model_weights_id: Likewise.
    """

    id: Annotated[int, Fact("id", "i8", 0, MOST_ID - 1)]
    length: Annotated[int, Fact("length", "i4", 1, _MOST_INT)]
    width: Annotated[int, Fact("width", "i4", 1, _MOST_INT)]
    layout: Annotated[Layout, Fact("layout", "i4", 0, 2**62)]
    start: Annotated[int, Fact("start", "i4", 1, _MOST_INT)]
    bytes: Annotated[int, Fact("bytes", "i8", 1, 2**62)]
    checksum: Annotated[int, Fact("checksum", "u4", 0, 2**32 - 1)]
    max_episode_length: Annotated[int, Fact("episode", "i4", 0, _MOST_INT)]
    model_weights_id: Annotated[str, Fact("weights", f"S{MOST_WEIGHTS}", 0, MOST_WEIGHTS)]

    @property
    def plan(self) -> Plan[int]:
        """The offsets in its file."""
        return plan_of(self.layout, self.length, self.width)

    @property
    def memory(self) -> int:
        """Bytes in memory, about: of what is not compressed those of the file."""
        return self.plan.nbytes + self.plan.most if self.layout.compressed else self.bytes


FACTS: Mapping[str, Fact] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Entry, include_extras=True).items()
}
IN_HEADER = "max_episode_length", "model_weights_id"  # as text


def header_of(entry: Entry, metadata: Metadata, packed: int = 0) -> bytes:
    """The header of a trajectory's file with so many bytes of frames, and with the fields that it has once."""
    layout, plan = entry.layout, entry.plan
    facts = {"format": FORMATS[bool(layout.compressed)], **{name: str(getattr(entry, name)) for name in IN_HEADER}}
    facts["shared"] = json.dumps(_names(layout.shared))
    if layout.compressed:
        sizes = dict(zip(layout.stored, plan.steps, strict=True))
        facts["compressed"] = json.dumps(
            {"/".join(c.path): [safetensors.CODES[c.dtype], [sizes[c], entry.width, *c.shape]] for c in layout.packed}
        )
    if metadata:
        facts["metadata"] = to_json(metadata)
    return safetensors.header(plan.tensors(packed), facts)


def file_name(id_: int) -> str:
    """The name of a trajectory's file. It is made from the id, never read from a file."""
    return f"trajectory_{id_:012d}.safetensors"


def id_of(name: str) -> int | None:
    """The id in a trajectory file's name, None for any other name."""
    found = re.fullmatch(r"trajectory_(\d{12,})\.safetensors", name)
    return int(found[1]) if found else None


def axes_fit(shape: Any) -> bool:
    """Whether these are sizes of axes."""
    return all(type(axis) is int and 0 < axis < 2**40 for axis in shape)


def _names(paths: frozenset[Path]) -> list[str]:
    return sorted("/".join(path) for path in paths)


@lru_cache(maxsize=256)
def columns_json(layout: Layout) -> str:
    """A layout as text, for the index."""
    columns = [["/".join(c.path), c.dtype, list(c.shape)] for c in layout.columns]
    more = {"compressed": _names(layout.compressed)} if layout.compressed else {}
    return json.dumps({"columns": columns, "shared": _names(layout.shared), **more})


def layout_from(text: str) -> Layout:
    """The layout in a text that `columns_json` wrote.

    Raises:
        ValueError: The text is anything else.
    """
    try:
        layout = json_in(text.encode())
        columns = []
        for name, dtype, shape in layout["columns"]:
            if dtype not in DTYPES or not axes_fit(shape):
                raise ValueError(f"invalid dtype or shape: {dtype} {shape}")
            columns.append(Column(tuple(str(name).split("/")), dtype, tuple(shape)))
        shared, compressed = (
            frozenset(tuple(str(name).split("/")) for name in names)
            for names in (layout["shared"], layout.get("compressed", ()))
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return sound(Layout(tuple(columns), shared, compressed))


def sound(layout: Layout) -> Layout:
    """The layout itself, if it is valid.

    Raises:
        ValueError: It has no fields, bad names, a field inside another, a shared field without a matching one, or a
            compressed one that is not stored, or of wider numbers.
    """
    columns = {column.path: column for column in layout.columns}
    if not columns or len(columns) < len(layout.columns) or not all(map(all, columns)):
        raise ValueError("no fields, a duplicate name, or an empty name")
    if max(map(len, columns)) > _DEEPEST or max(len(column.shape) for column in layout.columns) > _DEEPEST:
        raise ValueError("a field is nested too deep or has too many axes")
    if any(path[:depth] in columns for path in columns for depth in range(1, len(path))):
        raise ValueError("a field is inside another field")
    for path in layout.shared:
        later, now = columns.get(path), columns.get(("curr_obs", *path[1:]))
        alike = later is not None and now is not None and (later.dtype, later.shape) == (now.dtype, now.shape)
        if path[0] != "next_obs" or not alike:
            raise ValueError(f"`{'.'.join(path)[:40]}` is marked shared but `curr_obs` has no matching field")
    for path in layout.compressed:
        if path in layout.shared or path not in columns or columns[path].dtype not in _COMPRESSIBLE:
            raise ValueError(f"`{'.'.join(path)[:40]}` is marked compressed but cannot be")
    return layout


def columns_of(trajectory: Trajectory) -> tuple[Column, ...]:
    """The fields of a trajectory, ordered by path."""
    return tuple(Column(path, narrow.name_of(a.dtype), a.shape[2:]) for path, a in sorted(trajectory.arrays.items()))


def check_alike(
    expected: Sequence[Column] | None, got: Sequence[Column], at: str, remedy: str | None = None, fill: Fill = None
) -> None:
    """Refuse fields that differ from the expected ones, if any are; `at` stands before the field's path.

    A field that `fill` has a value for may be missing on either side, and its axes after `(T, B)` may be longer.

    Raises:
        SchemaError: A field differs, and names it.
    """
    if expected is None or expected == got:
        return
    before, now = ({column.path: column for column in columns} for columns in (expected, got))
    for path in sorted(before.keys() | now.keys()):
        one, other = before.get(path), now.get(path)
        if one == other:
            continue
        alike = one is None or other is None or (one.dtype, len(one.shape)) == (other.dtype, len(other.shape))
        name = ".".join(path)
        if not (alike and (name in fill if isinstance(fill, Mapping) else fill is not None)):
            raise SchemaError(message(_described(one), _described(other), f"{at}.{name}", remedy))


def joined(before: Sequence[Column] | None, more: Sequence[Column]) -> Sequence[Column]:
    """The fields of both; what both have is taken from `before`."""
    if before is None or before == more:
        return more
    both = {column.path: column for column in (*more, *before)}
    return tuple(both[path] for path in sorted(both))


def _described(column: Column | None) -> str:
    if column is None:
        return "no such field"
    return f"`{column.dtype}` of shape `({', '.join(['T', 'B', *map(str, column.shape)])})`"
