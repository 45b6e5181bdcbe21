"""Directories of trajectories: a buffer's own is opened and repaired; checkpoints are saved and loaded.

A checkpoint is a directory like any other, made of hard links; its index is renamed last.

A load into a buffer's own directory first stages new files under temporary names. One transaction then makes the index
list them, with the fact `HALF_LOADED`; after that they are renamed. `open_directory` finishes the renames if they were
interrupted, so a crash leaves the directory with the old contents or the new.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from .._disk.files import TEMPORARY, Folder
from ..errors import StorageError, event, message
from ._block import entry_of, file_of
from ._catalog import HALF_LOADED, NAME, SAVED, SAVING, Catalog, read
from ._checkpoint import OWN
from ._draws import DrawGenerator
from ._entry import MOST_ID, Entry, file_name, id_of
from ._index import Table
from ._source import SafetensorsSource, Source
from ._store import Store, StoredTrajectory
from ._writer import DirectoryWriter, lock
from .formats import Format, check_format, checkpoints_of, opened

_STAGED = TEMPORARY + "loaded-"  # in front of the names of staged files


def open_directory(store: Store, path: str, queue_bytes: int) -> tuple[DirectoryWriter, str | None]:
    """Take the contents of a buffer's own directory into `store`.

    An interrupted load is finished. Partial files are deleted, and so are files of trajectories that are no longer in
    the index, and those of an interrupted save. Other complete files that are not in the index yet are added to it.
    Trajectories whose files are missing or have another size are left out.

    Returns:
        What writes to the directory from now on, and a report of the recovery, None if there was nothing to recover.
    """
    with contextlib.ExitStack() as undo:
        folder = Folder(path, create=True)
        undo.callback(folder.close)
        check_format(folder, OWN, "load it with `load_checkpoint`, or convert it with `relive.trajectories.convert`")
        lock(folder, "close the buffer that writes to it, or load the directory with `load_checkpoint`")
        # A previous process may have died before its last writes were synced.
        folder.sync(NAME + "-wal")
        started = folder.size(SAVING) is not None  # a save began in what was no directory of relive's
        saved = started and folder.size(NAME) is None
        catalog = Catalog(folder.path)
        undo.callback(catalog.close)
        catalog.settle()
        table, facts = read(folder.path)
        interrupted = facts.get(HALF_LOADED) == "1"
        if interrupted:
            _finish(folder, catalog, table)
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
        writer = DirectoryWriter(store, SafetensorsSource(folder, store.arena), catalog, queue_bytes)
        undo.pop_all()
    damaged = len(table) - len(whole)
    actions = [
        (interrupted, "finished an interrupted load"),
        (adopted, f"indexed {_count(len(adopted), 'complete file')}"),
        (unfinished, f"deleted {_count(len(unfinished), 'partial file')}"),
        (removed, f"deleted {_count(len(removed), 'file')} of removed trajectories"),
        (unsaved, f"deleted {_count(len(unsaved), 'file')} of an interrupted save"),
        (damaged, f"left out {_count(damaged, 'trajectory', 'trajectories')} whose file is missing or resized"),
    ]
    done = ", ".join(text for happened, text in actions if happened)
    return writer, event("Recovered after an unclean shutdown", folder.path, done) if done else None


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


# Saving --------------------------------------------------------------------------------------------------------------


def save(
    store: Store, writer: DirectoryWriter | None, path: str | os.PathLike[str], draws: DrawGenerator, layout: Format
) -> None:
    """Save all trajectories of `store` and the state of `draws`, as they are at the call.

    Raises:
        StorageError: The directory holds something else, or cannot be written to.
    """
    with contextlib.ExitStack() as held:
        with store.settled():
            snapshot, counter, state = held.enter_context(store.saving()), store.counter, draws.state()
        target = held.enter_context(contextlib.closing(Folder(path, create=True)))
        check_format(target, layout, "save to another directory, or in that layout by `trajectory_format`")
        if layout is OWN:
            if writer is not None and os.path.samefile(target.path, writer.folder.path):
                writer.catalog.add((), {"draws": state})
                return
            lock(target, "close the buffer that writes to it, or save to another directory")
        trajectories = zip(snapshot.table.ids, snapshot, strict=True)
        checkpoints_of(layout, target.path).write(target, trajectories, counter, state, lambda done: None)


# Loading -------------------------------------------------------------------------------------------------------------


def load(
    store: Store,
    writer: DirectoryWriter | None,
    path: str | os.PathLike[str],
    share: tuple[int, int],
    allow_pickle: bool,
) -> DrawGenerator | None:
    """Replace the contents of `store` by a share of a checkpoint; returns the checkpoint's draws, if it has any.

    A store without a directory reads the checkpoint's files when their rows are needed.
    """
    source, table, draws = opened(path, store.arena, share, allow_pickle)
    if writer is None:
        with store.exchanging():
            store.close()
            store.source = source
            store.replace(table)
        return draws
    with contextlib.closing(source):
        if not os.path.samefile(writer.folder.path, source.folder.path):
            _take_in(store, writer, _staged(writer.folder, source, table, store.compress))
        elif share != (0, 1):
            remedy = "load a share of it into a separate buffer"
            at = source.folder.path
            raise StorageError(message("another directory than the buffer's own", "the same", at, remedy))
    return draws


def refresh(store: Store, path: str | os.PathLike[str], share: tuple[int, int], allow_pickle: bool) -> bool:
    """Take in what has changed in the directory that `store` was loaded from; returns whether anything has.

    Raises:
        StorageError: The directory has become unreadable; the store is unchanged.
    """
    source, table, _ = opened(path, store.arena, share, allow_pickle, complete=False)
    with contextlib.closing(source), store.lock:
        return store.follow(table)


def _staged(folder: Folder, source: Source, table: Table, compress: bool) -> Iterator[Entry]:
    """Put a checkpoint's trajectories into `folder` under temporary names, one at a time: as links where possible."""
    for entry in table:
        name = _STAGED + file_name(entry.id)
        if isinstance(source, SafetensorsSource):
            folder.remove(name)
            folder.link_or_copy(source.folder, file_name(entry.id), name)
        else:
            parts, entry = file_of(StoredTrajectory(entry, source, compress=compress).block())
            folder.write(name, parts)
        yield entry


