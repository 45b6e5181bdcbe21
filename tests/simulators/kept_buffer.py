"""A stand-in for `relive.DeviceBuffer`, and a mode that refuses what waits for a device."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

import relive
from relive._schema.fields import Tree
from relive.errors import SchemaError

GAMMA = 0.9


class KeptBuffer:
    """Keeps what `add` was given, and gives it to ordinary buffers on the CPU, one for each `n_step`."""

    def __init__(self, schema: relive.Schema, num_envs: int, device: str = "cpu", capacity: int = 4000) -> None:
        self.schema, self.num_envs, self.device = schema, num_envs, torch.device(device)
        items = [relive.Transitions(n_step=n, gamma=GAMMA) for n in (1, 3)]
        self.twins = [
            relive.ReplayBuffer(schema, capacity, num_envs=num_envs, seed=0, boundaries=1, item=item) for item in items
        ]
        self.calls: list[dict[str, Any]] = []
        self.cuts: list[Any] = []
        self.open, self.last = np.zeros(num_envs, bool), None

    def add(
        self, *, obs: Any, action: Any, reward: Any, next_obs: Any, terminated: Tensor, truncated: Tensor,
        final_obs: Any = None, final_mask: Tensor | None = None, mask: Tensor | None = None, continues: bool = False,
        **extras: Any,
    ) -> Tensor:  # fmt: skip
        fields = {"obs": obs, "action": action, "reward": reward, **extras}
        self.require(fields, {**self.schema.tree})
        for more in (next_obs, final_obs):
            if more is not None:
                self.require(more, self.schema.tree["obs"])
        for flag in (terminated, truncated, final_mask, mask):
            if flag is not None and (flag.dtype is not torch.bool or tuple(flag.shape) != (self.num_envs,)):
                raise SchemaError("flags")
        self.calls.append({"final_obs": final_obs, "final_mask": final_mask, "mask": mask, "continues": continues})
        with _disable_current_modes(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what ordinary buffers have to say
            every = torch.ones(self.num_envs, dtype=torch.bool)
            ended, known = terminated | truncated, every if final_mask is None else final_mask
            live, lost = every if mask is None else mask, ended & ~known
            if final_obs is not None:
                next_obs = joined(ended, final_obs, next_obs)
            fields |= {"terminated": terminated, "truncated": truncated}
            arrays, after = numbers(fields), numbers(next_obs)
            if continues:
                self.claimed(arrays["obs"], live.numpy())
            ids = np.full(self.num_envs, -1)
            for twin in self.twins:
                for lanes, given in ((live & ~lost, {"next_obs": after}), (live & lost, {})):
                    if lanes.any():
                        which = np.flatnonzero(lanes.numpy())
                        step = tree_map(lambda array, which=which: array[which], {**arrays, **given})
                        ids[which] = twin.add(**step, env_ids=which)
            self.open = np.where(live.numpy(), ~ended.numpy(), self.open)
            self.last = after
            return torch.from_numpy(ids)

    def cut(self, mask: Tensor | None = None) -> None:
        with _disable_current_modes():
            lanes = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask.numpy())
            for twin in self.twins if len(lanes) else ():
                twin.cut(lanes)
            self.open[lanes] = False
            self.cuts.append(lanes.tolist())

    def claimed(self, obs: Any, live: Any) -> None:
        """Where `continues` was said, it is so."""
        for now, before in zip(tree_leaves(obs), tree_leaves(self.last), strict=True) if self.last is not None else ():
            assert np.array_equal(now[self.open & live], before[self.open & live])

    def require(self, nest: Any, tree: Tree) -> None:
        """As `DeviceBuffer` does: names, shapes, dtypes and devices of the schema."""
        if isinstance(tree, dict):
            if not isinstance(nest, dict) or nest.keys() != tree.keys():
                raise SchemaError(f"names {sorted(tree)}")
            for name, child in tree.items():
                self.require(nest[name], child)
            return
        fits = isinstance(nest, Tensor) and nest.dtype is getattr(torch, tree.dtype.name)
        if not fits or tuple(nest.shape) != (self.num_envs, *tree.shape) or nest.device != self.device:
            raise SchemaError(f"{tree}")


def numbers(nest: Any) -> Any:
    return tree_map(lambda tensor: tensor.detach().clone().numpy(), nest)


def joined(where: Tensor, one: Any, other: Any) -> Any:
    return tree_map(lambda a, b: torch.where(where.reshape(-1, *[1] * (a.ndim - 1)), a, b), one, other)


class NoWaits(TorchDispatchMode):
    """Refuses what waits for a device: results whose value or shape the host needs, copies to another device."""

    WAITS = frozenset(
        {"_local_scalar_dense", "item", "nonzero", "masked_select", "masked_scatter", "masked_scatter_", "_unique2"}
        | {"unique_dim", "unique_consecutive", "is_nonzero", "bincount", "repeat_interleave", "equal", "allclose"}
        | {"argwhere", "lift_fresh"}
    )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        masks = name.startswith("index") and any(t.dtype in (torch.bool, torch.uint8) for t in indices(args))
        moved = name == "_to_copy" and (kwargs or {}).get("device") is not None
        if name in self.WAITS or masks or moved or len({tensor.device for tensor in tensors}) > 1:
            raise RuntimeError(f"{func} waits for the device")
        return func(*args, **(kwargs or {}))


def indices(args: Any) -> list[Tensor]:
    found = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else args[2:3]
    return [index for index in found if isinstance(index, Tensor)]
