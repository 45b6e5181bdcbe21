"""Inspect a directory of trajectories, and verify its checksums."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from .._fields import is_image
from .._files import TEMPORARY, Folder
from .._frozen import Frozen
from .._memory import Arena
from .._types import Array, Float64, Int64
from ..errors import StorageError, event
from ._block import read_block
from ._catalog import read
from ._entry import Entry, file_name

_MOST_FILES, _EXAMPLES = 256, 12


@dataclass(frozen=True)
class Inspection:
    """A directory's index, compared with the files in it.

    Attributes:
        path: The directory.
        trajectories: Number of trajectories.
        samples: Chunk-steps of all trajectories.
        nbytes: Bytes of all their files.
        fields: dtype and shape `(T, B, ...)` of every field, by its dotted name.
        shared: Fields that are not stored because they are another field one step later.
        lengths: Steps of the shortest, the median and the longest trajectory.
        widths: Smallest and largest number of environments.
        oldest: Id of the oldest trajectory, None if there are none.
        newest: Id of the newest trajectory, None if there are none.
        missing: Files in the index that do not exist or have another size.
        unfinished: Temporary files of interrupted writes.
        unknown: Trajectory files that are not in the index.

    `inspect` has an example.
    """

    path: str
    trajectories: int
    samples: int
    nbytes: int
    fields: dict[str, tuple[str, str]]
    shared: tuple[str, ...]
    lengths: tuple[int, int, int]
    widths: tuple[int, int]
    oldest: int | None
    newest: int | None
    missing: tuple[str, ...]
    unfinished: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """Inspect a directory by its index and its file sizes; no trajectory is opened.

    Raises:
        StorageError: Its index is missing or damaged.

    >>> import tempfile, numpy as np
    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> path = tempfile.mkdtemp()
    >>> with TrajectoryReplayBuffer(path) as buffer:
    ...     _ = buffer.add_trajectories([Trajectory(rewards=np.zeros((8, 2)), actions=np.zeros((8, 2, 3)))])
    >>> found = inspect(path)
    >>> found.samples, found.fields["actions"], found.healthy
    (16, ('float64', '(T, B, 3)'), True)
    """
    folder = Folder(path)
    try:
        sizes = folder.sizes()
        entries, _ = read(folder.path)
    finally:
        folder.close()
    lengths = np.array([entry.length for entry in entries] or [0])
    widths = [entry.width for entry in entries] or [0]
    names = {file_name(entry.id) for entry in entries}
    layouts = dict.fromkeys(entry.layout for entry in entries)
    fields = {
        ".".join(column.path): (column.dtype, f"({', '.join(['T', 'B', *map(str, column.shape)])})")
        for layout in layouts
        for column in layout.columns
    }
    return Inspection(
        path=folder.path,
        trajectories=len(entries),
        samples=sum(entry.length * entry.width for entry in entries),
        nbytes=sum(entry.bytes for entry in entries),
        fields=fields,
        shared=tuple(sorted({".".join(path) for layout in layouts for path in layout.shared})),
        lengths=(int(lengths.min()), int(np.median(lengths)), int(lengths.max())),
        widths=(min(widths), max(widths)),
        oldest=entries[0].id if entries else None,
        newest=entries[-1].id if entries else None,
        missing=tuple(file_name(entry.id) for entry in entries if sizes.get(file_name(entry.id)) != entry.bytes),
        unfinished=tuple(sorted(name for name in sizes if name.startswith(TEMPORARY))),
        unknown=tuple(sorted(name for name in sizes if name.startswith("trajectory_") and name not in names)),
    )


class Contents(Frozen, kw_only=True):
    """What is in the files of a directory; of more than 256 trajectories, in 256 that are spread evenly.

    Attributes:
        read: How many files were read.
        lengths: Steps of every trajectory, int64 `[N]`.
        nbytes: Bytes of every trajectory's file, int64 `[N]`.
        rewards: Every number in the field `rewards`, float64; empty without one.
        returns: Their sums over each environment's steps in a trajectory, float64.
        images: For each field of images its name and up to 12 examples: id, step, environment, image.
    """

    read: int
    lengths: Int64
    nbytes: Int64
    rewards: Float64
    returns: Float64
    images: tuple[tuple[str, list[tuple[int, int, int, Array]]], ...]


def contents(path: str | os.PathLike[str]) -> Contents:
    """Read what is in the files of a directory; those that are damaged are left out.

    Raises:
        StorageError: Its index is missing or damaged.

    >>> import tempfile, numpy as np
    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> path = tempfile.mkdtemp()
    >>> with TrajectoryReplayBuffer(path) as buffer:
    ...     buffer.add_trajectories([Trajectory(rewards=np.ones((8, 2)), actions=np.zeros((8, 2, 3)))])
    >>> contents(path).returns.tolist()
    [8.0, 8.0]
    """
    rewards, returns, read_files = [np.empty(0)], [np.empty(0)], 0
    images: dict[str, list[tuple[int, int, int, Array]]] = {}
    with closing(Folder(path)) as folder:
        entries, _ = read(folder.path)
        chosen = np.unique(np.linspace(0, len(entries) - 1, _MOST_FILES).astype(int)) if entries else ()
        shown = set(np.unique(np.linspace(0, len(chosen) - 1, _EXAMPLES).astype(int))) if entries else set()
        for number, entry in enumerate(entries[at] for at in chosen):
            try:
                fields = read_block(folder, entry, Arena()).fields()
            except StorageError:
                continue
            read_files += 1
            for keys, array in fields.items():
                if keys == ("rewards",):
                    rewards.append(array.astype(np.float64).reshape(-1))
                    returns.append(array.astype(np.float64).sum(axis=(0, *range(2, array.ndim))))
                elif number in shown and keys[0] == "curr_obs" and is_image(array.dtype, array.shape[2:]):
                    step, env = number * 7 % entry.length, number % entry.width
                    images.setdefault(".".join(keys), []).append((entry.id, step, env, array[step, env].copy()))
    return Contents(
        read=read_files,
        lengths=np.array([entry.length for entry in entries], np.int64),
        nbytes=np.array([entry.bytes for entry in entries], np.int64),
        rewards=np.concatenate(rewards),
        returns=np.concatenate(returns),
        images=tuple(sorted(images.items())),
    )


def verify(path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> list[tuple[str, str]]:
    """Read every file of a directory and compare it with its checksums.

    Args:
        path: The directory; it is not changed.
        progress: Called after each file with the number of files read so far, and of all files.

    Returns:
        The damaged files, each with a message; empty if there are none.

    Raises:
        StorageError: Its index is missing or damaged.

    >>> import tempfile, numpy as np
    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> path = tempfile.mkdtemp()
    >>> with TrajectoryReplayBuffer(path) as buffer:
    ...     _ = buffer.add_trajectories([Trajectory(rewards=np.zeros((8, 2)), actions=np.zeros((8, 2, 3)))])
    >>> verify(path)
    []
    """
    folder = Folder(path)
    bad = []
    try:
        entries, _ = read(folder.path)
        arena = Arena()
        for done, entry in enumerate(entries, 1):
            try:
                verify_file(folder, entry, arena)
            except StorageError as error:
                bad.append((file_name(entry.id), str(error)))
            if progress is not None:
                progress(done, len(entries))
    finally:
        folder.close()
    return bad


def verify_file(folder: Folder, entry: Entry, arena: Arena) -> None:
    """Read a trajectory's file and compare it with its checksums and its entry.

    Raises:
        StorageError: It is missing or damaged.
    """
    block = read_block(folder, entry, arena)
    shape, given = (block.length, block.width, block.layout), (block.max_episode_length, block.model_weights_id)
    if (*shape, *given) != (*entry[1:4], entry.max_episode_length, entry.model_weights_id):
        at = f"{folder.path}/{file_name(entry.id)}"
        raise StorageError(event(f"The header of `trajectory_{entry.id}` does not match its index entry", at))
