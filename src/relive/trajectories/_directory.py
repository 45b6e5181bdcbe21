"""A directory that a buffer owns: opened, repaired after a crash, and exchanged for a checkpoint.

A load first stages new files under temporary names. One transaction then makes the index list them, with the fact
`HALF_LOADED`; after that they are renamed. `open_directory` finishes the renames if they were interrupted, so a crash
leaves the directory with the old contents or the new.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator

from .._files import TEMPORARY, Folder, has_hole, read_at
from ..errors import StorageError, event
from ._block import read_header
from ._catalog import NAME, SAVED, SAVING, Catalog, read
from ._index import Table
from ._layout import MOST_ID, Entry, file_name, id_of
from ._source import SafetensorsSource, Source
from ._store import Store
from ._writer import Writer

HALF_LOADED = "half_loaded"  # the fact that staged files still have to be renamed
_CHUNK = 1 << 20  # bytes read at once
_PREFIX = TEMPORARY + "loaded-"


def staged_name(id_: int) -> str:
    """The temporary name of a staged file."""
    return _PREFIX + file_name(id_)


def linked(folder: Folder, source: Folder, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Stage files of another directory, one at a time, as hard links where possible."""
    for entry in entries:
        folder.remove(staged_name(entry.id))
        folder.link_or_copy(source, file_name(entry.id), staged_name(entry.id))
        yield entry


def read_elsewhere(store: Store, source: Source, table: Table) -> None:
    """Replace the contents of a store without a directory by trajectories of `source`."""
    with store.exchanging():
        store.wait_for_readers()
        for old in store.sources:
            old.close()
        store.sources = [source]
        store.replace(table)


def take_in(store: Store, writer: Writer, staged: Iterable[Entry]) -> None:
    """Replace the contents of a store and its directory by the trajectories that `staged` yields.

    Raises:
        StorageError: Something could not be written. The store is unchanged, or has to be loaded or opened again.
    """
    folder, catalog = writer.folder, writer.catalog
    try:
        table = Table.of(staged)
        folder.sync()
        writer.settle()
        catalog.add(table, {"counter": max(table.ids, default=-1) + 1, HALF_LOADED: "1"}, anew=True)
    except BaseException:
        with contextlib.suppress(StorageError):  # report the first failure
            for name in folder.sizes():
                if name.startswith(_PREFIX):
                    folder.remove(name)
        raise
    with store.exchanging():
        store.half_loaded = True
        writer.settle()  # the old and new files share names: wait for reads of the old ones
        finish(folder, catalog, table)
        store.replace(table)
        store.half_loaded = False


def finish(folder: Folder, catalog: Catalog, table: Table) -> None:
    """Rename staged files, and remove the old ones."""
    names = {id_: file_name(id_) for id_ in table.ids}
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
    catalog.add((), {HALF_LOADED: "0"})


def part_of(count: int, rank: int, world: int) -> tuple[int, int]:
    """The bounds `[first, last)` of a rank's contiguous share of `count`."""
    each, rest = divmod(count, world)
    first = rank * each + min(rank, rest)
    return first, first + each + (rank < rest)


def open_directory(store: Store, folder: Folder, queue_bytes: int) -> tuple[Writer, str | None]:
    """Take the contents of a directory into `store`.

    An interrupted load is finished. Partial files are deleted, and so are files of trajectories that are no longer in
    the index, and those of an interrupted save. Other complete files that are not in the index yet are added to it.
    Trajectories whose files are missing or have another size are left out.

    Returns:
        What writes to the directory from now on, and a report of the recovery, None if there was nothing to recover.
    """
    catalog = None
    try:
        folder.lock("close the buffer that writes to it, or load the directory with `load_checkpoint`")
        # A previous process may have died before its last writes were synced.
        folder.sync(NAME + "-wal")
        started = folder.size(SAVING) is not None  # a save began in what was no directory of relive's
        saved = started and folder.size(NAME) is None
        catalog = Catalog(folder.path)
        catalog.settle()
        table, facts = read(folder.path)
        interrupted = facts.get(HALF_LOADED) == "1"
        if interrupted:
            finish(folder, catalog, table)
        sizes, counter = folder.sizes(), int(facts["counter"])
        listed, names = set(table.ids), {file_name(id_) for id_ in table.ids}
        others = sorted({id_ for id_ in map(id_of, sizes.keys() - names) if id_ is not None and id_ < MOST_ID})
        # Every id below the counter was in the index once: one that is not there now was removed. If files are missing,
        # the index may be damaged: delete nothing on its word.
        removed = [id_ for id_ in others if id_ < counter and id_ not in listed and names <= sizes.keys()]
        new = [id_ for id_ in others if id_ >= counter]
        unsaved = new if saved or facts.get(SAVED) == "1" else []
        unfinished = [name for name in sizes if name.startswith(TEMPORARY)]
        for name in [*unfinished, *map(file_name, removed + unsaved)]:
            folder.discard(name)
        whole = table.take(table.intact(sizes))
        adopted = Table.of(entry for id_ in new if not unsaved and (entry := entry_of(folder, id_)) is not None)
        store.enter(whole)
        store.enter(adopted)
        store.counter = counter = max(counter, store.counter)
        if len(adopted) or facts.get(SAVED) == "1":
            catalog.add(adopted, {"counter": counter, SAVED: "0"})
        if started:
            folder.discard(SAVING)
        writer = Writer(store, SafetensorsSource(folder, store.arena), catalog, queue_bytes)
    except BaseException:
        if catalog is not None:
            catalog.close()
        raise
    damaged = len(table) - len(whole)
    actions = ["finished an interrupted load"] if interrupted else []
    actions += [f"indexed {_count(len(adopted), 'complete file')}"] if len(adopted) else []
    actions += [f"deleted {_count(len(unfinished), 'partial file')}"] if unfinished else []
    actions += [f"deleted {_count(len(removed), 'file')} of removed trajectories"] if removed else []
    actions += [f"deleted {_count(len(unsaved), 'file')} of an interrupted save"] if unsaved else []
    if damaged:
        actions.append(f"left out {_count(damaged, 'trajectory', 'trajectories')} whose file is missing or resized")
    what = "Recovered after an unclean shutdown"
    return writer, event(what, folder.path, ", ".join(actions)) if actions else None


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def entry_of(folder: Folder, id_: int) -> Entry | None:
    """The entry that a file should have in the index, None if the file is not a complete trajectory."""
    name = file_name(id_)
    try:
        with folder.reading(name) as fd:
            entry = read_header(fd, name, id_).entry
            table, mark, checksum = entry.start + entry.plan.table, entry.start + entry.plan.mark, entry.checksum
            if has_hole(fd, table, mark):  # whose bytes would take as long to read as real ones
                return None
            for offset in range(table, mark, _CHUNK):
                checksum = zlib.crc32(read_at(fd, offset, min(_CHUNK, mark - offset)), checksum)
            if int.from_bytes(read_at(fd, mark, 4), "little") != checksum:
                return None
    except StorageError as error:
        if isinstance(error.__cause__, OSError):  # it may be complete: its id must not be used again
            raise
        return None
    return entry._replace(checksum=checksum)
