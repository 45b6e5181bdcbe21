"""Checkpoints: directories like any other, made of hard links. The index is renamed last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .._files import Folder
from ..errors import StorageError, message
from . import rlinf
from ._block import file_of, verify_file
from ._catalog import NAME, SAVED, SAVING, Catalog, read
from ._directory import linked, open_directory, part_of, read_elsewhere, take_in
from ._draws import Draws, restored
from ._index import Table
from ._layout import Entry, file_name
from ._snapshot import Snapshot, Stored
from ._source import SafetensorsSource
from ._store import Store
from ._writer import Writer


def save(store: Store, writer: Writer | None, path: str | os.PathLike[str], draws: Draws, kind: str) -> None:
    """Save all trajectories of `store` and the state of `draws`, as they are at the call.

    Raises:
        StorageError: The directory holds something else, or cannot be written to.
    """
    with store.settled():
        snapshot, state = Snapshot(store), draws.state()
    with snapshot, contextlib.closing(Folder(path, create=True)) as target:
        if kind != "pt":
            _refuse_rlinfs(target, "save to another directory, or with `trajectory_format='pt'`")
            if writer is not None and os.path.samefile(target.path, writer.folder.path):
                writer.catalog.add((), {"draws": state})
                return
            target.lock("close the buffer that writes to it, or save to another directory")
        write(target, kind, zip(snapshot.table.ids, snapshot, strict=True), snapshot.counter, state)


def open_own(store: Store, path: str, queue_bytes: int) -> tuple[Writer, str | None]:
    """Take the contents of a buffer's own directory into `store`; see `open_directory`."""
    folder = Folder(path, create=True)
    try:
        _refuse_rlinfs(folder, "load it with `load_checkpoint`, or convert it with `relive.trajectories.convert`")
        return open_directory(store, folder, queue_bytes)
    except BaseException:
        folder.close()
        raise


def _refuse_rlinfs(folder: Folder, remedy: str) -> None:
    if rlinf.is_rlinf(folder):
        raise StorageError(message("an empty directory, or one of relive's", "RLinf's", folder.path, remedy))


def write(
    target: Folder,
    kind: str,
    trajectories: Iterable[tuple[int, Stored]],
    counter: int,
    draws: str | None,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Put trajectories, each with its new id, into a directory that is empty or has an earlier save of the same buffer.

    Args:
        target: The directory.
        kind: `"pt"` for RLinf's layout, `"safetensors"` for relive's.
        trajectories: New ids and trajectories, in order.
        counter: The next id.
        draws: The generator's state.
        progress: Called with the number of trajectories written so far.
    """
    if kind == "pt":
        rlinf.write(target, trajectories, counter, draws, progress)
        return
    sizes = target.sizes()
    if NAME + "-wal" in sizes:  # a buffer had it open and was killed
        Catalog(target.path).close()
    old = {entry.id: entry for entry in read(target.path)[0]} if NAME in sizes else {}
    if NAME not in sizes:
        target.mark(SAVING)
    entries = []
    for done, (id_, stored) in enumerate(trajectories, 1):
        entries.append(_placed(stored, id_, target, old, sizes))
        progress(done)
    table = Table.of(entries)
    publish(target, table, {"counter": counter, **({} if draws is None else {"draws": draws})})
    for id_ in old.keys() - set(table.ids):
        target.remove(file_name(id_))


def publish(target: Folder, table: Table, facts: dict[str, Any]) -> None:
    """Write the index of a directory whose files are complete."""
    target.sync()
    fresh = NAME + ".new"
    for end in ("", "-journal"):
        target.remove(fresh + end)
    catalog = Catalog(target.path, fresh, journal="DELETE")
    try:
        catalog.add(table, {**facts, SAVED: "1"})
    finally:
        catalog.close()
    target.rename(fresh, NAME)
    target.sync()
    target.remove(SAVING)


def _placed(stored: Stored, id_: int, target: Folder, old: Mapping[int, Entry], sizes: Mapping[str, int]) -> Entry:
    """Put one trajectory's file into `target`, under the given id; returns its entry. What is copied is checked.

    Args:
        stored: The trajectory.
        id_: Its id in `target`.
        target: The directory.
        old: What an earlier save put there.
        sizes: The files that are there.
    """
    entry, source, parts = stored.entry, stored.source, None
    name, before = file_name(id_), old.get(id_)
    if not isinstance(source, SafetensorsSource):
        parts, entry = file_of(stored.block())
    entry = entry._replace(id=id_)
    if before == entry and sizes.get(name) == entry.bytes:
        return entry
    if before is not None and before != entry:
        remedy = "save to an empty directory"
        raise StorageError(message("an earlier checkpoint of this buffer", "another buffer's", target.path, remedy))
    target.remove(name)
    if parts is not None:
        target.write(name, parts)
    elif source is not None:
        target.link_or_copy(source.folder, file_name(stored.entry.id), name)
        try:
            verify_file(target, entry, stored.arena)
        except StorageError:
            target.remove(name)
            raise
    return entry


def load(
    store: Store, writer: Writer | None, path: str | os.PathLike[str], share: tuple[int, int], allow_pickle: bool
) -> Draws | None:
    """Replace the contents of `store` by a share of a checkpoint; returns the checkpoint's draws, if it has any."""
    source = Folder(path)
    try:
        if rlinf.is_rlinf(source):
            return rlinf.load(store, writer, source, share, allow_pickle)
        return _load(store, writer, source, share)
    except BaseException:
        source.close()
        raise


def _load(store: Store, writer: Writer | None, source: Folder, share: tuple[int, int]) -> Draws | None:
    own = writer is not None and os.path.samefile(writer.folder.path, source.path)
    if own and share != (0, 1):
        remedy = "load a share of it into a separate buffer"
        raise StorageError(message("another directory than the buffer's own", "the same", source.path, remedy))
    table, facts = read(source.path)
    draws = restored(facts["draws"], source.path) if "draws" in facts else None
    chosen, sizes = table.take(slice(*part_of(len(table), *share))), source.sizes()
    for entry in chosen.take(~chosen.intact(sizes)):
        name = file_name(entry.id)
        got = f"{sizes.get(name, 'no file')}"
        raise StorageError(message(f"a file of {entry.bytes} bytes", got, f"{source.path}/{name}"))
    if writer is None:
        read_elsewhere(store, SafetensorsSource(source, store.arena), chosen)
        return draws
    if not own:
        take_in(store, writer, linked(writer.folder, source, chosen))
    source.close()
    return draws


def refresh(store: Store, path: str | os.PathLike[str], share: tuple[int, int], allow_pickle: bool) -> bool:
    """Take in what has changed in the directory that `store` was loaded from; returns whether anything has.

    Raises:
        StorageError: The directory has become unreadable; the store is unchanged.
    """
    source = store.sources[0]
    if rlinf.is_rlinf(source.folder):
        before = store.index.records.copy()
        load(store, None, path, share, allow_pickle)
        return not np.array_equal(before["id"], store.index.records["id"])
    table, _ = read(source.folder.path)
    table = table.take(slice(*part_of(len(table), *share)))
    with store.lock:
        return store.follow(table)
