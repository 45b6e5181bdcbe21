"""What a device buffer promises about odd tensors, late errors and copies, by its public names alone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import relive

SCHEMA = relive.Schema(obs=relive.Field(), action=relive.Field(), w=relive.Field((2,), writable=True))


def made(lanes: int = 4, **choices: Any) -> relive.DeviceBuffer:
    settings = {"num_envs": lanes, "device": "cpu", "seed": 0, "sampler": relive.Prioritized(eps=0), **choices}
    return relive.DeviceBuffer(SCHEMA, 100, **settings)


def step(lanes: int = 4, value: float = 0.0) -> dict[str, torch.Tensor]:
    now, no = torch.full((lanes,), float(value)), torch.zeros(lanes, dtype=torch.bool)
    flags = {"terminated": no, "truncated": no}
    return {"obs": now, "action": now, "reward": now, "next_obs": now + 1, "w": torch.zeros(lanes, 2), **flags}


@pytest.mark.parametrize(
    "values",
    [
        torch.arange(16.0).reshape(4, 4)[:, ::2],
        torch.arange(8.0).reshape(2, 4).T,
        torch.arange(8.0).reshape(4, 2).flip(1),
        torch.ones(1, 2).expand(4, 2),
        torch.arange(32.0).reshape(4, 4, 2)[:, 1],
    ],
    ids=["strided", "transposed", "flipped", "expanded", "sliced"],
)
def test_tensors_of_any_strides_are_written(values: torch.Tensor) -> None:
    """Those that `add` takes, `write` takes."""
    buffer = made()
    ids = buffer.add(**{**step(), "w": values})
    assert (buffer.host().read(ids.numpy()).w == values.numpy()).all()
    other = values.flip(0).T.contiguous().T  # with strides of its own, too
    buffer.write(ids, w=other)
    assert (buffer.host().read(ids.numpy()).w == other.numpy()).all()
    buffer.write(ids, w=values)
    assert (buffer.host().read(ids.numpy()).w == values.numpy()).all()


def test_nothing_can_be_sampled_where_all_priorities_are_zero() -> None:
    buffer = made()
    ids = buffer.add(**step(), priority=torch.zeros(4))
    assert not buffer.can_sample(1)
    assert not buffer.host().can_sample(1)
    buffer.update_priorities(ids[:1], torch.ones(1))
    assert buffer.can_sample(1)
    assert made(sampler=relive.Uniform()).can_sample(1) is False


def test_a_late_error_of_add_says_what_became_of_its_steps() -> None:
    buffer = made()
    buffer.add(**step(), priority=torch.full((4,), torch.nan))
    assert len(buffer) == 4
    with pytest.raises(relive.PriorityError, match="stored its steps with the largest priority so far"):
        buffer.check()


CHANGES: dict[str, tuple[Callable[[relive.DeviceBuffer], object], Callable[[relive.ReplayBuffer], bool]]] = {
    "cut": (lambda buffer: buffer.cut(), lambda host: host.stats().cuts == 1),
    "clear": (lambda buffer: buffer.clear(), lambda host: len(host) == 0),
    "add": (lambda buffer: buffer.add(**step(1, 2.0)), lambda host: len(host) == 3),
    "write": (
        lambda buffer: buffer.write(torch.tensor([0]), w=torch.full((1, 2), 7.0)),
        lambda host: bool((host.column("w")[0, 0] == 7.0).all()),
    ),
    "update_priorities": (
        lambda buffer: buffer.update_priorities(torch.tensor([1]), torch.tensor([5.0])),
        lambda host: abs(host.priorities([1])[0] - 5.0) < 1e-9,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_late_error_takes_the_place_of_no_change(name: str) -> None:
    """A loop that logs it and continues has lost nothing but the call that was wrong."""
    change, is_made = CHANGES[name]
    buffer = made(1)
    for t in range(2):
        ids = buffer.add(**step(1, float(t)))
    buffer.update_priorities(ids, torch.full((1,), torch.nan))
    change(buffer)
    with pytest.raises(relive.PriorityError, match="not finite"):
        buffer.check()
    assert is_made(buffer.host())
    buffer.check()


def test_a_reset_that_came_with_a_late_error_joins_no_episodes() -> None:
    buffer = made(1, item=relive.Transitions(n_step=3, gamma=1.0))
    for t in range(2):
        ids = buffer.add(**step(1, float(t)), continues=True)
    buffer.update_priorities(ids, torch.full((1,), torch.nan))
    buffer.cut()
    for t in (100.0, 101.0, 102.0):
        buffer.add(**step(1, t), continues=True)
    item = buffer.host().read([0])
    assert (item.steps.tolist(), item.reward.tolist(), item.next_obs.tolist()) == ([2], [1.0], [2.0])


@pytest.mark.parametrize("copying", [copy.deepcopy, copy.copy, pickle.dumps])
def test_copies_are_refused_with_what_makes_them(copying: Callable[[object], object]) -> None:
    with pytest.raises(relive.ReliveError, match=r"DeviceBuffer\.of\(buffer\.host\(\)"):
        copying(made())


def test_what_cannot_be_is_refused_by_name() -> None:
    buffer = made()
    ids = buffer.add(**step())
    with pytest.raises(relive.ArgumentError, match=r"a dense tensor.*`obs`.*to_dense"):
        buffer.add(**{**step(), "obs": step()["obs"].to_sparse()})
    with pytest.raises(relive.ArgumentError, match=r"a dense tensor"):
        buffer.write(ids, w=torch.ones(4, 2).to_sparse())
    with pytest.raises(relive.ArgumentError, match=r"at most \d+ items"):
        buffer.sample(10**12)
    with pytest.raises(relive.ArgumentError, match="a device of PyTorch's"):
        made(device="meta")


@pytest.mark.parametrize("beta", [float("nan"), -1.0, float("inf")])
def test_a_wrong_beta_of_a_tensor_is_told_late(beta: float) -> None:
    buffer = made()
    for t in range(3):
        buffer.add(**step(value=float(t)))
    weights = buffer.sample(8, beta=torch.tensor(beta)).weights
    assert weights.isfinite().all()
    with pytest.raises(relive.ArgumentError, match="beta"):
        buffer.check()


@pytest.mark.parametrize(
    "choice", [{"limiter": relive.RateLimiter(samples_per_insert=1.0, min_size=1)}, {"storage": relive.Ram()}], ids=str
)
def test_choices_of_a_host_buffer_are_refused_by_name(choice: dict[str, Any]) -> None:
    with pytest.raises(relive.ArgumentError, match="ReplayBuffer"):
        made(**choice)


def test_short_episodes_cost_steps_and_a_notice_tells_of_them() -> None:
    """Every step ends an episode: with 1/16 of the capacity for final observations one call of 16 is kept."""
    buffer = relive.DeviceBuffer(SCHEMA, 64, num_envs=4, device="cpu")
    for t in range(16):
        buffer.add(**{**step(value=float(t)), "terminated": torch.ones(4, dtype=torch.bool)})
    with pytest.warns(relive.ReliveWarning, match=r"keeps 1 of 16 steps.*`boundaries=1`"):
        buffer.check()
    assert buffer.stats().size == 4
