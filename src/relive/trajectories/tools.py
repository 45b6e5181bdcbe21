"""Convert, merge and split directories of trajectories; extract the steps of interventions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from .. import _check
from .._files import Folder
from ..errors import ArgumentError, SchemaError, StorageError, message
from . import _checkpoint, rlinf
from ._block import file_of
from ._cache import Cache
from ._draws import Draws
from ._entry import Entry, file_name
from ._layout import difference
from ._snapshot import Snapshot, Stored
from ._source import SafetensorsSource
from ._store import Store
from .buffer import FORMATS, as_trajectory
from .trajectory import Trajectory, nested

Directory: TypeAlias = str | os.PathLike[str]
Progress: TypeAlias = Callable[[int, int], None]


def convert(
    source: Directory,
    target: Directory,
    trajectory_format: str = "safetensors",
    allow_pickle: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write a copy of one of relive's or RLinf's directories, in either layout. Ids and the order of draws are kept.

    Args:
        source: Directory to read.
        target: Directory to write, new or empty.
        trajectory_format: `"safetensors"` for relive's layout, `"pt"` for RLinf's.
        allow_pickle: Whether to read RLinf's `pkl` files.
        progress: Called with the number of trajectories written so far, and of all.

    Returns:
        How many trajectories were written.

    Raises:
        ArgumentError: An unknown format, or `pkl` files without `allow_pickle`.
        StorageError: A directory cannot be used, or a file is damaged. Nothing is left in `target`.
        SchemaError: A trajectory has other fields than the first one.

    >>> import tempfile
    >>> import numpy as np
    >>> from relive.trajectories import TrajectoryReplayBuffer
    >>> home = tempfile.TemporaryDirectory()
    >>> with TrajectoryReplayBuffer(f"{home.name}/a") as buffer:
    ...     buffer.add_trajectories([Trajectory(rewards=np.zeros((4, 2, 1), np.float32))])
    >>> convert(f"{home.name}/a", f"{home.name}/b")
    1
    >>> home.cleanup()
    """
    with _Loaded([source], allow_pickle) as loaded:
        (snapshot,) = loaded.snapshots
        trajectories = list(zip(snapshot.ids, snapshot, strict=True))
        return _write(trajectories, target, trajectory_format, snapshot.counter, loaded.draws, progress)


def merge(
    sources: Sequence[Directory],
    target: Directory,
    trajectory_format: str = "safetensors",
    allow_pickle: bool = False,
    progress: Progress | None = None,
) -> int:
    """Merge the directories of several ranks, each in relive's or RLinf's layout, into one.

    Trajectories are ordered by id, then by rank, and get new ids from 0. Ranks are ordered by the number at the end of
    each directory's name (`rank_2` before `rank_10`), or as given if a name has none. Files in relive's layout are
    hard-linked, not written again. The generator's state is that of the first rank.

    Args:
        sources: Directories to read.
        target: Directory to write, new or empty.
        trajectory_format: `"safetensors"` for relive's layout, `"pt"` for RLinf's.
        allow_pickle: Whether to read RLinf's `pkl` files.
        progress: Called with the number of trajectories written so far, and of all.

    Returns:
        How many trajectories there are in all.

    Raises:
        ArgumentError: No directory, a format that is none of these, or pickles and no consent.
        StorageError: A directory cannot be used, or a file is damaged. Nothing is left in `target`.
        SchemaError: The trajectories of two directories have different fields.

    >>> import tempfile
    >>> import numpy as np
    >>> from relive.trajectories import TrajectoryReplayBuffer
    >>> home = tempfile.TemporaryDirectory()
    >>> for rank in range(2):
    ...     with TrajectoryReplayBuffer(f"{home.name}/rank_{rank}") as buffer:
    ...         buffer.add_trajectories([Trajectory(rewards=np.full((4, 1, 1), rank, np.float32))])
    >>> merge([f"{home.name}/rank_0", f"{home.name}/rank_1"], f"{home.name}/all")
    2
    >>> home.cleanup()
    """
    if isinstance(sources, str | os.PathLike) or not sources:
        raise ArgumentError(message("a list of directories", f"`{sources!r}`", "merge(sources)"))
    with _Loaded(_by_rank(sources), allow_pickle) as loaded:
        keys = [
            (id_, rank, position)
            for rank, snapshot in enumerate(loaded.snapshots)
            for position, id_ in enumerate(snapshot.ids)
        ]
        trajectories = [(new, loaded.snapshots[rank][position]) for new, (_, rank, position) in enumerate(sorted(keys))]
        return _write(trajectories, target, trajectory_format, len(keys), loaded.draws, progress)


def split(
    source: Directory,
    n: int,
    target: Directory,
    trajectory_format: str = "safetensors",
    allow_pickle: bool = False,
    progress: Progress | None = None,
) -> int:
    """Copy the first `n` trajectories of one of relive's or RLinf's directories into a new one, with ids from 0.

    Args:
        source: Directory to read; it is not changed.
        n: How many trajectories, between 1 and the number stored.
        target: Directory to write, new or empty.
        trajectory_format: `"safetensors"` for relive's layout, `"pt"` for RLinf's.
        allow_pickle: Whether to read RLinf's `pkl` files.
        progress: Called with the number of trajectories written so far, and of all.

    Returns:
        How many trajectories were written: `n`.

    Raises:
        ArgumentError: Fewer than `n` trajectories, an unknown format, or `pkl` files without `allow_pickle`.
        StorageError: A directory cannot be used, or a file is damaged. Nothing is left in `target`.

    >>> import tempfile
    >>> import numpy as np
    >>> from relive.trajectories import TrajectoryReplayBuffer
    >>> home = tempfile.TemporaryDirectory()
    >>> with TrajectoryReplayBuffer(f"{home.name}/a") as buffer:
    ...     buffer.add_trajectories([Trajectory(rewards=np.zeros((4, 1, 1), np.float32))] * 3)
    >>> split(f"{home.name}/a", 2, f"{home.name}/b")
    2
    >>> home.cleanup()
    """
    n = _check.integer(n, "split(n)", minimum=1)
    with _Loaded([source], allow_pickle) as loaded:
        (snapshot,) = loaded.snapshots
        if n > len(snapshot):
            raise ArgumentError(message(f"at most {len(snapshot)} trajectories", f"`{n}`", "split(n)"))
        trajectories = [(position, snapshot[position]) for position in range(n)]
        return _write(trajectories, target, trajectory_format, n, loaded.draws, progress)


