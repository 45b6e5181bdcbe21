"""OGBench's replay buffer for online fine-tuning; a stand-in where its source was not fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from .._pipeline import Item
from ._loops import Run, Runner, calls_of
from ._sources import imported

Transition = Mapping[str, Any]


class CountedRing:
    """Arrays by name, and a pointer that goes round; `repaired` counts the last slot, too."""

    def __init__(self, transition: Transition, size: int, repaired: bool) -> None:
        self.arrays = {name: np.zeros((size, *np.shape(value)), np.float32) for name, value in transition.items()}
        self.max_size, self.size, self.pointer, self._repaired = size, 0, 0, repaired

    def add_transition(self, transition: Transition) -> None:
        """Write a step, and move on; the size follows the pointer, which is 0 after the last slot."""
        for name, value in transition.items():
            self.arrays[name][self.pointer] = value
        counted = self.pointer + 1 if self._repaired else (self.pointer + 1) % self.max_size
        self.pointer, self.size = (self.pointer + 1) % self.max_size, max(self.size, counted)

    def get_subset(self, at: Any) -> dict[str, Any]:
        """Return steps by their slots."""
        return {name: array[at] for name, array in self.arrays.items()}

    def sample(self, n: int) -> dict[str, Any]:
        """Draw steps."""
        return self.get_subset(np.random.randint(self.size, size=n))


class OGBench(Runner):
    """OGBench's ring, or a stand-in, in a loop of one environment.

    Args:
        repaired: Whether the stand-in counts the last slot.
    """

    modes, lanes = (AutoresetMode.DISABLED,), 1

    def __init__(self, repaired: bool = False) -> None:
        super().__init__()
        self._repaired, self._theirs = repaired, imported("ogbench", "impls/utils", "datasets", _stubs())

    def _made(self, run: Run) -> Any:
        example = dict.fromkeys(("observations", "rewards", "masks", "next_observations"), np.zeros(1, np.float32))
        if self._theirs:
            return self._theirs.ReplayBuffer.create(example, run.size)
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

    def _items(self, batch: Transition) -> list[Item]:
        names = ("observations", "rewards", "masks", "next_observations")
        rows = zip(*(batch[name][:, 0].tolist() for name in names), strict=True)
        return [Item(obs, reward, self._gamma * mask, after) for obs, reward, mask, after in rows]


def _stubs() -> dict[str, Any]:
    """Return what its module imports of JAX and Flax for other classes, and a frozen dict that is one."""

    def tree_map(change: Callable[..., Any], tree: Any, *others: Any) -> Any:
        return {name: change(value, *(other[name] for other in others)) for name, value in tree.items()}

    class DictOfArrays(dict[str, Any]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._dict = {**self}

    tree_util = SimpleNamespace(tree_map=tree_map, tree_leaves=lambda tree: [*tree.values()])
    jax = {"tree_util": tree_util, "jit": lambda function, **_: function, "numpy": np, "__path__": []}
    return {
        "jax": jax,
        "jax.numpy": {},
        "flax": {},
        "flax.core": {},
        "flax.core.frozen_dict": {"FrozenDict": DictOfArrays},
    }
