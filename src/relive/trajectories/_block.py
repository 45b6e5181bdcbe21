"""The rows of one trajectory in memory, laid out as in its file, and the file itself: written, read, checked."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _kernels
from .._files import Folder, read_at, read_into, reported, size_of
from .._memory import HUGE_PAGE, Arena
from .._types import Array
from ..errors import SchemaError, StorageError, event, message
from ._entry import Entry, file_name, mismatch
from ._layout import MOST_HEADER, MOST_WEIGHTS, Header, Layout, Plan, columns_of, parse, plan_of
from .trajectory import Path, Trajectory


@dataclass(frozen=True)
class Block:
    """A trajectory's stored fields, each `[rows, ...]`, with row `t * B + b`."""

    layout: Layout
    length: int
    width: int
    arrays: Mapping[Path, Array]
    max_episode_length: int = 0
    model_weights_id: str = ""

    @property
    def plan(self) -> Plan:
        """The offsets in its file."""
        return plan_of(self.layout, self.length, self.width)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def rows(self, path: Path) -> Array:
        """The rows of any field, shared ones included, `[T * B, ...]`."""
        stored, shift = self.layout.source(path)
        first = shift * self.width
        return self.arrays[stored][first : first + self.length * self.width]

    def fields(self) -> dict[Path, Array]:
        """All fields as they were added, `[T, B, ...]`."""
        shape = self.length, self.width
        return {c.path: self.rows(c.path).reshape(*shape, *c.shape) for c in self.layout.columns}


def packed(trajectory: Trajectory, arena: Arena) -> Block:
    """Copy a trajectory; a `next_obs` that is `curr_obs` one step later is not copied."""
    columns = columns_of(trajectory)
    likely = frozenset(path for path in trajectory.arrays if _likely(trajectory.arrays, path))
    block = None
    while block is None:  # copy again where a field that looked shared is not
        block, not_shared = _copied(trajectory, Layout(columns, likely), arena)
        likely -= not_shared
    return block


def _copied(trajectory: Trajectory, layout: Layout, arena: Arena) -> tuple[Block | None, frozenset[Path]]:
    """A copy in the given layout; or None, and a field that is marked shared but is not `curr_obs` one step later."""
    length, width = trajectory.length, trajectory.width
    stored = layout.stored
    shapes = [((layout.steps(c.path, length), width, *c.shape), c.dtype) for c in stored]
    arrays = {}
    for column, copy in zip(stored, _memory_of(shapes, arena), strict=True):
        now = trajectory.arrays[column.path]
        if len(copy) > length:
            path = ("next_obs", *column.path[1:])
            later = np.ascontiguousarray(trajectory.arrays[path])
            if not _kernels.active().copy_steps(np.ascontiguousarray(now), later, copy):
                return None, frozenset([path])
        else:
            copy[:] = now
        arrays[column.path] = copy.reshape(-1, *column.shape)
    block = Block(layout, length, width, arrays, trajectory.max_episode_length, trajectory.model_weights_id)
    return block, frozenset()


def _memory_of(shapes: Sequence[tuple[Sequence[int], Any]], arena: Arena) -> list[Array]:
    """Arrays for a block: from the arena, if they fill at least two of its huge pages."""
    if sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes) >= 2 * HUGE_PAGE:
        return arena.together(shapes)
    return [np.empty(shape, dtype) for shape, dtype in shapes]


def check_storable(trajectory: Trajectory, at: str, *, fields: bool) -> None:
    """Refuse a trajectory that could be written but not read back.

    Args:
        trajectory: The trajectory.
        at: Its path in the caller's terms.
        fields: Whether to check the fields, too; not needed where they equal those of an earlier trajectory.

    Raises:
        SchemaError: A `model_weights_id` or `max_episode_length` too large for the index, or fields that no file can
            hold: too many, nested too deep, or with a reserved name.
    """
    weights = trajectory.model_weights_id.encode(errors="replace")
    if len(weights) > MOST_WEIGHTS or weights.decode().rstrip("\0") != trajectory.model_weights_id:
        got = f"`{trajectory.model_weights_id[:60]!r}`"
        raise SchemaError(message(f"at most {MOST_WEIGHTS} bytes of UTF-8", got, f"{at}.model_weights_id"))
    if trajectory.max_episode_length >= 2**31:
        got = f"`{trajectory.max_episode_length}`"
        raise SchemaError(message(f"at most `{2**31 - 1}`", got, f"{at}.max_episode_length"))
    if not fields:
        return
    columns = columns_of(trajectory)
    plan = Plan(Layout(columns, frozenset()), trajectory.length, trajectory.width)
    header = plan.header(trajectory.max_episode_length, trajectory.model_weights_id)
    try:
        # Half the limit: headers of later, longer trajectories have more digits.
        if len(header) > MOST_HEADER // 2 or parse(header, len(header) + plan.nbytes, at).layout != plan.layout:
            raise SchemaError(message("fewer fields, and no reserved names", f"{len(columns)} fields", at))
    except StorageError as error:
        raise SchemaError(message("fields that a file can hold", f"`{error}`", at)) from error


