"""Values of private names of RLinf's buffer, which RLinf 0.4.0's RLT worker and its tools read; they want tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from .._base.memory import Arena
from .._base.narrow import named, to_torch
from .._base.nests import mapped, nested
from ._block import packed
from .trajectory import MAPPINGS, TENSORS, Trajectory, as_trajectory


class LazyInfos(Mapping[int, dict[str, Any]]):
    """The infos of trajectories by id, each found when it is asked for."""

    def __init__(self, ids: list[int], info: Callable[[int], dict[str, Any]]) -> None:
        self._ids, self._info = ids, info

    def __getitem__(self, id_: int) -> dict[str, Any]:
        if id_ not in self._ids:
            raise KeyError(id_)
        return self._info(id_)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


def tensors_of(loaded: Trajectory) -> SimpleNamespace:
    """Return the fields of a whole trajectory, `[T, B, ...]`; those of RLinf's that it lacks are None."""
    facts = {"max_episode_length": loaded.max_episode_length, "model_weights_id": loaded.model_weights_id}
    fields = {name: mapped(to_torch, value) for name, value in loaded.items()}
    return SimpleNamespace(**{**dict.fromkeys(TENSORS), **{name: {} for name in MAPPINGS}, **facts, **fields})


def flattened(trajectory: Any) -> dict[str, Any]:
    """Return the chunk-steps of a trajectory that need not be stored, `[T * B, ...]`, row `t * B + b`."""
    block = packed(as_trajectory(trajectory), Arena(), 0)
    rows = {c.path: named(block.rows(c.path), c.dtype) for c in block.entry.layout.columns}
    return nested((path, to_torch(array)) for path, array in rows.items())
