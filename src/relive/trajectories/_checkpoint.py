"""Checkpoints in relive's own layout: directories like a buffer's own, of hard links; the index is renamed last."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from .._base.memory import Arena
from .._disk.files import Folder
from ..errors import StorageError, event, message
from ._block import file_of
from ._catalog import ATTEMPTS, HALF_LOADED, NAME, SAVED, SAVING, Catalog, read
from ._draws import restored
from ._entry import Entry, file_name
from ._index import Table
from ._source import SafetensorsSource
from ._store import StoredTrajectory
from .formats import Checkpoints, Examined, Format, Loaded, Numbered, Written

_PATIENCE = 8  # times that a directory is looked at until all of its files are there
_PAUSE = 0.01  # seconds, while another process renames files


def _holds(path: str) -> bool:
    return os.path.lexists(os.path.join(path, NAME))


def _opened(folder: Folder, arena: Arena, share: tuple[int, int], allow_pickle: bool, complete: bool) -> Loaded:
    del allow_pickle  # there are none
    table, facts = _settled(folder, share, complete)
    draws = restored(facts["draws"], folder.path) if "draws" in facts else None
    return Loaded(SafetensorsSource(folder, arena), table, draws)


def _settled(folder: Folder, share: tuple[int, int], complete: bool) -> tuple[Table, dict[str, str]]:
    """Read a share of a directory's trajectories, and the facts of its index, once no load renames files there.

    Another process may remove trajectories meanwhile, entries before files: a file that is missing is damage only if an
    index that is read later lists it still. Otherwise the later index counts; after many that do, what is left of one.
    """
    table, facts = read(folder.path)
    for attempt in range(ATTEMPTS):
        half_loaded, wanted = facts.get(HALF_LOADED) == "1", table.share(*share)
        sizes = folder.sizes() if complete else {}
        intact = wanted.intact(sizes) | (not complete)
        if not half_loaded and (intact.all() or (attempt >= _PATIENCE and intact.any())):
            return wanted.take(intact), facts
        time.sleep(_PAUSE if half_loaded else 0)
        table, facts = read(folder.path)
        listed = {*table.known}
        for entry in () if half_loaded else wanted.take(~intact):
            if (entry.id, entry.checksum) in listed:
                name = file_name(entry.id)
                got = f"{sizes.get(name, 'no file')}"
                raise StorageError(message(f"a file of {entry.bytes} bytes", got, f"{folder.path}/{name}"))
    if complete:
        raise StorageError(event("Another process keeps changing it, or was killed during a load", folder.path))
    return table.share(*share), facts


def write(target: Folder, trajectories: Numbered, counter: int, draws: str | None, written: Written) -> None:
    """Write trajectories as a checkpoint into a directory that is empty, or has an earlier one of the same buffer.

    Args:
        target: The directory.
        trajectories: New ids and trajectories, in order.
        counter: The next id.
        draws: The generator's state.
        written: Called with the number of trajectories written so far.
    """
    sizes = target.sizes()
    if NAME + "-wal" in sizes:  # a buffer had it open and was killed
        Catalog(target.path).close()
    old = {entry.id: entry for entry in read(target.path)[0]} if NAME in sizes else {}
    if NAME not in sizes:
        target.mark(SAVING)
    entries, placed = [], SafetensorsSource(target)
    for done, (id_, stored) in enumerate(trajectories, 1):
        entries.append(_place(stored, id_, placed, old, sizes))
        written(done)
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
    with contextlib.closing(Catalog(target.path, fresh, journal="DELETE")) as catalog:
        catalog.add(table, {**facts, SAVED: "1"})
    target.rename(fresh, NAME)
    target.sync()
    target.remove(SAVING)


def _place(
    stored: StoredTrajectory, id_: int, target: SafetensorsSource, old: Mapping[int, Entry], sizes: Mapping[str, int]
) -> Entry:
    """Put one trajectory's file into `target`, under a new id; returns its entry. What is copied is checked.

    `old` is what an earlier save put there, `sizes` are the files that are there.
    """
    source, folder, name, before = stored.source, target.folder, file_name(id_), old.get(id_)
    parts, entry = ([], stored.entry) if isinstance(source, SafetensorsSource) else file_of(stored.block())
    entry = entry._replace(id=id_)
    if before == entry and sizes.get(name) == entry.bytes:
        return entry
    if before is not None and before != entry:
        remedy = "save to an empty directory"
        raise StorageError(message("an earlier checkpoint of this buffer", "another buffer's", folder.path, remedy))
    folder.remove(name)
    if not isinstance(source, SafetensorsSource):
        folder.write(name, parts)
        return entry
    folder.link_or_copy(source.folder, file_name(stored.entry.id), name)
    try:
        target.block(entry)
    except StorageError:
        folder.remove(name)
        raise
    return entry


def examined(folder: Folder) -> Examined:
    """List the trajectories of a directory's index.

    Raises:
        StorageError: The index is missing or damaged.
    """
    table, _ = read(folder.path)
    return Examined(table, [file_name(id_) for id_ in table.ids], (), SafetensorsSource(folder))


_CHECKPOINTS = Checkpoints(_opened, write)
OWN = Format(name="safetensors", title="relive's", holds=_holds, checkpoints=_CHECKPOINTS, examined=examined)
