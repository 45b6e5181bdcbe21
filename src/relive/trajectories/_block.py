"""The rows of one trajectory in memory, laid out as in its file; the parts of the file, and its header."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._base import narrow, system
from .._base.memory import HUGE_PAGE, Arena
from .._base.nests import Path, nested
from .._base.types import Array
from .._disk import safetensors
from .._disk.files import Folder, read_at, reported, size_of
from .._disk.json_files import damaged
from .._ring import kernels
from ..errors import CorruptionError, SchemaError, StorageError, message
from ._layout import (
    CHECKSUMS,
    DTYPES,
    FACTS,
    FORMAT,
    MARK,
    MOST_WEIGHTS,
    PADDING,
    Column,
    Entry,
    Layout,
    axes_fit,
    columns_of,
    file_name,
    header_of,
    plan_of,
    sound,
)
from ._metadata import Metadata, from_json
from .trajectory import Trajectory

_CHUNK = 1 << 20  # bytes read at once


@dataclass(frozen=True)
class Block:
    """A trajectory's stored fields, each `[rows, ...]`, with row `t * B + b`; raw bits where NumPy lacks the dtype."""

    entry: Entry
    arrays: Mapping[Path, Array]
    metadata: Metadata

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def rows(self, path: Path) -> Array:
        """The rows of any field, shared ones included, `[T * B, ...]`."""
        stored, shift = self.entry.layout.source(path)
        first = shift * self.entry.width
        return self.arrays[stored][first : first + self.entry.length * self.entry.width]

    def fields(self) -> dict[Path, Array]:
        """All fields as they were added, `[T, B, ...]`."""
        shape = self.entry.length, self.entry.width
        rows = {c: narrow.named(self.rows(c.path), c.dtype) for c in self.entry.layout.columns}
        return {c.path: array.reshape(*shape, *c.shape) for c, array in rows.items()}

    def trajectory(self) -> Trajectory:
        """The trajectory as it was added, its arrays copied."""
        copies = {path: array.copy() for path, array in self.fields().items()}
        entry = self.entry
        facts = {"max_episode_length": entry.max_episode_length, "model_weights_id": entry.model_weights_id}
        return Trajectory(**{**nested([*self.metadata.items(), *copies.items()]), **facts})

    @property
    def header(self) -> bytes:
        """The header of its file."""
        return header_of(self.entry, self.metadata)

    @property
    def checksums(self) -> Array:
        """The CRC-32 of every row of every stored field, uint32 `[rows, fields]`; 0 where a field has no such row."""
        stored = self.entry.layout.stored
        table = np.zeros((self.entry.plan.rows, len(stored)), np.uint32)
        for number, column in enumerate(stored):
            array = self.arrays[column.path]
            table[: len(array), number] = kernels.active().checksums(array)
        return table


def packed(trajectory: Trajectory, arena: Arena, id_: int) -> Block:
    """Copy a trajectory that gets this id; a `next_obs` that is `curr_obs` one step later is not copied."""
    columns = columns_of(trajectory)
    likely = frozenset(path for path in trajectory.arrays if _likely(trajectory.arrays, path))
    block = None
    while block is None:  # copy again where a field that looked shared is not
        block, not_shared = _copied(trajectory, Layout(columns, likely), arena, id_)
        likely -= not_shared
    return block


def _copied(trajectory: Trajectory, layout: Layout, arena: Arena, id_: int) -> tuple[Block | None, frozenset[Path]]:
    """A copy in the given layout; or None, and a field that is marked shared but is not `curr_obs` one step later."""
    length, width = trajectory.length, trajectory.width
    stored = layout.stored
    shapes = [((layout.steps(c.path, length), width, *c.shape), c.stored) for c in stored]
    given = {path: narrow.raw(array) for path, array in trajectory.arrays.items()}
    arrays = {}
    for column, copy in zip(stored, memory_of(shapes, arena), strict=True):
        now = given[column.path]
        if len(copy) > length:
            path = ("next_obs", *column.path[1:])
            later = np.ascontiguousarray(given[path])
            if not kernels.active().copy_steps(np.ascontiguousarray(now), later, copy):
                return None, frozenset([path])
        else:
            copy[:] = now
        arrays[column.path] = copy.reshape(-1, *column.shape)
    nbytes = sum(array.nbytes for array in arrays.values())
    facts = (trajectory.max_episode_length, trajectory.model_weights_id)
    entry = Entry(id_, length, width, layout, 0, nbytes, 0, *facts)
    return Block(entry, arrays, trajectory.metadata), frozenset()


def memory_of(shapes: Sequence[tuple[Sequence[int], Any]], arena: Arena) -> list[Array]:
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
    longest = FACTS["max_episode_length"].most
    if trajectory.max_episode_length > longest:
        got = f"`{trajectory.max_episode_length}`"
        raise SchemaError(message(f"at most `{longest}`", got, f"{at}.max_episode_length"))
    if not fields:
        return
    columns, most = columns_of(trajectory), safetensors.MOST_HEADER // 2  # later, longer ones have more digits
    layout, facts = Layout(columns, frozenset()), (trajectory.max_episode_length, trajectory.model_weights_id)
    entry = Entry(0, trajectory.length, trajectory.width, layout, 0, 0, 0, *facts)
    header = header_of(entry, {})
    try:
        if len(header) > most or parse(header, len(header) + entry.plan.nbytes, at).entry.layout != layout:
            raise SchemaError(message("fewer fields, and no reserved names", f"{len(columns)} fields", at))
    except StorageError as error:
        raise SchemaError(message("fields that a file can hold", f"`{error}`", at)) from error


