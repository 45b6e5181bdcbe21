"""Checkpoints: a directory like any other, made from links, whose index takes its name last."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ..errors import StorageError, message
from . import rlinf
from ._block import file_of
from ._catalog import NAME, Catalog, Entry, file_name, read
from ._draws import Draws, restored
from ._files import Folder
from ._loading import linked, part_of, read_elsewhere, take_in
from ._snapshot import Held
from ._source import Files
from ._store import Store


def save(store: Store, path: str | os.PathLike[str], draws: Draws, kind: str) -> None:
    """Save all trajectories of `store`, and the state of `draws`: what they are now, whatever happens meanwhile.

    Raises:
        StorageError: The directory holds something else, or cannot be written to.
    """
    with store.lock:
        held, state = Held(store), draws.state()
    with held, contextlib.closing(Folder(path, create=True)) as target:
        if kind == "pt":
            rlinf.save(held, target, state)
        elif rlinf.is_one(target):
            remedy = "save to another directory, or with `trajectory_format='pt'`"
            raise StorageError(message("an empty directory, or one of relive's", "RLinf's", target.path, remedy))
        elif store.own is not None and store.catalog is not None and os.path.samefile(target.path, store.own.path):
            store.catalog.put({"draws": state})
        else:
            target.lock()
            _save(held, target, state)


def _save(held: Held, target: Folder, draws: str) -> None:
    there = target.sizes()
    if NAME + "-wal" in there:  # it was opened as a buffer's directory, and that ended badly
        Catalog(target.path).close()
    old = {entry.id: entry for entry in read(target.path)[0]} if NAME in there else {}
    entries = [_placed(held, position, target, old, there) for position in range(len(held))]
    publish(target, entries, {"counter": held.counter, "draws": draws})
    for id_ in old.keys() - {entry.id for entry in entries}:
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


def _placed(held: Held, position: int, target: Folder, old: dict[int, Entry], there: dict[str, int]) -> Entry:
    """Have one trajectory's file in `target`; returns its entry."""
    entry, source, parts = held.entry(position), held.source(position), None
    name, before = file_name(entry.id), old.get(entry.id)
    if not isinstance(source, Files):
        parts, entry = file_of(entry.id, held.block(position))
    if before == entry and there.get(name) == entry.bytes:
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
    """Replace what `store` holds by a share of a checkpoint; returns its draws."""
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
    draws = restored(facts["draws"], source.path) if "draws" in facts else None
    first, last = part_of(len(entries), *share)
    chosen = entries[first:last]
    sizes = source.sizes()
    for entry in chosen:
        if sizes.get(file_name(entry.id)) != entry.bytes:
            got = f"{sizes.get(file_name(entry.id), 'no file')}"
            raise StorageError(message(f"a file of {entry.bytes} bytes", got, f"{source.path}/{file_name(entry.id)}"))
    if own is None or store.catalog is None:
        read_elsewhere(store, Files(source, store.arena), chosen)
        return draws
    if not os.path.samefile(own.path, source.path):
        take_in(store, own, store.catalog, linked(own, source, chosen))
    source.close()
    return draws
