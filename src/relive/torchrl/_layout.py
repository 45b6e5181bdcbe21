"""Which keys of a TensorDict are relive's observations, reward and flags, and the way to and from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from .._base import check
from .._base.frozen import Frozen
from .._base.narrow import from_torch, to_torch
from .._base.nests import nested, paths
from .._base.types import Array, Bool
from ..batch import Batch
from ..errors import SchemaError, message
from ..schema import Field, Schema

Key: TypeAlias = tuple[str, ...]
_FLAGS = ("done", "terminated", "truncated")
_GROUPS = ("observed", "extras", "after")
_MADE = ("index", "priority_weight", "steps_to_next_obs")


class Layout(Frozen):
    """The positions of a TensorDict's keys in a schema.

    Attributes:
        observed: Keys that are at the root and in `"next"`.
        extras: Other keys at the root, the action among them.
        after: Keys that are in `"next"` alone.
        flags: Which flags are at the root.
        reward: The shape of a reward.
    """

    observed: list[Key]
    extras: list[Key]
    after: list[Key]
    flags: list[str]
    reward: list[int]

    @classmethod
    def of(cls, data: Any, priority_key: str, n_step: int) -> Layout:
        """Derive the layout of TensorDicts like this one, `[environments, T]`."""
        keys = [key if isinstance(key, tuple) else (key,) for key in data.keys(True, True)]
        keys = [key for key in keys if not any(part.startswith("_") for part in key)]
        after = [key[1:] for key in keys if key[0] == "next"]
        if ("reward",) not in after or not {("done",), ("terminated",)} & set(after):
            got = f"`{sorted(map(str, after))}`"
            raise SchemaError(message('`("next", "reward")` and `("next", "terminated")`', got, '$["next"]'))
        skipped = {*_FLAGS, "reward", *_MADE, priority_key, "next"}
        root = [key for key in keys if key[0] not in skipped]
        observed = [key for key in root if key in after]
        alone = [key for key in after if key not in root and key[0] not in skipped]
        if alone and n_step > 1:
            remedy = (
                f"leave it out with `exclude`, or use n_step=1: `{alone[0]}` of which step of a window would it be?"
            )
            raise SchemaError(message('keys of `"next"` that are at the root', f"`{alone[0]}`", '$["next"]', remedy))
        reward = list(data.get(("next", "reward")).shape[2:])
        extras = [key for key in root if key not in observed]
        return cls(observed, extras, alone, [name for name in _FLAGS if (name,) in keys], reward)

    @classmethod
    def made(cls, plain: Mapping[str, Any]) -> Layout:
        """Build the layout that `plain` was called on."""
        observed, extras, after = ([tuple(map(str, key)) for key in plain[name]] for name in _GROUPS)
        return cls(
            observed, extras, after, [str(flag) for flag in plain["flags"]], [int(axis) for axis in plain["reward"]]
        )

    def plain(self) -> dict[str, Any]:
        """Return the layout as lists."""
        return {name: getattr(self, name) for name in (*_GROUPS, "flags", "reward")}

    def _groups(self) -> list[tuple[str, list[Key], Key]]:
        """List the names of groups of fields, their keys, and the keys above these in a TensorDict."""
        return [("root", self.extras, ()), ("after", self.after, ("next",))]

    def schema(self, data: Any, writable: bool) -> Schema:
        """Return the schema of steps like these; `writable`: rewards may be written anew."""

        def field(key: Key) -> Field:
            array = array_of(data.get(key), key)
            return Field(array.shape[2:], array.dtype)

        extras = {name: nested((key, field((*at, *key))) for key in keys) for name, keys, at in self._groups() if keys}
        obs = nested((key, field(key)) for key in self.observed)
        nothing, shape = Field((), "bool"), () if self.reward == [1] else tuple(self.reward)
        reward = Field(shape, array_of(data.get(("next", "reward"))).dtype, writable=writable)
        return Schema(obs=obs or nothing, action=nothing, reward=reward, **extras)

    def step(self, data: Any) -> dict[str, Any]:
        """Return the arguments of `ReplayBuffer.extend`."""

        def column(key: Key) -> Array:
            value = data.get(key, None)
            if value is None:
                raise SchemaError(message("the keys of the first TensorDict", f"no `{key}`", "$"))
            return array_of(value, key)

        nothing = np.zeros(tuple(data.shape), bool)

        def flag(name: str) -> Bool:
            value = data.get(("next", name), None)
            return nothing if value is None else array_of(value).astype(bool).reshape(nothing.shape)

        done, terminated, truncated = (flag(name) for name in _FLAGS)
        if data.get(("next", "terminated"), None) is None:
            terminated = done & ~truncated
        reward = column(("next", "reward"))
        step: dict[str, Any] = {
            "obs": nested((key, column(key)) for key in self.observed) or nothing,
            "next_obs": nested((key, column(("next", *key))) for key in self.observed) or nothing,
            "action": nothing,
            "reward": reward[..., 0] if self.reward == [1] else reward,
            "terminated": terminated,
            "truncated": (truncated | done) & ~terminated,
        }
        for name, keys, at in self._groups():
            if keys:
                step[name] = nested((key, column((*at, *key))) for key in keys)
        return step

    def named(self, batch: Batch) -> dict[str, Any]:
        """Return a batch as nested dicts of tensors."""
        after = _tensors(batch.next_obs if self.observed else {}, batch.after if self.after else {})
        found = _tensors(batch.obs if self.observed else {}, batch.root if self.extras else {})
        column = (len(batch.ids), 1)
        done = batch.terminated | batch.truncated
        for name, flags in zip(_FLAGS, (done, batch.terminated, batch.truncated), strict=True):
            after[name] = torch.from_numpy(flags).reshape(column)
        after["reward"] = to_torch(batch.reward).reshape(-1, *self.reward)
        found |= {name: torch.zeros(column, dtype=torch.bool) for name in self.flags}
        return {**found, "next": after}


def array_of(value: Any, key: Key = ()) -> Array:
    if not isinstance(value, torch.Tensor):
        check.unmasked(value, f"$.{'.'.join(key)}", SchemaError)
        return np.asarray(value)
    try:
        return from_torch(value)
    except TypeError:
        raise SchemaError(message("a dtype that NumPy has", f"`{value.dtype}`", f"$.{'.'.join(key)}")) from None


def largest(td_error: Any, batch_dims: int) -> Array:
    """Return the largest |TD error| of each item."""
    errors = np.abs(array_of(td_error))
    return np.asarray(errors.reshape(*errors.shape[:batch_dims], -1).max(axis=-1))


def _tensors(*nests: Any) -> dict[str, Any]:
    """Merge the arrays of all `nests`, as tensors."""
    return nested((path, to_torch(array)) for nest in nests for path, array in paths(nest))
