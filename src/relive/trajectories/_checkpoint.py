"""Checkpoints: directories like any other, made of hard links. The index is renamed last."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from .._files import Folder
from ..errors import StorageError, message
from . import rlinf
from ._block import file_of
from ._catalog import NAME, Catalog, read
from ._draws import Draws, restored
from ._entry import Entry, file_name
from ._loading import linked, part_of, read_elsewhere, take_in
from ._snapshot import Snapshot, Stored
from ._source import SafetensorsSource
from ._store import Store


def save(store: Store, path: str | os.PathLike[str], draws: Draws, kind: str) -> None:
    """Save all trajectories of `store` and the state of `draws`, as they are at the call.

    Raises:
        StorageError: The directory holds something else, or cannot be written to.
    """
    with store.lock:
        snapshot, state = Snapshot(store), draws.state()
    with snapshot, contextlib.closing(Folder(path, create=True)) as target:
        if kind == "pt":
            rlinf.save(snapshot, target, state)
        elif rlinf.is_rlinf(target):
            remedy = "save to another directory, or with `trajectory_format='pt'`"
            raise StorageError(message("an empty directory, or one of relive's", "RLinf's", target.path, remedy))
        elif store.own is not None and store.catalog is not None and os.path.samefile(target.path, store.own.path):
            store.catalog.put({"draws": state})
        else:
            target.lock("close the buffer that writes to it, or save to another directory")
            _save(snapshot, target, state)


def _save(snapshot: Snapshot, target: Folder, draws: str) -> None:
    sizes = target.sizes()
    if NAME + "-wal" in sizes:  # a buffer had it open and was killed
        Catalog(target.path).close()
    old = {entry.id: entry for entry in read(target.path)[0]} if NAME in sizes else {}
    entries = [_placed(stored, target, old, sizes) for stored in snapshot]
    publish(target, entries, {"counter": snapshot.counter, "draws": draws})
    for id_ in old.keys() - {entry.id for entry in entries}:
        target.remove(file_name(id_))


def publish(target: Folder, entries: list[Entry], facts: dict[str, Any]) -> None:
    """Write the index of a directory whose files are complete."""
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


def _placed(stored: Stored, target: Folder, old: dict[int, Entry], sizes: dict[str, int]) -> Entry:
    """Put one trajectory's file into `target`, unless an earlier save did; returns its entry."""
    entry, source, parts = stored.entry, stored.source, None
    name, before = file_name(entry.id), old.get(entry.id)
    if not isinstance(source, SafetensorsSource):
        parts, entry = file_of(entry.id, stored.block())
    if before == entry and sizes.get(name) == entry.bytes:
        return entry
    if before is not None and before != entry:
        remedy = "save to an empty directory"
        raise StorageError(message("an earlier checkpoint of this buffer", "another buffer's", target.path, remedy))
    target.remove(name)
    if parts is not None:
        target.write(name, parts)
    elif source is not None and not target.link(source.folder, name, name):
        target.copy(source.folder, name)
    return entry


def load(store: Store, path: str | os.PathLike[str], share: tuple[int, int], allow_pickle: bool) -> Draws | None:
    """Replace the contents of `store` by a share of a checkpoint; returns the checkpoint's draws, if it has any."""
    source = Folder(path)
    try:
        if rlinf.is_rlinf(source):
            return rlinf.load(store, source, share, allow_pickle)
        return _load(store, source, share)
    except BaseException:
        source.close()
        raise


def _load(store: Store, source: Folder, share: tuple[int, int]) -> Draws | None:
    own = store.own
    if own is not None and os.path.samefile(own.path, source.path) and share != (0, 1):
        remedy = "load a share of it into a separate buffer"
        raise StorageError(message("another directory than the buffer's own", "the same", source.path, remedy))
    entries, facts = read(source.path)
    draws = restored(facts["draws"], source.path) if "draws" in facts else None
    first, last = part_of(len(entries), *share)
    chosen = entries[first:last]
    sizes = source.sizes()
    for entry in chosen:
        if sizes.get(file_name(entry.id)) != entry.bytes:
            got = f"{sizes.get(file_name(entry.id), 'no file')}"
            raise StorageError(message(f"a file of {entry.bytes} bytes", got, f"{source.path}/{file_name(entry.id)}"))
    if own is None or store.catalog is None:
        read_elsewhere(store, SafetensorsSource(source, store.arena), chosen)
        return draws
    if not os.path.samefile(own.path, source.path):
        take_in(store, own, store.catalog, linked(own, source, chosen))
    source.close()
    return draws
