"""Trajectories in memory, on disk, or both: what is there, and the rows of it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

import numpy as np

from .._memory import Arena
from .._types import Int64
from ..errors import SchemaError, StorageError, message
from ._batch_read import Reading
from ._block import Block, check_storable, file_size
from ._catalog import Catalog, Entry, file_name
from ._files import Folder
from ._index import NOWHERE, Index
from ._layout import Layout
from ._source import Files, Source
from ._writer import Writer
from .trajectory import Path, Trajectory

# Memory of trajectories that have been written, used again for the next ones: fresh pages would cost more than the
# copy.
_SPARE = 256 << 20

Signature = Mapping[Path, tuple[str, tuple[int, ...]]]


class Cache:
    """How much of what is on disk is kept in memory, too."""

    def __init__(self, size: int, nbytes: int) -> None:
        self.size, self.nbytes = size, nbytes
        self.ids: OrderedDict[int, int] = OrderedDict()
        self.used = 0

    def put(self, id_: int, nbytes: int) -> list[int]:
        """Keep a trajectory; returns those that must go for it, the first in first, itself if it is too large.

        One that is kept already stays where it stands in the order.
        """
        if id_ not in self.ids:
            self.ids[id_] = nbytes
            self.used += nbytes
        gone = []
        while len(self.ids) > self.size or self.used > self.nbytes:
            oldest, count = self.ids.popitem(last=False)
            self.used -= count
            gone.append(oldest)
        return gone

    def drop(self, id_: int) -> None:
        """Keep a trajectory no more."""
        self.used -= self.ids.pop(id_, 0)

    def holds(self, count: int, nbytes: int) -> bool:
        """Whether so many trajectories of so many bytes fit at once."""
        return count <= self.size and nbytes <= self.nbytes


class Store:
    """The index, the blocks in memory, and the files; every method is called with `lock` held."""

    def __init__(self, cache: Cache) -> None:
        self.lock = threading.RLock()
        self.index, self.cache, self.arena = Index(), cache, Arena(keep=64, keep_bytes=_SPARE)
        self.layouts: list[Layout] = []
        self.blocks: dict[int, Block] = {}
        self.sources: list[Source] = []
        self.counter = self.added = self.flushed = self.durable = self.nbytes = 0
        self.own: Folder | None = None
        self.catalog: Catalog | None = None
        self.writer: Writer | None = None
        self.half_loaded = False
        self._signature: Signature | None = None
        self._problems: dict[int, tuple[str, str, str] | None] = {}
        self._doomed: set[int] = set()
        # Files that are to go, each behind a ticket: it waits until nobody reads who came before.
        self._gate, self._ticket = threading.Lock(), 0
        self._readers: set[int] = set()
        self._condemned: deque[tuple[int, int]] = deque()

    # Adding and removing ---------------------------------------------------------------------------------------------

    def open(self, folder: Folder, catalog: Catalog, queue_bytes: int) -> None:
        """Write what is added to `folder` from now on."""
        self.own, self.catalog = folder, catalog
        self.sources.append(Files(folder, self.arena))
        self.writer = Writer(folder, catalog, queue_bytes, self._flushed, self._durable, self._removed)

    def check(self, trajectories: Sequence[Trajectory]) -> None:
        """Refuse trajectories whose fields are not those of the ones that are here, or of the first of them."""
        signature = self._signature
        for number, trajectory in enumerate(trajectories):
            given = {path: (array.dtype.name, array.shape[2:]) for path, array in trajectory.arrays.items()}
            problem = difference(signature, given)
            if problem:
                wanted, got, at = problem
                raise SchemaError(message(wanted, got, f"$.trajectories[{number}]{at[1:]}", "as in those before it"))
            check_storable(trajectory, f"$.trajectories[{number}]", fields=signature is None)
            signature = given if signature is None else signature

    def add(self, block: Block) -> int:
        """Take a block in; returns its id. Its writer is to be told next, without the lock."""
        id_ = self.counter
        self.counter += 1
        self.added += 1
        self._append(
            Entry(
                id_,
                block.length,
                block.width,
                block.layout,
                0,
                block.nbytes if self.writer is None else file_size(block),  # so that limits hold from the start
                0,
                block.max_episode_length,
                block.model_weights_id,
            ),
            NOWHERE,
        )
        self.blocks[id_] = block
        return id_

    def enter(self, entry: Entry, folder: int) -> None:
        """Know a trajectory whose file is there."""
        self._append(entry, folder)
        self.counter = max(self.counter, entry.id + 1)

    def _append(self, entry: Entry, folder: int) -> None:
        if self._signature is None:
            self._signature = signature_of(entry.layout)
        self.nbytes += entry.bytes
        self.index.append(
            id=entry.id,
            bytes=entry.bytes,
            length=entry.length,
            width=entry.width,
            start=entry.start,
            checksum=entry.checksum,
            layout=self._number(entry.layout),
            folder=folder,
            episode=entry.episode,
            weights=entry.weights.encode(),
        )

    def _flushed(self, more: int) -> None:
        with self.lock:
            self.flushed += more

    def _durable(self, entries: list[Entry]) -> None:
        """The writer has done with these: memory may let go of them."""
        with self.lock:
            self.durable += len(entries)
            for entry in entries:
                position = self._position(entry.id)
                if position is None:
                    continue
                record = self.index.records[position]
                self.nbytes += entry.bytes - int(record["bytes"])
                record["bytes"], record["start"], record["checksum"] = entry.bytes, entry.start, entry.checksum
                record["folder"] = 0  # the own one is the first
                self._keep(entry.id, self.blocks[entry.id])
            late = self._doomed & {entry.id for entry in entries}
            self._doomed -= late
        if late:
            self.delete(sorted(late))

    def _keep(self, id_: int, block: Block) -> None:
        self.blocks[id_] = block
        for gone in self.cache.put(id_, block.nbytes):
            self.blocks.pop(gone, None)

    def remove_oldest(self, count: int) -> list[int]:
        """Forget trajectories; returns the ids whose files are to be deleted, by `delete`, without the lock."""
        records = self.index.records[:count]
        files = []
        for id_, folder in zip(records["id"].tolist(), records["folder"].tolist(), strict=True):
            self.blocks.pop(id_, None)
            self.cache.drop(id_)
            if folder == NOWHERE and self.writer is not None:
                self._doomed.add(id_)
            elif folder != NOWHERE and self.sources[folder].folder is self.own:
                files.append(id_)
        self.nbytes -= int(records["bytes"].sum())
        self.index.remove_oldest(count)
        if not len(self.index):
            self._signature, self._problems = None, {}
        return files

    def delete(self, ids: Sequence[int]) -> None:
        """Have files of the own directory deleted in the background, once nobody reads them."""
        if self.writer is not None and ids:
            self.writer.remove(ids)

    def _removed(self, ids: Sequence[int]) -> None:
        """The index names these no more: their files may go."""
        with self._gate:
            self._condemned += [(self._ticket, id_) for id_ in ids]
            self._unlink()

    def settle(self) -> None:
        """Wait until all is written, who reads now has done so, and the files of all that was removed are gone."""
        if self.writer is not None:
            self.writer.sync()
        with self._gate:
            now = self._ticket
        while True:
            with self._gate:
                if min(self._readers, default=now) >= now:
                    return self._unlink()
            time.sleep(0.001)

    def _unlink(self) -> None:
        oldest = min(self._readers, default=self._ticket)
        while self._condemned and self._condemned[0][0] <= oldest and self.own is not None:
            self.own.remove(file_name(self._condemned[0][1]))
            self._condemned.popleft()

    # Reading ---------------------------------------------------------------------------------------------------------

    def read(self, positions: Int64, rows: Int64, window: int) -> Reading:
        """Prepare to read rows of the trajectories at the given positions; to be run without the lock."""
        records = self.index.records
        for number in np.unique(records["layout"][positions]).tolist():
            self._raise_if_other(int(number), positions)
        return Reading(self, positions, rows, self._window_fits(window), self.begin_reading())

    def begin_reading(self) -> int:
        """Keep all files that are there now, until the reading with the returned ticket is done."""
        with self._gate:
            self._readers.add(self._ticket)
            self._ticket += 1
            return self._ticket - 1

    def done_reading(self, ticket: int) -> None:
        """Say that a reading is over."""
        # A file that cannot be deleted is tried again, and is no reader's affair.
        with self._gate, contextlib.suppress(StorageError):
            self._readers.discard(ticket)
            self._unlink()

    def keep(self, id_: int, block: Block) -> None:
        """Keep a trajectory that was read in the cache, if it has not been removed meanwhile."""
        if self._position(id_) is not None:
            self._keep(id_, block)

    def _position(self, id_: int) -> int | None:
        """Where a trajectory is. Ids mostly follow each other, so that the place is known without a search."""
        records = self.index.records
        position = len(records) - 1 - (int(records["id"][-1]) - id_) if len(records) else -1
        return position if position >= 0 and records["id"][position] == id_ else self.index.find(id_)

    def _window_fits(self, window: int) -> bool:
        first, _, _ = self.index.window(window)
        records = self.index.records[first:]
        return self.cache.holds(len(records), 0) and self.cache.holds(len(records), int(records["bytes"].sum()))

    # Layouts ---------------------------------------------------------------------------------------------------------

    def _number(self, layout: Layout) -> int:
        if layout not in self.layouts:
            self.layouts.append(layout)
        return self.layouts.index(layout)

    def _raise_if_other(self, number: int, positions: Int64) -> None:
        if number not in self._problems:
            self._problems[number] = difference(self._signature, signature_of(self.layouts[number]))
        problem = self._problems[number]
        if problem is not None:
            wanted, got, at = problem
            first = positions[self.index.records["layout"][positions] == number][0]
            where = f"trajectory {int(self.index.records['id'][first])}, {at}"
            raise SchemaError(message(wanted, got, where, "remove it, or load it into a buffer of its own"))

    def close(self) -> None:
        """Let go of all directories."""
        if self.catalog is not None:
            self.catalog.close()
        for source in self.sources:
            source.folder.close()
        self.sources = []


def signature_of(layout: Layout) -> Signature:
    """What trajectories have in common that can be drawn together: fields, dtypes and shapes."""
    return {column.path: (column.dtype, column.shape) for column in layout.columns}


def difference(wanted: Signature | None, given: Signature) -> tuple[str, str, str] | None:
    """The first field that is not as wanted: what was expected, what came, and where."""
    if wanted is None:
        return None
    for path in sorted(wanted.keys() | given.keys()):
        was, is_ = wanted.get(path), given.get(path)
        if was != is_:
            return _told(was), _told(is_), "$." + ".".join(path)
    return None


def _told(field: tuple[str, tuple[int, ...]] | None) -> str:
    if field is None:
        return "no such field"
    dtype, shape = field
    return f"`{dtype}` of shape `({', '.join(['T', 'B', *map(str, shape)])})`"
