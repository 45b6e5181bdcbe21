"""RLinf's files as a source of trajectories. A file is opened when rows of it are needed."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._base import narrow
from ..._base.memory import Arena
from ..._base.nests import Path, nested
from ..._base.types import Array, Int64
from ..._disk.files import Folder
from ..._disk.rows import copy_rows
from ...errors import SchemaError, StorageError, message
from .._block import TrajectoryBlock, packed
from .._entry import MOST_WEIGHTS, Entry
from .._layout import FieldColumn, FieldLayout, check_alike
from .._metadata import Metadata, checked, to_json
from .._rows import WantedRows
from .._source import Source
from ..trajectory import LEADING, TRAILING, Trajectory
from ._file import FileContents, contents
from ._listing import name_of
from ._pickle import Flat

# Files that stay mapped, of which none has a descriptor; a `pkl` file is in memory as a whole. A process may have some
# 65,000 mappings, and each of these has one. To map a file again takes PyTorch a millisecond or two.
_MOST_OPEN = {"pt": 4096, "pkl": 4}
_OWN = (("max_episode_length",), ("model_weights_id",))


class _MappedFile(NamedTuple):
    """A file in memory.

    Attributes:
        version: Its inode, size and time when it was read.
        rows: The bytes of each field, uint8 `[rows, bytes]`.
        epochs: Steps of a rollout epoch, for fields with an extra row in each epoch that is not a sample.
        contents: All that it holds.
        layout: Its fields.
    """

    version: tuple[int, int, int]
    rows: dict[Path, Array]
    epochs: dict[Path, int]
    contents: FileContents
    layout: FieldLayout


class RLinfSource(Source):
    """RLinf's files. All of them must have the fields of the first one that was opened."""

    def __init__(self, folder: Folder, arena: Arena, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.layout: FieldLayout | None = None
        self.left_out: list[Path] = []
        self._arena, self._lock = arena, threading.Lock()
        self._open: OrderedDict[int, _MappedFile] = OrderedDict()
        self._sound: dict[int, tuple[int, int, int]] = {}  # versions whose checksums were compared

    def forget(self, id_: int | None = None) -> None:
        """Drop a trajectory's file if it is mapped, so that deleting it frees its space; None: all files."""
        with self._lock:
            for known in (self._open, self._sound):
                known.pop(id_, None) if id_ is not None else known.clear()

    def name(self, entry: Entry) -> str:
        """Return the name of a trajectory's file."""
        return name_of(entry, self.kind)

    def most(self) -> int:
        """Return the number of files that are in memory at once."""
        return _MOST_OPEN[self.kind]

    def read_some(self, wanted: WantedRows, outs: Mapping[Path, Array]) -> None:
        """Read from files all of which are in memory meanwhile; checksums are compared when one is first opened."""
        table, which, rows, targets = wanted
        files, widths = [self._mapped(entry) for entry in table], table.records["width"].astype(np.int64)[which]
        for path, out in outs.items():
            epochs = np.array([file.epochs.get(path, 0) for file in files])[which]
            copy_rows(
                [[file.rows[path]] for file in files], which, _in_file(path, rows, widths, epochs), targets, [out]
            )

    def block(self, entry: Entry) -> TrajectoryBlock:
        """Read a whole trajectory, without the extra rows of rollout epochs."""
        file = self._mapped(entry)
        found, arrays = file.contents, {}
        for column in file.layout.columns:
            rows, epoch = file.rows[column.path], file.epochs.get(column.path)
            if epoch:
                rows = rows[_in_file(column.path, np.arange(entry.length * entry.width), entry.width, epoch)]
            shape = entry.length, entry.width, *column.shape
            arrays[column.path] = narrow.named(rows.view(column.stored).reshape(shape), column.dtype)
        weights = found.others.get(("model_weights_id",))
        usable = isinstance(weights, str) and weights.isprintable() and len(weights.encode()) <= MOST_WEIGHTS
        weights = weights if usable else entry.model_weights_id
        once = [*_metadata(found)[0].items(), (("max_episode_length",), entry.max_episode_length)]
        fields = {**nested([*once, *arrays.items()]), "model_weights_id": weights}
        block = packed(Trajectory(**fields), self._arena, entry.id)
        self._check(block.entry.layout, entry)  # some names mean something to a `Trajectory`
        return block

    def metadata(self, entry: Entry) -> Metadata:
        """Read the fields that a trajectory has once."""
        return _metadata(self._mapped(entry).contents)[0]

    def fields_of(self, entry: Entry) -> FieldLayout:
        """Return the fields of all trajectories, after checking that this one has them."""
        self._mapped(entry)
        if self.layout is None:
            raise StorageError(message("a trajectory with fields", "one without", self.at(entry)))
        return self.layout

    def _mapped(self, entry: Entry) -> _MappedFile:
        """Return a file in memory, read again if it is another one now.

        A mapping of a file that has become shorter must not be looked at: that ends the process.
        """
        with self._lock:
            kept = self._open.pop(entry.id, None)
        with self.folder.reading(self.name(entry)) as fd:
            if kept is None or kept.version != _version(fd):
                kept = self._load(fd, entry)
        with self._lock:
            self._open[entry.id] = kept
            if len(self._open) > _MOST_OPEN[self.kind]:
                self._open.popitem(last=False)
        return kept

    def _load(self, fd: int, entry: Entry) -> _MappedFile:
        version = _version(fd)
        found = contents(fd, self.kind, self.at(entry), compare=self._sound.get(entry.id) != version)
        layout, epochs = layout_in(found.tensors, entry)
        if self.layout is None:
            _, self.left_out = _metadata(found)
        self._check(layout, entry)
        self._sound[entry.id] = version
        rows = {column.path: found.tensors[column.path].data.reshape(-1, column.nbytes) for column in layout.columns}
        return _MappedFile(version, rows, epochs, found, layout)

    def _check(self, layout: FieldLayout, entry: Entry) -> None:
        if self.layout is None:
            self.layout = layout
        remedy = "remove it, or load it into a separate buffer"
        check_alike(self.layout.columns, layout.columns, f"trajectory {entry.id}, $", remedy)


def _in_file(path: Path, rows: Int64, width: Int64 | int, epoch: Int64 | int) -> Int64:
    """Turn rows of a trajectory into those of its file, whose epochs of so many steps (0: none) may have one more."""
    before = rows // (width * np.maximum(epoch, 1)) + (path[0] in LEADING)
    places: Int64 = rows + np.where(epoch, before * width, 0)
    return places


def _version(fd: int) -> tuple[int, int, int]:
    status = os.fstat(fd)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _metadata(found: FileContents) -> tuple[dict[Path, Any], list[Path]]:
    """Return the fields that a file has once, and the paths of those that are left out."""
    kept: dict[Path, Any] = {}
    left_out = []
    for path, value in {**found.others, **found.tensors}.items():
        if path in _OWN or value is None or (isinstance(value, Flat) and len(value.shape) > 1):
            continue
        try:
            if any("/" in key or key.startswith("_") or not key for key in path):
                raise ValueError("not a name")
            if isinstance(value, Flat):
                value = narrow.named(value.data.view(narrow.stored(value.dtype)).reshape(value.shape), value.dtype)
            value = checked(value, ".".join(path))
            to_json({**kept, path: value})
            kept[path] = value
        except (SchemaError, ValueError):
            left_out.append(path)
    return kept, left_out


def layout_in(tensors: Mapping[Path, Flat], entry: Entry) -> tuple[FieldLayout, dict[Path, int]]:
    """Return the fields in a file's tensors, and the steps of their epochs where these have extra rows.

    Like RLinf, leave out tensors with one axis.

    Raises:
        SchemaError: A tensor's first axes differ from those in the index.
    """
    columns, epochs = [], {}
    rank = len(tensors[("rewards",)].shape) if ("rewards",) in tensors else 0
    for path, tensor in sorted(tensors.items()):
        if len(tensor.shape) < 2:
            continue
        at = f"trajectory {entry.id}, $.{'.'.join(path)}"
        steps, shape = _steps(path, tensor.shape, entry, rank)
        extra = steps - entry.length
        more = extra > 0 and path[0] in LEADING + TRAILING and len(path) == 1 and entry.length % extra == 0
        if (extra and not more) or shape[:1] != (entry.width,) or 0 in tensor.shape:
            wanted = f"the shape `({entry.length}, {entry.width}, ...)` of the index"
            raise SchemaError(message(wanted, f"`{tensor.shape}`", at))
        if any("/" in key or key.startswith("_") or not key for key in path):
            raise SchemaError(message("names without a slash or a leading underscore", f"`{path[-1]!r}`", at))
        columns.append(FieldColumn(path, tensor.dtype, shape[1:]))
        if more:
            epochs[path] = entry.length // extra
    if not columns:
        raise SchemaError(message("at least one field", "none", f"trajectory {entry.id}"))
    return FieldLayout(tuple(columns), frozenset()), epochs


def _steps(path: Path, shape: tuple[int, ...], entry: Entry, rank: int) -> tuple[int, tuple[int, ...]]:
    """Return steps and further axes of a field, in a trajectory whose rewards have `rank` axes."""
    # RLinf flattens the first two axes of values with extra rows when it saves from memory.
    if path in {(name,) for name in TRAILING} and len(shape) == rank - 1 and not shape[0] % entry.width:
        return shape[0] // entry.width, (entry.width, *shape[1:])
    return shape[0], shape[1:]
