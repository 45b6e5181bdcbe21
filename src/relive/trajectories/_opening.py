"""Opening a directory: compare the index with the files, and repair what a crash left."""

from __future__ import annotations

import zlib

from .._files import TEMPORARY, Folder, read_at, size_of
from ..errors import StorageError, event, message
from . import rlinf
from ._block import read_header
from ._catalog import NAME, Catalog, read
from ._entry import MOST_ID, Entry, file_name, id_of
from ._loading import HALF_LOADED, finish
from ._store import Store

_CHUNK = 1 << 20  # bytes read at once


def open_directory(store: Store, folder: Folder, queue_bytes: int) -> str | None:
    """Make `store` the owner of a directory; returns a report of the recovery, None if there was nothing to recover.

    An interrupted load is finished. Partial files are deleted, and so are files of trajectories that are no longer in
    the index. Complete files that are not in the index yet are added to it. Trajectories whose files are missing or
    have another size are left out.
    """
    catalog = None
    try:
        if rlinf.is_rlinf(folder):
            remedy = "load it with `load_checkpoint`, or convert it with `relive.trajectories.convert`"
            raise StorageError(message("an empty directory, or one of relive's", "RLinf's", folder.path, remedy))
        folder.lock("close the buffer that writes to it, or load the directory with `load_checkpoint`")
        # A previous process may have died before its last writes were synced.
        folder.sync(NAME + "-wal")
        catalog = Catalog(folder.path)
        entries, facts = read(folder.path)
        interrupted = facts.get(HALF_LOADED) == "1"
        if interrupted:
            finish(folder, catalog, entries)
        sizes = folder.sizes()
        counter = int(facts["counter"])
        known = {entry.id for entry in entries}
        found = sorted(id_ for id_ in map(id_of, sizes) if id_ is not None)
        # Every id below the counter was in the index once: one that is not there now was removed.
        removed = [id_ for id_ in found if id_ < counter and id_ not in known]
        unfinished = [name for name in sizes if name.startswith(TEMPORARY)]
        whole = [entry for entry in entries if sizes.get(file_name(entry.id)) == entry.bytes]
        damaged = len(entries) - len(whole)
        if known - set(found):  # files are missing, so the index may be damaged: delete nothing on its word
            removed = []
        for name in [*unfinished, *map(file_name, removed)]:
            folder.remove(name)
        new = [id_ for id_ in found if counter <= id_ < MOST_ID and id_ not in known]
        adopted = [entry for id_ in new for entry in [entry_of(folder, id_)] if entry is not None]
        counter = max([counter, *(entry.id + 1 for entry in [*whole, *adopted])])
        if adopted:
            catalog.add(adopted, {"counter": counter})
        for entry in [*whole, *adopted]:
            store.enter(entry, 0)
        store.counter = counter
        store.added = store.flushed = store.durable = len(whole) + len(adopted)
        store.open(folder, catalog, queue_bytes)
    except BaseException:
        if catalog is not None:
            catalog.close()
        folder.close()
        raise
    actions = ["finished an interrupted load"] if interrupted else []
    actions += [f"indexed {_count(len(adopted), 'complete file')}"] if adopted else []
    actions += [f"deleted {_count(len(unfinished), 'partial file')}"] if unfinished else []
    actions += [f"deleted {_count(len(removed), 'file')} of removed trajectories"] if removed else []
    if damaged:
        actions.append(f"left out {_count(damaged, 'trajectory', 'trajectories')} whose file is missing or resized")
    return event("Recovered after an unclean shutdown", folder.path, ", ".join(actions)) if actions else None


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def entry_of(folder: Folder, id_: int) -> Entry | None:
    """The entry that a file should have in the index, None if the file is not a complete trajectory."""
    name = file_name(id_)
    try:
        with folder.reading(name) as fd:
            size = size_of(fd)
            header = read_header(fd, size, name)
            checksum, mark = zlib.crc32(header.raw), header.start + header.plan.mark
            for offset in range(header.start + header.plan.table, mark, _CHUNK):
                checksum = zlib.crc32(read_at(fd, offset, min(_CHUNK, mark - offset)), checksum)
            if int.from_bytes(read_at(fd, mark, 4), "little") != checksum:
                return None
    except StorageError as error:
        if isinstance(error.__cause__, OSError):  # it may be complete: its id must not be used again
            raise
        return None
    weights, episode = header.model_weights_id, header.max_episode_length
    return Entry(id_, header.length, header.width, header.layout, header.start, size, checksum, episode, weights)
