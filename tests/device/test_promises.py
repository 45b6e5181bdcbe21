"""What a device buffer promises about odd tensors, late errors and copies, by its public names alone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_device_refusals import SCHEMA, made, step

import relive

W = relive.Schema(**SCHEMA.tree, w=relive.Field((2,), writable=True))


def of(lanes: int = 4, **choices: Any) -> relive.DeviceBuffer:
    return made(W, num_envs=lanes, sampler=relive.Prioritized(eps=0), **choices)


def step_of(value: float = 0.0, lanes: int = 4, **more: Any) -> dict[str, Any]:
    return step(value, lanes, **{"w": torch.zeros(lanes, 2), **more})


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
    buffer = of()
    ids = buffer.add(**step_of(w=values))
    assert (buffer.host().read(ids.numpy()).w == values.numpy()).all()
    other = values.flip(0).T.contiguous().T  # with strides of its own, too
    buffer.write(ids, w=other)
    assert (buffer.host().read(ids.numpy()).w == other.numpy()).all()
    buffer.write(ids, w=values)
    assert (buffer.host().read(ids.numpy()).w == values.numpy()).all()


CHANGES: dict[str, tuple[Callable[[relive.DeviceBuffer], object], Callable[[relive.ReplayBuffer], bool]]] = {
    "cut": (lambda buffer: buffer.cut(), lambda host: host.stats().cuts == 1),
    "clear": (lambda buffer: buffer.clear(), lambda host: len(host) == 0),
    "add": (lambda buffer: buffer.add(**step_of(2.0, 1)), lambda host: len(host) == 3),
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
    buffer = of(1)
    for t in range(2):
        ids = buffer.add(**step_of(t, 1))
    buffer.update_priorities(ids, torch.full((1,), torch.nan))
    change(buffer)
    with pytest.raises(relive.PriorityError, match="not finite"):
        buffer.check()
    assert is_made(buffer.host())
    buffer.check()


def test_a_reset_that_came_with_a_late_error_joins_no_episodes() -> None:
    buffer = of(1, item=relive.Transitions(n_step=3, gamma=1.0))
    for t in range(2):
        ids = buffer.add(**step_of(t, 1), continues=True)
    buffer.update_priorities(ids, torch.full((1,), torch.nan))
    buffer.cut()
    for t in (100.0, 101.0, 102.0):
        buffer.add(**step_of(t, 1), continues=True)
    item = buffer.host().read([0])
    assert (item.steps.tolist(), item.reward.tolist(), item.next_obs.tolist()) == ([2], [1.0], [[2.0] * 3])


@pytest.mark.parametrize("copying", [copy.deepcopy, copy.copy, pickle.dumps])
def test_copies_are_refused_with_what_makes_them(copying: Callable[[object], object]) -> None:
    with pytest.raises(relive.ReliveError, match=r"DeviceBuffer\.of\(buffer\.host\(\)"):
        copying(made())


def test_short_episodes_cost_steps_and_a_notice_tells_of_them() -> None:
    """Every step ends an episode: with 1/16 of the capacity for final observations one call of 16 is kept."""
    buffer = relive.DeviceBuffer(SCHEMA, 64, num_envs=4, device="cpu")
    for t in range(16):
        buffer.add(**step(t, terminated=torch.ones(4, dtype=torch.bool)))
    with pytest.warns(relive.ReliveWarning, match=r"keeps 1 of 16 steps.*`boundaries=1`"):
        buffer.check()
    assert buffer.stats().size == 4
