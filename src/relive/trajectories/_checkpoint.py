"""Checkpoints: a directory like any other, made from links, whose index takes its name last."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from ..errors import StorageError, message
from ._block import file_of
from ._catalog import NAME, Catalog, Entry, file_name, read
from ._draws import Draws, restored
from ._files import Folder
from ._index import NOWHERE
from ._reader import Files
from ._store import Store


def save(store: Store, path: str | os.PathLike[str], draws: Draws, kind: str) -> None:
    """Save all trajectories of `store`, and the state of `draws`."""
    if kind == "pt":
        from . import rlinf

        rlinf.save(store, path, draws)
        return
    from .rlinf import is_one

    target = Folder(path, create=True)
    try:
        if is_one(target):
            remedy = "save to another directory, or with `trajectory_format='pt'`"
            raise StorageError(message("an empty directory, or one of relive's", "RLinf's", target.path, remedy))
        if store.own is not None and os.path.samefile(target.path, store.own.path):
            if store.catalog is not None:
                store.catalog.put({"draws": draws.state()})
            return
        target.lock()
        _save(store, target, draws)
    finally:
        target.close()


def _save(store: Store, target: Folder, draws: Draws) -> None:
    there = target.sizes()
    if NAME + "-wal" in there:  # it was opened as a buffer's directory, and that ended badly
        Catalog(target.path).close()
    old = {entry.id: entry for entry in read(target.path)[0]} if NAME in there else {}
    entries = []
    for position in range(len(store.index)):
        entries.append(_placed(store, position, target, old, there))
    publish(target, entries, {"counter": store.counter, "draws": draws.state()})
    kept = {entry.id for entry in entries}
    for id_ in old:
        if id_ not in kept:
            target.remove(file_name(id_))


def publish(target: Folder, entries: list[Entry], facts: dict[str, Any]) -> None:
    """Give a directory, whose files are there, an index that names them."""
    target.sync()
    fresh = NAME + ".new"
    for end in ("", "-journal"):
        target.remove(fresh + end)
    catalog = Catalog(target.path, fresh, journal="DELETE")
    try:
        catalog.add(entries, facts)
    finally:
        catalog.close()
    target.rename(fresh, NAME)
    target.sync()


def _placed(store: Store, position: int, target: Folder, old: dict[int, Entry], there: dict[str, int]) -> Entry:
    """Have one trajectory's file in `target`; returns its entry."""
    record = store.index.records[position]
    id_ = int(record["id"])
    name, before = file_name(id_), old.get(id_)
    weights = bytes(record["weights"]).decode()
    entry = Entry(
        id_, int(record["length"]), int(record["width"]), store.layouts[int(record["layout"])], int(record["start"]),
        int(record["bytes"]), int(record["checksum"]), int(record["episode"]), weights,
    )  # fmt: skip
    folder = int(record["folder"])
    source = store.sources[folder] if folder != NOWHERE else None
    if source is None or not isinstance(source, Files):
        block = store.block(position)
        parts, start, size, checksum = file_of(block)
        entry = entry._replace(layout=block.layout, start=start, bytes=size, checksum=checksum)
        parts_needed = parts
    else:
        parts_needed = None
    if before == entry and there.get(name) == entry.bytes:
        return entry
    if before is not None and before != entry:
        remedy = "save to an empty directory"
        raise StorageError(message("an earlier checkpoint of this buffer", "another buffer's", target.path, remedy))
    target.remove(name)
    if parts_needed is not None:
        target.write(name, parts_needed)
    elif source is not None and not target.link(source.folder, name, name):
        target.copy(source.folder, name)
    return entry


def load(store: Store, path: str | os.PathLike[str], share: tuple[int, int], allow_pickle: bool) -> Draws | None:
    """Replace what `store` holds by a share of a checkpoint; returns its draws."""
    from . import rlinf

    source = Folder(path)
    try:
        if rlinf.is_one(source):
            return rlinf.load(store, source, share, allow_pickle)
        return _load(store, source, share)
    except BaseException:
        source.close()
        raise


def _load(store: Store, source: Folder, share: tuple[int, int]) -> Draws | None:
    own = store.own
    if own is not None and os.path.samefile(own.path, source.path) and share != (0, 1):
        remedy = "load a share of it into a buffer of its own"
        raise StorageError(message("another directory than the buffer's", "the same", source.path, remedy))
    entries, facts = read(source.path)
    try:
        draws = restored(facts["draws"]) if "draws" in facts else None
    except (ValueError, sqlite3.Error) as error:
        raise StorageError(message("a generator's state", f"`{str(error)[:60]}`", source.path)) from None
    first, last = part(len(entries), *share)
    chosen = entries[first:last]
    sizes = source.sizes()
    for entry in chosen:
        if sizes.get(file_name(entry.id)) != entry.bytes:
            got = f"{sizes.get(file_name(entry.id), 'no file')}"
            raise StorageError(message(f"a file of {entry.bytes} bytes", got, f"{source.path}/{file_name(entry.id)}"))
    take_over(store, source, chosen)
    return draws


def part(count: int, rank: int, world: int) -> tuple[int, int]:
    """The first and the last but one of a rank's contiguous share of `count`."""
    each, rest = divmod(count, world)
    first = rank * each + min(rank, rest)
    return first, first + each + (rank < rest)


def empty(store: Store) -> None:
    """Remove all that `store` holds. The files are gone then, so that others may have their names."""
    with store.lock:
        store.delete(store.remove_oldest(len(store.index)))
    store.settle()
    with store.lock:
        store.counter = 0
        # Directories that nothing here lies in any more; whoever still reads from one keeps it open.
        store.sources = [source for source in store.sources if source.folder is store.own]


def take_over(store: Store, source: Folder, entries: list[Entry]) -> None:
    """Replace what `store` holds by trajectories of `source`; a directory of its own gets links to their files."""
    own = store.own
    if own is not None and os.path.samefile(own.path, source.path):
        source.close()
        return
    empty(store)
    with store.lock:
        if own is None or store.catalog is None:
            store.sources.append(Files(source, store.arena))
            number = len(store.sources) - 1
        else:
            number = 0
            for entry in entries:
                name = file_name(entry.id)
                own.remove(name)
                if not own.link(source, name, name):
                    own.copy(source, name)
            own.sync()
            store.catalog.add(entries, {"counter": max([0, *(entry.id + 1 for entry in entries)])})
            source.close()
        for entry in entries:
            store.enter(entry, number)
        store.added = store.flushed = store.durable = len(entries)
