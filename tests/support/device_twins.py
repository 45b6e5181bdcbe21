"""A device buffer beside an ordinary one, both given the same steps: whatever one does, the other has to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import relive
from relive._base.nests import mapped

FIELDS: dict[str, Any] = {
    "obs": {"state": relive.Field((5,)), "camera": relive.Field((12, 12), "uint8")},
    "action": relive.Field((2,)),
    "log_prob": relive.Field((), "float64"),
    "flag": relive.Field((), "bool"),
}
ARRAYS = ("ring/marks", "ring/counters", "ring/clock", "ring/given", "sampler/priorities", "sampler/priorities.state",
          "sampler/priorities.draws")  # fmt: skip
# What a device is given beside the fields of a step.
GIVEN = ("next_obs", "final_obs", "final_mask", "mask")


def tensors(nest: Any) -> Any:
    return mapped(lambda value: torch.from_numpy(np.array(value)), nest)


class Twins:
    """Args: those of both buffers, but for their generators; with `every`, steps have a recurrent state, too.

    Attributes:
        device: The device buffer.
        host: The ordinary one.
    """

    def __init__(
        self,
        capacity: int,
        lanes: int,
        *,
        seed: int = 7,
        kernels: str = "ops",
        every: int | None = None,
        **choices: Any,
    ) -> None:
        carry = {"carry": {"h": relive.Field((3,), every=every), "age": relive.Field((), "int16", every=every)}}
        schema = relive.Schema(**FIELDS, **(carry if every else {}))
        philox = np.random.Generator(np.random.Philox(seed))
        self.device = relive.DeviceBuffer(
            schema, capacity, num_envs=lanes, device="cpu", seed=seed, kernels=kernels, **choices
        )
        self.host = relive.ReplayBuffer(schema, capacity, num_envs=lanes, seed=philox, **choices)
        self.rng, self.lanes, self.every = np.random.default_rng(seed), lanes, every
        self.obs = self.observation()
        self.drawn: list[np.ndarray] = []

    def observation(self) -> Any:
        rng, lanes = self.rng, self.lanes
        camera = rng.integers(0, 255, (lanes, 12, 12), np.uint8)
        return {"state": rng.standard_normal((lanes, 5)).astype(np.float32), "camera": camera}

    def chosen(self, who: np.ndarray, yes: Any, no: Any) -> Any:
        return {key: np.where(who.reshape(-1, *[1] * (a.ndim - 1)), a, no[key]) for key, a in yes.items()}

    def step(self, ends: float = 0.05, jumps: float = 0.02) -> tuple[dict[str, Any], np.ndarray, np.ndarray, Any, Any]:
        """The tensors of a step; which lanes take part and know what follows; final and next observations.

        Ends of both kinds, one in five without a final observation, jumps, lanes left out.
        """
        rng, lanes = self.rng, self.lanes
        self.obs = self.chosen(rng.random(lanes) < jumps, self.observation(), self.obs)
        final, reset = self.observation(), self.observation()
        active = rng.random(lanes) < 0.7 if rng.random() < 0.3 else np.ones(lanes, bool)
        terminated, truncated, known = rng.random(lanes) < ends, rng.random(lanes) < ends, rng.random(lanes) < 0.8
        fields = {
            "obs": self.obs,
            "action": rng.standard_normal((lanes, 2)).astype(np.float32),
            "reward": (rng.standard_normal(lanes) * (rng.random(lanes) < 0.8)).astype(np.float32),  # -0.0, too
            "log_prob": rng.standard_normal(lanes),
            "flag": rng.random(lanes) < 0.5,
            "terminated": terminated,
            "truncated": truncated,
        }
        if self.every:
            h, age = rng.standard_normal((lanes, 3)).astype(np.float32), rng.integers(0, 99, lanes).astype(np.int16)
            fields["carry"] = {"h": h, "age": age}
        nexts = self.chosen(terminated | truncated, reset, final)
        # As simulators that reset by themselves: the next observation is that of the next episode.
        given = {"next_obs": nexts, "final_obs": final} if rng.random() < 0.5 else {"next_obs": final}
        return tensors({**fields, **given, "final_mask": known, "mask": active}), active, known, final, nexts

    def add(self, *, priority: bool = False) -> None:
        """One step; see `step`."""
        step, active, known, final, nexts = self.step()
        fields = {name: mapped(Tensor.numpy, value) for name, value in step.items() if name not in GIVEN}
        extra = {"priority": self.rng.random(self.lanes) * 9 * (self.rng.random(self.lanes) < 0.8)} if priority else {}
        lost, ids = active & (fields["terminated"] | fields["truncated"]) & ~known, np.full(self.lanes, -1)
        for which, more in ((active & ~lost, {"next_obs": final}), (lost, {})):
            who = np.flatnonzero(which)
            if len(who):
                of_lanes = mapped(lambda value, who=who: value[who], {**fields, **more, **extra})
                ids[who] = self.host.add(**of_lanes, env_ids=who)
        self.host.can_sample(1)  # takes in what came: a priority that is overwritten before is none that was given
        assert self.device.add(**step, **tensors(extra)).tolist() == ids.tolist()
        self.obs = self.chosen(active, nexts, self.obs)

    def cut(self) -> None:
        who = self.rng.random(self.lanes) < 0.5
        who[0] = True
        self.host.cut(np.flatnonzero(who))
        self.device.cut(torch.from_numpy(who))

    def clear(self) -> None:
        self.host.clear()
        self.device.clear()

    def sample(self, n: int, **options: Any) -> None:
        """Draw from both, and compare every bit."""
        if self.host.can_sample(1):
            batch = self.host.sample(n, **options)
            assert_same(batch, self.device.sample(n, **options))
            self.drawn.append(batch.ids)

    def update(self) -> None:
        """New priorities for the last batch, some of it twice, and for an earlier one, whose items may be gone."""
        if self.drawn:
            last, early = self.drawn[-1], self.drawn[max(0, len(self.drawn) - 9)]
            ids = np.concatenate((last, last[:8], early))
            errors = self.rng.standard_normal(len(ids)) * 10.0 ** self.rng.integers(-6, 6)
            self.host.update_priorities(ids, errors)
            self.device.update_priorities(torch.from_numpy(ids), torch.from_numpy(errors))

    def assert_same_arrays(self) -> None:
        """All of the ring's arrays and the sampler's, byte by byte; what stands behind the end of a lane, too."""
        core = self.host._core
        core.refresh()
        mine = self.device._state.arrays()
        for name, tensor in mine.items():
            if name in ARRAYS or name not in ("sampler/anchors", "sampler/anchors.ends"):
                theirs = np.ascontiguousarray(core.memory.memory.host(name))
                assert theirs.tobytes() == tensor.numpy().tobytes(), name


def facts(buffer: Any) -> dict[str, Any]:
    """A buffer's statistics, but for how often Python read a value, which NumPy's kernels always do."""
    return {**vars(buffer.stats()), "slow_adds": 0}


def assert_same(batch: Any, mine: Any) -> None:
    """The arrays of one batch and the tensors of another have the same dtypes, shapes and bytes."""
    assert set(batch) == set(mine)
    for name, array in batch.items():
        if isinstance(array, np.ndarray):
            other = mine[name].numpy()
            assert (array.dtype, array.shape, array.tobytes()) == (other.dtype, other.shape, other.tobytes()), name
        else:
            assert_same(array, mine[name])
