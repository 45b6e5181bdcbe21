"""Taking what is sound from a damaged directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing

from .._files import Folder
from .._memory import Arena
from ..errors import StorageError, message
from ._catalog import NAME, read
from ._checkpoint import publish
from ._entry import MOST_ID, Entry, file_name, id_of
from ._opening import entry_of
from .inspection import verify_file


def salvage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Copy all trajectories that are sound, with their ids, and the generator's state.

    Where the index is damaged or missing, the files say what they are; trajectories are then in the order of their ids.

    Args:
        source: The directory to read; it is not changed.
        target: The directory to write, new or empty.
        progress: Called after each trajectory with the number of them so far, and of all.

    Returns:
        What is damaged: a message for each file that is left out, and one for the index.

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
    with closing(Folder(source)) as folder, closing(Folder(target, create=True)) as copy:
        if copy.sizes():
            remedy = "choose another, or remove it first"
            raise StorageError(message("a new or an empty directory", "one with files", copy.path, remedy))
        try:
            return _salvage(folder, copy, progress)
        except BaseException:
            for name in copy.sizes():
                copy.remove(name)
            raise


def _salvage(folder: Folder, copy: Folder, progress: Callable[[int, int], None] | None) -> list[str]:
    problems: list[str] = []
    try:
        entries, facts = _index(folder, copy)
    except StorageError as error:
        ids = sorted(id_ for id_ in map(id_of, folder.sizes()) if id_ is not None and id_ < MOST_ID)
        if not ids:
            raise
        problems.append(str(error))
        found = {id_: entry_of(folder, id_) for id_ in ids}
        entries, facts = [entry for entry in found.values() if entry is not None], {}
        problems += [f"{folder.path}/{file_name(id_)}: no trajectory" for id_ in ids if found[id_] is None]
    sound, arena = [], Arena()
    for done, entry in enumerate(entries, 1):
        name = file_name(entry.id)
        try:
            copy.copy(folder, name)
            verify_file(copy, entry, arena)  # the copy, which is what has to be sound
            sound.append(entry)
        except StorageError as error:
            copy.remove(name)
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno not in (errno.ENOENT, errno.EIO):
                raise  # the new directory cannot be written
            problems.append(str(error).replace(copy.path, folder.path))
        if progress is not None:
            progress(done, len(entries))
    last = max((entry.id for entry in sound), default=-1)
    counter = max(int(facts.get("counter", 0)), last + 1)
    draws = {"draws": facts["draws"]} if "draws" in facts else {}
    publish(copy, sound, {"counter": counter, **draws})
    return problems


def _index(folder: Folder, copy: Folder) -> tuple[list[Entry], dict[str, str]]:
    """The index of a directory, read from a copy: SQLite may write where it reads."""
    names = [NAME + end for end in ("", "-wal", "-journal")]
    try:
        for name in names:
            if name in folder.sizes():
                copy.copy(folder, name)
        return read(copy.path)
    finally:
        for name in (*names, NAME + "-shm"):
            copy.remove(name)
