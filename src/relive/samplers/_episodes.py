"""Every episode equally likely: the drawable items, filed under the episode that they lie in."""

from __future__ import annotations

import numpy as np

from .. import _memory
from .._ring import Ring
from .._types import Float64, Int64


class Episodes:
    """The items of an episode are an arithmetic progression of places, which grows behind and shrinks in front.

    So an episode is its first place and a count, whatever its length. Episodes in use are packed into the front of one
    array; each has a *file*, a number that stays the same while it lives.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring, self._capacity = ring, ring.capacity
        self._spacing = ring.lanes * ring.anchors.starts
        dtype = np.dtype(np.int32 if self._capacity < 2**31 else np.int64)
        # The file of every place (0: none; they count from 1), then what is known of every file.
        self._file_of = _memory.zeros((self._capacity,), dtype)
        self._first, self._count, self._where, self._order, self._free = (
            _memory.zeros((self._capacity + 1,), dtype) for _ in range(5)
        )
        self._episodes = self._made = self._freed = self._items = 0

    listener = None

    @property
    def drawable(self) -> int:
        """Items in all episodes."""
        return self._items

    def change(self, removed: Int64, added: Int64) -> None:
        """Forget `removed`, the oldest items of their episodes, then know `added`."""
        if len(removed):
            self._take_away(removed)
        if len(added):
            self._file(added)
        self._items += len(added) - len(removed)

    def draw(self, uniforms: Float64) -> Int64:
        """The whole part of a uniform, stretched over the episodes, names one of them; the rest an item in it."""
        stretched = uniforms * self._episodes
        which = np.minimum(stretched.astype(np.int64), self._episodes - 1)
        files = self._order[which]
        counts = self._count[files].astype(np.int64)
        item = np.minimum(((stretched - which) * counts).astype(np.int64), counts - 1)
        places: Int64 = (self._first[files] + item * self._spacing) % self._capacity
        return places

    def _take_away(self, places: Int64) -> None:
        """The oldest items of their episodes go."""
        files, counts = np.unique(self._file_of[places], return_counts=True)
        self._file_of[places] = 0
        self._first[files] = (self._first[files] + counts * np.int64(self._spacing)) % self._capacity
        self._count[files] -= counts.astype(self._count.dtype)
        empty = files[self._count[files] == 0]
        if not len(empty):
            return
        # The last episodes of the packed array move into the gaps of those that are gone.
        left = self._episodes - len(empty)
        gaps = self._where[empty]
        tail = self._order[left : self._episodes]
        movers = tail[self._count[tail] > 0]
        holes = gaps[gaps < left]
        self._order[holes], self._where[movers] = movers, holes
        self._free[self._freed : self._freed + len(empty)] = empty
        self._freed += len(empty)
        self._episodes = left

    def _file(self, places: Int64) -> None:
        """New items join their episode's file, behind its newest; the first of an episode opens one."""
        before = (places - self._spacing) % self._capacity
        begins = self._ring.begin_since(places, self._ring.anchors.starts)
        chained = np.zeros(len(places), bool)
        chained[1:] = (places[:-1] == before[1:]) & ~begins[1:]
        heads = np.flatnonzero(~chained)
        files = np.where(begins[heads], 0, self._file_of[before[heads]]).astype(np.int64)
        opened = files == 0
        files[opened] = self._open(places[heads[opened]])
        self._file_of[places] = files[np.cumsum(~chained) - 1]
        self._count[files] += np.diff(np.append(heads, len(places))).astype(self._count.dtype)

    def _open(self, first: Int64) -> Int64:
        again = min(self._freed, len(first))
        self._freed -= again
        fresh = np.arange(self._made + 1, self._made + 1 + len(first) - again)
        files = np.concatenate([self._free[self._freed : self._freed + again].astype(np.int64), fresh])
        self._made += len(fresh)
        self._first[files], self._count[files] = first, 0
        self._where[files] = np.arange(self._episodes, self._episodes + len(files))
        self._order[self._episodes : self._episodes + len(files)] = files
        self._episodes += len(files)
        return files
