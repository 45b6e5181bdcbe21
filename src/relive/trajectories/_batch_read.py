"""One batch, from memory and from files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .. import _kernels
from .._memory import Arena
from .._types import Array, Int64
from ..errors import StorageError, event
from ._block import Block
from ._entry import Entry
from ._layout import Column
from ._source import Request, Source
from .trajectory import Path


class Missing(NamedTuple):
    """A trajectory that is not in memory, and what reads its file."""

    entry: Entry
    source: Source


@dataclass(frozen=True)
class BatchRead:
    """Everything that reading one batch needs, collected while the store was locked; `run` needs no lock.

    Attributes:
        columns: The fields of a batch.
        blocks: The trajectories that were drawn, each once; None for one that is not in memory.
        missing: Those that are not in memory, by their position in `blocks`.
        which: For each row of the batch, the position of its trajectory in `blocks`.
        rows: For each row of the batch, its row in that trajectory.
        arena: Where the batch's memory comes from.
        keep: Called with the id and block of a trajectory that was read whole; None to read single rows.
        done: Called at the end, whatever happened; files may be deleted from then on.
    """

    columns: Sequence[Column]
    blocks: list[Block | None]
    missing: Mapping[int, Missing]
    which: Int64
    rows: Int64
    arena: Arena
    keep: Callable[[int, Block], None] | None
    done: Callable[[], None]

    def run(self) -> dict[Path, Array]:
        """Return every field, `[n, ...]`."""
        try:
            shapes = [((len(self.rows), *column.shape), column.dtype) for column in self.columns]
            outs = dict(zip((column.path for column in self.columns), self.arena.arrays(shapes), strict=True))
            if self.keep is not None:
                self._load(self.keep)
            elif self.missing:
                self._read(outs)
            self._scatter(outs)
            return outs
        finally:
            self.done()

    def _load(self, keep: Callable[[int, Block], None]) -> None:
        for k, (entry, source) in self.missing.items():
            block = self.blocks[k] = source.block(entry)
            _check(entry, block, source.folder.path)
            keep(entry.id, block)

    def _read(self, outs: dict[Path, Array]) -> None:
        order = np.argsort(self.which, kind="stable")
        bounds = np.searchsorted(self.which[order], np.arange(len(self.blocks) + 1))
        requests: dict[Source, list[Request]] = defaultdict(list)
        for k, (entry, source) in self.missing.items():
            targets = order[bounds[k] : bounds[k + 1]]
            requests[source].append(Request(entry, self.rows[targets], targets))
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