def _likely(arrays: Mapping[Path, Array], path: Path) -> bool:
    """Whether a field may be a shared `next_obs`: two steps are compared, not all."""
    now, later = arrays.get(("curr_obs", *path[1:])), arrays[path]
    if path[0] != "next_obs" or len(path) < 2 or now is None or now.shape != later.shape or now.dtype != later.dtype:
        return False
    return all(now[t + 1].tobytes() == later[t].tobytes() for t in (0, len(now) // 2) if t + 1 < len(now))


def file_of(block: Block) -> tuple[list[Any], Entry]:
    """The parts of a block's file, and its entry in the index."""
    entry, header, table = block.entry, block.header, block.checksums
    arrays = [block.arrays[column.path].reshape(-1).view(np.uint8) for column in entry.layout.stored]
    checksum = zlib.crc32(table.tobytes(), zlib.crc32(header))
    mark = np.array([checksum], np.uint32).tobytes()
    parts = [header, *arrays, bytes(entry.plan.padding), table.reshape(-1).view(np.uint8), mark]
    return parts, entry._replace(start=len(header), bytes=len(header) + entry.plan.nbytes, checksum=checksum)


def parse(head: bytes, size: int, name: str, id_: int = 0) -> Block:
    """The block of a file of `size` bytes, without its arrays, from the header; its checksum is that of the header.

    Every number is checked before it is used.

    Raises:
        CorruptionError: The file is not a trajectory of relive's, or damaged.
    """
    with damaged(name):
        tensors, facts = safetensors.parsed(head, size)
        if facts["format"] != FORMAT:
            raise ValueError(f"unknown format {facts['format']!r}"[:80])
        layout, length, width = _described_by(tensors, facts)
        metadata = from_json(facts["metadata"]) if "metadata" in facts else {}
    nbytes = len(head) + plan_of(layout, length, width).nbytes
    if nbytes != size:
        raise CorruptionError(message(f"a file of {nbytes} bytes", f"{size}", name))
    given = int(facts["max_episode_length"]), facts["model_weights_id"]
    return Block(Entry(id_, length, width, layout, len(head), size, zlib.crc32(head), *given), {}, metadata)


def _described_by(tensors: dict[str, Any], facts: dict[str, str]) -> tuple[Layout, int, int]:
    """The layout, length and width that a header gives."""
    shared = frozenset(tuple(text.split("/")) for text in json.loads(facts["shared"]))
    columns, length, width = [], None, 0
    for name, tensor in tensors.items():
        if name in (CHECKSUMS, MARK, PADDING):
            continue
        path, dtype, shape = tuple(name.split("/")), safetensors.DTYPES[tensor["dtype"]], tensor["shape"]
        if dtype not in DTYPES or len(shape) < 2 or not axes_fit(shape):
            raise ValueError(f"{dtype} of invalid shape {str(shape)[:40]}")
        more = ("next_obs", *path[1:]) in shared and path[0] == "curr_obs"
        if length is None:
            length, width = shape[0] - more, shape[1]
        if (shape[0] - more, shape[1]) != (length, width):
            raise ValueError(f"shape {shape[:2]} next to {[length, width]}")
        columns.append(Column(path, dtype, tuple(shape[2:])))
        if more:
            columns.append(Column(("next_obs", *path[1:]), dtype, tuple(shape[2:])))
    if length is None or length < 1:
        raise ValueError("no steps")
    FACTS["max_episode_length"].check(int(facts["max_episode_length"]))
    FACTS["model_weights_id"].check(facts["model_weights_id"])
    layout = sound(Layout(tuple(sorted(columns, key=lambda column: column.path)), shared))
    for name, tensor in plan_of(layout, length, width).tensors().items():
        if name != PADDING and tensors[name]["data_offsets"] != tensor["data_offsets"]:
            own = name in (CHECKSUMS, MARK)
            raise ValueError("checksum table has the wrong size" if own else "offsets do not match the shapes")
    return layout, length, width


def read_header(fd: int, name: str, id_: int = 0) -> Block:
    """The block of an open file, without its arrays."""
    with reported(name, "read the file"):
        size = size_of(fd)
        return parse(safetensors.read(fd, size), size, name, id_)


def entry_of(folder: Folder, id_: int) -> Entry | None:
    """The entry that a file should have in the index, None if the file is not a complete trajectory."""
    name = file_name(id_)
    try:
        with folder.reading(name) as fd:
            entry = read_header(fd, name, id_).entry
            table, mark, checksum = entry.start + entry.plan.table, entry.start + entry.plan.mark, entry.checksum
            if system.has_hole(fd, table, mark):  # whose bytes would take as long to read as real ones
                return None
            for offset in range(table, mark, _CHUNK):
                checksum = zlib.crc32(read_at(fd, offset, min(_CHUNK, mark - offset)), checksum)
            if int.from_bytes(read_at(fd, mark, 4), "little") != checksum:
                return None
    except StorageError as error:
        if isinstance(error.__cause__, OSError):  # it may be complete: its id must not be used again
            raise
        return None
    return entry._replace(checksum=checksum)