def extract_interventions(trajectory: Any, mode: str = "any") -> list[Trajectory]:
    """Return the steps with an intervention: one trajectory `[steps, 1, ...]` per environment that has any.

    Args:
        trajectory: A `Trajectory`, a mapping of fields, or RLinf's own object, with the field `intervene_flags`.
        mode: `"any"` selects steps with at least one flag set, `"all"` steps with all flags set.

    Returns:
        Trajectories with all fields; an empty list if there was no intervention.

    Raises:
        ArgumentError: An unknown mode, or not a trajectory.

    Source: RLinf's `Trajectory.extract_intervene_traj` (RLinf 2025).

    >>> import numpy as np
    >>> flags = np.array([[[False]], [[True]], [[True]]])
    >>> extract_interventions(dict(actions=np.arange(3.0).reshape(3, 1, 1), intervene_flags=flags))
    [Trajectory(actions=float64[2, 1, 1], intervene_flags=bool[2, 1, 1])]
    """
    _check.one_of(mode, ("any", "all"), "extract_interventions(mode)")
    whole = as_trajectory(trajectory)
    flags = whole.arrays.get(("intervene_flags",))
    if flags is None:
        return []
    each = flags.astype(bool).reshape(whole.length, whole.width, -1)
    chosen: Any = each.any(-1) if mode == "any" else each.all(-1)
    given = {"max_episode_length": whole.max_episode_length, "model_weights_id": whole.model_weights_id}
    return [
        Trajectory(**{**nested({path: array[steps, b][:, None] for path, array in whole.arrays.items()}), **given})
        for b, steps in enumerate(chosen.T)
        if steps.any()
    ]


class _Loaded:
    """Directories opened for reading, each with a snapshot of its trajectories."""

    def __init__(self, sources: Sequence[Directory], allow_pickle: bool) -> None:
        _check.flag(allow_pickle, "allow_pickle")
        self._stores: list[Store] = []
        self.snapshots: list[Snapshot] = []
        self.draws: Draws | None = None
        try:
            for number, source in enumerate(sources):
                store = Store(Cache(0, 0))
                self._stores.append(store)
                draws = _checkpoint.load(store, source, (0, 1), allow_pickle)
                self.draws = draws if number == 0 else self.draws
                with store.lock:
                    self.snapshots.append(Snapshot(store))
            self._compare([os.fspath(source) for source in sources])
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> _Loaded:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._stores:
            store.close()

    def _compare(self, names: Sequence[str]) -> None:
        """Refuse trajectories with different fields."""
        expected = None
        for store, name in zip(self._stores, names, strict=True):
            for number, layout in enumerate(store.index.layouts):
                expected = layout.columns if expected is None else expected
                found = difference(expected, layout.columns)
                if found is not None:
                    id_ = int(store.index.records["id"][store.index.records["layout"] == number][0])
                    raise SchemaError(message(found.expected, found.got, f"{name}, trajectory {id_}, {found.path}"))


def _by_rank(sources: Sequence[Directory]) -> list[Directory]:
    numbers = {source: re.search(r"\d+$", Path(source).name) for source in sources}
    ranks = {source: int(number[0]) for source, number in numbers.items() if number}
    return sorted(sources, key=ranks.__getitem__) if len(ranks) == len(numbers) else list(sources)


def _write(
    trajectories: list[tuple[int, Stored]],
    target: Directory,
    kind: str,
    counter: int,
    draws: Draws | None,
    progress: Progress | None,
) -> int:
    """Write trajectories, each with its new id, to a new directory. If that fails, nothing is left in it."""
    _check.one_of(kind, FORMATS, "trajectory_format")
    folder = Folder(target, create=True)
    try:
        if folder.sizes():
            remedy = "choose another, or remove it first"
            raise StorageError(message("a new or an empty directory", "one with files", folder.path, remedy))

        def written(count: int) -> None:
            if progress is not None:
                progress(count, len(trajectories))

        try:
            if kind == "pt":
                rlinf.write(folder, trajectories, counter, None if draws is None else draws.state(), written)
            else:
                entries = []
                for count, (id_, stored) in enumerate(trajectories, 1):
                    entries.append(_placed(folder, id_, stored))
                    written(count)
                facts = {} if draws is None else {"draws": draws.state()}
                _checkpoint.publish(folder, entries, {"counter": counter, **facts})
        except BaseException:
            for name in folder.sizes():
                folder.remove(name)
            raise
    finally:
        folder.close()
    return len(trajectories)


def _placed(target: Folder, id_: int, stored: Stored) -> Entry:
    """Put one trajectory's file into `target`, under a new id; returns its entry."""
    entry, source, name = stored.entry, stored.source, file_name(id_)
    if isinstance(source, SafetensorsSource):
        if not target.link(source.folder, file_name(entry.id), name):
            target.copy(source.folder, file_name(entry.id), name)
        return entry._replace(id=id_)
    parts, entry = file_of(id_, stored.block())
    target.write(name, parts)
    return entry
