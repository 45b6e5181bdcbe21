"""Copying rows of columns."""

from __future__ import annotations

from collections.abc import Sequence

from .._plans import Expanded
from .._types import Array, Float32, Int64
from .rows import Rows


class Gather:
    """Copies rows of many columns into output arrays; `picks[i]` names the list of rows that column `i` takes."""

    def __init__(self, columns: Sequence[Array], picks: Sequence[int]) -> None:
        self._columns = list(columns)
        self._picks = list(picks)

    def take(self, rows: Sequence[Int64], outs: Sequence[Array]) -> None:
        """Fill `outs[i]` with the storage rows `rows[picks[i]]` of column `i`."""
        for column, pick, out in zip(self._columns, self._picks, outs, strict=True):
            out[...] = column[rows[pick]]

    def expand(self, ring: Rows, slots: Int64, discounts: Float32, outs: list[Array] | None) -> Expanded:
        """The windows at `slots`, and the rows of anchors and successors in `outs` or in new arrays."""
        windows = ring.windows(slots, discounts)
        rows = [windows.at, windows.after]
        if outs is None:
            outs = self.taken(rows)
        else:
            self.take(rows, outs)
        return Expanded(windows, outs)

    def taken(self, rows: Sequence[Int64]) -> list[Array]:
        """The same in new arrays."""
        return [column[rows[pick]] for column, pick in zip(self._columns, self._picks, strict=True)]
