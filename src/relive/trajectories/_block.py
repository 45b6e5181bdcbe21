"""The rows of one trajectory in memory, laid out as in its file; the parts of the file, and its header."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._base import narrow, system
from .._base.memory import HUGE_PAGE, Arena
from .._base.nests import Path, nested
from .._base.types import Array
from .._disk import safetensors
from .._disk.files import Folder, read_at, reported, size_of
from .._disk.json_files import damaged
from .._disk.rows import checksums, copy_steps
from ..errors import CorruptionError, SchemaError, StorageError, message
from . import _frames
from ._entry import FACTS, FORMATS, MOST_WEIGHTS, Entry, file_name, header_of
from ._layout import DTYPES, FieldColumn, FieldLayout, axes_fit, columns_of, sound
from ._metadata import Metadata, from_json
from ._plan import BEGINS, CHECKSUMS, FRAMES, MARK, PADDING, plan_of
from .trajectory import Trajectory

_CHUNK = 1 << 20  # bytes read at once
_OWN = (BEGINS, CHECKSUMS, FRAMES, MARK, PADDING)


@dataclass(frozen=True)
class TrajectoryBlock:
    """A trajectory's stored fields, each `[rows, ...]`, with row `t * B + b`; raw bits where NumPy lacks the dtype."""

    entry: Entry
    arrays: Mapping[Path, Array]
    metadata: Metadata

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def rows(self, path: Path) -> Array:
        """Return the rows of any field, shared ones included, `[T * B, ...]`."""
        stored, shift = self.entry.layout.source(path)
        first = shift * self.entry.width
        return self.arrays[stored][first : first + self.entry.length * self.entry.width]

    def fields(self) -> dict[Path, Array]:
        """Return all fields as they were added, `[T, B, ...]`."""
        shape = self.entry.length, self.entry.width
        rows = {c: narrow.named(self.rows(c.path), c.dtype) for c in self.entry.layout.columns}
        return {c.path: array.reshape(*shape, *c.shape) for c, array in rows.items()}

    def trajectory(self) -> Trajectory:
        """Return the trajectory as it was added, its arrays copied."""
        copies = {path: array.copy() for path, array in self.fields().items()}
        entry = self.entry
        facts = {"max_episode_length": entry.max_episode_length, "model_weights_id": entry.model_weights_id}
        return Trajectory(**{**nested([*self.metadata.items(), *copies.items()]), **facts})

    @cached_property
    def header(self) -> bytes:
        """The header of its file; where fields are compressed, the frames are yet to come."""
        return header_of(self.entry, self.metadata)

    def checksums(self, frames: Array | None = None) -> Array:
        """Return the CRC-32 of each row of each stored field, uint32 `[rows, fields]`; 0 where a field has no such row.

        For compressed fields it is that of a row's frame; `frames`, `[rows, fields]`, has it.
        """
        layout = self.entry.layout
        table = np.zeros((self.entry.plan.rows, len(layout.stored)), np.uint32)
        for number, column in enumerate(layout.stored):
            array = self.arrays[column.path]
            if frames is not None and column.path in layout.compressed:
                table[: len(array), number] = frames[: len(array), number]
            else:
                table[: len(array), number] = checksums(array)
        return table

    def compressing(self, compress: bool = True) -> TrajectoryBlock:
        """Return the same rows, whose file has the fields compressed for which this pays, or none."""
        return replace(self, entry=self.entry._replace(layout=self.entry.layout.compressing(compress)))


def packed(trajectory: Trajectory, arena: Arena, id_: int, *, compress: bool = False) -> TrajectoryBlock:
    """Copy a trajectory that gets this id; a `next_obs` that is `curr_obs` one step later is not copied.

    With `compress` the fields for which this pays are compressed in its file.
    """
    columns = columns_of(trajectory)
    likely = frozenset(path for path in trajectory.arrays if _likely(trajectory.arrays, path))
    block = None
    while block is None:  # copy again where a field that looked shared is not
        block, not_shared = _copied(trajectory, FieldLayout(columns, likely), arena, id_)
        likely -= not_shared
    return block.compressing() if compress else block


