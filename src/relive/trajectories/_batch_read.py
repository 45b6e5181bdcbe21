"""One batch, from wherever its rows are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _kernels
from .._types import Array, Int64
from ..errors import StorageError, message
from ._block import Block
from ._index import NOWHERE
from ._source import Files, Request
from .trajectory import Path

if TYPE_CHECKING:
    from ._store import Store


class Reading:
    """What a batch needs, taken down while the store was locked; nothing of it can go before `run` is over."""

    def __init__(self, store: Store, positions: Int64, rows: Int64, fits: bool, ticket: int) -> None:
        self._store, self._rows, self._ticket = store, rows, ticket
        found, self._of = np.unique(positions, return_inverse=True)
        self._records = store.index.records[found].copy()
        self._blocks: list[Block | None] = [store.blocks.get(id_) for id_ in self._records["id"].tolist()]
        self._layouts = [store.layouts[number] for number in self._records["layout"].tolist()]
        self._sources = [None if number == NOWHERE else store.sources[number] for number in self._records["folder"]]
        # A window that fits in the cache is read whole, once.
        self._whole = fits

    def run(self) -> dict[Path, Array]:
        """Return every field, `[n, ...]`."""
        store = self._store
        try:
            columns = self._layouts[0].columns
            shapes = [((len(self._rows), *column.shape), column.dtype) for column in columns]
            outs = dict(zip((column.path for column in columns), store.arena.arrays(shapes), strict=True))
            missing = [k for k, block in enumerate(self._blocks) if block is None]
            self._load(missing) if self._whole else self._read(missing, outs)
            self._scatter(outs)
            return outs
        finally:
            store.done_reading(self._ticket)

    def _load(self, missing: list[int]) -> None:
        for k in missing:
            source = self._sources[k]
            if source is not None:
                block = self._blocks[k] = source.block(self._records[k])
                self._check(k, block)
                with self._store.lock:
                    self._store.keep(int(self._records[k]["id"]), block)

    def _check(self, k: int, block: Block) -> None:
        """Rows are found by what the index says, so the file must say the same."""
        record = self._records[k]
        known = (self._layouts[k].columns, int(record["length"]), int(record["width"]))
        if (block.layout.columns, block.length, block.width) != known:
            got, at = "other fields, or of another shape", f"trajectory {int(record['id'])}"
            raise StorageError(message("a trajectory as the index knows it", got, at))

    def _read(self, missing: list[int], outs: dict[Path, Array]) -> None:
        if not missing:
            return
        order = np.argsort(self._of, kind="stable")
        bounds = np.searchsorted(self._of[order], np.arange(len(self._records) + 1))
        requests: dict[Any, list[Request]] = defaultdict(list)
        for k in missing:
            places = order[bounds[k] : bounds[k + 1]]
            request = Request(self._records[k], self._layouts[k], self._rows[places], places)
            requests[self._sources[k]].append(request)
        for source, wanted in requests.items():
            if isinstance(source, Files):
                source.batch(wanted, outs)
                continue
            for request in wanted:
                source.rows(*request, outs)

    def _scatter(self, outs: dict[Path, Array]) -> None:
        here = [block for block in self._blocks if block is not None]
        if not here:
            return
        numbers = np.cumsum([block is not None for block in self._blocks]) - 1
        numbers[[block is None for block in self._blocks]] = -1
        which = numbers[self._of]
        for path, out in outs.items():
            rows = [block.rows(path) for block in here]
            _kernels.active().scatter_rows(rows, which, self._rows, out)
