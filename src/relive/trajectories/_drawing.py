"""Draws: which rows, read from trajectories whose fields need not be alike, and what is known of each trajectory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._base import narrow
from .._base.check import distinct
from .._base.nests import Path, nested, paths
from .._base.types import Array, Float64, Int64
from ..errors import NotEnoughData, SchemaError, message
from ._draws import DrawGenerator
from ._layout import FieldColumn, Fill
from ._store import Store, StoredTrajectory, StoreSnapshot
from .selection import Info, Selection

_AT = "TrajectoryReplayBuffer.sample"
_SUCCESS = ("success", "is_success")
_TASKS = ("task", "task_description", "task_descriptions", "instruction")
_READ = ("rewards", "versions", *_SUCCESS)
_NONE = None, np.empty(0, np.int64), np.empty(0)


class Infos:
    """The infos of a store's trajectories, by id."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, Info] = {}
        self._masses: tuple[Any, Int64, Float64] = _NONE

    def of(self, snapshot: StoreSnapshot) -> list[Info]:
        """Return the infos of the trajectories of a snapshot."""
        known, ids = self._known, snapshot.table.ids
        for position, id_ in enumerate(ids):
            if id_ not in known:
                known[id_] = _info(snapshot[position])
        if len(known) > 2 * len(self._store.index) + 100:
            self._known = {id_: known[id_] for id_ in self._store.index.ids if id_ in known}
        return [known[id_] for id_ in ids]

    def masses(self, selection: Selection, window: int) -> tuple[Int64, Float64]:
        """Return ids and masses of the newest `window` trajectories; compute them when window or selection change."""
        with self._store.settled():
            first, *_ = self._store.index.window(window)
            ids = self._store.index.records["id"][first:]
            key = selection, len(ids), ids[:1].tolist(), ids[-1:].tolist()  # ids go in front, and come at the end
            known, ids, masses = self._masses
            if key == known:
                return ids, masses
            snapshot = StoreSnapshot(self._store, slice(first, None))
        infos = self.of(snapshot)
        ids, masses = snapshot.table.records["id"], selection.masses(infos) if infos else np.empty(0)
        self._masses = key, ids, masses
        return ids, masses

    def clear(self) -> None:
        """Forget all: the same ids may be given to other trajectories."""
        self._known, self._masses = {}, _NONE


def _info(stored: StoredTrajectory) -> Info:
    entry, fields, metadata = stored.entry, stored.fields(_READ), stored.metadata()
    rows = {column.path: column.shape for column in entry.layout.columns}
    measured = rows.get(("prev_logprobs",), rows.get(("rewards",), ()))
    versions, rewards = fields.get(("versions",)), fields.get(("rewards",))
    success = [metadata[(name,)] for name in _SUCCESS if (name,) in metadata]
    success += [fields[(name,)] for name in _SUCCESS if (name,) in fields]
    sums = None if rewards is None else rewards.astype(np.float64).sum(axis=(0, *range(2, rewards.ndim)))
    return {
        "trajectory_id": entry.id,
        "model_weights_id": entry.model_weights_id,
        "max_episode_length": entry.max_episode_length,
        "num_samples": entry.length * entry.width,
        "shape": (entry.length, entry.width, *measured),
        "length": entry.length,
        "num_envs": entry.width,
        "version": None if versions is None else float(versions.min()),
        "max_version": None if versions is None else float(versions.max()),
        "success": bool(np.any(success[0])) if success else None,
        "returns": None if sums is None else sums.tolist(),
        "task": task_of(metadata),
        "metadata": nested(metadata.items()),
    }


def task_of(metadata: Any) -> str | None:
    """Find the text of the task: one for all environments, under any of its names."""
    for name in _TASKS:
        for path, value in metadata.items():
            texts = value if isinstance(value, list) else [value]
            if path[-1] == name and texts and isinstance(texts[0], str) and all(text == texts[0] for text in texts):
                return texts[0]
    return None


