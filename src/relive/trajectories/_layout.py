"""The file of one trajectory: safetensors, with a table of checksums, one for every row of every field.

A row is one chunk-step of one environment: row `t * B + b` of `[T, B, ...]`. Its offset is computed, not stored. A
*shared* `next_obs` is `curr_obs` one step later: `curr_obs` has T + 1 steps, `next_obs` is not written, and its row k
is row k + B of `curr_obs`. The last four bytes, the *mark*, are the checksum of header and table. The index has it,
too, so a different file of the same size under the same name is noticed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import StorageError, event, message
from .trajectory import Path, Trajectory

FORMAT = "relive.trajectory.1"
CHECKSUMS, MARK, _PADDING = "relive/crc32", "relive/checksum", "relive/padding"
MOST_HEADER = 1 << 20
MOST_WEIGHTS = 40  # bytes of a `model_weights_id`
_ALIGN = 64
_DEEPEST = 30  # levels of nesting; axes after `[T, B]`
_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16", "int32": "I32",
    "uint32": "U32", "float32": "F32", "float64": "F64", "int64": "I64", "uint64": "U64",
}  # fmt: skip
_DTYPES = {name: np.dtype(dtype) for dtype, name in _NAMES.items()}


@dataclass(frozen=True)
class Column:
    """One field: its path, and dtype and shape of one row."""

    path: Path
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Layout:
    """The fields of a trajectory.

    Attributes:
        columns: All fields, ordered by path.
        shared: Those `next_obs` that are `curr_obs` one step later, and are not stored.
    """

    columns: tuple[Column, ...]
    shared: frozenset[Path]

    def source(self, path: Path) -> tuple[Path, int]:
        """The stored field that has the rows of `path`, and by how many steps they are shifted there."""
        return (("curr_obs", *path[1:]), 1) if path in self.shared else (path, 0)

    def steps(self, path: Path, length: int) -> int:
        """Stored steps of a field, in a trajectory of `length` steps."""
        return length + (("next_obs", *path[1:]) in self.shared and path[0] == "curr_obs")

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns that are written, in file order: the widest dtypes first, so that all are aligned."""
        kept = [column for column in self.columns if column.path not in self.shared]
        return tuple(sorted(kept, key=lambda c: (-np.dtype(c.dtype).itemsize, c.path)))


@dataclass(frozen=True)
class Slot:
    """Where a stored field is in the file.

    Attributes:
        offset: Bytes from the end of the header.
        row: Bytes of one row.
        rows: How many rows.
        number: Its column in the checksum table.
    """

    offset: int
    row: int
    rows: int
    number: int


class Plan:
    """The offsets in a file, which follow from layout, length and width."""

    def __init__(self, layout: Layout, length: int, width: int) -> None:
        self.layout, self.length, self.width = layout, length, width
        self.slots: dict[Path, Slot] = {}
        end = 0
        for number, column in enumerate(layout.stored):
            rows = layout.steps(column.path, length) * width
            self.slots[column.path] = Slot(end, column.nbytes, rows, number)
            end += rows * column.nbytes
        self.rows = max(slot.rows for slot in self.slots.values())
        self.padding = -end % 4  # aligns the table; it is a tensor of its own, as safetensors requires
        self.table = end + self.padding
        self.table_row = 4 * len(self.slots)
        self.mark = self.table + self.rows * self.table_row
        self.nbytes = self.mark + 4

    def header(self, max_episode_length: int, model_weights_id: str) -> bytes:
        """The file's header: its length, then JSON padded with spaces."""
        tensors: dict[str, Any] = {
            "__metadata__": {
                "format": FORMAT,
                "max_episode_length": str(max_episode_length),
                "model_weights_id": model_weights_id,
                "shared": json.dumps(sorted("/".join(path) for path in self.layout.shared)),
            }
        }
        for column in self.layout.stored:
            slot = self.slots[column.path]
            shape = [slot.rows // self.width, self.width, *column.shape]
            tensors["/".join(column.path)] = _tensor(_NAMES[column.dtype], shape, slot.offset, slot.rows * slot.row)
        if self.padding:
            tensors[_PADDING] = _tensor("U8", [self.padding], self.table - self.padding, self.padding)
        tensors[CHECKSUMS] = _tensor("U32", [self.rows, len(self.slots)], self.table, self.rows * self.table_row)
        tensors[MARK] = _tensor("U32", [1], self.mark, 4)
        text = json.dumps(tensors, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % _ALIGN)
        return len(text).to_bytes(8, "little") + text


@lru_cache(maxsize=256)
def plan_of(layout: Layout, length: int, width: int) -> Plan:
    """The plan of a layout and size, from a cache."""
    return Plan(layout, length, width)


def _tensor(dtype: str, shape: Sequence[int], offset: int, count: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + count]}


@dataclass(frozen=True)
class Header:
    """A parsed file header."""

    layout: Layout
    length: int
    width: int
    start: int
    max_episode_length: int
    model_weights_id: str
    raw: bytes

    @property
    def plan(self) -> Plan:
        """The offsets in the file."""
        return plan_of(self.layout, self.length, self.width)


