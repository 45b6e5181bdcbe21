"""All that a store holds replaced by what was loaded; a directory holds the old or the new, at whatever moment it ends.

The new files come under temporary names. Then one transaction makes the index name them, and say that they are to take
their names; then they do. `open_directory` goes on from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from ..errors import StorageError
from ._catalog import Catalog, Entry, file_name, id_of
from ._files import TEMPORARY, Folder
from ._source import Source
from ._store import Store

HALF_LOADED = "half_loaded"  # the fact that files are to take their names
_PREFIX = TEMPORARY + "loaded-"


def staged_name(id_: int) -> str:
    """The name of a file that is to become a trajectory's."""
    return _PREFIX + file_name(id_)


def linked(folder: Folder, source: Folder, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Stage files of another directory, one at a time."""
    for entry in entries:
        folder.remove(staged_name(entry.id))
        if not folder.link(source, file_name(entry.id), staged_name(entry.id)):
            folder.copy(source, file_name(entry.id), staged_name(entry.id))
        yield entry


def read_elsewhere(store: Store, source: Source, entries: list[Entry]) -> None:
    """Let a store without a directory hold trajectories of `source`, and nothing else."""
    store.settle()
    with store.lock:
        _forget(store)
        store.sources = [source]
        _enter(store, entries)


def take_in(store: Store, folder: Folder, catalog: Catalog, staged: Iterable[Entry]) -> None:
    """Let a store hold, in its directory, the trajectories that `staged` puts there, and nothing else.

    Raises:
        StorageError: Something could not be written. The store is as it was, or has to be loaded or opened again.
    """
    try:
        entries = list(staged)
        folder.sync()
        store.settle()
        counter = max([0, *(entry.id + 1 for entry in entries)])
        catalog.replace(entries, {"counter": counter, HALF_LOADED: "1"})
    except BaseException:
        with contextlib.suppress(StorageError):  # the first failure is the one to report
            for name in folder.sizes():
                if name.startswith(_PREFIX):
                    folder.remove(name)
        raise
    with store.lock:
        store.half_loaded = True
        _forget(store)
    store.settle()  # whoever still reads, reads files whose names are about to change hands
    finish(folder, catalog, entries)
    with store.lock:
        _enter(store, entries)
        store.half_loaded = False


def finish(folder: Folder, catalog: Catalog, entries: Iterable[Entry]) -> None:
    """Give staged files their names, and remove those of before."""
    names = {entry.id: file_name(entry.id) for entry in entries}
    there = folder.sizes()
    for id_, name in names.items():
        if staged_name(id_) in there:
            folder.rename(staged_name(id_), name)
            folder.remove(staged_name(id_))  # still there where both were names of the same file
    there = folder.sizes()
    if there.keys() >= set(names.values()):  # else the index is damaged, and may be wrong about the others, too
        kept = {None, *names}
        for name in there:
            if id_of(name) not in kept:
                folder.remove(name)
    # A file that came back after this would be taken for one that was finished, but not in the index yet.
    folder.sync()
    catalog.put({HALF_LOADED: "0"})


def part_of(count: int, rank: int, world: int) -> tuple[int, int]:
    """The first and the last but one of a rank's contiguous share of `count`."""
    each, rest = divmod(count, world)
    first = rank * each + min(rank, rest)
    return first, first + each + (rank < rest)


def _forget(store: Store) -> None:
    store.remove_oldest(len(store.index))
    store.counter = 0


def _enter(store: Store, entries: list[Entry]) -> None:
    for entry in entries:
        store.enter(entry, 0)
    store.added = store.flushed = store.durable = len(entries)
