"""Directories of trajectories as a whole: converted, merged, split; and the steps in which somebody intervened."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from .. import _check
from ..errors import ArgumentError, SchemaError, StorageError, message
from . import _checkpoint
from ._block import file_of
from ._catalog import Entry, file_name
from ._draws import Draws
from ._files import Folder
from ._snapshot import Held
from ._source import Files
from ._store import Cache, Store, difference, signature_of
from .buffer import FORMATS, accepted
from .rlinf import Taken, taken_from, write
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
    """Write a directory of relive's or of RLinf's again, in either layout. Ids and the order of draws stay.

    Args:
        source: Directory to read.
        target: Directory to write: a new or an empty one.
        trajectory_format: `"safetensors"` for relive's layout, `"pt"` for RLinf's.
        allow_pickle: Whether to read RLinf's `pkl` files.
        progress: Called with the number of trajectories written so far, and of all.

    Returns:
        How many trajectories were written.

    Raises:
        ArgumentError: The format is none of these, or there are pickles and no consent.
        StorageError: A directory cannot be used, or a file that has to be read is damaged. Nothing is left in `target`.
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
        (held,) = loaded.held
        return _write(taken_from(held), target, trajectory_format, held.counter, loaded.draws, progress)


def merge(
    sources: Sequence[Directory],
    target: Directory,
    trajectory_format: str = "safetensors",
    allow_pickle: bool = False,
    progress: Progress | None = None,
) -> int:
    """Make one directory of those of several ranks, each of relive's or of RLinf's layout.

    Trajectories are ordered by their id, those of the same id by rank, and numbered anew from 0. Ranks are ordered by
    the numbers at the ends of the directories' names (`rank_2` before `rank_10`), or as given where a name has none.
    Where the layouts are relive's, no file is written but linked; the generator is that of the first rank.

    Args:
        sources: Directories to read.
        target: Directory to write: a new or an empty one.
        trajectory_format: `"safetensors"` for relive's layout, `"pt"` for RLinf's.
        allow_pickle: Whether to read RLinf's `pkl` files.
        progress: Called with the number of trajectories written so far, and of all.

    Returns:
        How many trajectories there are in all.

    Raises:
        ArgumentError: No directory, a format that is none of these, or pickles and no consent.
        StorageError: A directory cannot be used, or a file that has to be read is damaged. Nothing is left in `target`.
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
            (int(id_), rank, position)
            for rank, held in enumerate(loaded.held)
            for position, id_ in enumerate(held.records["id"])
        ]
        taken = [Taken(loaded.held[rank], position, new) for new, (_, rank, position) in enumerate(sorted(keys))]
        return _write(taken, target, trajectory_format, len(taken), loaded.draws, progress)


def split(
    source: Directory,
    n: int,
    target: Directory,
    trajectory_format: str = "safetensors",
    allow_pickle: bool = False,
    progress: Progress | None = None,
) -> int:
    """Make a directory of the first `n` trajectories of one of relive's or of RLinf's, numbered anew from 0.

    Args:
        source: Directory to read; it stays as it is.
        n: How many trajectories, >= 1; no more than there are.
        target: Directory to write: a new or an empty one.
        trajectory_format: `"safetensors"` for relive's layout, `"pt"` for RLinf's.
        allow_pickle: Whether to read RLinf's `pkl` files.
        progress: Called with the number of trajectories written so far, and of all.

    Returns:
        How many trajectories were written: `n`.

    Raises:
        ArgumentError: Not so many trajectories, a format that is none of these, or pickles and no consent.
        StorageError: A directory cannot be used, or a file that has to be read is damaged. Nothing is left in `target`.

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
        (held,) = loaded.held
        if n > len(held):
            raise ArgumentError(message(f"at most {len(held)} trajectories", f"`{n}`", "split(n)"))
        taken = [Taken(held, position, position) for position in range(n)]
        return _write(taken, target, trajectory_format, n, loaded.draws, progress)


