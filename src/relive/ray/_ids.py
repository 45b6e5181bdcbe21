"""Ids over all shards, and in one of them.

Lane `l` is in shard `l % shards`. An id of the whole has the shard's *life*, which counts how often its actor was
started, above the row: `((life << 36) + row) * num_envs + lane`. In the first life that is the id of one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._base.types import Bool, Int64

ROW_BITS = 36
_ROWS = (1 << ROW_BITS) - 1


def lanes_in(shard: int, shards: int, num_envs: int) -> Int64:
    """Return the lanes of a shard."""
    return np.arange(shard, num_envs, shards)


def most_lives(num_envs: int) -> int:
    """Return how many lives ids have room for."""
    return (1 << (63 - ROW_BITS)) // num_envs


class Ids:
    """The ids of the steps of one shard's buffer.

    A buffer that comes back from a save goes on in a new life, at the row that the save ended with. The steps that were
    lost have the same rows in the life before: their ids name nothing.

    Args:
        lanes: The lane of the whole that each lane of the buffer is, `[L]`.
        num_envs: Lanes of the whole.
        lives: The lives that the buffer's rows come from, the oldest first.
        firsts: The first row of each lane in each of them, `[lives, L]`.
    """

    def __init__(self, lanes: Int64, num_envs: int, lives: Sequence[int], firsts: Int64) -> None:
        self.lanes, self._num_envs = np.asarray(lanes, np.int64), num_envs
        self._local = np.full(num_envs, -1, np.int64)
        self._local[self.lanes] = np.arange(len(self.lanes))
        self.lives, self.firsts = np.asarray(lives, np.int64), np.asarray(firsts, np.int64)

    @classmethod
    def new(cls, lanes: Int64, num_envs: int, life: int = 0) -> Ids:
        """Make those of an empty buffer."""
        return cls(lanes, num_envs, [life], np.zeros((1, len(lanes)), np.int64))

    @property
    def life(self) -> int:
        """The life that new steps belong to."""
        return int(self.lives[-1])

    def reborn(self, life: int, next_rows: Int64) -> Ids:
        """Make those of the same buffer, back from a save with each lane up to `next_rows`, in a new life."""
        # A life that began after the save has left nothing.
        firsts = np.minimum(self.firsts, next_rows)
        return Ids(self.lanes, self._num_envs, [*self.lives, life], np.concatenate([firsts, next_rows[None]]))

    def local(self, lanes: Int64) -> Int64:
        """Return the buffer's lanes for these lanes of the whole."""
        return self._local[lanes]

    def outer(self, ids: Int64) -> Int64:
        """Return the ids of steps that have `ids` in the buffer."""
        rows, lanes = np.divmod(ids, len(self.lanes))
        if len(self.lives) == 1:
            lives: Any = self.lives[0]
        else:
            lives = self.lives[np.count_nonzero(self.firsts[:, lanes] <= rows, axis=0) - 1]
        return np.asarray(((lives << ROW_BITS) + rows) * self._num_envs + self.lanes[lanes])

    def inner(self, ids: Int64, next_rows: Int64) -> tuple[Int64, Bool]:
        """Return the buffer's own ids for those of `ids` that it has issued, and which these are; refuse nothing.

        Args:
            ids: Of the whole.
            next_rows: The row that each of the buffer's lanes writes next.
        """
        above, lanes = np.divmod(ids, self._num_envs)
        lives, rows, local = above >> ROW_BITS, above & _ROWS, self._local[lanes]
        at = np.minimum(np.searchsorted(self.lives, lives), len(self.lives) - 1)
        ends = np.concatenate([self.firsts[1:], next_rows[None]])
        known = (ids >= 0) & (local >= 0) & (self.lives[at] == lives)
        known &= (rows >= self.firsts[at, local]) & (rows < ends[at, local])
        return (rows * len(self.lanes) + local)[known], known
