"""Inspect a directory of trajectories, verify its checksums, and take what is sound from a damaged one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np

from .._base.frozen import Frozen
from .._base.types import Array, Float64, Int64
from .._disk.checking import Check, Progress, failures
from .._disk.files import TEMPORARY, Folder, empty_folder
from .._schema.fields import is_image
from ..errors import SchemaError, StorageError
from ._block import entry_of
from ._catalog import read
from ._checkpoint import examined, publish
from ._entry import MOST_ID, Entry, file_name, id_of
from ._index import Table
from ._source import SafetensorsSource, Source
from .formats import Examined, format_of, warn_of_missing

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
        compressed: Fields that are compressed in some of the files.
        unpacked: Bytes that the files would have, about, if nothing were compressed.
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
    compressed: tuple[str, ...]
    unpacked: int
    lengths: tuple[int, int, int]
    widths: tuple[int, int]
    oldest: int | None
    newest: int | None
    missing: tuple[str, ...]
    unfinished: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """True if the directory is complete."""
        return not self.missing


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """Inspect a directory by its index and its file sizes; no trajectory of relive's is opened.

    The index of RLinf's directories lacks the fields: PyTorch reads the first file that is sound.

    Raises:
        StorageError: Its index is missing or damaged.
        ArgumentError: RLinf's files are `pkl`.
        MissingExtra: The directory is RLinf's, and PyTorch 2.6 or later is not installed.

    >>> import tempfile, numpy as np
    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> path = tempfile.mkdtemp()
    >>> with TrajectoryReplayBuffer(path) as buffer:
    ...     _ = buffer.add_trajectories([Trajectory(rewards=np.zeros((8, 2)), actions=np.zeros((8, 2, 3)))])
    >>> found = inspect(path)
    >>> found.samples, found.fields["actions"], found.healthy
    (16, ('float64', '(T, B, 3)'), True)
    """
    with closing(Folder(path)) as folder:
        found = _examined(folder)
        sizes = folder.sizes()
        missing, unknown = _strange(found, sizes)
        if missing or unknown:  # only for a moment, perhaps, while another process adds and removes
            again = _strange(_examined(folder), folder.sizes())
            missing, unknown = missing & again[0], unknown & again[1]
    table, names = found.table, found.names
    records = table.records
    lengths, widths = (records[name] if len(table) else np.zeros(1, np.int32) for name in ("length", "width"))
    fields = {
        ".".join(column.path): (column.dtype, f"({', '.join(['T', 'B', *map(str, column.shape)])})")
        for layout in table.layouts
        for column in layout.columns
    }
    return Inspection(
        path=folder.path,
        trajectories=len(table),
        samples=int(table.rows.sum()),
        nbytes=int(records["bytes"].sum()),
        fields=fields,
        shared=tuple(sorted({".".join(path) for layout in table.layouts for path in layout.shared})),
        compressed=tuple(sorted({".".join(path) for layout in table.layouts for path in layout.compressed})),
        unpacked=int(table.memory.sum()),
        lengths=(int(lengths.min()), int(np.median(lengths)), int(lengths.max())),
        widths=(int(widths.min()), int(widths.max())),
        oldest=table.ids[0] if names else None,
        newest=table.ids[-1] if names else None,
        missing=tuple(name for name in names if name in missing),
        unfinished=tuple(sorted(name for name in sizes if name.startswith(TEMPORARY))),
        unknown=tuple(sorted(unknown)),
    )


def _strange(found: Examined, sizes: Mapping[str, int]) -> tuple[set[str], set[str]]:
    """List files of the index that are missing or have another size, and trajectories' files that it does not list."""
    expected = zip(found.names, found.table.records["bytes"].tolist(), strict=True)
    missing = {name for name, size in expected if sizes.get(name) != size}
    return missing, {name for name in sizes if name.startswith("trajectory_")} - {*found.names, *found.others}


def _examined(folder: Folder) -> Examined:
    layout = format_of(folder.path)
    examine = None if layout is None else layout.examined
    return (examine or examined)(folder)


class Contents(Frozen, kw_only=True):
    """The contents of the files of a directory; of more than 256 trajectories, those of 256 that are spread evenly.

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
    """Read the files of a directory; those that are damaged are left out.

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
        table, _, _, source = _examined(folder)
        entries = list(table)
        chosen = np.unique(np.linspace(0, len(entries) - 1, _MOST_FILES).astype(int)) if entries else ()
        shown = set(np.unique(np.linspace(0, len(chosen) - 1, _EXAMPLES).astype(int))) if entries else set()
        for number, entry in enumerate(entries[at] for at in chosen):
            try:
                fields = source.block(entry).fields()
            except (StorageError, SchemaError):
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
        lengths=table.records["length"].astype(np.int64),
        nbytes=table.records["bytes"].astype(np.int64),
        rewards=np.concatenate(rewards),
        returns=np.concatenate(returns),
        images=tuple(sorted(images.items())),
    )