def _copied(
    trajectory: Trajectory, layout: FieldLayout, arena: Arena, id_: int
) -> tuple[TrajectoryBlock | None, frozenset[Path]]:
    """Copy in the given layout; or return None, and a field that is marked shared but is not a later `curr_obs`."""
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
            if not copy_steps(np.ascontiguousarray(now), later, copy):
                return None, frozenset([path])
        else:
            copy[:] = now
        arrays[column.path] = copy.reshape(-1, *column.shape)
    nbytes = sum(array.nbytes for array in arrays.values())
    facts = (trajectory.max_episode_length, trajectory.model_weights_id)
    entry = Entry(id_, length, width, layout, 0, nbytes, 0, *facts)
    return TrajectoryBlock(entry, arrays, trajectory.metadata), frozenset()


def memory_of(shapes: Sequence[tuple[Sequence[int], Any]], arena: Arena) -> list[Array]:
    """Return arrays for a block: from the arena, if they fill at least two of its huge pages."""
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
    layout, facts = FieldLayout(columns, frozenset()), (trajectory.max_episode_length, trajectory.model_weights_id)
    entry = Entry(0, trajectory.length, trajectory.width, layout, 0, 0, 0, *facts)
    header = header_of(entry, {})
    try:
        if len(header) > most or parse(header, len(header) + entry.plan.nbytes, at).entry.layout != layout:
            raise SchemaError(message("fewer fields, and no reserved names", f"{len(columns)} fields", at))
    except StorageError as error:
        raise SchemaError(message("fields that a file can hold", f"`{error}`", at)) from error


