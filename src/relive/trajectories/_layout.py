"""The file of one trajectory: safetensors, with a table of checksums, one for every row of every field.

A row is one chunk-step of one environment, row `t * B + b` of `[T, B, ...]`, and is found by arithmetic. Where
`next_obs` is `curr_obs` one step later, `curr_obs` has T + 1 steps and `next_obs` is not written: its row k is row
k + B. The last four bytes are the checksum of header and table, which the index knows, too: they tell a file from
another of the same size that stands under its name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import StorageError, message
from .trajectory import Path

FORMAT = "relive.trajectory.1"
CHECKSUMS, MARK, _PADDING = "relive/crc32", "relive/checksum", "relive/padding"
MOST_HEADER = 1 << 20
MOST_WEIGHTS = 40  # bytes of a weights id
_ALIGN = 64
_DEEPEST = 30  # levels of names, and axes behind the first two
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
    """What the files of alike trajectories hold: their columns, and which of `next_obs` are `curr_obs` a step later."""

    columns: tuple[Column, ...]
    shared: frozenset[Path]

    def source(self, path: Path) -> tuple[Path, int]:
        """Under which path a field is stored, and how many steps later its rows stand there."""
        return (("curr_obs", *path[1:]), 1) if path in self.shared else (path, 0)

    def steps(self, path: Path, length: int) -> int:
        """Steps that are stored of a field of a trajectory of `length` steps."""
        return length + (("next_obs", *path[1:]) in self.shared and path[0] == "curr_obs")

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns that are written, in the order of the file: the widest numbers first, so that all are aligned."""
        kept = [column for column in self.columns if column.path not in self.shared]
        return tuple(sorted(kept, key=lambda c: (-np.dtype(c.dtype).itemsize, c.path)))


@dataclass(frozen=True)
class Slot:
    """Where a stored field stands in the file: behind the header, in bytes; its rows, and its column of checksums."""

    offset: int
    row: int
    rows: int
    number: int


class Plan:
    """The offsets in the file of a trajectory of a given layout and size."""

    def __init__(self, layout: Layout, length: int, width: int) -> None:
        self.layout, self.length, self.width = layout, length, width
        self.slots: dict[Path, Slot] = {}
        end = 0
        for number, column in enumerate(layout.stored):
            rows = layout.steps(column.path, length) * width
            self.slots[column.path] = Slot(end, column.nbytes, rows, number)
            end += rows * column.nbytes
        self.rows = max(slot.rows for slot in self.slots.values())
        self.padding = -end % 4  # the table of checksums is aligned, and nothing in the file belongs to no tensor
        self.table = end + self.padding
        self.table_row = 4 * len(self.slots)
        self.mark = self.table + self.rows * self.table_row
        self.nbytes = self.mark + 4

    def header(self, max_episode_length: int, model_weights_id: str) -> bytes:
        """The file's beginning: its length, and JSON, filled up with spaces."""
        told: dict[str, Any] = {
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
            told["/".join(column.path)] = _entry(_NAMES[column.dtype], shape, slot.offset, slot.rows * slot.row)
        if self.padding:
            told[_PADDING] = _entry("U8", [self.padding], self.table - self.padding, self.padding)
        told[CHECKSUMS] = _entry("U32", [self.rows, len(self.slots)], self.table, self.rows * self.table_row)
        told[MARK] = _entry("U32", [1], self.mark, 4)
        text = json.dumps(told, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % _ALIGN)
        return len(text).to_bytes(8, "little") + text


@lru_cache(maxsize=256)
def plan_of(layout: Layout, length: int, width: int) -> Plan:
    """The plan of a layout and size."""
    return Plan(layout, length, width)


def _entry(dtype: str, shape: Sequence[int], offset: int, count: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + count]}


@dataclass(frozen=True)
class Header:
    """What a file says of itself."""

    layout: Layout
    length: int
    width: int
    start: int
    max_episode_length: int
    model_weights_id: str
    raw: bytes

    @property
    def plan(self) -> Plan:
        """Where its rows stand."""
        return plan_of(self.layout, self.length, self.width)


