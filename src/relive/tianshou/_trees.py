"""Batches of Tianshou as nested dicts of arrays, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tianshou.data import Batch, to_numpy

from .._base.types import Array, Int64
from ..batch import Batch as Drawn
from ..buffer import ReplayBuffer
from ..errors import ArgumentError, SchemaError, message
from ..schema import Field, Schema

IN_RELIVE = ("obs", "act", "obs_next")
NEEDED = (*IN_RELIVE, "rew", "terminated", "truncated")


class Indices(np.ndarray[Any, Any]):
    """Slots that were drawn, and the ids of the steps that were in them then."""

    __array_priority__ = -1.0  # what is computed from them are plain slots
    ids: Int64 | None

    def __array_finalize__(self, source: Any) -> None:
        self.ids = None

    @classmethod
    def of(cls, slots: Array, ids: Int64) -> Indices:
        found = np.asarray(slots, np.int64).view(cls)
        found.ids = ids
        return found


def plain(value: Any) -> Any:
    """A batch, tensor or array as nested dicts of arrays."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, Mapping | Batch) or hasattr(value, "keys"):
        return {name: plain(child) for name, child in value.items()}
    return to_numpy(value)


def to_batch(tree: Any) -> Any:
    """Nested dicts of arrays as a batch; an array as it is."""
    return Batch({name: to_batch(child) for name, child in tree.items()}) if isinstance(tree, dict) else tree


def mapped(change: Callable[[Array], Array], tree: Any) -> Any:
    """A tree with every array changed."""
    return {name: mapped(change, child) for name, child in tree.items()} if isinstance(tree, dict) else change(tree)


def zipped(join: Callable[[Array, Array], Array], one: Any, two: Any) -> Any:
    """Two trees as one."""
    return {name: zipped(join, one[name], two[name]) for name in one} if isinstance(one, dict) else join(one, two)


def frames(buffer: ReplayBuffer, ids: Int64, read: Drawn, stack: int) -> tuple[Any, Any]:
    """Observations and next observations of steps that were read, stacked along axis 1 as an episode has them."""
    obs, after = plain(read.obs), plain(read.next_obs)
    if stack == 1 or not len(ids):
        return obs, after
    earlier = buffer.follow(np.repeat(ids, stack - 1), np.tile(np.arange(1 - stack, 0), len(ids))).ids
    older = plain(buffer.read(earlier).obs)

    def stacked(old: Array, new: Array) -> Array:
        return np.concatenate([old.reshape(len(new), -1, *new.shape[1:]), new[:, None]], axis=1)

    whole = zipped(stacked, older, obs)
    return whole, zipped(lambda old, new: np.concatenate([old[:, 1:], new[:, None]], axis=1), whole, after)


def schema_of(obs: Any, act: Any, reward: Any) -> Schema:
    """The schema of these steps, which have a leading axis."""
    first = {"obs": mapped(_first, obs), "action": mapped(_first, act), "reward": _first(np.asarray(reward))}
    return Schema(**_fields(first, "$"), slot=Field((), "int64"))


def _first(rows: Array) -> Array:
    return np.asarray(rows[0])


def _fields(tree: Any, at: str) -> Any:
    if isinstance(tree, dict):
        return {name: _fields(child, f"{at}.{name}") for name, child in tree.items()}
    if tree.dtype.kind not in "biufc":
        raise SchemaError(message("numbers", f"`{tree.dtype}`", at))
    return Field(tree.shape, "float32" if at == "$.reward" and tree.dtype.kind != "f" else tree.dtype)


def refusal(name: str, remedy: str) -> ArgumentError:
    """What calls raise that would break up the streams."""
    return ArgumentError(message("steps that come in by `add` and stay", f"`{name}`", "VectorReplayBuffer", remedy))
