"""Windows of steps that have discounts of their own: a schema with the field `discount`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from .._base.memory import Arena
from .._base.types import Array, Float64, Int64
from .._ring.ring import Ring
from ..schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._protocol import Expander, Fields

# Under which the item finds the field, since its own discounts have the name. No field of a user's begins like this.
_NAME = "_discount"


class Folding(Protocol):
    """An item whose windows have up to `n_step` steps."""

    @property
    def n_step(self) -> int:
        """Steps of the longest window."""

    @property
    def gamma(self) -> float:
        """Discount per step."""


T = TypeVar("T", bound=Folding)


def bound(
    make: Callable[[T, Schema, Ring, Arena], Expander],
    item: T,
    schema: Schema,
    ring: Ring,
    arena: Arena,
    firsts: str = "ids",
    shown: bool = True,
) -> Expander:
    """Bind an item by `make`; wrap its expander where steps have discounts of their own.

    Args:
        make: Makes it.
        item: The item.
        schema: The fields of a step.
        ring: Where they are.
        arena: Memory for large batches.
        firsts: The field with the ids of the steps that windows start at.
        shown: Whether batches have that field.
    """
    if schema.discount is None:
        return make(item, schema, ring, arena)
    inner = copy.copy(schema)
    inner.columns = tuple(Column((_NAME,), c.field) if c.keys == ("discount",) else c for c in schema.columns)
    return _Discounted(item, make(item, inner, ring, arena), schema, ring, firsts, shown)


def folded(rewards: Array, factors: Float64, steps: Int64, longest: int) -> tuple[Array, Float64]:
    """Fold the discounted rewards of windows, and the products of their factors.

    Args:
        rewards: Of the steps in their order, `[B, T + longest - 1, ...]`: a window starts at each of the first T.
        factors: By what each step discounts all that comes after it, likewise.
        steps: How many steps each window has, `[B, T]`.
        longest: The most that it may have.
    """
    windows, wide = steps.shape[1], (*steps.shape, *[1] * (rewards.ndim - 2))
    sums, products = np.zeros((*steps.shape, *rewards.shape[2:])), np.ones(steps.shape)
    with np.errstate(invalid="ignore", over="ignore"):  # of what is behind a window
        for age in range(longest):
            inside, here = age < steps, (slice(None), slice(age, age + windows))
            np.add(sums, products.reshape(wide) * rewards[here], out=sums, where=inside.reshape(wide))
            np.multiply(products, factors[here], out=products, where=inside)
    return sums, products


class _Discounted:
    """Folds the windows of an item by `gamma` times the discount of each step, in place of `gamma` alone."""

    def __init__(self, item: Folding, inner: Expander, schema: Schema, ring: Ring, firsts: str, shown: bool) -> None:
        self._item, self._inner, self._ring, self._rewards = item, inner, ring, schema.reward
        self._firsts, self._shown, self._time_major = firsts, shown, getattr(item, "time_major", False)
        own = next(array for c, array in zip(schema.columns, ring.columns, strict=True) if c.keys == ("discount",))
        self._gather = ring.gather([own, ring.reward], [0, 0])

    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the items that start at `slots`."""
        fields = self._inner.expand(slots, rng)
        factors = self._item.gamma * fields.pop(_NAME).astype(np.float64)
        if self._item.n_step > 1:
            fields["reward"], factors = self._folded(fields[self._firsts], fields["steps"])
        if not self._shown:
            del fields[self._firsts]
        # 0 stays 0: there is nothing to bootstrap from.
        fields["discount"] = np.where(fields["discount"] != 0, factors, 0.0).astype(np.float32)
        return fields

    def _folded(self, firsts: Int64, steps: Int64) -> tuple[Array, Float64]:
        """Fold the rewards and factors of windows of so many steps that start at `firsts`."""
        ids, each = (array.T if self._time_major else array.reshape(len(array), -1) for array in (firsts, steps))
        lanes, longest = self._ring.lanes, self._item.n_step
        # Steps of one window follow each other. What is behind it is read, whatever it is, and not used.
        listed = np.concatenate([ids, ids[:, -1:] + np.arange(1, longest) * lanes], axis=1)
        at = self._ring.storage(listed // lanes, listed % lanes)
        own, rewards = self._gather.taken([at.reshape(-1)])
        factors = self._item.gamma * own.reshape(at.shape).astype(np.float64)
        sums, products = folded(rewards.reshape(*at.shape, *self._rewards.shape), factors, each, longest)
        sums = sums.astype(self._rewards.dtype)
        if self._time_major:
            return np.ascontiguousarray(sums.swapaxes(0, 1)), products.T
        return sums.reshape(*steps.shape, *self._rewards.shape), products.reshape(steps.shape)
