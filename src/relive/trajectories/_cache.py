"""Which trajectories on disk are kept in memory, too."""

from __future__ import annotations

from collections import OrderedDict


class Cache:
    """A first-in, first-out list of ids, bounded in number and in bytes."""

    def __init__(self, size: int, nbytes: int) -> None:
        self.size, self.nbytes = size, nbytes
        self.ids: OrderedDict[int, int] = OrderedDict()
        self.used = 0

    def put(self, id_: int, nbytes: int) -> list[int]:
        """Keep a trajectory; returns the ids to drop for it, possibly its own. A known id keeps its position."""
        if id_ not in self.ids:
            self.ids[id_] = nbytes
            self.used += nbytes
        dropped = []
        while len(self.ids) > self.size or self.used > self.nbytes:
            oldest, count = self.ids.popitem(last=False)
            self.used -= count
            dropped.append(oldest)
        return dropped

    def drop(self, id_: int) -> None:
        """Remove a trajectory."""
        self.used -= self.ids.pop(id_, 0)

    def fits(self, count: int, nbytes: int) -> bool:
        """Whether so many trajectories of so many bytes in total fit at once."""
        return count <= self.size and nbytes <= self.nbytes