def parse(head: bytes, size: int, name: str) -> Header:
    """Read a header whose file has `size` bytes; every number in it is checked before it is used.

    Raises:
        StorageError: The file is no trajectory of relive's, or damaged.
    """
    try:
        count = int.from_bytes(head[:8], "little")
        if count > min(MOST_HEADER, size - 8) or len(head) < 8 + count:
            raise ValueError(f"a header of {count} bytes")
        told = json.loads(head[8 : 8 + count])
        facts = told.pop("__metadata__")
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']!r}"[:80])
        header = _header(told, facts, head[: 8 + count])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StorageError(message("a trajectory's file", f"`{str(error)[:80]}`", name)) from None
    if header.start + header.plan.nbytes != size:
        got = f"{size} bytes"
        raise StorageError(message(f"a file of {header.start + header.plan.nbytes} bytes", got, name))
    return header


def _header(told: dict[str, Any], facts: dict[str, str], raw: bytes) -> Header:
    table, mark = told.pop(CHECKSUMS), told.pop(MARK)
    told.pop(_PADDING, None)
    shared = frozenset(tuple(text.split("/")) for text in json.loads(facts["shared"]))
    columns, length, width = [], None, 0
    for name, entry in told.items():
        path, dtype, shape = tuple(name.split("/")), _DTYPES[entry["dtype"]], entry["shape"]
        if len(shape) < 2 or not all(type(axis) is int and 0 < axis < 2**40 for axis in shape):
            raise ValueError(f"a shape of {str(shape)[:40]}")
        more = ("next_obs", *path[1:]) in shared and path[0] == "curr_obs"
        if length is None:
            length, width = shape[0] - more, shape[1]
        if (shape[0] - more, shape[1]) != (length, width):
            raise ValueError(f"{shape[:2]} beside {[length, width]}")
        columns.append(Column(path, dtype.name, tuple(shape[2:])))
        if more:
            columns.append(Column(("next_obs", *path[1:]), dtype.name, tuple(shape[2:])))
    if length is None or length < 1 or not 0 <= int(facts["max_episode_length"]) < 2**31:
        raise ValueError("no steps, or an episode's length that cannot be")
    if len(facts["model_weights_id"].encode()) > MOST_WEIGHTS:
        raise ValueError("too long a weights id")
    layout = _sound(Layout(tuple(sorted(columns, key=lambda column: column.path)), shared))
    header = Header(
        layout, length, width, len(raw), int(facts["max_episode_length"]), str(facts["model_weights_id"]), raw
    )
    plan = header.plan
    for column in layout.stored:
        slot = plan.slots[column.path]
        if told["/".join(column.path)]["data_offsets"] != [slot.offset, slot.offset + slot.rows * slot.row]:
            raise ValueError("offsets that do not follow from the shapes")
    if [*table["data_offsets"], *mark["data_offsets"]] != [plan.table, plan.mark, plan.mark, plan.nbytes]:
        raise ValueError("a table of checksums of another size")
    return header


def columns_json(layout: Layout) -> str:
    """A layout as text, for the index."""
    columns = [["/".join(c.path), c.dtype, list(c.shape)] for c in layout.columns]
    return json.dumps({"columns": columns, "shared": sorted("/".join(path) for path in layout.shared)})


def layout_from(text: str) -> Layout:
    """The layout that `columns_json` wrote.

    Raises:
        ValueError: The text is not what that function writes.
    """
    try:
        told = json.loads(text)
        columns = []
        for name, dtype, shape in told["columns"]:
            if dtype not in _NAMES or not all(type(axis) is int and 0 < axis < 2**40 for axis in shape):
                raise ValueError(f"{dtype} {shape}")
            columns.append(Column(tuple(str(name).split("/")), dtype, tuple(shape)))
        shared = frozenset(tuple(str(name).split("/")) for name in told["shared"])
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return _sound(Layout(tuple(columns), shared))


def _sound(layout: Layout) -> Layout:
    """The layout, if its fields can stand beside each other.

    Raises:
        ValueError: There are none, one stands inside another, or a `next_obs` is the step after of something else.
    """
    columns = {column.path: column for column in layout.columns}
    if not columns or len(columns) < len(layout.columns) or not all(map(all, columns)):
        raise ValueError("no fields, two of one name, or one without")
    if max(map(len, columns)) > _DEEPEST or max(len(column.shape) for column in layout.columns) > _DEEPEST:
        raise ValueError("fields nested too deep, or of too many axes")
    if any(path[:depth] in columns for path in columns for depth in range(1, len(path))):
        raise ValueError("a field inside a field")
    for path in layout.shared:
        one, other = columns.get(path), columns.get(("curr_obs", *path[1:]))
        alike = one is not None and other is not None and (one.dtype, one.shape) == (other.dtype, other.shape)
        if path[0] != "next_obs" or not alike:
            raise ValueError("a `next_obs` of what there is not")
    return layout
