"""OGBench's replay buffer for online fine-tuning; a stand-in where its source was not fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from .._pipeline import Item
from ._loops import OneLane, Run, calls_of
from ._sources import imported
from ._stand_ins import CountedRing

_NAMES = ("observations", "rewards", "masks", "next_observations")


class OGBench(OneLane):
    """OGBench's ring, or a stand-in."""

    def _made(self, run: Run) -> Any:
        example = dict.fromkeys(_NAMES, np.zeros(1, np.float32))
        theirs = imported("ogbench", "impls/utils/datasets", _absent())
        if theirs:
            return theirs.ReplayBuffer.create(example, run.size)
        return CountedRing(example, run.size, self._repaired)

    def _fill(self, run: Run) -> None:
        for call in calls_of(run):
            step = {"observations": call.obs[0], "next_observations": call.next_obs[0]}
            self._buffer.add_transition({**step, "rewards": call.reward, "masks": 1.0 - call.terminated})

    def items(self) -> Iterable[Item]:
        """Return every item that can be drawn."""
        return self._items(self._buffer.get_subset(np.arange(self._buffer.size)))

    def sample(self, n: int) -> Iterable[Item]:
        """Draw items."""
        return self._items(self._buffer.sample(n))

    def _items(self, batch: Mapping[str, Any]) -> list[Item]:
        rows = zip(*(batch[name][:, 0].tolist() for name in _NAMES), strict=True)
        return [Item(obs, reward, self._gamma * mask, after) for obs, reward, mask, after in rows]


def _absent() -> dict[str, Any]:
    """Return what its module uses of JAX and Flax to store and to draw."""

    def tree_map(change: Callable[..., Any], tree: Any, *others: Any) -> Any:
        return {name: change(value, *(other[name] for other in others)) for name, value in tree.items()}

    class DictOfArrays(dict[str, Any]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._dict = {**self}

    tree_util = SimpleNamespace(tree_map=tree_map, tree_leaves=lambda tree: [*tree.values()])
    jax = {"tree_util": tree_util, "jit": lambda function, **_: function}
    return {"jax": jax, "flax.core.frozen_dict": {"FrozenDict": DictOfArrays}}