def _likely(arrays: Mapping[Path, Array], path: Path) -> bool:
    """Whether a field may be a shared `next_obs`: two steps are compared, not all."""
    now, later = arrays.get(("curr_obs", *path[1:])), arrays[path]
    if path[0] != "next_obs" or len(path) < 2 or now is None or now.shape != later.shape or now.dtype != later.dtype:
        return False
    return all(now[t + 1].tobytes() == later[t].tobytes() for t in (0, len(now) // 2) if t + 1 < len(now))


def _bytes(array: Array) -> memoryview:
    """The bytes of a contiguous array."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def checksums(block: Block) -> Array:
    """The CRC-32 of every row of every stored field, uint32 `[rows, fields]`; 0 where a field has no such row."""
    plan = block.plan
    table = np.zeros((plan.rows, len(plan.slots)), np.uint32)
    for path, slot in plan.slots.items():
        table[: slot.rows, slot.number] = _kernels.active().checksums(block.arrays[path])
    return table


def file_of(id_: int, block: Block) -> tuple[list[Any], Entry]:
    """The parts of a block's file, and its entry in the index."""
    plan = block.plan
    header = plan.header(block.max_episode_length, block.model_weights_id)
    table = checksums(block)
    arrays = [block.arrays[column.path].reshape(-1).view(np.uint8) for column in block.layout.stored]
    checksum = zlib.crc32(table.tobytes(), zlib.crc32(header))
    mark = np.array([checksum], np.uint32).tobytes()
    parts = [header, *arrays, bytes(plan.padding), table.reshape(-1).view(np.uint8), mark]
    shape, facts = (block.length, block.width, block.layout), (block.max_episode_length, block.model_weights_id)
    return parts, Entry(id_, *shape, len(header), len(header) + plan.nbytes, checksum, *facts)


def file_size(block: Block) -> int:
    """The size of a block's file."""
    return len(block.plan.header(block.max_episode_length, block.model_weights_id)) + block.plan.nbytes


def read_header(fd: int, size: int, name: str) -> Header:
    """The header of an open file of `size` bytes."""
    with reported(name, "read the file"):
        first = read_at(fd, 0, 8)
        count = int.from_bytes(first, "little")
        rest = read_at(fd, 8, count) if len(first) == 8 and count <= min(MOST_HEADER, size) else b""
    return parse(first + rest, size, name)


def read_block(folder: Folder, entry: Entry, arena: Arena) -> Block:
    """Read a whole file; every row is compared with its checksum.

    Raises:
        StorageError: The file is missing, not a trajectory, or damaged.
    """
    name = file_name(entry.id)
    at = f"{folder.path}/{name}"
    with folder.reading(name) as fd:
        size = size_of(fd)
        header = read_header(fd, size, at)
        plan, stored = header.plan, header.layout.stored
        shapes = [((plan.slots[column.path].rows, *column.shape), column.dtype) for column in stored]
        shapes += [((plan.rows, len(plan.slots)), "uint32"), ((1,), "uint32")]
        try:
            *fields, table, mark = _memory_of(shapes, arena)
        except MemoryError as error:  # possibly a sparse file that claims a huge size
            raise StorageError(message("a file that fits in memory", f"{size} bytes", at)) from error
        padding = bytearray(plan.padding)
        targets = [*map(_bytes, fields), memoryview(padding), _bytes(table), _bytes(mark)]
        if not read_into(fd, header.start, targets):
            raise StorageError(event(f"The file ends before its {size} bytes", at))
    arrays = dict(zip((column.path for column in stored), fields, strict=True))
    block = Block(
        header.layout, header.length, header.width, arrays, header.max_episode_length, header.model_weights_id
    )
    bad = np.argwhere(checksums(block) != table)
    found = zlib.crc32(table.tobytes(), zlib.crc32(header.raw))
    if len(bad) or any(padding) or found != int(mark[0]):
        where = f"Row {bad[0][0]} of `{'.'.join(stored[bad[0][1]].path)}`" if len(bad) else "The header"
        raise StorageError(event(f"{where} does not match its checksum", at))
    if found != entry.checksum:
        raise StorageError(event(mismatch(entry, found), at))
    return block
