"""What a directory holds, and whether all of it is as it was written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._memory import Arena
from ..errors import StorageError, message
from ._block import read_block
from ._catalog import NAME, Entry, file_name, read
from ._files import TEMPORARY, Folder


@dataclass(frozen=True)
class Inspection:
    """What the index of a directory says, compared with the files that are there.

    Attributes:
        path: The directory.
        trajectories: How many there are.
        samples: Chunk-steps of all of them.
        nbytes: Bytes of all their files.
        fields: dtype and shape of every field by its dotted name; `T` and `B` stand for the first two axes.
        shared: Fields that are stored as the step after of another one.
        lengths: Shortest, median and longest trajectory, in steps.
        widths: Fewest and most environments.
        oldest: Id of the oldest trajectory, None if there is none.
        newest: Id of the newest.
        missing: Files that the index names and that are not there, or of another size.
        unfinished: Files of a write that was interrupted.
        unknown: Trajectory files that the index does not name.
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
    """Look at a directory without opening its trajectories.

    Raises:
        StorageError: It has no index of relive's, or a damaged one.
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


def verify(path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> list[tuple[str, str]]:
    """Read every byte of a directory and compare it with its checksums.

    Args:
        path: The directory; nothing in it is changed.
        progress: Told after each file how many have been read, and how many there are.

    Returns:
        The names of bad files, and what is wrong with each; empty if all is well.

    Raises:
        StorageError: It has no index of relive's, or a damaged one.
    """
    folder = Folder(path)
    bad = []
    try:
        entries, _ = read(folder.path)
        arena = Arena()
        for done, entry in enumerate(entries, 1):
            try:
                _compare(folder, entry, arena)
            except StorageError as error:
                bad.append((file_name(entry.id), str(error)))
            if progress is not None:
                progress(done, len(entries))
    finally:
        folder.close()
    return bad


def _compare(folder: Folder, entry: Entry, arena: Arena) -> None:
    block = read_block(folder, file_name(entry.id), arena, entry.checksum)
    shape, facts = (block.layout, block.length, block.width), (block.max_episode_length, block.model_weights_id)
    if (*shape, *facts) != (entry.layout, entry.length, entry.width, entry.episode, entry.weights):
        raise StorageError(message(f"what `{NAME}` says of it", "something else", file_name(entry.id)))