def _likely(arrays: Mapping[Path, Array], path: Path) -> bool:
    """Return whether a field may be a shared `next_obs`: two steps are compared, not all."""
    now, later = arrays.get(("curr_obs", *path[1:])), arrays[path]
    if path[0] != "next_obs" or len(path) < 2 or now is None or now.shape != later.shape or now.dtype != later.dtype:
        return False
    return all(now[t + 1].tobytes() == later[t].tobytes() for t in (0, len(now) // 2) if t + 1 < len(now))


def file_of(block: TrajectoryBlock) -> tuple[list[Any], Entry]:
    """Return the parts of a block's file, and its entry in the index."""
    entry, layout, plan = block.entry, block.entry.layout, block.entry.plan
    frames, sums, fixed = list[bytes](), None, [c.path for c in layout.stored if c.path not in layout.compressed]
    arrays = [block.arrays[path].reshape(-1).view(np.uint8) for path in fixed]
    if layout.compressed:
        packed = (block.arrays[column.path] for column in layout.packed)
        begins, frames, sums = _frames.compressed(layout, packed, plan.rows)
        arrays = [begins.view(np.uint8), *arrays]
    nbytes = sum(map(len, frames))
    header = header_of(entry, block.metadata, nbytes) if layout.compressed else block.header
    table = block.checksums(sums)
    checksum = zlib.crc32(table.tobytes(), zlib.crc32(header))
    mark = np.array([checksum], np.uint32).tobytes()
    parts = [header, *arrays, bytes(plan.padding), table.reshape(-1).view(np.uint8), b"".join(frames), mark]
    size = len(header) + plan.nbytes + nbytes
    return parts, entry._replace(start=len(header), bytes=size, checksum=checksum)


def parse(head: bytes, size: int, name: str, id_: int = 0) -> TrajectoryBlock:
    """Parse a header into the block of a file of `size` bytes, without its arrays; its checksum is the header's.

    Every number is checked before it is used.

    Raises:
        CorruptionError: The file is not a trajectory of relive's, or damaged.
    """
    with damaged(name):
        tensors, facts = safetensors.parsed(head, size)
        if facts["format"] not in FORMATS:
            raise ValueError(f"unknown format {facts['format']!r}"[:80])
        layout, length, width = _described_by(tensors, facts, size - len(head))
        metadata = from_json(facts["metadata"]) if "metadata" in facts else {}
    plan = plan_of(layout, length, width)
    if not plan.fits(size - len(head)):
        raise CorruptionError(message(f"a file of {len(head) + plan.nbytes + plan.least} bytes", f"{size}", name))
    given = int(facts["max_episode_length"]), facts["model_weights_id"]
    return TrajectoryBlock(Entry(id_, length, width, layout, len(head), size, zlib.crc32(head), *given), {}, metadata)


def _described_by(tensors: dict[str, Any], facts: dict[str, str], nbytes: int) -> tuple[FieldLayout, int, int]:
    """Return layout, length and width from a header, which so many bytes of its file follow."""
    shared = frozenset(tuple(text.split("/")) for text in json.loads(facts["shared"]))
    packed = json.loads(facts["compressed"]) if facts["format"] == FORMATS[1] else {}
    fields = [(name, tensor["dtype"], tensor["shape"]) for name, tensor in tensors.items() if name not in _OWN]
    columns, length, width = [], None, 0
    for name, code, shape in [*fields, *((name, *kind) for name, kind in packed.items())]:
        path, dtype = tuple(name.split("/")), safetensors.DTYPES[code]
        if dtype not in DTYPES or len(shape) < 2 or not axes_fit(shape):
            raise ValueError(f"{dtype} of invalid shape {str(shape)[:40]}")
        more = ("next_obs", *path[1:]) in shared and path[0] == "curr_obs"
        if length is None:
            length, width = shape[0] - more, shape[1]
        if (shape[0] - more, shape[1]) != (length, width):
            raise ValueError(f"shape {shape[:2]} next to {[length, width]}")
        columns.append(FieldColumn(path, dtype, tuple(shape[2:])))
        if more:
            columns.append(FieldColumn(("next_obs", *path[1:]), dtype, tuple(shape[2:])))
    if length is None or length < 1:
        raise ValueError("no steps")
    FACTS["max_episode_length"].check(int(facts["max_episode_length"]))
    FACTS["model_weights_id"].check(facts["model_weights_id"])
    compressed = frozenset(tuple(name.split("/")) for name in packed)
    layout = sound(FieldLayout(tuple(sorted(columns, key=lambda column: column.path)), shared, compressed))
    plan = plan_of(layout, length, width)
    for name, tensor in plan.tensors(nbytes - plan.nbytes if packed else 0).items():
        if name != PADDING and tensors[name]["data_offsets"] != tensor["data_offsets"]:
            own = name in _OWN
            raise ValueError("checksum table has the wrong size" if own else "offsets do not match the shapes")
    return layout, length, width


def read_header(fd: int, name: str, id_: int = 0) -> TrajectoryBlock:
    """Read the block of an open file, without its arrays."""
    with reported(name, "read the file"):
        size = size_of(fd)
        return parse(safetensors.read(fd, size), size, name, id_)


def entry_of(folder: Folder, id_: int) -> Entry | None:
    """Return the entry that a file should have in the index, None if it is no complete trajectory."""
    name = file_name(id_)
    try:
        with folder.reading(name) as fd:
            entry = read_header(fd, name, id_).entry
            table, end, checksum = entry.start + entry.plan.table, entry.start + entry.plan.frames, entry.checksum
            if system.has_hole(fd, table, end):  # whose bytes would take as long to read as real ones
                return None
            for offset in range(table, end, _CHUNK):
                checksum = zlib.crc32(read_at(fd, offset, min(_CHUNK, end - offset)), checksum)
            if int.from_bytes(read_at(fd, entry.bytes - 4, 4), "little") != checksum:
                return None
    except StorageError as error:
        if isinstance(error.__cause__, OSError):  # it may be complete: its id must not be used again
            raise
        return None
    return entry._replace(checksum=checksum)
