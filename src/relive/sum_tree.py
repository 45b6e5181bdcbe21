"""relive.SumTree: sums, prefix search and the minimum over an array of priorities."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ._base import memory as _memory
from ._base.check import unmasked
from ._base.narrow import first
from ._base.types import Float64 as Float64s
from ._base.types import Int64 as Int64s
from ._ring import kernels
from .errors import ArgumentError, NotEnoughData, PriorityError, message

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_FAN_OUT = 8
# How far a prefix may lie above the total: what computing it as (i + u) * (total / n) can add by rounding.
_ROUNDING = 1e-12


# Entries of a tree's state; see `Tree` in `_ring/kernels_numpy/tree.py`.
STATE = 5


def lengths(capacity: int) -> list[int]:
    """Return the number of entries of each level, the leaves first."""
    found: list[int] = []
    groups = capacity
    while not found or groups > 1:
        groups = -(-groups // _FAN_OUT)
        found.append(groups * _FAN_OUT)
    return found


def size(capacity: int) -> int:
    """Return the float64 numbers in a tree over `capacity` leaves: 10.3 bytes a leaf."""
    levels = lengths(capacity)
    return sum(levels) + sum(levels[1:])


def carve(memory: Float64s, capacity: int) -> tuple[list[Float64s], list[Float64s]]:
    """Split one array into the sums of every level and the minima of all but the leaves', as kernels take them."""
    levels = lengths(capacity)
    ends = np.cumsum([*levels, *levels[1:]]).tolist()
    parts = [memory[end - length : end] for end, length in zip(ends, [*levels, *levels[1:]], strict=True)]
    return parts[: len(levels)], parts[len(levels) :]


def allocate(capacity: int) -> tuple[list[Float64s], list[Float64s], Float64s]:
    """Allocate the arrays of an empty tree: sums a level, minima a level, and the state.

    Zeros are an empty tree, so no page is touched here.
    """
    sums, mins = carve(_memory.zeros(size(capacity), np.float64), capacity)
    state = np.zeros(STATE)
    state[1] = math.inf
    return sums, mins, state


