"""The fields of a trajectory, as text in the index, and compared with those of others."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np

from .._base import narrow
from .._base.nests import Path
from .._base.types import Int64
from .._disk import safetensors
from .._disk.json_files import json_in
from ..errors import SchemaError, message
from .trajectory import Trajectory

# A value for fields that a trajectory lacks, or one each for some of them by dotted name; None: none may be missing.
Fill: TypeAlias = float | Mapping[str, float] | None
N = TypeVar("N", int, Int64)

SUMS: Path = ()  # of no field, as the next one: the table of checksums
BEGINS: Path = ("",)  # where frames begin and end
DTYPES = safetensors.CODES.keys() - {"complex64"}
_COMPRESSIBLE = ("uint8", "int8", "bool")
_DEEPEST = 30  # levels of nesting; axes after `[T, B]`
LEAST_COMPRESSED = 1024  # bytes of a row that is worth a frame of its own
_NARROW = 32  # the part of a row that fields may take and be kept in memory, without a cache


@dataclass(frozen=True)
class FieldColumn:
    """One field: its path, and dtype and shape of one row."""

    path: Path
    dtype: str
    shape: tuple[int, ...]

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """The dtype of its arrays: of raw bits for numbers that NumPy lacks."""
        return narrow.stored(self.dtype)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * self.stored.itemsize


@dataclass(frozen=True)
class FieldLayout:
    """The fields of a trajectory.

    Attributes:
        columns: All fields, ordered by path.
        shared: Those `next_obs` that are `curr_obs` one step later, and are not stored.
        compressed: Those stored fields whose rows are compressed in files.
    """

    columns: tuple[FieldColumn, ...]
    shared: frozenset[Path]
    compressed: frozenset[Path] = frozenset()

    def source(self, path: Path) -> tuple[Path, int]:
        """Return the stored field that has the rows of `path`, and the steps by which they are shifted there."""
        return (("curr_obs", *path[1:]), 1) if path in self.shared else (path, 0)

    def steps(self, path: Path, length: N) -> N:
        """Count the stored steps of a field, in a trajectory of `length` steps."""
        return length + (("next_obs", *path[1:]) in self.shared and path[0] == "curr_obs")

    @cached_property
    def stored(self) -> tuple[FieldColumn, ...]:
        """The columns that are written, in file order: the widest dtypes first, so that all are aligned."""
        kept = [column for column in self.columns if column.path not in self.shared]
        return tuple(sorted(kept, key=lambda c: (-c.stored.itemsize, c.path)))

    @cached_property
    def packed(self) -> tuple[FieldColumn, ...]:
        """The columns that are compressed, in the order of `stored`."""
        return tuple(column for column in self.stored if column.path in self.compressed)

    def compressing(self, compress: bool = True) -> FieldLayout:
        """Compress the fields for which this pays, numbers of one byte in rows of at least 1 KiB; or none."""
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

    @cached_property
    def kept(self) -> tuple[dict[Path, slice], int]:
        """The bytes of what is kept of a row, by path: checksums, where its frames begin and end, narrow fields.

        And how many there are.
        """
        sizes: dict[Path, int] = {SUMS: 4 * len(self.stored), BEGINS: 8 * (len(self.packed) + bool(self.packed))}
        sizes |= {column.path: column.nbytes for column in self.stored if column.path in self.narrow}
        ends = dict(zip(sizes, itertools.accumulate(sizes.values()), strict=True))
        return {path: slice(ends[path] - size, ends[path]) for path, size in sizes.items()}, sum(sizes.values())

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.columns, self.shared, self.compressed))


def axes_fit(shape: Any) -> bool:
    """Return whether these are sizes of axes."""
    return all(type(axis) is int and 0 < axis < 2**40 for axis in shape)


def names_of(paths: frozenset[Path]) -> list[str]:
    """Return paths as text, in order."""
    return sorted("/".join(path) for path in paths)


@lru_cache(maxsize=256)
def columns_json(layout: FieldLayout) -> str:
    """Return a layout as text, for the index."""
    columns = [["/".join(c.path), c.dtype, list(c.shape)] for c in layout.columns]
    more = {"compressed": names_of(layout.compressed)} if layout.compressed else {}
    return json.dumps({"columns": columns, "shared": names_of(layout.shared), **more})


def layout_from(text: str) -> FieldLayout:
    """Parse a text that `columns_json` wrote.

    Raises:
        ValueError: The text is anything else.
    """
    try:
        layout = json_in(text.encode())
        columns = []
        for name, dtype, shape in layout["columns"]:
            if dtype not in DTYPES or not axes_fit(shape):
                raise ValueError(f"invalid dtype or shape: {dtype} {shape}")
            columns.append(FieldColumn(tuple(str(name).split("/")), dtype, tuple(shape)))
        shared, compressed = (
            frozenset(tuple(str(name).split("/")) for name in names)
            for names in (layout["shared"], layout.get("compressed", ()))
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return sound(FieldLayout(tuple(columns), shared, compressed))


def sound(layout: FieldLayout) -> FieldLayout:
    """Return the layout itself, if it is valid.

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


def columns_of(trajectory: Trajectory) -> tuple[FieldColumn, ...]:
    """Return the fields of a trajectory, ordered by path."""
    return tuple(
        FieldColumn(path, narrow.name_of(a.dtype), a.shape[2:]) for path, a in sorted(trajectory.arrays.items())
    )


def check_alike(
    expected: Sequence[FieldColumn] | None,
    got: Sequence[FieldColumn],
    at: str,
    remedy: str | None = None,
    fill: Fill = None,
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


def joined(before: Sequence[FieldColumn] | None, more: Sequence[FieldColumn]) -> Sequence[FieldColumn]:
    """Join the fields of both; one that both have is that of `before`."""
    if before is None or before == more:
        return more
    both = {column.path: column for column in (*more, *before)}
    return tuple(both[path] for path in sorted(both))


def _described(column: FieldColumn | None) -> str:
    if column is None:
        return "no such field"
    return f"`{column.dtype}` of shape `({', '.join(['T', 'B', *map(str, column.shape)])})`"
