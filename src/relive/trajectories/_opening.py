"""Opening a directory: what its index says, compared with what is there; what a crash left behind is put in order."""

from __future__ import annotations

import zlib

from ..errors import StorageError, message
from ._block import read_header
from ._catalog import MOST_ID, NAME, Catalog, Entry, file_name, id_of, read
from ._files import TEMPORARY, Folder, read_at, size_of
from ._loading import HALF_LOADED, finish
from ._store import Store

_PART = 1 << 20  # bytes read at once


def open_directory(store: Store, folder: Folder, queue_bytes: int) -> str | None:
    """Let `store` know and own a directory; returns what had to be put in order, None if nothing.

    A load that was interrupted is finished. Files that were never finished are removed, and so are those of
    trajectories that had been removed already. Files that were finished but are not in the index yet are added to it.
    Trajectories whose files are gone or have another size are left out.
    """
    from . import rlinf

    catalog = None
    try:
        if rlinf.is_one(folder):
            remedy = "load it with `load_checkpoint`, or `relive.trajectories.convert` it"
            raise StorageError(message("an empty directory, or one of relive's", "RLinf's", folder.path, remedy))
        folder.lock()
        # Whoever was here before may have been killed before all that is seen now was on the disk, too.
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
        # The index took in all ids below the counter: it has none of these because they were removed.
        removed = [id_ for id_ in found if id_ < counter and id_ not in known]
        unfinished = [name for name in sizes if name.startswith(TEMPORARY)]
        whole = [entry for entry in entries if sizes.get(file_name(entry.id)) == entry.bytes]
        damaged = len(entries) - len(whole)
        if known - set(found):  # an index that names files that are not there may be wrong about these, too
            removed = []
        for name in [*unfinished, *map(file_name, removed)]:
            folder.remove(name)
        new = [id_ for id_ in found if counter <= id_ < MOST_ID and id_ not in known]
        adopted = [entry for id_ in new for entry in [_entry(folder, id_)] if entry is not None]
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
    told = [(int(interrupted), "interrupted load finished")]
    told += [(len(unfinished), "unfinished files removed"), (len(adopted), "finished files added to the index")]
    told.append((len(removed), "files of removed trajectories removed"))
    told.append((damaged, "trajectories left out, whose files are gone or have another size"))
    text = ", ".join(f"{count} {what}" for count, what in told if count)
    return message("a directory that was closed", text, folder.path) if text else None


def _entry(folder: Folder, id_: int) -> Entry | None:
    """What the index would say of a file, None if the file is no whole trajectory."""
    name = file_name(id_)
    try:
        with folder.reading(name) as fd:
            size = size_of(fd)
            header = read_header(fd, size, name)
            checksum, mark = zlib.crc32(header.raw), header.start + header.plan.mark
            for offset in range(header.start + header.plan.table, mark, _PART):
                checksum = zlib.crc32(read_at(fd, offset, min(_PART, mark - offset)), checksum)
            if int.from_bytes(read_at(fd, mark, 4), "little") != checksum:
                return None
    except StorageError as error:
        if isinstance(error.__cause__, OSError):  # it may be whole: its name must not go to another one
            raise
        return None
    weights, episode = header.model_weights_id, header.max_episode_length
    return Entry(id_, header.length, header.width, header.layout, header.start, size, checksum, episode, weights)
