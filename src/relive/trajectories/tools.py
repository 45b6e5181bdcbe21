"""Convert, merge and split directories of trajectories; extract the steps of interventions."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .._base import check
from .._base.memory import Arena
from .._base.nests import nested
from .._disk.checking import Progress
from .._disk.files import empty_folder
from ..errors import ArgumentError, message
from ._block import TrajectoryBlock, packed
from ._checkpoint import OWN
from ._draws import DrawGenerator
from ._frames import package
from ._layout import check_alike
from ._store import StoredTrajectory
from .formats import Format, Loaded, Numbered, Written, checkpoints_of, format_named, format_of, opened
from .trajectory import Trajectory, as_trajectory

Directory: TypeAlias = str | os.PathLike[str]


def convert(
    source: Directory,
    target: Directory,
    trajectory_format: str = "safetensors",
    allow_pickle: bool = False,
    progress: Progress | None = None,
    *,
    fps: int = 10,
    compress: str | None = None,
) -> int:
    """Write a copy of a directory of trajectories, or of one of LeRobot's data sets, in any of these layouts.

    Ids and the order of draws are kept between relive's layout and RLinf's. `to_lerobot` and `from_lerobot` say what
    becomes of fields and episodes; videos are decoded.

    Args:
        source: Directory to read.
        target: Directory to write, new or empty.
        trajectory_format: `"safetensors"` for relive's layout, `"pt"` for RLinf's, `"lerobot"` for LeRobot's.
        allow_pickle: Whether to read RLinf's `pkl` files.
        progress: Called with the number of trajectories written so far, and of all.
        fps: Frames per second, for LeRobot.
        compress: For relive's layout. `"zstd"`: compress images, as `TrajectoryReplayBuffer(compress="zstd")` does;
            `"none"`: compress nothing, so that files can be read without `zstandard`. None: keep relive's files as they
            are.

    Returns:
        How many trajectories were written; in LeRobot's layout, episodes.

    Raises:
        ArgumentError: An unknown format, `pkl` files without `allow_pickle`, or `compress` with another layout than
            relive's.
        StorageError: A directory cannot be used, or a file is damaged. Nothing is left in `target`.
        SchemaError: A trajectory has other fields than the first one.
        MissingExtra: `compress="zstd"`, or compressed files to be rewritten, without `zstandard`.

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
    layout = format_named(trajectory_format, "convert(trajectory_format)")
    packing = _packing(compress, layout)
    with contextlib.ExitStack() as stack:
        found = format_of(source)
        if found is not None and found.read is not None:
            episodes, draws = found.read(os.fspath(source)), None
            count = counter = episodes.count
            stored = _packed(episodes.trajectories)
        else:
            (checkpoint,) = stack.enter_context(_opened([source], allow_pickle))
            ids, draws = checkpoint.table.ids, checkpoint.draws
            count, counter = len(ids), max(ids, default=-1) + 1
            stored = zip(ids, checkpoint.trajectories, strict=True)
        written = _of(progress, count)
        if layout.write is not None:
            return layout.write((each.block().trajectory() for _, each in stored), os.fspath(target), fps, written)
        if packing is not None:
            stored = ((id_, _in_memory(each.block().compressing(packing))) for id_, each in stored)
        _write(stored, target, layout, counter, draws, written)
        return count


def _packing(compress: str | None, layout: Format) -> bool | None:
    """Return whether `convert` compresses files; None: they stay as they are."""
    if compress is None:
        return None
    at = "convert(compress)"
    check.one_of(compress, ("zstd", "none"), at)
    if layout is not OWN:
        raise ArgumentError(message("`trajectory_format='safetensors'`", f"`{layout.name!r}`", at))
    if compress == "zstd":
        package(at)
    return compress == "zstd"


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
    layout = format_named(trajectory_format, "merge(trajectory_format)", saved=True)
    with _opened(_by_rank(sources), allow_pickle) as ranks:
        every = [stored for found in ranks for stored in found.trajectories]
        every.sort(key=lambda stored: stored.entry.id)  # those of one id stay in the order of the ranks
        _write(enumerate(every), target, layout, len(every), ranks[0].draws, _of(progress, len(every)))
        return len(every)


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
        How many trajectories were written, `n`.

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
    n = check.integer(n, "split(n)", minimum=1)
    layout = format_named(trajectory_format, "split(trajectory_format)", saved=True)
    with _opened([source], allow_pickle) as (found,):
        if n > len(found.table):
            raise ArgumentError(message(f"at most {len(found.table)} trajectories", f"`{n}`", "split(n)"))
        first = enumerate(itertools.islice(found.trajectories, n))
        _write(first, target, layout, n, found.draws, _of(progress, n))
        return n


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
    check.one_of(mode, ("any", "all"), "extract_interventions(mode)")
    whole = as_trajectory(trajectory)
    flags = whole.arrays.get(("intervene_flags",))
    if flags is None:
        return []
    each = flags.astype(bool).reshape(whole.length, whole.width, -1)
    chosen: Any = each.any(-1) if mode == "any" else each.all(-1)
    given: Any = {"max_episode_length": whole.max_episode_length, "model_weights_id": whole.model_weights_id}
    fields = [
        {path: array[steps, b][:, None] for path, array in whole.arrays.items()}
        for b, steps in enumerate(chosen.T)
        if steps.any()
    ]
    return [Trajectory(**nested([*whole.metadata.items(), *each.items()]), **given) for each in fields]


@contextlib.contextmanager
def _opened(sources: Sequence[Directory], allow_pickle: bool) -> Iterator[list[Loaded]]:
    """Open directories whose trajectories all have the same fields."""
    check.flag(allow_pickle, "allow_pickle")
    found: list[Loaded] = []
    with contextlib.ExitStack() as stack:
        for path in sources:
            found.append(opened(path, Arena(), (0, 1), allow_pickle))
            stack.callback(found[-1].source.close)
        expected = None
        for path, (_, table, _) in zip(sources, found, strict=True):
            _, firsts = np.unique(table.records["layout"], return_index=True)
            for entry in table.take(firsts):
                check_alike(expected, entry.layout.columns, f"{os.fspath(path)}, trajectory {entry.id}, $")
                expected = expected or entry.layout.columns
        yield found


def _by_rank(sources: Sequence[Directory]) -> list[Directory]:
    numbers = {source: re.search(r"\d+$", Path(source).name) for source in sources}
    ranks = {source: int(number[0]) for source, number in numbers.items() if number}
    return sorted(sources, key=ranks.__getitem__) if len(ranks) == len(numbers) else list(sources)


def _of(progress: Progress | None, total: int) -> Written:
    return lambda done: None if progress is None else progress(done, total)


def _packed(trajectories: Iterable[Trajectory]) -> Iterator[tuple[int, StoredTrajectory]]:
    arena = Arena()
    for number, trajectory in enumerate(trajectories):
        yield number, _in_memory(packed(trajectory, arena, number))


def _in_memory(block: TrajectoryBlock) -> StoredTrajectory:
    return StoredTrajectory(block.entry, None, block)


def _write(
    trajectories: Numbered, target: Directory, layout: Format, counter: int, draws: DrawGenerator | None, done: Written
) -> None:
    """Write trajectories, each with its new id, to a new directory."""
    with empty_folder(target) as folder:
        state = None if draws is None else draws.state()
        checkpoints_of(layout, folder.path).write(folder, trajectories, counter, state, done)
