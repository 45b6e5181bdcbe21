"""Batches of Tianshou as nested dicts of arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from tianshou.data import Batch, to_numpy

from .._base.nests import located, mapped, zipped
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
    """Convert a batch, tensor or array to nested dicts of arrays."""
    if type(value) is np.ndarray:
        return value
    return located(lambda leaf, at: leaf if type(leaf) is np.ndarray else to_numpy(leaf), value, "", _entries)


def _entries(value: Any, at: str) -> dict[str, Any] | None:
    return dict(value.items()) if hasattr(value, "keys") else None


def to_batch(tree: Any) -> Any:
    """Convert nested dicts of arrays to a batch; return an array unchanged."""
    return Batch(tree) if isinstance(tree, dict) else tree  # Tianshou makes batches of the dicts in it


def by_slot(tree: Any, slots: Int64, size: int) -> Any:
    """Spread the entries of `tree` over arrays of `size` slots: at `slots`, with 0 elsewhere."""

    def scattered(rows: Array) -> Array:
        found = np.zeros((size, *rows.shape[1:]), rows.dtype)
        found[slots] = rows
        return found

    return mapped(scattered, tree)


def frames(buffer: ReplayBuffer, ids: Int64, read: Drawn, stack: int) -> tuple[Any, Any]:
    """Stack observations and next observations of steps that were read along axis 1, as their episodes have them."""
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
    """Derive the schema of these steps, which have a leading axis."""
    first = {"obs": mapped(_first, obs), "action": mapped(_first, act), "reward": _first(np.asarray(reward))}
    return Schema(**located(_field, first, "$"), slot=Field((), "int64"))


def _first(rows: Array) -> Array:
    return np.asarray(rows[0])


def _field(array: Array, at: str) -> Field:
    if array.dtype.kind not in "biufc":
        raise SchemaError(message("numbers", f"`{array.dtype}`", at))
    return Field(array.shape, "float32" if at == "$.reward" and array.dtype.kind != "f" else array.dtype)


def refusal(name: str, remedy: str) -> ArgumentError:
    """Make the error of calls that would break up the streams."""
    return ArgumentError(message("steps that come in by `add` and stay", f"`{name}`", "VectorReplayBuffer", remedy))
