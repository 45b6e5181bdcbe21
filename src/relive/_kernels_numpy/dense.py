"""A set of integers that can be drawn from uniformly: a dense list, and where in it each member stands."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


class Dense:
    """A set of integers below a capacity over arrays that the caller owns; every input is valid already.

    Args:
        order: `[capacity]`, int32 or int64; the members, in no particular order, stand first.
        where: Like `order`: the position in `order` of each member.
        state: int64 `[1]`: number of members.
    """

    def __init__(self, order: NDArray[Any], where: NDArray[Any], state: Int64s) -> None:
        self._order = order
        self._where = where
        self._state = state

    def change(self, removed: Int64s, added: Int64s) -> None:
        """Take out members, the last one filling each gap, then append `added`, none of which may be a member."""
        order, where = self._order, self._where
        size = int(self._state[0])
        for member in removed.tolist():
            size -= 1
            last = order[size]
            gap = where[member]
            order[gap] = last
            where[last] = gap
        end = size + len(added)
        order[size:end] = added
        where[added] = np.arange(size, end)
        self._state[0] = end

    def draw(self, u: NDArray[np.float64]) -> Int64s:
        """Members at random, from uniforms in [0, 1)."""
        size = int(self._state[0])
        return self._order[np.minimum((u * size).astype(np.int64), size - 1)].astype(np.int64)

    def draw_distinct(self, u: NDArray[np.float64]) -> Int64s:
        """Different members at random, at most all: the first steps of a Fisher-Yates shuffle in place."""
        order, where = self._order, self._where
        size = int(self._state[0])
        for i, uniform in enumerate(u.tolist()):
            left = size - i
            j = i + min(int(uniform * left), left - 1)
            order[i], order[j] = order[j], order[i]
            where[order[j]] = j
            where[order[i]] = i
        return self._order[: len(u)].astype(np.int64)
