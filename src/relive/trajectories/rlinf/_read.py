"""RLinf's directories as a source of trajectories: the index is read at once, a file when something of it is needed."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._memory import Arena
from ..._types import Array, Int64
from ...errors import SchemaError, StorageError, message
from .._block import Block, packed
from .._files import Folder, read_at, read_into, size_of
from .._layout import MOST_WEIGHTS, Column, Layout
from .._store import difference, signature_of
from ..trajectory import LEADING, TRAILING, Path, Trajectory, nested
from ._file import HALF, Tensor, contents

METADATA = "metadata.json"
GENERATOR = "relive_generator.json"
INDEX = "trajectory_index.json"
INDEXES = (INDEX, "trajector_index.json")  # RLinf's merge tool misspells it
_MOST_JSON = 256 << 20
_KEPT_PLACES = 4096
_REMEDY = "remove it, or load it into a buffer of its own"
_UUID = re.compile(r"(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?")


class Told(NamedTuple):
    """One trajectory as RLinf's index describes it."""

    id: int
    length: int
    width: int
    episode: int
    weights: str

    def name(self, kind: str) -> str:
        """Its file's name: made from a number and a UUID, so that it leads nowhere else."""
        return f"trajectory_{self.id}_{self.weights}.{kind}"


class Listing(NamedTuple):
    """What RLinf's two JSON files say, and relive's own one beside them."""

    kind: str
    seed: int | None
    told: list[Told]
    draws: str | None = None


def listing(folder: Folder) -> Listing:
    """Read the metadata and the index of a directory.

    Raises:
        StorageError: They are damaged, or not there.
    """
    sizes = folder.sizes()
    index = next((name for name in INDEXES if name in sizes), INDEX)
    at = f"{folder.path}/{METADATA}"
    try:
        metadata = _json(folder, METADATA)
        kind, seed = metadata.get("trajectory_format", "pt"), metadata.get("seed")
        if not isinstance(kind, str) or not (seed is None or (type(seed) is int and -(2**63) <= seed < 2**64)):
            raise ValueError(f"format {kind!r} and seed {seed!r}"[:80])
        at = f"{folder.path}/{index}"
        tables = _json(folder, index)
        entries, ids = tables["trajectory_index"], [int(id_) for id_ in tables["trajectory_id_list"]]
        told = [_told(id_, entries[str(id_)]) for id_ in ids]
        if len(set(ids)) != len(ids):
            raise ValueError("a trajectory that is listed twice")
        at = f"{folder.path}/{GENERATOR}"
        draws = _draws(folder, metadata) if GENERATOR in sizes else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StorageError(message("RLinf's index, or relive's file beside it", f"`{str(error)[:80]}`", at)) from None
    return Listing("pt" if kind == "pt" else "pkl", seed, told, draws)


def _draws(folder: Folder, metadata: Any) -> str | None:
    """The state of the generator, if it is that of these metadata: RLinf writes them, and knows nothing of it."""
    told = _json(folder, GENERATOR)
    return str(told["draws"]) if told["metadata"] == metadata else None


def _json(folder: Folder, name: str) -> Any:
    with folder.reading(name) as fd:
        size = size_of(fd)
        if size > _MOST_JSON:
            raise ValueError(f"{size} bytes")
        return json.loads(read_at(fd, 0, size))


def _told(id_: int, entry: Any) -> Told:
    shape, weights, episode = entry["shape"], entry["model_weights_id"], entry["max_episode_length"]
    numbers = [entry["trajectory_id"], entry["num_samples"], episode, *shape]
    if not all(type(number) is int and 0 <= number < 2**31 for number in numbers):
        raise ValueError(f"trajectory {id_}: {numbers}"[:80])
    if len(shape) < 2 or numbers[:2] != [id_, shape[0] * shape[1]] or not shape[0] * shape[1]:
        raise ValueError(f"trajectory {id_}: {numbers}"[:80])
    if not isinstance(weights, str) or not _UUID.fullmatch(weights):
        raise ValueError(f"trajectory {id_}: {weights!r}, which is no UUID"[:80])
    return Told(id_, shape[0], shape[1], episode, weights)


class Place(NamedTuple):
    """Where the rows of a field stand: the first one's byte, and the rows of each rollout epoch that are no samples."""

    start: int
    epoch: int  # steps of an epoch; 0 where every row is a sample
    leading: bool
    half: bool

    def rows(self, rows: Int64, width: int) -> Int64:
        """Rows of samples as rows of the file."""
        if not self.epoch:
            return rows
        epochs = rows // (width * self.epoch)
        return rows + (epochs + self.leading) * width


