"""A caller's work on batches, and the random numbers that each batch gives it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from .._base.types import UInt32
from ..batch import Batch
from ..errors import ArgumentError, ReliveError, event, message

Change: TypeAlias = Callable[[Batch, np.random.Generator], Batch]

_WORDS = 8


class Transform:
    """Applies a function `change(batch, rng) -> batch`, or nothing where there is none.

    A batch's `rng` comes from the numbers that its draw is about to use, so whatever repeats the draw repeats `rng`,
    too, and saves need no more than the generator. Draws take none of these numbers less or more.

    Args:
        change: The function, or None.
        at: The name of the argument, for errors.

    Raises:
        ArgumentError: It cannot be called.
    """

    def __init__(self, change: Change | None, at: str) -> None:
        if change is not None and not callable(change):
            several = isinstance(change, list | tuple)
            remedy = "write one function that calls the others in their order" if several else None
            got = f"`{type(change).__name__}`"
            raise ArgumentError(message("a function `f(batch, rng)` that returns a batch, or None", got, at, remedy))
        self._change, self._at = change, at

    def seed(self, *rngs: object) -> UInt32:
        """Return the seed of the next batch's `rng`, uint32 `[8 * len(rngs)]`; empty if there is no function.

        Raises:
            ArgumentError: One of `rngs`, the generators of the draw, is not a generator of NumPy's.
        """
        if self._change is None:
            return np.empty(0, np.uint32)
        numbers = []
        for rng in rngs:
            if not isinstance(rng, np.random.Generator):
                got = f"`{type(rng).__name__}`"
                raise ArgumentError(message("draws by a `numpy.random.Generator`", got, self._at))
            numbers.append(copy.deepcopy(rng).integers(2**32, size=_WORDS, dtype=np.uint32))
        return np.concatenate(numbers)

    def __call__(self, batch: Batch, seed: UInt32) -> Batch:
        """Apply the function to `batch`.

        Raises:
            ArgumentError: It returns something else.
            ReliveError: It raises `StopIteration`, which would look like the end of the batches.
        """
        if self._change is None:
            return batch
        try:
            made = self._change(batch, np.random.default_rng(seed))
        except StopIteration as error:
            raise ReliveError(event("The function raised `StopIteration`", self._at)) from error
        wanted = Batch if isinstance(batch, Batch) else type(batch)
        if not isinstance(made, wanted):
            remedy = "return `relive.Batch({**batch, name: values})`" if wanted is Batch else None
            got = f"`{type(made).__name__}`"
            raise ArgumentError(message(f"a function that returns a `{wanted.__name__}`", got, self._at, remedy))
        return made
