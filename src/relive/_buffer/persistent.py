"""What of a buffer outlives it: saves, and copies."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base import check
from .._base.arrays import Memory
from .._base.types import Float32, Int64

if TYPE_CHECKING:
    from .._flow.limit import Limit
    from .._ring.ring import Ring
    from ..checkpoints._instant import Facts, Source
    from ..checkpoints._saving import Basis, Saved, Saver
    from ..items import Item
    from ..processes._link import Link
    from ..samplers import Index, Sampler
    from ..schema import Schema
    from ..storage import Storage
    from .adding import Adding
    from .turn import Turn


class Persistent:
    """The part of `ReplayBuffer` that saves and copies it."""

    schema: Schema
    item: Item
    sampler: Sampler
    storage: Storage
    rng: Any
    boundaries: float
    _ring: Ring
    _index: Index
    _adding: Adding
    _turn: Turn
    _of_sampler: Memory
    _limit: Limit | None
    _link: Link | None
    _slow_adds: Callable[[], int]

    def __init__(self) -> None:
        self._drawn = self._updates = self._stale = 0
        self._last_ids: Int64 = np.empty(0, np.int64)
        self._last_weights: Float32 = np.empty(0, np.float32)
        self._savers: dict[str, Saver] = {}  # by identity, of which there is one; `setdefault` is one step
        self._identity = os.urandom(16).hex()  # names this buffer and its copies in directories of saves

    def save(self, path: str | os.PathLike[str], *, keep: int = 1, wait: bool = True, verify: bool = False) -> Saved:
        """Save the buffer in a directory, for `relive.load`.

        Everything is saved: steps, open episodes, priorities, the clock of an `Anneal`, the generator, statistics.
        A second save in the same directory writes what is new since the first one, and the priorities. A save is
        complete or not there: whatever happens meanwhile, a kill or a loss of power included, `load` finds the last
        complete one.

        Of the files of earlier saves that this one uses again it compares sizes, headers and tables of checksums, and
        256 KiB of the data, other ones in each save. Where something is wrong it says so in the log, and writes all
        steps.

        Args:
            path: The directory; it is made if it does not exist. Only its owner can read what is written.
            keep: How many complete saves the directory keeps, >= 1. Those that are seen to be damaged do not count.
            wait: Whether to return when the save is complete. Otherwise a thread writes it; adding and drawing go on,
                and what is saved is this instant.
            verify: Whether to read all data of the files that are used again, in place of 256 KiB.

        Returns:
            What was written; with `wait=False` its `wait()` says when.

        Raises:
            StorageError: The directory cannot be written, is in use, or holds another buffer's saves.
            ArgumentError: An argument outside these limits, or a generator that is not NumPy's.
            ReliveError: Another process wrote to a `Shared` or `Mapped` buffer meanwhile. Earlier saves stay.

        >>> import relive, tempfile
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
        >>> buffer.save(tempfile.mkdtemp()).number
        1
        """
        from ..checkpoints._saving import Saver

        folder = check.path(path, "ReplayBuffer.save(path)")
        saver = self._savers.setdefault(self._identity, Saver(self._identity))
        return saver.save(self._source(), folder, keep, wait, verify)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # For `pickle` and `copy`: a copy in `Ram` that goes on like this buffer. `save` is faster, and smaller.
        from ..checkpoints._copying import copied, rebuilt

        return rebuilt, (type(self), copied(self._source(), self._identity))

    def _source(self) -> Source:
        from ..checkpoints._instant import Source

        return Source(
            schema=self.schema,
            item=self.item,
            sampler=self.sampler,
            storage=self.storage,
            ring=self._ring,
            boundaries=self.boundaries,
            memory=self._of_sampler,
            refresh=self._index.refresh,
            turn=self._turn,
            facts=self._facts,
            watch=self._adding.watch,
            limit=self._limit,
            unmoved=None if self._link is None else self._link.unmoved,
        )

    def _facts(self) -> Facts:
        from ..checkpoints._instant import Facts

        counts = {"drawn": self._drawn, "updates": self._updates, "stale_updates": self._stale}
        counts["slow_adds"] = self._slow_adds()
        return Facts(self.rng, counts, self._last_ids, self._last_weights)

    def _restore(self, facts: Facts) -> None:
        """Go on from what another buffer knew."""
        self._drawn, self._stale = facts.counts["drawn"], facts.counts["stale_updates"]
        self._updates = facts.counts["updates"]
        self._adding.parsed = facts.counts["slow_adds"]
        self._last_ids, self._last_weights = facts.last_ids, facts.last_weights

    def _continue(self, identity: str, basis: Basis) -> None:
        """Go on with the saves that this buffer was loaded from."""
        from ..checkpoints._saving import Saver

        self._identity, self._savers = identity, {identity: Saver(identity, basis)}

    def _rename(self) -> None:
        """Be another buffer than the one whose saves this one was loaded from."""
        self._identity, self._savers = os.urandom(16).hex(), {}
