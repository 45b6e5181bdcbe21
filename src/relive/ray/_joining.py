"""Parts of a batch, each from one shard, put together in arrays that the caller owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._base.capabilities import completed
from .._base.memory import Arena
from .._base.nests import nested
from .._base.types import Array, Float64, Int64
from ..batch import Batch
from ..items import Item
from ..items._protocol import sealed
from ..samplers import Sampler
from ._law import probabilities, weights
from ._wire import DrawnPart, ShardPlan, ShardStatus, sliced

# Blocks that are kept for the next batches.
_KEPT, _KEPT_BYTES = 64, 256 << 20


class Answers:
    """The parts of a batch that came.

    Attributes:
        chances: The probability with which a place of the batch went to each shard, given who answered.
        shards: Of each item.
        totals: Of its shard, at the moment of its draw.
        masses: Of each item.
        parts: Places and fields.
    """

    def __init__(self, n: int, shards: int) -> None:
        self.chances = np.zeros(shards)
        self.shards, self.totals, self.masses = np.zeros(n, np.int64), np.ones(n), np.ones(n)
        self.parts: list[tuple[Int64, dict[str, Any]]] = []

    def take(self, shard: int, places: Int64, drawn: DrawnPart, total: float) -> None:
        """Put a part in its places."""
        self.shards[places], self.totals[places], self.masses[places] = shard, total, drawn.masses
        self.parts.append((places, drawn.fields))


class Joiner:
    """Joins what shards drew; the parts may be read-only, and belong to a transport.

    Attributes:
        last: The ids of the last batch, their probabilities, and how many items there were.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self._arena = Arena(_KEPT, _KEPT_BYTES)
        able = completed(plan.item, Item)
        self._views, self._time_major = able.views, bool(able.time_major)
        self._scale = completed(plan.sampler, Sampler).weights
        # Of items with a time axis, what there is one of each, and not one of each step.
        states = {".".join(c.keys) for c in plan.schema.columns if c.field.every is not None}
        self.last: tuple[Int64, Float64, int] = np.zeros(0, np.int64), np.zeros(0), 0
        self._single = {"ids", "weights", *states} | ({"first"} - plan.schema.tree.keys())

    def batch(self, answers: Answers, statuses: Sequence[ShardStatus], beta: float) -> Batch:
        """Join the parts, and weigh the items.

        Args:
            answers: The parts.
            statuses: What each shard said last.
            beta: The exponent of the weights.
        """
        fields = self._joined(len(answers.shards), answers.parts)
        chance = probabilities(answers.chances, answers.shards, answers.masses, answers.totals)
        chances, scale = answers.chances.tolist(), self._scale
        there = [status for status, c in zip(statuses, chances, strict=True) if c > 0]
        items: float = sum(status.items for status in there)
        self.last = fields["ids"].copy(), chance, int(items)
        if scale is None:  # by these weights a batch is as one of fresh totals, whose weights are 1
            items, scale = sum(status.total for status in there), "none"
            chance = chance / answers.masses
        least = min(_least(c, status) for c, status in zip(chances, statuses, strict=True))
        fields["weights"] = weights(chance, max(items, 1), beta, scale, least)
        return Batch(fields)

    def _joined(self, n: int, parts: Sequence[tuple[Int64, dict[str, Array]]]) -> dict[str, Any]:
        paths: dict[str, None] = dict.fromkeys(path for _, fields in parts for path in fields)
        joined: dict[str, Array] = {}
        where = [sliced(places) for places, _ in parts]
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
        """Return a field that is a view of another one."""
        root, dot, rest = path.partition(".")
        view = self._views[root]
        whole, steps = fields[view.whole + dot + rest], slice(view.begin, view.end)
        return whole[steps] if self._time_major else whole[:, steps]


def _least(chance: float, status: ShardStatus) -> float:
    """Return the smallest positive probability of an item of one shard."""
    return chance * status.smallest / status.total if chance > 0 and status.total > 0 else np.inf
