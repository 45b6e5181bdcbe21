"""What `add`, `extend` and `update_priorities` take beyond the exact shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relive

FLAGS = [[False, True], np.array([0, 1]), np.array([0, 1], np.uint8), np.array([0.0, 1.0]), [0.0, 1.0]]


def discrete(num_envs: int, **choices: Any) -> relive.ReplayBuffer:
    action = {"move": relive.Field((), "int64"), "push": relive.Field((1,))}
    schema = relive.Schema(obs=relive.Field(), action=action, seen=relive.Field((), "bool"))
    return relive.ReplayBuffer(schema, 100, num_envs=num_envs, seed=0, **choices)


def step(*lead: int, move: Any = None, **changes: Any) -> dict[str, Any]:
    zeros = np.zeros(lead)
    action = {"move": np.zeros(lead, int) if move is None else move, "push": zeros[..., None]}
    flags = {"terminated": zeros > 0, "truncated": zeros > 0, "seen": zeros > 0}
    return {"obs": zeros, "action": action, "reward": zeros, "next_obs": zeros, **flags, **changes}


@pytest.mark.parametrize("time_major", [None, False, True])
@pytest.mark.parametrize("lanes", [1, 3])
def test_discrete_actions_may_come_as_columns(lanes: int, time_major: bool | None) -> None:
    """Check one step of each lane, and four in either order."""
    buffer, lead = discrete(lanes), {None: (lanes,), False: (lanes, 4), True: (4, lanes)}[time_major]
    moves = np.arange(np.prod(lead)).reshape(*lead, 1)
    several = {} if time_major is None else {"time_major": time_major}
    ids = (buffer.extend if several else buffer.add)(**step(*lead, move=moves), **several)
    np.testing.assert_array_equal(buffer.read(ids.ravel()).action.move, moves.ravel())


def test_one_lane_without_its_axis_may_have_the_column() -> None:
    buffer = discrete(1)
    ids = buffer.extend(**step(4, move=np.arange(4)[:, None]))
    np.testing.assert_array_equal(buffer.read(ids).action.move, np.arange(4))


@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize("name", ["terminated", "truncated", "seen"])
def test_flags_may_be_zeros_and_ones(name: str, flags: Any) -> None:
    buffer = discrete(2)
    ids = buffer.add(**step(2, **{name: flags}))
    assert buffer.read(ids)[name].tolist() == [False, True]


def shapes_of_td_errors(errors: np.ndarray) -> list[Any]:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(errors, dtype=torch.float32, requires_grad=True)
    return [errors, errors[:, None], errors[:, None].tolist(), tensor, tensor[:, None] * 1.0, tensor.double().detach()]


def test_td_errors_may_be_columns_and_tensors_that_require_grad() -> None:
    wanted = np.array([0.5, -2.0, 4.0])
    for given in shapes_of_td_errors(wanted):
        buffer = discrete(1, sampler=relive.Prioritized())
        ids = buffer.extend(**step(3))
        assert buffer.update_priorities(ids, given) == 3
        np.testing.assert_allclose(buffer.priorities(ids), np.abs(wanted) + 1e-6)


def test_td_errors_that_numpy_cannot_read_are_refused() -> None:
    torch = pytest.importorskip("torch")
    buffer = discrete(1, sampler=relive.Prioritized())
    ids = buffer.extend(**step(3))
    with pytest.raises(relive.errors.PriorityError, match="Expected an array of numbers, got `Tensor` - at"):
        buffer.update_priorities(ids, torch.ones(3, device="meta"))