def _take_in(store: Store, writer: DirectoryWriter, staged: Iterable[Entry]) -> None:
    """Replace the contents of a store and its directory by the trajectories that `staged` yields.

    Raises:
        StorageError: Something could not be written. The store is unchanged, or has to be loaded or opened again.
    """
    folder, catalog = writer.folder, writer.catalog
    try:
        table = Table.of(staged)
        folder.sync()
        writer.sync()
        catalog.add(table, {"counter": max(table.ids, default=-1) + 1, HALF_LOADED: "1"}, anew=True)
    except BaseException:
        with contextlib.suppress(StorageError):  # report the first failure
            for name in folder.sizes():
                if name.startswith(_STAGED):
                    folder.remove(name)
        raise
    with store.exchanging():
        store.half_loaded = True
        _finish(folder, catalog, table)
        store.replace(table)
        store.half_loaded = False


def _finish(folder: Folder, catalog: Catalog, table: Table) -> None:
    """Rename staged files, and remove the old ones."""
    names = {id_: file_name(id_) for id_ in table.ids}
    present = folder.sizes()
    for name in names.values():
        if _STAGED + name in present:
            folder.rename(_STAGED + name, name)
            folder.remove(_STAGED + name)  # rename leaves it if both are links to the same file
    present = folder.sizes()
    if present.keys() >= set(names.values()):  # otherwise the index is damaged: delete nothing on its word
        kept = {None, *names}
        for name in present:
            if id_of(name) not in kept:
                folder.remove(name)
    # Deletions first: a deleted file that came back would look like one that is not indexed yet.
    folder.sync()
    catalog.add((), {HALF_LOADED: "0"})