def parse(head: bytes, size: int, name: str) -> Header:
    """Parse the header of a file of `size` bytes; every number is checked before it is used.

    Raises:
        StorageError: The file is not a trajectory of relive's, or damaged.
    """
    try:
        count = int.from_bytes(head[:8], "little")
        if count > min(MOST_HEADER, size - 8) or len(head) < 8 + count:
            raise ValueError(f"invalid header of {count} bytes")
        tensors = json.loads(head[8 : 8 + count])
        facts = tensors.pop("__metadata__")
        if facts["format"] != FORMAT:
            raise ValueError(f"unknown format {facts['format']!r}"[:80])
        header = _header(tensors, facts, head[: 8 + count])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StorageError(event(f"Invalid trajectory file ({str(error)[:80]})", name)) from None
    if header.start + header.plan.nbytes != size:
        wanted = f"a file of {header.start + header.plan.nbytes} bytes"
        raise StorageError(message(wanted, f"{size}", name))
    return header


def _header(tensors: dict[str, Any], facts: dict[str, str], raw: bytes) -> Header:
    table, mark = tensors.pop(CHECKSUMS), tensors.pop(MARK)
    tensors.pop(_PADDING, None)
    shared = frozenset(tuple(text.split("/")) for text in json.loads(facts["shared"]))
    columns, length, width = [], None, 0
    for name, tensor in tensors.items():
        path, dtype, shape = tuple(name.split("/")), _DTYPES[tensor["dtype"]], tensor["shape"]
        if len(shape) < 2 or not all(type(axis) is int and 0 < axis < 2**40 for axis in shape):
            raise ValueError(f"invalid shape {str(shape)[:40]}")
        more = ("next_obs", *path[1:]) in shared and path[0] == "curr_obs"
        if length is None:
            length, width = shape[0] - more, shape[1]
        if (shape[0] - more, shape[1]) != (length, width):
            raise ValueError(f"shape {shape[:2]} next to {[length, width]}")
        columns.append(Column(path, dtype.name, tuple(shape[2:])))
        if more:
            columns.append(Column(("next_obs", *path[1:]), dtype.name, tuple(shape[2:])))
    if length is None or length < 1 or not 0 <= int(facts["max_episode_length"]) < 2**31:
        raise ValueError("no steps, or invalid max_episode_length")
    if len(facts["model_weights_id"].encode()) > MOST_WEIGHTS:
        raise ValueError("model_weights_id is too long")
    layout = _sound(Layout(tuple(sorted(columns, key=lambda column: column.path)), shared))
    header = Header(
        layout, length, width, len(raw), int(facts["max_episode_length"]), str(facts["model_weights_id"]), raw
    )
    plan = header.plan
    for column in layout.stored:
        slot = plan.slots[column.path]
        if tensors["/".join(column.path)]["data_offsets"] != [slot.offset, slot.offset + slot.rows * slot.row]:
            raise ValueError("offsets do not match the shapes")
    if [*table["data_offsets"], *mark["data_offsets"]] != [plan.table, plan.mark, plan.mark, plan.nbytes]:
        raise ValueError("checksum table has the wrong size")
    return header


def columns_json(layout: Layout) -> str:
    """A layout as text, for the index."""
    columns = [["/".join(c.path), c.dtype, list(c.shape)] for c in layout.columns]
    return json.dumps({"columns": columns, "shared": sorted("/".join(path) for path in layout.shared)})


def layout_from(text: str) -> Layout:
    """The layout in a text that `columns_json` wrote.

    Raises:
        ValueError: The text is anything else.
    """
    try:
        layout = json.loads(text)
        columns = []
        for name, dtype, shape in layout["columns"]:
            if dtype not in _NAMES or not all(type(axis) is int and 0 < axis < 2**40 for axis in shape):
                raise ValueError(f"invalid dtype or shape: {dtype} {shape}")
            columns.append(Column(tuple(str(name).split("/")), dtype, tuple(shape)))
        shared = frozenset(tuple(str(name).split("/")) for name in layout["shared"])
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return _sound(Layout(tuple(columns), shared))


def _sound(layout: Layout) -> Layout:
    """The layout itself, if it is valid.

    Raises:
        ValueError: It has no fields, bad names, a field inside another, or a shared field without a matching one.
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
    return layout


class Difference(NamedTuple):
    """A field in which two layouts differ: what was expected, what was found, and the field's dotted path."""

    expected: str
    got: str
    path: str


def columns_of(trajectory: Trajectory) -> tuple[Column, ...]:
    """The fields of a trajectory, ordered by path."""
    return tuple(Column(path, a.dtype.name, a.shape[2:]) for path, a in sorted(trajectory.arrays.items()))


def difference(expected: Sequence[Column] | None, got: Sequence[Column]) -> Difference | None:
    """The first field that differs; None if all are alike, or nothing is expected yet."""
    if expected is None or expected == got:
        return None
    before, now = ({column.path: column for column in columns} for columns in (expected, got))
    for path in sorted(before.keys() | now.keys()):
        if before.get(path) != now.get(path):
            return Difference(_described(before.get(path)), _described(now.get(path)), "$." + ".".join(path))
    return None


def _described(column: Column | None) -> str:
    if column is None:
        return "no such field"
    return f"`{column.dtype}` of shape `({', '.join(['T', 'B', *map(str, column.shape)])})`"