def draw(
    store: Store, draws: DrawGenerator, infos: Infos, selection: Selection | None, window: int, n: int, metadata: bool
) -> dict[Path, Any]:
    """Draw `n` rows from the newest `window` trajectories, and read them; with `metadata` also what they have once.

    Raises:
        NotEnoughData: There are no trajectories, or none that may be drawn.
        SchemaError: A trajectory lacks a field that the others have, or what a rule looks at.
        StorageError: A file that was needed is damaged or missing.
    """
    if selection is not None:
        ids, masses = infos.masses(selection, window)
    with store.settled():
        first, before, total, _, memory = store.index.window(window)
        if not total:
            raise NotEnoughData(message("at least 1 trajectory", "0", _AT, "add trajectories first"))
        records, columns = store.index.records, store.columns or ()
        if selection is None:
            samples = before + draws.integers(total, n)
        else:
            now = records["id"][first:]
            if not np.array_equal(now, ids):  # some have come or gone meanwhile
                known = dict(zip(ids.tolist(), masses.tolist(), strict=True))
                masses = np.array([known.get(id_, 0.0) for id_ in now.tolist()])
            if not masses.any():
                raise NotEnoughData(message("at least 1 trajectory that may be drawn", "none", _AT))
            lengths = store.index.take(slice(first, None)).rows
            positions, rows = selection.draw(n, draws, masses, lengths)
            samples = before + (np.cumsum(lengths) - lengths)[positions] + rows
        order, files, which, rows = store.index.locate(samples, first)  # rows of a file are read one after the other
        store.check_alike(files)
        about = records[["id", "width"]][files] if metadata else None
        alike: list[Int64 | slice] = [slice(None)]
        keep = store.cache.fits(len(store.index) - first, memory)  # then the window is read whole, once
        if store.fill is None:
            reads = [(StoreSnapshot(store, files), which, rows, order)]
        else:  # trajectories with the same fields are read together
            layouts, reads, alike = records["layout"][files], [], []
            for layout in distinct(layouts).tolist():
                here = layouts == layout
                chosen = np.flatnonzero(here[which])
                place = (np.cumsum(here) - 1)[which[chosen]]
                reads.append((StoreSnapshot(store, files[here]), place, rows[chosen], np.arange(len(chosen))))
                alike.append(order[chosen])
    found = [snapshot.read(*there, keep=keep) for snapshot, *there in reads]
    fields: dict[Path, Any] = found[0]
    if len(found) > 1 or len(found[0]) < len(columns):
        fields = {column.path: _filled(column, alike, found, store.fill, n) for column in columns}
    if about is not None:
        known = {info["trajectory_id"]: info for snapshot, *_ in reads for info in infos.of(snapshot)}
        back = np.argsort(order)
        drawn_from = about[which[back]]
        ids = drawn_from["id"].copy()
        fields = {**_metadata_rows(ids, rows[back] % drawn_from["width"], known), **fields, ("trajectory_ids",): ids}
    return fields


def _filled(
    column: FieldColumn, targets: Sequence[Int64 | slice], parts: Sequence[dict[Path, Array]], fill: Fill, n: int
) -> Array:
    """Return one field of a batch: `fill` where a trajectory lacks it, and at the ends of shorter rows."""
    found = [(target, part[column.path]) for target, part in zip(targets, parts, strict=True) if column.path in part]
    shapes = [array.shape[1:] for _, array in found] or [column.shape]
    shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    value = fill.get(".".join(column.path)) if isinstance(fill, Mapping) else fill
    out: Array = narrow.named(np.zeros((n, *shape), column.stored), column.dtype)
    if value:
        if float(np.full(1, value).astype(out.dtype)[0]) != value and out.dtype.kind in "biu":
            at = f"TrajectoryReplayBuffer(fill), $.{'.'.join(column.path)}"
            raise SchemaError(message(f"a value that `{column.dtype}` has", f"`{value}`", at))
        out[:] = value
    for target, array in found:
        where: Any = (target, *(slice(size) for size in array.shape[1:]))
        out[where] = array
    return out


def _metadata_rows(ids: Int64, envs: Int64, known: Mapping[int, Info]) -> dict[Path, list[Any]]:
    """List for each row the fields that its trajectory has once; of a text for each environment, its own."""
    found = {id_: dict(paths(info["metadata"])) for id_, info in known.items()}
    rows: dict[Path, list[Any]] = {path: [] for once in found.values() for path in once}
    for id_, env in zip(ids.tolist(), envs.tolist(), strict=True):
        for path, values in rows.items():
            value = found[id_].get(path)
            texts = isinstance(value, list) and len(value) == known[id_]["num_envs"] and isinstance(value[0], str)
            values.append(value[env] if texts and value else value)
    return rows