class SumTree:
    """An array of priorities that answers "which leaf holds this share of the total" in logarithmic time.

    The structure behind proportional prioritized replay (Schaul et al. 2016, "Prioritized Experience Replay",
    arXiv:1511.05952, appendix B.2.1), with three differences from the usual binary one:

    * Every node has eight children, one cache line: a million leaves are 7 levels deep instead of 20, and it is the
      number of lines touched that costs time. The leaves stand in order for any capacity.
    * A node is recomputed from its children, in float64, never adjusted by a difference: no rounding error is left
      behind, however many updates there were and however large the values had been.
    * The search is half-open: leaf `i` answers to prefixes from the sum before it up to, and excluding, the sum with
      it. A leaf of 0 is therefore never found, not even by rounding.

    A positive leaf below 2**-53 of the leaves beside it adds nothing to their sum and is practically never found.
    Changes are for one thread at a time.

    Args:
        capacity: Number of leaves, at least 1; all start at 0. Takes 10.3 bytes a leaf, when they are first written.

    Raises:
        ArgumentError: If the capacity is not a positive integer.

    >>> tree = SumTree(5)
    >>> tree.set([0, 2, 4], [1.0, 3.0, 2.0])
    >>> tree.total, tree.min
    (6.0, 1.0)
    >>> tree.find([0.0, 1.0, 3.5, 4.0])
    array([0, 2, 2, 4])
    >>> tree[2]
    3.0
    """

    def __init__(self, capacity: int) -> None:
        whole = isinstance(capacity, (int, np.integer)) and not isinstance(capacity, bool)
        if not whole or not 1 <= capacity < 2**48:
            raise ArgumentError(message("an integer from 1 to 2**48", f"`{capacity!r}`", "SumTree(capacity)"))
        self._capacity = int(capacity)
        # The total of as many leaves of this size is still finite.
        self._largest = sys.float_info.max / self._capacity
        try:
            sums, mins, self._state = allocate(self._capacity)
        except MemoryError as error:
            expected = f"a capacity that fits in memory (10.3 bytes a leaf; {_memory.available_bytes()} bytes)"
            raise ArgumentError(message(expected, f"`{capacity}`", "SumTree(capacity)")) from error
        self._leaves = sums[0][: self._capacity]
        self._tree: Any = kernels.active().Tree(sums, mins, self._state)

    def __repr__(self) -> str:
        return f"SumTree(capacity={self._capacity}, total={self.total:g})"

    def __len__(self) -> int:
        """Number of leaves."""
        return self._capacity

    @property
    def capacity(self) -> int:
        """Number of leaves."""
        return self._capacity

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        return float(self._state[0])

    @property
    def min(self) -> float:
        """Smallest positive leaf; inf if there is none."""
        return float(self._state[1])

    @property
    def values(self) -> Float64s:
        """All leaves, float64 `[capacity]`: a read-only view that follows later changes."""
        view = self._leaves.view()
        view.flags.writeable = False
        return view

    def set(self, indices: ArrayLike, values: ArrayLike) -> None:
        """Write leaves.

        Args:
            indices: Which leaves: an integer or integers of any shape. The last of several values for one leaf counts.
            values: Finite and not negative, one for each index, or one for all.

        Raises:
            ArgumentError: If an index is not an integer or out of range. Nothing has changed then.
            PriorityError: If a value is NaN, infinite, negative or so large that the total could overflow, or if there
                are not as many values as indices. Nothing has changed then.

        >>> tree = SumTree(3)
        >>> tree.set(1, 0.5)
        >>> tree.values
        array([0. , 0.5, 0. ])
        """
        where = self._check_indices(indices, "SumTree.set(indices)").reshape(-1)
        self._tree.set(where, self._check_values(values, np.shape(indices)))

    @overload
    def find(self, prefix: float) -> int: ...
    @overload
    def find(self, prefix: ArrayLike) -> Int64s: ...
    def find(self, prefix: ArrayLike) -> int | Int64s:
        """Find the leaf in whose share of the total a prefix lies: the first whose sum with all before it exceeds it.

        Args:
            prefix: Number or numbers in `[0, total]`. The total itself (and what rounding puts just above it) gives
                the last positive leaf.

        Returns:
            The leaf's index, an `int` for a number, else int64 of the shape of `prefix`. Its leaf is never 0.

        Raises:
            NotEnoughData: If every leaf is 0.
            ArgumentError: If a prefix is NaN or lies outside.

        >>> tree = SumTree(3)
        >>> tree.set([0, 1, 2], [1.0, 0.0, 2.0])
        >>> tree.find(1.0)
        2
        """
        if not self._state[0] > 0.0:
            raise NotEnoughData(message("at least 1 positive leaf", "0", "SumTree.find", "set some values first"))
        unmasked(prefix, "SumTree.find(prefix)", ArgumentError)
        try:
            wanted = np.asarray(prefix)
            if wanted.dtype.kind not in "fiu" and wanted.size:
                raise TypeError
            target = wanted.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ArgumentError(message("numbers", f"`{prefix!r}`", "SumTree.find(prefix)")) from error
        good = (target >= 0.0) & (target <= self.total * (1.0 + _ROUNDING))
        if not good.all():
            at, got = first(~good, target)
            expected = f"a prefix in [0, {self.total:g}]"
            raise ArgumentError(message(expected, got, f"SumTree.find(prefix){at}"))
        found: Int64s = self._tree.find(np.ascontiguousarray(target).reshape(-1))[0]
        return int(found[0]) if target.ndim == 0 else found.reshape(target.shape)

    @overload
    def get(self, indices: int) -> float: ...
    @overload
    def get(self, indices: ArrayLike) -> Float64s: ...
    def get(self, indices: ArrayLike) -> float | Float64s:
        """Return the leaves at `indices`: a `float` for an integer, else float64 of the shape of `indices`.

        Raises:
            ArgumentError: If an index is not an integer or out of range.

        >>> SumTree(3).get([0, 2])
        array([0., 0.])
        """
        where = self._check_indices(indices, "SumTree.get(indices)")
        return float(self._leaves[where]) if where.ndim == 0 else self._leaves[where]

    @overload
    def __getitem__(self, indices: int) -> float: ...
    @overload
    def __getitem__(self, indices: ArrayLike) -> Float64s: ...
    def __getitem__(self, indices: ArrayLike) -> float | Float64s:
        """Return `self.get(indices)`."""
        return self.get(indices)

    def _check_indices(self, indices: ArrayLike, at: str) -> Int64s:
        """Check `indices`, and convert them to int64."""
        unmasked(indices, at, ArgumentError)
        try:
            where = np.asarray(indices)
        except ValueError as error:
            raise ArgumentError(message("integers", "a ragged nest of lists", at)) from error
        if where.size == 0:
            return where.astype(np.int64)
        if where.dtype.kind not in "iu":
            raise ArgumentError(message("integers", f"`{where.dtype}`", at))
        good = (where >= 0) & (where < self._capacity)
        if not good.all():
            position, got = first(~good, where)
            raise ArgumentError(message(f"an index in [0, {self._capacity})", got, at + position))
        return np.ascontiguousarray(where, np.int64).reshape(where.shape)

    def _check_values(self, values: ArrayLike, shape: tuple[int, ...]) -> Float64s:
        """Check that `values` are legal leaves, one for each index, and convert them to float64 `[n]`."""
        at = "SumTree.set(values)"
        unmasked(values, at, PriorityError)
        try:
            given = np.asarray(values)
            if given.dtype.kind not in "fiu" and given.size:
                raise TypeError
            numbers = given.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise PriorityError(message("numbers", f"`{values!r}`", at)) from error
        if numbers.ndim and numbers.shape != shape:
            raise PriorityError(message(f"values of shape `{shape}` or one number", f"shape `{numbers.shape}`", at))
        good = (numbers >= 0.0) & (numbers <= self._largest)
        if not good.all():
            position, got = first(~good, numbers)
            raise PriorityError(message(f"a finite value in [0, {self._largest:g}]", got, at + position))
        return np.ascontiguousarray(np.broadcast_to(numbers, shape)).reshape(-1)
