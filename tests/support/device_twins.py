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
    "value": relive.Field((2,), writable=True),
}
ARRAYS = ("ring/marks", "ring/counters", "ring/clock", "ring/given", "sampler/priorities", "sampler/priorities.state",
          "sampler/priorities.draws")  # fmt: skip
# Arguments of stacked fields: images alone, floats that are padded otherwise, frames behind next to a single one.
STACKS: list[dict[str, dict[str, Any]]] = [
    {"camera": {"stack": 4, "pad": "zero"}},
    {"camera": {"stack": 3, "pad": "first"}, "state": {"stack": 2, "pad": "zero"}},
    {"camera": {"stack": 1, "stack_axis": -1}, "state": {"stack": 3, "pad": "first", "stack_axis": -1}},
]
# What a device is given beside the fields of a step.
GIVEN = ("next_obs", "final_obs", "final_mask", "mask")


def tensors(nest: Any) -> Any:
    return mapped(lambda value: torch.from_numpy(np.array(value)), nest)


class Twins:
    """Args: those of both buffers, but for their generators; with `every`, steps have a recurrent state, too.

    `stacks` has the arguments of stacked fields by their names in `obs`: frames go on from step to step, and begin in
    all ways, of which padding gives one; now and then those of a next observation do not go on.

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
        stacks: dict[str, dict[str, Any]] | None = None,
        **choices: Any,
    ) -> None:
        carry = {
            "carry": {
                "h": relive.Field((3,), every=every, writable=True),
                "age": relive.Field((), "int16", every=every),
            }
        }
        plain: dict[str, relive.Field] = FIELDS["obs"]
        self.stacked = {
            name: relive.Field(plain[name].shape, plain[name].dtype, **stack) for name, stack in (stacks or {}).items()
        }
        schema = relive.Schema(**FIELDS | {"obs": {**plain, **self.stacked}}, **(carry if every else {}))
        philox = np.random.Generator(np.random.Philox(seed))
        self.device = relive.DeviceBuffer(
            schema, capacity, num_envs=lanes, device="cpu", seed=seed, kernels=kernels, **choices
        )
        self.host = relive.ReplayBuffer(schema, capacity, num_envs=lanes, seed=philox, **choices)
        self.rng, self.lanes, self.every = np.random.default_rng(seed), lanes, every
        self.obs = self.observation()
        self.drawn: list[np.ndarray] = []

    def observation(self, after: Any = None) -> Any:
        """One that begins, or one that goes on after another."""
        rng, lanes = self.rng, self.lanes
        camera = rng.integers(0, 255, (lanes, 12, 12), np.uint8)
        found = {"state": rng.standard_normal((lanes, 5)).astype(np.float32), "camera": camera}
        for name, field in self.stacked.items():
            stack = np.repeat(found[name][:, None], field.stack, axis=1)
            if after is not None:
                stack[:, :-1] = np.moveaxis(after[name], field.stack_axis or 1, 1)[:, 1:]
            else:
                stack[rng.random(lanes) < (0.8 if field.pad == "zero" else 0.2), :-1] = 0
                for age in range(1, field.stack):
                    stack[rng.random(lanes) < 0.1, -1 - age] = 7
            found[name] = np.moveaxis(stack, 1, -1) if field.stack_axis else stack
        return found

    def chosen(self, who: np.ndarray, yes: Any, no: Any) -> Any:
        return {key: np.where(who.reshape(-1, *[1] * (a.ndim - 1)), a, no[key]) for key, a in yes.items()}

    def step(self, ends: float = 0.05, jumps: float = 0.02) -> tuple[dict[str, Any], np.ndarray, np.ndarray, Any, Any]:
        """The tensors of a step; which lanes take part and know what follows; final and next observations.

        Ends of both kinds, one in five without a final observation, jumps, lanes left out.
        """
        rng, lanes = self.rng, self.lanes
        active = rng.random(lanes) < 0.7 if rng.random() < 0.3 else np.ones(lanes, bool)
        self.obs = self.chosen(active & (rng.random(lanes) < jumps), self.observation(), self.obs)
        final, reset = self.observation(self.obs), self.observation()
        if self.stacked:
            final = self.chosen(rng.random(lanes) < 0.05, self.observation(), final)
        terminated, truncated, known = rng.random(lanes) < ends, rng.random(lanes) < ends, rng.random(lanes) < 0.8
        fields = {
            "obs": self.obs,
            "action": rng.standard_normal((lanes, 2)).astype(np.float32),
            "reward": (rng.standard_normal(lanes) * (rng.random(lanes) < 0.8)).astype(np.float32),  # -0.0, too
            "log_prob": rng.standard_normal(lanes),
            "flag": rng.random(lanes) < 0.5,
            "value": rng.standard_normal((lanes, 2)).astype(np.float32),
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
        continues = self.rng.random() < 0.3
        step, active, known, final, nexts = self.step(jumps=0.0 if continues else 0.02)
        fields = {name: mapped(Tensor.numpy, value) for name, value in step.items() if name not in GIVEN}
        extra = {"priority": self.rng.random(self.lanes) * 9 * (self.rng.random(self.lanes) < 0.8)} if priority else {}
        lost, ids = active & (fields["terminated"] | fields["truncated"]) & ~known, np.full(self.lanes, -1)
        for which, more in ((active & ~lost, {"next_obs": final}), (lost, {})):
            who = np.flatnonzero(which)
            if len(who):
                of_lanes = mapped(lambda value, who=who: value[who], {**fields, **more, **extra})
                ids[who] = self.host.add(**of_lanes, env_ids=who)
        self.host.can_sample(1)  # takes in what came: a priority that is overwritten before is none that was given
        assert self.device.add(**step, **tensors(extra), continues=continues).tolist() == ids.tolist()
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

    def write(self) -> None:
        """Other values for items of the last batch and of an early one, some twice, some for no step."""
        if self.drawn:
            ids = np.concatenate((self.drawn[-1], self.drawn[-1][:8], self.drawn[max(0, len(self.drawn) - 9)], [-1]))
            values = {"value": self.rng.standard_normal((len(ids), 2)).astype(np.float32)}
            if self.every:
                values["carry"] = {"h": self.rng.standard_normal((len(ids), 3)).astype(np.float32)}
            self.host.write(ids, **values)
            self.device.write(torch.from_numpy(ids), **tensors(values))

    def assert_same_arrays(self) -> None:
        """All of the ring's arrays and the sampler's, byte by byte; what stands behind the end of a lane, too."""
        core = self.host._core
        core.refresh()
        mine = self.device._state.arrays()
        for name, tensor in mine.items():
            if name in ARRAYS or name not in ("sampler/anchors", "sampler/anchors.ends"):
                theirs = np.ascontiguousarray(core.memory.memory.host(name))
                assert theirs.tobytes() == tensor.numpy().tobytes(), name


def step_that_waits(item: relive.Item, stack: int | None, kernels: str) -> None:
    """Ordinary buffers may have a step that waits for its successor in each lane; a device goes on from there.

    It drops the step in a lane that is cut, and in one whose older frames are others than the step's.
    """
    schema = relive.Schema(obs=relive.Field(stack=stack), action=relive.Field())
    host = relive.ReplayBuffer(schema, 30, num_envs=3, item=item, seed=0)

    def obs(t: int, astray: int = 0) -> np.ndarray:
        found = np.repeat(np.arange(t - (stack or 1) + 2, t + 2, dtype=np.float32)[None], 3, axis=0)
        found[2, :-1] -= astray
        return found if stack else found[:, 0]

    for t in range(3):
        fields = {"obs": obs(t), "action": np.zeros(3), "reward": np.full(3, t, np.float32)}
        host.add(**fields, terminated=[t == 1, False, t == 1], truncated=[False] * 3)
    device = relive.DeviceBuffer.of(host, device="cpu", kernels=kernels)
    cut = np.array([True, False, False])
    host.cut(np.flatnonzero(cut))
    device.cut(torch.from_numpy(cut))
    step = {"obs": obs(3, 1), "action": np.zeros(3, np.float32), "reward": np.ones(3, np.float32)}
    step |= {"truncated": cut & ~cut}
    # One whose final observation brings older frames of its own; one that begins with it, and whose next one does so.
    last = {"obs": obs(4), "next_obs": obs(5, 9), "terminated": cut}
    for more in ({"next_obs": obs(4, 9), "terminated": ~cut}, last):
        step |= more
        assert host.add(**step).tolist() == device.add(**tensors(step)).tolist()
        assert facts(device) == facts(host)
        for name in ("marks", "counters"):
            mine, theirs = getattr(device._state, name), host._core.memory.memory.host(f"ring/{name}")
            assert mine.flatten().tolist() == theirs.reshape(-1).tolist()
    ids = next(host.batches(100, shuffle=False)).ids
    assert_same(host.read(ids), device.host().read(ids).torch())


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
