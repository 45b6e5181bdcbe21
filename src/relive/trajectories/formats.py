"""Layouts of directories of trajectories: which ones there are, and which one a directory has.

A buffer saves and loads those with `Checkpoints`; `convert` reads and writes all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .._base import check
from .._base.frozen import Frozen
from .._base.memory import Arena
from .._base.warned import warn
from .._disk.files import Folder
from .._disk.kinds import TRAJECTORIES, check_kind
from ..errors import ArgumentError, StorageError, message
from ._draws import DrawGenerator
from ._index import Table
from ._source import Source
from ._store import StoredTrajectory
from .trajectory import Trajectory

Written = Callable[[int], None]  # called with the number of trajectories written so far
Numbered = Iterable[tuple[int, StoredTrajectory]]  # trajectories with their new ids, in order


class Loaded(NamedTuple):
    """A checkpoint that is open: what reads its files, its trajectories, and the generator, if it has one."""

    source: Source
    table: Table
    draws: DrawGenerator | None

    @property
    def trajectories(self) -> Iterator[StoredTrajectory]:
        """All of them, in order."""
        return (StoredTrajectory(entry, self.source) for entry in self.table)


class Checkpoints(NamedTuple):
    """The functions of a layout that keeps ids and the order of draws, so that buffers are saved in it and loaded.

    Attributes:
        open: Opens a directory of this layout, whose source has the folder from then on. It gets the folder; an arena
            for what is read; a rank and the number of ranks, of which only that one's share is wanted; whether the
            caller allows pickles; and whether all files have to be there, since no other process writes to it.
        write: Writes trajectories into a folder that is empty, or has an earlier checkpoint of the same buffer. It gets
            the folder; new ids and trajectories, in order; the next id; the generator's state; and a function to call
            with the number of trajectories written so far.
    """

    open: Callable[[Folder, Arena, tuple[int, int], bool, bool], Loaded]
    write: Callable[[Folder, Numbered, int, str | None, Written], None]


class Examined(NamedTuple):
    """A directory as `inspect` and `verify` see it.

    Attributes:
        table: Its trajectories; of one that may lack its file, and does, 0 bytes.
        names: The names of their files.
        others: Names of other files that begin as these do.
        source: The reader of the files.
    """

    table: Table
    names: list[str]
    others: tuple[str, ...]
    source: Source


class Episodes(Frozen):
    """The trajectories of a directory.

    Attributes:
        count: How many there are.
        trajectories: All of them, read one after the other.
    """

    count: int
    trajectories: Iterable[Trajectory]


class Format(Frozen, kw_only=True):
    """A layout of directories of trajectories.

    Attributes:
        name: What `convert(trajectory_format=...)` calls it.
        title: Whose it is, in a sentence: "RLinf's".
        holds: Called with a path: whether that directory has this layout.
        read: Called with the path of such a directory: its trajectories. None: it cannot be read.
        write: Called with trajectories, the path of a new directory, `fps`, and a function to call with the number of
            trajectories written so far; returns how many trajectories or episodes it has written. None: it cannot be
            written.
        checkpoints: For layouts that keep ids and the order of draws, in place of `read` and `write`.
        examined: Called with an open directory of a layout that `inspect` and `verify` look at.

    `register` has an example.
    """

    name: str
    title: str
    holds: Callable[[str], bool]
    read: Callable[[str], Episodes] | None = None
    write: Callable[[Iterable[Trajectory], str, int, Written], int] | None = None
    checkpoints: Checkpoints | None = None
    examined: Callable[[Folder], Examined] | None = None


_FORMATS: dict[str, Format] = {}


def register(format: Format) -> None:
    """Let `convert` read and write directories of a further layout.

    Raises:
        ArgumentError: There is another layout of this name.

    >>> def read(path):
    ...     names = sorted(os.listdir(path))
    ...     arrays = (np.load(os.path.join(path, name)) for name in names)
    ...     return Episodes(len(names), (Trajectory(rewards=array) for array in arrays))
    >>> def holds(path):
    ...     return os.path.isfile(os.path.join(path, "0000.npy"))
    >>> register(Format(name="npy", title="a lab's", holds=holds, read=read))  # doctest: +SKIP
    """
    if format.name in _FORMATS:
        raise ArgumentError(message("a name that no layout has", f"`{format.name}`", "register(format)"))
    _FORMATS[format.name] = format


def formats() -> list[Format]:
    """Return all layouts, relive's own first."""
    return list(_FORMATS.values())


def format_named(name: str, at: str, *, saved: bool = False) -> Format:
    """Return the layout of a name, which can be written; with `saved`, by a buffer.

    Raises:
        ArgumentError: There is none.
    """
    able = [each.name for each in formats() if each.checkpoints or (each.write and not saved)]
    return _FORMATS[check.one_of(name, able, at)]


def format_of(path: str | os.PathLike[str]) -> Format | None:
    """Return the layout of a directory, None if it has none of them."""
    place = check.path(path, "$.path")
    return next((each for each in formats() if each.holds(place)), None)


def check_format(folder: Folder, wanted: Format, remedy: str) -> None:
    """Refuse a directory of another kind or layout.

    Raises:
        StorageError: It has another one.
    """
    check_kind(folder, TRAJECTORIES)
    found = format_of(folder.path)
    if found is not None and found != wanted:
        raise StorageError(message(f"an empty directory, or one of {wanted.title}", found.title, folder.path, remedy))


def checkpoints_of(format: Format, at: str) -> Checkpoints:
    """Return the functions by which a layout keeps checkpoints; `at` is the directory, for the error.

    Raises:
        StorageError: It has none.
    """
    if format.checkpoints is None:
        able = " or ".join(each.title for each in formats() if each.checkpoints)
        remedy = "convert it with `relive convert`, or add its trajectories"
        raise StorageError(message(f"a checkpoint of {able}", f"{format.title} layout", at, remedy))
    return format.checkpoints


def warn_of_missing(listed: int, there: int, at: str) -> None:
    """Warn that files which an index lists are missing.

    Raises:
        StorageError: All of them are.
    """
    wanted = f"the files of {listed} trajectories"
    if listed and not there:
        raise StorageError(message(wanted, "none", at))
    if there < listed:
        warn(message(wanted, f"{there}", at, "trajectories without a file are left out"))


def opened(
    path: str | os.PathLike[str], arena: Arena, share: tuple[int, int], allow_pickle: bool, *, complete: bool = True
) -> Loaded:
    """Open a checkpoint, of which a rank gets its share; the caller closes its source.

    Raises:
        StorageError: The directory is no checkpoint, or damaged.
    """
    found = format_of(path)
    checkpoints, folder = checkpoints_of(found or formats()[0], os.fspath(path)), Folder(path)
    try:
        if found is None:
            check_kind(folder, TRAJECTORIES)
        return checkpoints.open(folder, arena, share, allow_pickle, complete)
    except BaseException:
        folder.close()
        raise