def extract_interventions(trajectory: Any, mode: str = "any") -> list[Trajectory]:
    """Return the steps in which somebody intervened, one trajectory `[steps, 1, ...]` for each environment with any.

    Args:
        trajectory: A `Trajectory`, a mapping of fields, or RLinf's own, with the field `intervene_flags`.
        mode: `"any"` takes a step if any of its flags is set, `"all"` if all of them are.

    Returns:
        Trajectories with all fields; none if nobody intervened.

    Raises:
        ArgumentError: Another mode, or something that is no trajectory.

    Source: RLinf's `Trajectory.extract_intervene_traj` (RLinf 2025).

    >>> import numpy as np
    >>> flags = np.array([[[False]], [[True]], [[True]]])
    >>> extract_interventions(dict(actions=np.arange(3.0).reshape(3, 1, 1), intervene_flags=flags))
    [Trajectory(actions=float64[2, 1, 1], intervene_flags=bool[2, 1, 1])]
    """
    _check.one_of(mode, ("any", "all"), "extract_interventions(mode)")
    whole = accepted(trajectory)
    flags = whole.arrays.get(("intervene_flags",))
    if flags is None:
        return []
    each = flags.astype(bool).reshape(whole.length, whole.width, -1)
    chosen: Any = each.any(-1) if mode == "any" else each.all(-1)
    told = {"max_episode_length": whole.max_episode_length, "model_weights_id": whole.model_weights_id}
    return [
        Trajectory(**{**nested({path: array[steps, b][:, None] for path, array in whole.arrays.items()}), **told})
        for b, steps in enumerate(chosen.T)
        if steps.any()
    ]


class _Loaded:
    """Directories whose trajectories can be read."""

    def __init__(self, sources: Sequence[Directory], allow_pickle: bool) -> None:
        _check.flag(allow_pickle, "allow_pickle")
        self._stores: list[Store] = []
        self.held: list[Held] = []
        self.draws: Draws | None = None
        try:
            for number, source in enumerate(sources):
                store = Store(Cache(0, 0))
                self._stores.append(store)
                draws = _checkpoint.load(store, source, (0, 1), allow_pickle)
                self.draws = draws if number == 0 else self.draws
                with store.lock:
                    self.held.append(Held(store))
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
        every = [
            (name, int(store.index.records["id"][store.index.records["layout"] == number][0]), layout)
            for store, name in zip(self._stores, names, strict=True)
            for number, layout in enumerate(store.layouts)
        ]
        for name, id_, layout in every[1:]:
            problem = difference(signature_of(every[0][2]), signature_of(layout))
            if problem is not None:
                wanted, got, at = problem
                raise SchemaError(message(wanted, got, f"{name}, trajectory {id_}, {at}"))


def _by_rank(sources: Sequence[Directory]) -> list[Directory]:
    numbers = [re.search(r"\d+$", Path(source).name) for source in sources]
    if not all(numbers):
        return list(sources)
    return [source for _, source in sorted(zip([int(n[0]) for n in numbers if n], sources, strict=True), key=_first)]


def _first(pair: tuple[int, Directory]) -> int:
    return pair[0]


def _write(
    taken: list[Taken], target: Directory, kind: str, counter: int, draws: Draws | None, progress: Progress | None
) -> int:
    """Write trajectories to a new directory, of which nothing is left if that fails."""
    _check.one_of(kind, FORMATS, "trajectory_format")
    folder = Folder(target, create=True)
    try:
        if folder.sizes():
            remedy = "choose another, or remove it first"
            raise StorageError(message("a new or an empty directory", "one with files", folder.path, remedy))

        def written(count: int) -> None:
            if progress is not None:
                progress(count, len(taken))

        try:
            if kind == "pt":
                write(folder, taken, counter, None if draws is None else draws.state(), written)
            else:
                entries = []
                for count, one in enumerate(taken):
                    entries.append(_placed(folder, one))
                    written(count + 1)
                facts = {} if draws is None else {"draws": draws.state()}
                _checkpoint.publish(folder, entries, {"counter": counter, **facts})
        except BaseException:
            for name in folder.sizes():
                folder.remove(name)
            raise
    finally:
        folder.close()
    return len(taken)


def _placed(target: Folder, one: Taken) -> Entry:
    """Have one trajectory's file in `target`."""
    source, name = one.held.source(one.position), file_name(one.id)
    if isinstance(source, Files):
        entry = one.held.entry(one.position)
        if not target.link(source.folder, file_name(entry.id), name):
            target.copy(source.folder, file_name(entry.id), name)
        return entry._replace(id=one.id)
    parts, entry = file_of(one.id, one.held.block(one.position))
    target.write(name, parts)
    return entry