def verify(path: str | os.PathLike[str], progress: Progress | None = None) -> list[tuple[str, str]]:
    """Read every file of a directory and compare it with its checksums.

    Files that RLinf's index lists, but that are not there, are no damage; a warning counts them.

    Args:
        path: The directory; it is not changed.
        progress: Called after each file with the number of files read so far, and of all files.

    Returns:
        The damaged files, each with a message; empty if there are none.

    Raises:
        StorageError: Its index is missing or damaged, or none of its files is there.
        ArgumentError: RLinf's files are `pkl`, which have no checksums.
        MissingExtra: The directory is RLinf's, and PyTorch 2.6 or later is not installed.

    >>> import tempfile, numpy as np
    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> path = tempfile.mkdtemp()
    >>> with TrajectoryReplayBuffer(path) as buffer:
    ...     _ = buffer.add_trajectories([Trajectory(rewards=np.zeros((8, 2)), actions=np.zeros((8, 2, 3)))])
    >>> verify(path)
    []
    """
    with closing(Folder(path)) as folder:
        found = _examined(folder)
        checks = [Check(name, partial(_read, found.source, entry)) for name, entry in _there(found)]
        warn_of_missing(len(found.names), len(checks), folder.path)
        return failures(checks, progress, lambda: {name for name, _ in _there(_examined(folder))})


def _there(found: Examined) -> list[tuple[str, Entry]]:
    return [(name, entry) for name, entry in zip(found.names, found.table, strict=True) if entry.bytes]


def salvage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    progress: Progress | None = None,
) -> list[str]:
    """Copy all trajectories that are sound, with their ids, and the generator's state.

    Where the index is damaged or missing, the files say what they are; trajectories are then in the order of their ids.

    Args:
        source: The directory to read; it is not changed.
        target: The directory to write, new or empty.
        progress: Called after each trajectory with the number of them so far, and of all.

    Returns:
        A message for each file that is damaged and left out, and one for the index.

    Raises:
        StorageError: There are no trajectories, or `target` is not empty or cannot be written. Nothing is left in it.

    >>> import tempfile, numpy as np
    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> home = tempfile.mkdtemp()
    >>> with TrajectoryReplayBuffer(f"{home}/a") as buffer:
    ...     buffer.add_trajectories([Trajectory(rewards=np.zeros((4, 2, 1), np.float32))])
    >>> salvage(f"{home}/a", f"{home}/b")
    []
    """
    with closing(Folder(source)) as folder, empty_folder(target) as copy:
        problems: list[str] = []
        try:
            table, facts = read(folder.path)
        except StorageError as error:
            ids = sorted(id_ for id_ in map(id_of, folder.sizes()) if id_ is not None and id_ < MOST_ID)
            if not ids:
                raise
            found = {id_: entry_of(folder, id_) for id_ in ids}
            table, facts = Table.of(entry for entry in found.values() if entry is not None), {}
            problems = [str(error)]
            problems += [f"{folder.path}/{file_name(id_)}: no trajectory" for id_ in ids if found[id_] is None]
        copies = SafetensorsSource(copy)
        checks = [Check(file_name(entry.id), partial(_copy, folder, copies, entry)) for entry in table]
        bad = dict(failures(checks, progress))
        problems += [text.replace(copy.path, folder.path) for text in bad.values()]
        sound = table.take([file_name(id_) not in bad for id_ in table.ids])
        counter = max(int(facts.get("counter", 0)), max(sound.ids, default=-1) + 1)
        publish(copy, sound, {"counter": counter, **({"draws": facts["draws"]} if "draws" in facts else {})})
        return problems


def _read(source: Source, entry: Entry) -> list[str]:
    try:
        source.block(entry)
    except SchemaError as error:  # of RLinf's files, which may have other fields than the first one
        return [str(error)]
    return []


def _copy(folder: Folder, target: SafetensorsSource, entry: Entry) -> list[str]:
    """Copy a file; it is the copy that has to be sound."""
    name = file_name(entry.id)
    try:
        target.folder.copy(folder, name)
        target.block(entry)
    except StorageError:
        target.folder.remove(name)
        raise
    return []
