"""One batch, from memory and from files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import _kernels
from .._memory import Arena
from .._types import Array, Int64
from ..errors import StorageError, event
from ._block import Block
from ._entry import Entry
from ._source import Request, Source
from .trajectory import Path


@dataclass(frozen=True)
class BatchRead:
    """Everything that reading one batch needs, collected while the store was locked; `run` needs no lock.

    Attributes:
        entries: The trajectories that were drawn, each once.
        blocks: Their rows in memory, None where they have to be read.
        sources: What reads their files, None where there is no file.
        which: For each row of the batch, the position of its trajectory in `entries`.
        rows: For each row of the batch, its row in that trajectory.
        arena: Where the batch's memory comes from.
        keep: Called with the id and block of a trajectory that was read whole; None to read single rows.
        done: Called at the end, whatever happened; files may be deleted from then on.
    """

    entries: Sequence[Entry]
    blocks: list[Block | None]
    sources: Sequence[Source | None]
    which: Int64
    rows: Int64
    arena: Arena
    keep: Callable[[int, Block], None] | None
    done: Callable[[], None]

    def run(self) -> dict[Path, Array]:
        """Return every field, `[n, ...]`."""
        try:
            columns = self.entries[0].layout.columns
            shapes = [((len(self.rows), *column.shape), column.dtype) for column in columns]
            outs = dict(zip((column.path for column in columns), self.arena.arrays(shapes), strict=True))
            missing = [k for k, block in enumerate(self.blocks) if block is None]
            if self.keep is not None:
                self._load(missing, self.keep)
            elif missing:
                self._read(missing, outs)
            self._scatter(outs)
            return outs
        finally:
            self.done()

    def _load(self, missing: list[int], keep: Callable[[int, Block], None]) -> None:
        for k in missing:
            entry, source = self.entries[k], self.sources[k]
            if source is not None:
                block = self.blocks[k] = source.block(entry)
                _check(entry, block, source.folder.path)
                keep(entry.id, block)

    def _read(self, missing: list[int], outs: dict[Path, Array]) -> None:
        order = np.argsort(self.which, kind="stable")
        bounds = np.searchsorted(self.which[order], np.arange(len(self.entries) + 1))
        requests: dict[Source, list[Request]] = defaultdict(list)
        for k in missing:
            source, targets = self.sources[k], order[bounds[k] : bounds[k + 1]]
            if source is not None:
                requests[source].append(Request(self.entries[k], self.rows[targets], targets))
        for source, wanted in requests.items():
            source.read(wanted, outs)

    def _scatter(self, outs: dict[Path, Array]) -> None:
        here = [block for block in self.blocks if block is not None]
        if not here:
            return
        numbers = np.cumsum([block is not None for block in self.blocks]) - 1
        numbers[[block is None for block in self.blocks]] = -1
        which = numbers[self.which]
        for path, out in outs.items():
            rows = [block.rows(path) for block in here]
            _kernels.active().scatter_rows(rows, which, self.rows, out)


def _check(entry: Entry, block: Block, at: str) -> None:
    """Refuse a file that disagrees with the index: rows are located by what the index says."""
    if (block.layout.columns, block.length, block.width) != (entry.layout.columns, entry.length, entry.width):
        raise StorageError(event(f"`trajectory_{entry.id}` has other fields or another shape than its index entry", at))
