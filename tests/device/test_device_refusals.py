"""What a device buffer refuses at once, naming what works, and what it tells later."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from own_sampler import Balanced

import relive
from relive.errors import ArgumentError

SCHEMA = relive.Schema(obs=relive.Field((3,)), action=relive.Field())
FIELDS = SCHEMA.tree | {"value": relive.Field(writable=True)}
EXTRA = relive.Schema(**FIELDS)
WRITABLE = relive.Schema(**FIELDS, state=relive.Field(every=2, writable=True))
GOALS = relive.Schema(obs={"achieved_goal": relive.Field(), "desired_goal": relive.Field()}, action=relive.Field())


def made(schema: relive.Schema = SCHEMA, **choices: Any) -> relive.DeviceBuffer:
    return relive.DeviceBuffer(schema, 40, **{"num_envs": 4, "device": "cpu", "seed": 0, **choices})


def step(number: float = 1.0, lanes: int = 4, **more: Any) -> dict[str, Any]:
    obs, no = torch.full((lanes, 3), float(number)), torch.zeros(lanes, dtype=torch.bool)
    fields = {"obs": obs, "action": obs[:, 0], "reward": obs[:, 0], "next_obs": obs + 1}
    return {**fields, "terminated": no, "truncated": no, **more}


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"item": relive.Hindsight(reward=lambda *_: 0.0), "schema": GOALS}, "use `Transitions"),
        (
            {"item": relive.Windows(obs=[-1, 0], action=range(4))},
            "use `Transitions.*or use a `ReplayBuffer` and `prefetch",
        ),
        *(
            ({"item": relive.Sequences(4, **more), "schema": EXTRA}, "leave out `starts`, `ahead` and `trim`, or use a")
            for more in ({"starts": "episodes"}, {"trim": True}, {"ahead": ("value",)})
        ),
        ({"sampler": Balanced(k=5)}, "use `Uniform\\(\\)`.*`Recent\\(...\\)` or a `Blend` of these"),
        ({"sampler": relive.Once()}, "only the device knows how many.*use `Recent"),
        ({"sampler": relive.Blend((relive.Uniform(), 0.5), (relive.Once(), 0.5))}, "only the device.*use `Recent"),
        ({"sampler": relive.Blend((relive.Uniform(over="episodes"), 1.0))}, "leave `over` out"),
        ({"sampler": relive.Prioritized(replacement=False)}, "leave `replacement` out"),
        ({"sampler": relive.Uniform(over="episodes")}, "leave `over` out"),
        (
            {"schema": relive.Schema(obs=relive.Field(3, "uint32"), action=relive.Field())},
            "as another, such as `int64`",
        ),
        *(({"device": name}, "a device of PyTorch's") for name in ("nothing", "meta")),
        ({"device": "mps"}, "that is there and has float64"),
        ({"limiter": relive.RateLimiter(samples_per_insert=1.0, min_size=1)}, "ReplayBuffer"),
        ({"storage": relive.Ram()}, "ReplayBuffer"),
        ({"kernels": "ops"}, "no `kernels`.*leave it out"),
        ({"seed": np.random.default_rng(0)}, "an integer >= 0"),
        ({"seed": -1}, "an integer >= 0"),
        (
            {"schema": relive.Schema(obs=relive.Field((10**14,)), action=relive.Field())},
            "bytes, the device's memory.*lower `capacity`",
        ),
    ],
)
def test_choices(choices: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        made(**choices)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"obs": np.zeros((4, 3), np.float32)}, "a tensor, got `ndarray` - at `obs`: `torch.as_tensor"),
        ({"obs": torch.zeros(4, 3, dtype=torch.float64)}, "`torch.float32` of shape `\\(4, 3\\)`, got `torch.float64`"),
        ({"next_obs": torch.zeros(3, 3)}, "shape `\\(3, 3\\)` - at `next_obs`"),
        ({"next_obs": None}, "a tensor, got nothing - at `next_obs`"),
        ({"final_obs": torch.zeros(4)}, "final_obs"),
        ({"reward": None}, "nothing - at `reward`"),
        ({"terminated": torch.zeros(4)}, "`torch.bool` .*`.bool\\(\\)` makes it"),
        ({"mask": torch.zeros(3, dtype=torch.bool)}, "`mask`"),
        ({"speed": torch.zeros(4)}, "fields of the schema \\(action, obs, reward\\), got `speed`"),
        ({"obs": {"a": torch.zeros(4, 3)}}, "a tensor, got `dict`"),
        ({"action": torch.zeros(4, device="meta")}, "one on `meta`"),
        ({"priority": torch.ones(4)}, "a sampler with priorities"),
        ({"continues": "yes"}, "`True` or `False`"),
        ({"obs": torch.ones(4, 3).to_sparse()}, "a dense tensor.*`obs`.*to_dense"),
    ],
)
def test_steps(changed: dict[str, Any], text: str) -> None:
    buffer = made()
    with pytest.raises(ArgumentError, match=text):
        buffer.add(**{**step(), **changed})
    assert len(buffer) == 0


def test_nested_observations_are_exact() -> None:
    buffer = made(relive.Schema(obs={"a": relive.Field(), "b": {"c": relive.Field()}}, action=relive.Field()))
    good = {"a": torch.zeros(4), "b": {"c": torch.zeros(4)}}
    for bad, text in (({"a": good["a"]}, "the key `b`"), ({**good, "d": good["a"]}, "the keys a, b, got `d`")):
        for name in ("obs", "next_obs"):
            with pytest.raises(ArgumentError, match=text):
                buffer.add(**{**step(), "obs": good, "next_obs": good, name: bad})


def test_calls() -> None:
    buffer, ids = made(), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(relive.NotEnoughData, match="add steps first"):
        buffer.sample(3)
    assert not buffer.can_sample(1)
    buffer.add(**step())
    assert buffer.can_sample(1)
    for call, text in (
        (lambda: buffer.sample(0), "got `0`"),
        (lambda: buffer.sample(10**12), r"at most \d+ items"),
        (lambda: buffer.sample(2, beta=0.5), "a sampler with priorities"),
        (lambda: buffer.update_priorities(ids, ids), "one"),
        (lambda: buffer.priorities([1]), "priorities"),
        (
            lambda: buffer.keep_batches("batches", 1),
            r"an integer >= 2, got `1` - at `DeviceBuffer.keep_batches\(last\)`",
        ),
        (lambda: buffer.save(None), "a path, got `None`"),
        (lambda: buffer.autosave(None), "a path, got `None`"),
    ):
        with pytest.raises(ArgumentError, match=text):
            call()
    prioritized = made(sampler=relive.Prioritized())
    for errors in (torch.ones(3), ids, torch.ones(2, 2)):
        with pytest.raises(ArgumentError, match="one per id"):
            prioritized.update_priorities(ids, errors)
    with pytest.raises(ArgumentError, match="a finite number >= 0"):
        prioritized.sample(2, beta=-1.0)


@pytest.mark.parametrize("other", [None, made()])
def test_what_no_device_buffer_is_made_of(other: object) -> None:
    with pytest.raises(ArgumentError, match=r"a `ReplayBuffer`.*`buffer.host\(\)`"):
        relive.DeviceBuffer.of(other, device="cpu")


def nan_of(*values: float) -> torch.Tensor:
    return torch.tensor([*values, torch.nan])


# What is wrong, and what is said of it; the last ones are about a call that did something all the same.
LATE: dict[str, tuple[Any, type[Exception], str]] = {
    "not finite": (
        lambda buffer: buffer.update_priorities(torch.tensor([3, 4]), nan_of(5.0)),
        relive.PriorityError, "1 TD errors that are not finite",
    ),
    "unknown": (
        lambda buffer: buffer.update_priorities(torch.tensor([3, 4000]), torch.tensor([5.0, 5.0])),
        relive.StaleId, "1 ids that no step ever had",
    ),
    "empty": (lambda buffer: buffer.sample(2), relive.NotEnoughData, "1 draws from a buffer without items"),
    "unfit": (
        lambda buffer: buffer.add(**step(5.0), priority=nan_of(1.0, -1.0, 2.0)),
        relive.PriorityError, "2 priorities that are negative or not.* with the largest priority so far",
    ),
    **{
        f"beta {beta}": (lambda buffer, beta=beta: buffer.sample(8, beta=torch.tensor(beta)), ArgumentError, "beta")
        for beta in (torch.nan, -1.0, torch.inf)
    },
}  # fmt: skip


@pytest.mark.parametrize("mistake", LATE)
@pytest.mark.parametrize("told_by", ["check", "sample"])
def test_late_errors(mistake: str, told_by: str) -> None:
    """They change nothing, name their call, and are raised once, by `check` or by a later call."""
    buffer = made(sampler=relive.Prioritized(), item=relive.Transitions(n_step=3))
    for t in range(1 if mistake == "empty" else 5):
        buffer.add(**step(t))
    before, stored = buffer.priorities(torch.arange(12)), len(buffer)
    make, error, text = LATE[mistake]
    batch = make(buffer)
    if mistake == "empty":
        assert batch.ids.tolist() == [-1, -1]
        assert not any(batch[name].any() for name in ("weights", "discount"))
    elif "beta" in mistake:
        assert batch.weights.isfinite().all()
    assert len(buffer) == stored + (4 if mistake == "unfit" else 0)
    call = buffer.check if told_by == "check" else lambda: buffer.sample(2)
    with pytest.raises(error, match=text):
        call()
    if mistake != "empty":
        assert torch.equal(before.nan_to_num(-1), buffer.priorities(torch.arange(12)).nan_to_num(-1))
    buffer.check()
    for t in range(6, 9):
        buffer.add(**step(t))
    assert (buffer.sample(4).ids >= 0).all()
    buffer.check()


@pytest.mark.parametrize(
    ("ids", "fields", "text"),
    [
        ([0], {}, "a field to write"),
        ([0], {"obs": torch.ones(1, 3)}, "a writable field \\(`state`, `value`\\)"),
        ([0], {"value": torch.ones(2)}, "of shape `\\(1,\\)`"),
        ([0], {"value": torch.ones(1, dtype=torch.float64)}, "torch.float32"),
        ([0.5], {"value": torch.ones(1)}, "int64 ids"),
        (["late"], {"value": torch.ones(1)}, "a tensor"),
        ([0], {"value": torch.ones(1).to_sparse()}, "a dense tensor"),
    ],
)
def test_values_that_are_not_written(ids: list[Any], fields: dict[str, Any], text: str) -> None:
    buffer = made(WRITABLE, item=relive.Sequences(2, starts=2))
    with pytest.raises(ArgumentError, match=text):
        buffer.write(ids if ids == ["late"] else torch.tensor(ids), **fields)


@pytest.mark.parametrize(
    ("ids", "name", "error", "text"),
    [
        ([0, 4000], "value", relive.StaleId, r"1 ids that no step ever had.*DeviceBuffer.write"),
        ([0, -2], "value", relive.StaleId, "1 ids that no step ever had"),
        ([0, 4], "state", ArgumentError, "1 ids of steps at which a field is not kept"),
    ],
)
def test_late_errors_of_writes(ids: list[int], name: str, error: type[Exception], text: str) -> None:
    """All or nothing; of several values for one step the last one counts."""
    buffer = made(WRITABLE, item=relive.Sequences(2, starts=2))
    for t in range(4):
        buffer.add(**step(t, value=torch.full((4,), float(t)), state=torch.full((4,), float(t))))
    before = [buffer.read(torch.arange(16))[name].clone() for name in ("value", "state")]
    buffer.write(torch.tensor(ids), **{name: torch.tensor([8.0, 9.0])})
    with pytest.raises(error, match=text):
        buffer.check()
    for name_, values in zip(("value", "state"), before, strict=True):
        assert torch.equal(buffer.read(torch.arange(16))[name_], values)
    buffer.check()
    buffer.write(torch.tensor([[0, 8], [0, -1]]), **{name: torch.tensor([[5.0, 6.0], [7.0, 8.0]])})
    buffer.write(torch.empty((0, 2), dtype=torch.int64), **{name: torch.empty(0, 2)})
    buffer.check()
    found = buffer.read(torch.tensor([0, 8]))[name]
    assert (found if name == "state" else found[:, 0]).tolist() == [7.0, 6.0]


@pytest.mark.parametrize("sampler", [relive.Uniform(), relive.Prioritized()])
def test_sequences_of_an_empty_buffer(sampler: relive.Sampler) -> None:
    schema = relive.Schema(obs=relive.Field((3,)), action=relive.Field(), carry=relive.Field((2,), every=2))
    buffer = made(schema, item=relive.Sequences(3, n_step=2, starts=2), sampler=sampler)
    buffer.add(**step(), carry=torch.ones(4, 2))
    batch = buffer.sample(2)
    assert batch.ids.tolist() == [-1, -1]
    assert batch.all_obs.shape == (2, 5, 3)
    assert not any(batch[name].any() for name in ("mask", "weights", "discount", "reward", "action", "first"))


def test_calls_about_nothing() -> None:
    buffer = made(sampler=relive.Prioritized())
    buffer.add(**step())
    none = torch.empty(0, dtype=torch.int64)
    buffer.update_priorities(none, torch.empty(0))
    assert len(buffer.priorities(none)) == len(buffer.read(none).reward) == 0
    buffer.cut(torch.zeros(4, dtype=torch.bool))
    buffer.check()
    assert buffer.stats().updates == 0


def test_wild_ids_lead_nowhere() -> None:
    buffer = made(sampler=relive.Prioritized())
    for t in range(15):
        buffer.add(**step(t))
    wild = torch.tensor([-5, 10**15, -(2**63), 2**63 - 1, 0, 59])
    assert buffer.priorities(wild).isnan().tolist() == [True, True, True, True, True, False]
    buffer.update_priorities(wild[-2:], torch.ones(2))
    assert buffer.stats().stale_updates == 1


def test_nothing_imports_torch() -> None:
    code = "import relive, sys; relive.ReplayBuffer; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
