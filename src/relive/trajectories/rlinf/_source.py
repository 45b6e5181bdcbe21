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
from ..._disk.files import Folder, read_at, read_into
from ...errors import SchemaError, StorageError, event, message
from .._block import Block, packed
from .._layout import MOST_WEIGHTS, Column, Entry, Layout, check_alike
from .._metadata import Metadata, checked, to_json
from .._source import Rows
from ..trajectory import LEADING, TRAILING, Trajectory
from ._file import Contents, Tensor, contents
from ._listing import name_of

_REMEMBERED_FILES = 4096
_OWN = (("max_episode_length",), ("model_weights_id",))


class FieldRows(NamedTuple):
    """The place of a field's rows in a file.

    Attributes:
        start: Offset of the first row.
        epoch: Steps of a rollout epoch, if each epoch has an extra row that is not a sample; otherwise 0.
        leading: Whether the extra row comes first in its epoch, or last.
    """

    start: int
    epoch: int
    leading: bool

    def in_file(self, rows: Int64, width: int) -> Int64:
        """Rows of the trajectory as rows of the file."""
        if not self.epoch:
            return rows
        epochs = rows // (width * self.epoch)
        return rows + (epochs + self.leading) * width


class RLinfSource:
    """RLinf's files. All of them must have the fields of the first one that was opened."""

    def __init__(self, folder: Folder, arena: Arena, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.layout: Layout | None = None
        self.left_out: list[Path] = []
        self._arena, self._lock = arena, threading.Lock()
        self._located: OrderedDict[int, tuple[Any, dict[Path, FieldRows]]] = OrderedDict()

    def forget(self, id_: int | None = None) -> None:
        """Nothing: no file is kept open."""

    def close(self) -> None:
        """Close the directory."""
        self.folder.close()

    def read(self, wanted: Rows, outs: Mapping[Path, Array]) -> None:
        """Read single rows. A file's checksums are compared when it is first opened."""
        for k, entry in enumerate(wanted.table):
            _, _, rows, targets = wanted.of(np.array([k]))
            with self.folder.reading(name_of(entry, self.kind)) as fd:
                located = self._locate(fd, entry)
                for column in entry.layout.columns:
                    if column.path not in outs:
                        continue
                    field, out = located[column.path], outs[column.path]
                    _fill(fd, field, column, field.in_file(rows, entry.width), targets, out, self._at(entry))

    def block(self, entry: Entry) -> Block:
        """Read a whole trajectory, without the extra rows of rollout epochs."""
        with self.folder.reading(name_of(entry, self.kind)) as fd:
            found = contents(fd, self.kind, self._at(entry))
            layout, located = located_in(found.tensors, entry)
            self._check(layout, entry)
            every = np.arange(entry.length * entry.width, dtype=np.int64)
            arrays = {}
            for column in layout.columns:
                out: Any = np.empty((len(every), *column.shape), column.stored)
                field = located[column.path]
                if field.epoch:
                    _fill(fd, field, column, field.in_file(every, entry.width), every, out, self._at(entry))
                elif not read_into(fd, field.start, [memoryview(out.reshape(-1).view(np.uint8))]):
                    raise StorageError(event("The file ends early", self._at(entry)))
                rows = narrow.named(out, column.dtype)
                arrays[column.path] = rows.reshape(entry.length, entry.width, *column.shape)
            metadata, _ = self._metadata(fd, found)
        weights = found.others.get(("model_weights_id",))
        usable = isinstance(weights, str) and weights.isprintable() and len(weights.encode()) <= MOST_WEIGHTS
        weights = weights if usable else entry.model_weights_id
        fields = nested([*metadata.items(), *arrays.items(), (("max_episode_length",), entry.max_episode_length)])
        block = packed(Trajectory(**{**fields, "model_weights_id": weights}), self._arena, entry.id)
        self._check(block.entry.layout, entry)  # some names mean something to a `Trajectory`
        return block

    def metadata(self, entry: Entry) -> Metadata:
        """The fields that a trajectory has once."""
        with self.folder.reading(name_of(entry, self.kind)) as fd:
            return self._metadata(fd, contents(fd, self.kind, self._at(entry)))[0]

    def _metadata(self, fd: int, found: Contents) -> tuple[dict[Path, Any], list[Path]]:
        """What a file has once, and the paths of what is left out."""
        kept: dict[Path, Any] = {}
        left_out = []
        for path, value in {**found.others, **found.tensors}.items():
            if path in _OWN or value is None or (isinstance(value, Tensor) and len(value.shape) > 1):
                continue
            try:
                if any("/" in key or key.startswith("_") or not key for key in path):
                    raise ValueError("not a name")
                if isinstance(value, Tensor):
                    dtype = narrow.stored(value.dtype)
                    bits = np.frombuffer(read_at(fd, value.start, value.nbytes), dtype).reshape(value.shape)
                    value = narrow.named(bits, value.dtype)
                value = checked(value, ".".join(path))
                to_json({**kept, path: value})
                kept[path] = value
            except (SchemaError, ValueError):
                left_out.append(path)
        return kept, left_out

    def fields_of(self, entry: Entry) -> Layout:
        """The fields of all trajectories, after checking that this one has them."""
        with self.folder.reading(name_of(entry, self.kind)) as fd:
            self._locate(fd, entry)
        if self.layout is None:
            raise StorageError(message("a trajectory with fields", "one without", self._at(entry)))
        return self.layout

    def _at(self, entry: Entry) -> str:
        return f"{self.folder.path}/{name_of(entry, self.kind)}"

    def _locate(self, fd: int, entry: Entry) -> dict[Path, FieldRows]:
        """Where the fields of an open file are; remembered for the files that were used last."""
        status = os.fstat(fd)
        version = status.st_ino, status.st_size, status.st_mtime_ns
        with self._lock:
            known, located = self._located.pop(entry.id, (None, {}))
        if known != version:
            found = contents(fd, self.kind, self._at(entry))
            layout, located = located_in(found.tensors, entry)
            if self.layout is None:
                _, self.left_out = self._metadata(fd, found)
            self._check(layout, entry)
        with self._lock:
            self._located[entry.id] = version, located
            if len(self._located) > _REMEMBERED_FILES:
                self._located.popitem(last=False)
        return located

    def _check(self, layout: Layout, entry: Entry) -> None:
        if self.layout is None:
            self.layout = layout
        remedy = "remove it, or load it into a separate buffer"
        check_alike(self.layout.columns, layout.columns, f"trajectory {entry.id}, $", remedy)


def located_in(tensors: Mapping[Path, Tensor], entry: Entry) -> tuple[Layout, dict[Path, FieldRows]]:
    """The fields in a file's tensors, and where their rows are. Like RLinf, leave out tensors with one axis.

    Raises:
        SchemaError: A tensor's first axes differ from those in the index.
    """
    columns, located = [], {}
    rank = len(tensors[("rewards",)].shape) if ("rewards",) in tensors else 0
    for path, tensor in sorted(tensors.items()):
        if len(tensor.shape) < 2:
            continue
        at = f"trajectory {entry.id}, $.{'.'.join(path)}"
        steps, shape = _steps(path, tensor.shape, entry, rank)
        extra = steps - entry.length
        epochs = extra > 0 and path[0] in LEADING + TRAILING and len(path) == 1 and entry.length % extra == 0
        if (extra and not epochs) or shape[:1] != (entry.width,) or 0 in tensor.shape:
            wanted = f"the shape `({entry.length}, {entry.width}, ...)` of the index"
            raise SchemaError(message(wanted, f"`{tensor.shape}`", at))
        if any("/" in key or key.startswith("_") or not key for key in path):
            raise SchemaError(message("names without a slash or a leading underscore", f"`{path[-1]!r}`", at))
        columns.append(Column(path, tensor.dtype, shape[1:]))
        located[path] = FieldRows(tensor.start, entry.length // extra if epochs else 0, path[0] in LEADING)
    if not columns:
        raise SchemaError(message("at least one field", "none", f"trajectory {entry.id}"))
    return Layout(tuple(columns), frozenset()), located


def _steps(path: Path, shape: tuple[int, ...], entry: Entry, rank: int) -> tuple[int, tuple[int, ...]]:
    """Steps and further axes of a field, in a trajectory whose rewards have `rank` axes."""
    # RLinf flattens the first two axes of values with extra rows when it saves from memory.
    if path in {(name,) for name in TRAILING} and len(shape) == rank - 1 and not shape[0] % entry.width:
        return shape[0] // entry.width, (entry.width, *shape[1:])
    return shape[0], shape[1:]


def _fill(fd: int, field: FieldRows, column: Column, rows: Int64, targets: Int64, out: Array, at: str) -> None:
    """Read rows of the file into `out[targets]`."""
    bytes_of_rows: Any = out.reshape(len(out), -1).view(np.uint8)
    for row, target in zip(rows.tolist(), targets.tolist(), strict=True):
        if not read_into(fd, field.start + row * column.nbytes, [memoryview(bytes_of_rows[target])]):
            raise StorageError(event("The file ends early", at))
