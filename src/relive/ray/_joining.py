"""Parts of a batch, each from one shard, put together in arrays that the caller owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._base.capabilities import completed
from .._base.memory import Arena
from .._base.nests import nested
from .._base.types import Array, Int64
from ..items import Item
from ..items._protocol import sealed
from ..schema import Schema

# Blocks that are kept for the next batches.
_KEPT, _KEPT_BYTES = 64, 256 << 20


class Joiner:
    """Joins what shards drew; the parts may be read-only, and belong to a transport."""

    def __init__(self, schema: Schema, item: Item) -> None:
        self._arena = Arena(_KEPT, _KEPT_BYTES)
        able = completed(item, Item)
        self._views, self._time_major = able.views, bool(able.time_major)
        # Of items with a time axis, what there is one of each, and not one of each step.
        states = {".".join(c.keys) for c in schema.columns if c.field.every is not None}
        self._single = {"ids", "weights", *states} | ({"first"} - schema.tree.keys())

    def joined(self, n: int, parts: Sequence[tuple[Int64, dict[str, Array]]]) -> dict[str, Any]:
        """The fields of a batch of `n` items.

        Args:
            n: How many.
            parts: Places in the batch, and the fields of the items that belong there, by path.
        """
        paths: dict[str, None] = dict.fromkeys(path for _, fields in parts for path in fields)
        joined: dict[str, Array] = {}
        where = [_slice(places) for places, _ in parts]
        for path in paths:
            arrays = [fields[path] if path in fields else self._view(fields, path) for _, fields in parts]
            axis = int(self._time_major and path not in self._single)
            shape = list(arrays[0].shape)
            shape[axis] = n
            (out,) = self._arena.arrays([(shape, arrays[0].dtype)])
            for places, array in zip(where, arrays, strict=True):
                out[(slice(None),) * axis + (places,)] = array
            joined[path] = out
        for path in list(joined):
            for name, view in self._views.items():
                if path.partition(".")[0] == view.whole:
                    part = name + path[len(view.whole) :]
                    joined.setdefault(part, self._view(joined, part))
        return sealed(nested((tuple(path.split(".")), array) for path, array in joined.items()), self._views)

    def _view(self, fields: dict[str, Array], path: str) -> Array:
        """A field that is a view of another one."""
        root, dot, rest = path.partition(".")
        view = self._views[root]
        whole, steps = fields[view.whole + dot + rest], slice(view.begin, view.end)
        return whole[steps] if self._time_major else whole[:, steps]


def _slice(places: Int64) -> Any:
    """As a slice, where places follow each other: a copy then is one block."""
    first = int(places[0])
    together = int(places[-1]) - first + 1 == len(places) and bool((np.diff(places) == 1).all())
    return slice(first, first + len(places)) if together else places
