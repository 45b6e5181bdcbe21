"""How the fields of an `env_dict` are stored, and how a batch becomes a dict of them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._base.types import Array
from ..batch import Batch
from ..errors import ArgumentError, SchemaError, message
from ..items import Transitions
from ..schema import Field, Schema

_MADE = ("weights", "indexes", "discounts")  # what a sample has besides the fields


class Fields:
    """Which fields of `env_dict` are relive's observations, reward and end, and the way to and from them."""

    def __init__(
        self,
        env_dict: Mapping[str, Mapping[str, Any]],
        next_of: list[str],
        stacked: list[str],
        default_dtype: Any,
        nstep: Mapping[str, Any] | None,
    ) -> None:
        if not env_dict:
            raise ArgumentError(message("at least one field", "none", "ReplayBuffer(env_dict)"))
        made = [name for name in _MADE if name in env_dict]
        if made:
            raise SchemaError(message("names that a sample has free", f"`{made[0]}`", "$.env_dict", "choose another"))
        self.shapes = {name: _shape(spec) for name, spec in env_dict.items()}
        dtypes = {name: np.dtype(spec.get("dtype", default_dtype or np.float32)) for name, spec in env_dict.items()}
        self.dtypes = dtypes
        self._sizes = {name: int(np.prod(shape)) for name, shape in self.shapes.items()}
        unknown = [name for name in [*next_of, *stacked] if name not in env_dict]
        if unknown:
            raise ArgumentError(
                message("names of `env_dict`", f"`{unknown[0]}`", "ReplayBuffer(next_of, stack_compress)")
            )
        self.observed = [name for name in env_dict if name in next_of or f"next_{name}" in env_dict]
        for name in self.observed:
            after = f"next_{name}"
            if after in env_dict and (self.shapes[after], dtypes[after]) != (self.shapes[name], dtypes[name]):
                got = f"`{dtypes[after]}` of shape `{self.shapes[after]}`"
                raise SchemaError(message(f"the shape and dtype of `{name}`", got, f"$.env_dict.{after}"))
        rewards = names_of((nstep or {}).get("rew"))
        self.rewards = rewards or [n for n in ("rew",) if n in env_dict and nstep is None and dtypes[n].kind == "f"]
        self._check_nstep(nstep, env_dict)
        self.item = Transitions(n_step=(nstep or {}).get("size", 1), gamma=(nstep or {}).get("gamma", 0.99))
        special = {*self.observed, *(f"next_{name}" for name in self.observed), *self.rewards, "done"}
        self._wanted = {*env_dict, *(f"next_{name}" for name in self.observed)}
        self.others = [name for name in env_dict if name not in special]
        obs = {name: self._field(name, name in stacked) for name in self.observed}
        extras = {name: self._field(name, False) for name in self.others}
        dtypes_of = [dtypes[name] for name in self.rewards] or [np.dtype(np.float32)]
        width = sum(int(np.prod(self.shapes[name])) for name in self.rewards)
        reward, nothing = Field((width,) if width else (), np.result_type(*dtypes_of)), Field((), "bool")
        extra = {"fields": extras} if extras else {}
        self.schema = Schema(obs=obs or nothing, action=nothing, reward=reward, **extra)

    def _check_nstep(self, nstep: Mapping[str, Any] | None, env_dict: Mapping[str, Any]) -> None:
        for name in self.rewards:
            if name not in env_dict:
                raise ArgumentError(message("rewards of `env_dict`", f"`{name}`", "ReplayBuffer(Nstep)"))
        if np.prod(self.shapes.get("done", ())) != 1:
            raise SchemaError(message("one number a step", f"shape `{self.shapes['done']}`", "$.env_dict.done"))
        for name in names_of((nstep or {}).get("next")):
            if name.removeprefix("next_") not in self.observed:
                wanted = "`next_...` of a field of `env_dict`, of its shape and dtype"
                raise ArgumentError(message(wanted, f"`{name}`", "ReplayBuffer(Nstep)"))

    def _field(self, name: str, stacked: bool) -> Field:
        shape = self.shapes[name]
        if not stacked:
            return Field(shape, self.dtypes[name])
        if not shape:
            raise ArgumentError(message("an axis of frames", "shape `()`", "ReplayBuffer(stack_compress)"))
        return Field(shape[:-1], self.dtypes[name], stack=shape[-1], pad="first", stack_axis=-1)

    def steps(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any], Array]:
        """The arguments of `extend`, and which steps ended an episode."""
        wanted = self._wanted
        if fields.keys() != wanted:
            missing, more = sorted(wanted - fields.keys()), sorted(fields.keys() - wanted)
            got = f"no `{missing[0]}`" if missing else f"`{more[0]}`"
            raise SchemaError(message(f"the fields {sorted(wanted)}", got, "add"))
        given = {name: self._rows(name, value) for name, value in fields.items()}
        count = len(next(iter(given.values())))
        for name, value in given.items():
            if len(value) != count:
                raise SchemaError(message(f"{count} steps of every field", f"{len(value)}", f"$.{name}"))
        nothing = np.zeros(count, bool)
        ended = given["done"].reshape(count) != 0 if "done" in given else nothing
        after = {name: given[f"next_{name}"] for name in self.observed}
        rewards = [given[name].reshape(count, self._sizes[name]) for name in self.rewards]
        steps: dict[str, Any] = {
            "obs": {name: given[name] for name in self.observed} or nothing,
            "next_obs": after or nothing,
            "action": nothing,
            "reward": nothing if not rewards else rewards[0] if len(rewards) == 1 else np.concatenate(rewards, axis=1),
            "terminated": ended,
            "truncated": nothing,
        }
        if self.others:
            steps["fields"] = {name: given[name] for name in self.others}
        return steps, ended

    def _rows(self, name: str, value: Any) -> Array:
        known = name if name in self.shapes else name.removeprefix("next_")
        shape, size, array = self.shapes[known], self._sizes[known], np.asarray(value)
        if array.shape[1:] == shape and array.ndim > len(shape):
            return array
        if array.size % size:  # one step, or axes of 1 more or less than stated
            raise SchemaError(message(f"one or more of shape `{shape}`", f"shape `{array.shape}`", f"$.{name}"))
        return array.reshape(array.size // size, *shape)

    def named(self, batch: Batch) -> dict[str, Array]:
        """A batch as cpprb's dict."""
        found: dict[str, Array] = {}
        if self.observed:
            obs, after = batch["obs"], batch["next_obs"]
            for name in self.observed:
                found[name], found[f"next_{name}"] = obs[name], after[name]
        count, start = len(batch.ids), 0
        for name in self.rewards:
            end = start + self._sizes[name]
            found[name] = _typed(batch.reward[:, start:end], self.dtypes[name]).reshape(count, *self.shapes[name])
            start = end
        if self.others:
            fields = batch["fields"]
            found |= {name: fields[name] for name in self.others}
        if "done" in self.shapes:
            found["done"] = _typed(batch.terminated, self.dtypes["done"]).reshape(count, *self.shapes["done"])
        return {**found, "weights": batch.weights, "indexes": batch.ids, "discounts": batch.discount[:, None]}


def _typed(array: Array, dtype: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(array.astype(dtype, copy=False))


def names_of(given: str | Iterable[str] | None) -> list[str]:
    return [] if given is None else [given] if isinstance(given, str) else [str(name) for name in given]


def _shape(spec: Mapping[str, Any]) -> tuple[int, ...]:
    shape = spec.get("shape", 1)
    return tuple(int(axis) for axis in np.atleast_1d(np.asarray(shape, np.int64)))