class RLinfFiles:
    """RLinf's files, all of which have the fields of the first one that was opened."""

    def __init__(self, folder: Folder, arena: Arena, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.layout: Layout | None = None
        self.left_out: list[Path] = []
        self._arena, self._lock = arena, threading.Lock()
        self._places: OrderedDict[int, tuple[Any, dict[Path, Place]]] = OrderedDict()

    def block(self, record: Any) -> Block:
        """A whole trajectory, without the further rows of rollout epochs."""
        return self.read(told_of(record))

    def rows(self, record: Any, layout: Layout, rows: Int64, places: Int64, outs: Mapping[Path, Array]) -> None:
        """Single rows; a file's checksums are compared when it is opened for the first time."""
        told = told_of(record)
        with self.folder.reading(told.name(self.kind)) as fd:
            found = self._find(fd, told)
            for column in layout.columns:
                _fill(fd, found[column.path], column, told, rows, places, outs[column.path], self._at(told))

    def read(self, told: Told) -> Block:
        """A whole trajectory."""
        with self.folder.reading(told.name(self.kind)) as fd:
            found = contents(fd, self.kind, self._at(told))
            layout, places = fitted(found.tensors, told)
            self._check(layout, told)
            every = np.arange(told.length * told.width, dtype=np.int64)
            arrays = {}
            for column in layout.columns:
                out: Any = np.empty((len(every), *column.shape), column.dtype)
                place = places[column.path]
                if place.epoch or place.half:
                    _fill(fd, place, column, told, every, every, out, self._at(told))
                elif not read_into(fd, place.start, [memoryview(out.reshape(-1).view(np.uint8))]):
                    raise StorageError(message("a whole file", "one that ends early", self._at(told)))
                arrays[column.path] = out.reshape(told.length, told.width, *column.shape)
        weights = found.facts.get(("model_weights_id",))
        usable = isinstance(weights, str) and weights.isprintable() and len(weights.encode()) <= MOST_WEIGHTS
        kept = {"max_episode_length": told.episode, "model_weights_id": weights if usable else told.weights}
        return packed(Trajectory(**{**nested(arrays), **kept}), self._arena)

    def learn(self, told: Told) -> Layout:
        """The fields that all trajectories have: those that a file says, which have to be those of any before it."""
        with self.folder.reading(told.name(self.kind)) as fd:
            self._find(fd, told)
        if self.layout is None:
            raise StorageError(message("a trajectory with fields", "one without", self._at(told)))
        return self.layout

    def _at(self, told: Told) -> str:
        return f"{self.folder.path}/{told.name(self.kind)}"

    def _find(self, fd: int, told: Told) -> dict[Path, Place]:
        """The places in an open file; those of the files that were used last are remembered."""
        status = os.fstat(fd)
        mark = status.st_ino, status.st_size, status.st_mtime_ns
        with self._lock:
            before, places = self._places.pop(told.id, (None, {}))
        if before != mark:
            found = contents(fd, self.kind, self._at(told))
            layout, places = fitted(found.tensors, told)
            if self.layout is None:
                self.left_out = [*found.others, *(path for path in found.tensors if path not in places)]
            self._check(layout, told)
        with self._lock:
            self._places[told.id] = mark, places
            if len(self._places) > _KEPT_PLACES:
                self._places.popitem(last=False)
        return places

    def _check(self, layout: Layout, told: Told) -> None:
        if self.layout is None:
            self.layout = layout
        else:
            problem = difference(signature_of(self.layout), signature_of(layout))
            if problem is not None:
                wanted, got, at = problem
                raise SchemaError(message(wanted, got, f"trajectory {told.id}, {at}", _REMEDY))


def told_of(record: Any) -> Told:
    """What RLinf's index said, from relive's."""
    id_, length, width, episode = (int(record[name]) for name in ("id", "length", "width", "episode"))
    return Told(id_, length, width, episode, bytes(record["weights"]).decode())


def fitted(tensors: Mapping[Path, Tensor], told: Told) -> tuple[Layout, dict[Path, Place]]:
    """The fields that tensors of a file are, and where their rows stand; those of one axis are left out, as by RLinf.

    Raises:
        SchemaError: A tensor has other first axes than the index says.
    """
    columns, places = [], {}
    rank = len(tensors[("rewards",)].shape) if ("rewards",) in tensors else 0
    for path, tensor in sorted(tensors.items()):
        if len(tensor.shape) < 2:
            continue
        at = f"trajectory {told.id}, $.{'.'.join(path)}"
        steps, shape = _steps(path, tensor.shape, told, rank)
        extra = steps - told.length
        epochs = extra > 0 and path[0] in LEADING + TRAILING and len(path) == 1 and told.length % extra == 0
        if (extra and not epochs) or shape[:1] != (told.width,) or 0 in tensor.shape:
            wanted = f"the shape `({told.length}, {told.width}, ...)` that the index says"
            raise SchemaError(message(wanted, f"`{tensor.shape}`", at))
        if any("/" in key or key.startswith("_") or not key for key in path):
            raise SchemaError(message("names without a slash or a leading underscore", f"`{path[-1]!r}`", at))
        half = tensor.dtype == HALF
        columns.append(Column(path, "float32" if half else tensor.dtype, shape[1:]))
        places[path] = Place(tensor.start, told.length // extra if epochs else 0, path[0] in LEADING, half)
    if not columns:
        raise SchemaError(message("at least one field", "none", f"trajectory {told.id}"))
    return Layout(tuple(columns), frozenset()), places


def _steps(path: Path, shape: tuple[int, ...], told: Told, rank: int) -> tuple[int, tuple[int, ...]]:
    """Steps and the other axes of a field of a trajectory whose rewards have `rank` axes."""
    # RLinf saves values with further rows flat, where it saves from memory.
    if path in {(name,) for name in TRAILING} and len(shape) == rank - 1 and not shape[0] % told.width:
        return shape[0] // told.width, (told.width, *shape[1:])
    return shape[0], shape[1:]


def _fill(
    fd: int,
    place: Place,
    column: Column,
    told: Told,
    rows: Int64,
    places: Int64,
    out: Array,
    at: str,
) -> None:
    count = column.nbytes // (2 if place.half else 1)
    half = np.empty(column.shape, np.uint16)
    targets: Any = out.reshape(len(out), -1).view(np.uint8)
    upper: Any = half.reshape(-1).view(np.uint8)
    for row, to in zip(place.rows(rows, told.width).tolist(), places.tolist(), strict=True):
        target = memoryview(upper if place.half else targets[to])
        if not read_into(fd, place.start + row * count, [target]):
            raise StorageError(message("a whole file", "one that ends early", at))
        if place.half:  # the upper half of a float32
            out[to] = (half.astype(np.uint32) << 16).view(np.float32)
