"""A `relive.DeviceBuffer` that looks at what it is told, beside ordinary buffers that are told the same."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

import relive

GAMMA = 0.9


class KeptBuffer:
    """Gives what `add` and `cut` are given to a device buffer, of three steps, and to ordinary ones of one and three.

    Attributes:
        real: The device buffer.
        twins: The ordinary ones.
        calls: Of every `add`, what is not a field.
        cuts: Of every `cut`, the lanes.
    """

    def __init__(self, schema: relive.Schema, num_envs: int) -> None:
        self.schema, self.num_envs, self.device = schema, num_envs, torch.device("cpu")
        choices: Any = [
            {"num_envs": num_envs, "seed": 0, "boundaries": 1, "item": relive.Transitions(n_step=n, gamma=GAMMA)}
            for n in (1, 3)
        ]
        self.real = relive.DeviceBuffer(schema, 4000, device="cpu", **choices[1])
        self.twins = [relive.ReplayBuffer(schema, 4000, **each) for each in choices]
        self.calls: list[dict[str, Any]] = []
        self.cuts: list[Any] = []
        self._open, self._last = np.zeros(num_envs, bool), None

    def add(self, **step: Any) -> Tensor:
        ids = self.real.add(**step)
        with _disable_current_modes(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what ordinary buffers have to say
            assert [i < 0 for i in ids.tolist()] == [i < 0 for i in self._add(**step)]
        return ids

    def _add(
        self, *, next_obs: Any, terminated: Tensor, truncated: Tensor, final_obs: Any, final_mask: Tensor | None,
        mask: Tensor | None, continues: bool, **fields: Any,
    ) -> Any:  # fmt: skip
        self.calls.append({"final_obs": final_obs, "final_mask": final_mask, "mask": mask, "continues": continues})
        every = torch.ones(self.num_envs, dtype=torch.bool)
        ended, known = terminated | truncated, every if final_mask is None else final_mask
        live, lost = every if mask is None else mask, ended & ~known
        if final_obs is not None:
            next_obs = joined(ended, final_obs, next_obs)
        arrays, after = numbers({**fields, "terminated": terminated, "truncated": truncated}), numbers(next_obs)
        if continues and self._last is not None:  # then it is so
            for now, before in zip(tree_leaves(arrays["obs"]), tree_leaves(self._last), strict=True):
                assert np.array_equal(now[self._open & live.numpy()], before[self._open & live.numpy()])
        ids = np.full(self.num_envs, -1)
        for twin in self.twins:
            for lanes, given in ((live & ~lost, {"next_obs": after}), (live & lost, {})):
                which = np.flatnonzero(lanes.numpy())
                if len(which):
                    ids[which] = twin.add(**tree_map(lambda a, at=which: a[at], {**arrays, **given}), env_ids=which)
        self._open, self._last = np.where(live.numpy(), ~ended.numpy(), self._open), after
        return ids.tolist()

    def cut(self, mask: Tensor | None = None) -> None:
        self.real.cut(mask)
        with _disable_current_modes():
            lanes = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask.numpy())
            for twin in self.twins if len(lanes) else ():
                twin.cut(lanes)
            self._open[lanes] = False
            self.cuts.append(lanes.tolist())


def numbers(nest: Any) -> Any:
    return tree_map(lambda tensor: tensor.detach().clone().numpy(), nest)


def joined(where: Tensor, one: Any, other: Any) -> Any:
    return tree_map(lambda a, b: torch.where(where.reshape(-1, *[1] * (a.ndim - 1)), a, b), one, other)
