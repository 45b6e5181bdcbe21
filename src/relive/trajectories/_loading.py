"""Replace everything a store holds by a checkpoint. A crash leaves the directory with the old contents or the new.

New files are first staged under temporary names. One transaction then makes the index list them, with the fact
`HALF_LOADED`; after that they are renamed. `open_directory` finishes the renames if they were interrupted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from .._files import TEMPORARY, Folder
from ..errors import StorageError
from ._catalog import Catalog
from ._entry import Entry, file_name, id_of
from ._source import Source
from ._store import Store

HALF_LOADED = "half_loaded"  # the fact that staged files still have to be renamed
_PREFIX = TEMPORARY + "loaded-"


def staged_name(id_: int) -> str:
    """The temporary name of a staged file."""
    return _PREFIX + file_name(id_)


def linked(folder: Folder, source: Folder, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Stage files of another directory, one at a time, as hard links where possible."""
    for entry in entries:
        folder.remove(staged_name(entry.id))
        if not folder.link(source, file_name(entry.id), staged_name(entry.id)):
            folder.copy(source, file_name(entry.id), staged_name(entry.id))
        yield entry


def read_elsewhere(store: Store, source: Source, entries: list[Entry]) -> None:
    """Replace the contents of a store without a directory by trajectories of `source`."""
    store.settle()
    with store.lock:
        _clear(store)
        store.sources = [source]
        _enter(store, entries)


def take_in(store: Store, folder: Folder, catalog: Catalog, staged: Iterable[Entry]) -> None:
    """Replace the contents of a store and its directory by the trajectories that `staged` yields.

    Raises:
        StorageError: Something could not be written. The store is unchanged, or has to be loaded or opened again.
    """
    try:
        entries = list(staged)
        folder.sync()
        store.settle()
        counter = max([0, *(entry.id + 1 for entry in entries)])
        catalog.replace(entries, {"counter": counter, HALF_LOADED: "1"})
    except BaseException:
        with contextlib.suppress(StorageError):  # report the first failure
            for name in folder.sizes():
                if name.startswith(_PREFIX):
                    folder.remove(name)
        raise
    with store.lock:
        store.half_loaded = True
        _clear(store)
    store.settle()  # the old and new files share names: wait for reads of the old ones
    finish(folder, catalog, entries)
    with store.lock:
        _enter(store, entries)
        store.half_loaded = False


def finish(folder: Folder, catalog: Catalog, entries: Iterable[Entry]) -> None:
    """Rename staged files, and remove the old ones."""
    names = {entry.id: file_name(entry.id) for entry in entries}
    present = folder.sizes()
    for id_, name in names.items():
        if staged_name(id_) in present:
            folder.rename(staged_name(id_), name)
            folder.remove(staged_name(id_))  # rename leaves it if both are links to the same file
    present = folder.sizes()
    if present.keys() >= set(names.values()):  # otherwise the index is damaged: delete nothing on its word
        kept = {None, *names}
        for name in present:
            if id_of(name) not in kept:
                folder.remove(name)
    # Deletions first: a deleted file that came back would look like one that is not indexed yet.
    folder.sync()
    catalog.put({HALF_LOADED: "0"})


def part_of(count: int, rank: int, world: int) -> tuple[int, int]:
    """The bounds `[first, last)` of a rank's contiguous share of `count`."""
    each, rest = divmod(count, world)
    first = rank * each + min(rank, rest)
    return first, first + each + (rank < rest)


def _clear(store: Store) -> None:
    store.remove_oldest(len(store.index))
    store.counter = 0


def _enter(store: Store, entries: list[Entry]) -> None:
    for entry in entries:
        store.enter(entry, 0)
    store.added = store.flushed = store.durable = len(entries)
