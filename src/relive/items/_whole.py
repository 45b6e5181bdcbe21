"""Additions to sequences: whole episodes, extras of later steps, batches as long as their longest item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.memory import Arena
from .._base.nests import nested, paths
from .._base.types import Array, Bool, Int64
from .._base.warned import warn
from .._ring.ring import Ring
from ..errors import event
from ..schema import Schema

if TYPE_CHECKING:
    from ._protocol import Expander, Fields


class Whole:
    """Adds to what sequences expand to.

    Args:
        item: `Sequences(...)`.
        inner: Its expander.
        schema: The fields of a step.
        ring: Where they are.
        arena: Memory for large batches.
    """

    def __init__(self, item: Any, inner: Expander, schema: Schema, ring: Ring, arena: Arena) -> None:
        self._item, self._inner, self._ring = item, inner, ring
        shown = [(c, array) for c, array in zip(schema.columns, ring.columns, strict=True) if c.keys[0] in item.ahead]
        self._keys = [(f"next_{column.keys[0]}", *column.keys[1:]) for column, _ in shown]
        self._gather = ring.gather([array for _, array in shown], [0] * len(shown))
        self._offsets = np.arange(item.length + item.burn_in) - item.burn_in + item.n_step
        # Fields without an axis of time.
        self._timeless = {c.keys for c in schema.columns if c.field.every} | {("ids",)}
        self._timeless |= set() if "first" in schema.tree else {("first",)}
        self._told = False

    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the sequences that start at `slots`."""
        fields = self._inner.expand(slots, rng)
        mask = fields["mask"] if self._item.time_major is False else fields["mask"].T
        if self._keys:
            ids = fields.pop("ids")
            fields |= nested(zip(self._keys, self._ahead(slots, mask), strict=True)) | {"ids": ids}
        if self._item.starts == "episodes" and not self._told:
            self._tell(fields, mask)
        return self._trimmed(fields, int(mask.sum(axis=1).max(initial=1))) if self._item.trim else fields

    def _ahead(self, slots: Int64, mask: Bool) -> list[Array]:
        """Copy the extras n steps after each step; zeros where there is no such step."""
        rows, _ = self._ring.around(slots, self._offsets, False)
        zero = self._ring.marks.size  # the row of zeros
        rows = np.where(mask, rows, zero)
        listed = np.ascontiguousarray(rows.T if self._item.time_major else rows)
        taken = self._gather.taken([listed.reshape(-1)])
        return [array.reshape(*listed.shape, *array.shape[1:]) for array in taken]

    def _tell(self, fields: Fields, mask: Bool) -> None:
        """Say, once, that an episode is longer than items are."""
        steps, terminated, truncated = (
            fields[name][-1] if self._item.time_major else fields[name][:, -1]
            for name in ("steps", "terminated", "truncated")
        )
        if (mask[:, -1] & ((steps > 1) | ~(terminated | truncated))).any():
            self._told = True
            length = self._item.length
            warn(event(f"Cut an episode of more than {length} steps", "Sequences(length)", "raise `length`"))

    def _trimmed(self, fields: Fields, longest: int) -> Fields:
        """Leave out the positions after the last step of all items."""
        kept = dict.fromkeys(("all_obs", "all_prev_action", "all_prev_reward"), longest + self._item.n_step)

        def cut(path: tuple[str, ...], array: Array) -> Array:
            end = kept.get(path[0], longest)
            return array[:end] if self._item.time_major else array[:, :end]

        return nested((path, array if path in self._timeless else cut(path, array)) for path, array in paths(fields))
