"""Wrong arguments of a `Selection`: each is named, whatever its type."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from relive.errors import ArgumentError
from relive.trajectories import Selection, Trajectory, TrajectoryReplayBuffer

WRONG: list[Any] = [
    "rewards",
    [1.0, 2.0],
    (1,),
    np.ones(3),
    np.ones(()),
    5,
    0,
    1.5,
    {1},
    b"x",
    SimpleNamespace(),
    True,
    "",
]


@pytest.fixture
def buffer() -> TrajectoryReplayBuffer:
    made = TrajectoryReplayBuffer(seed=0)
    made.add_trajectories([Trajectory(rewards=np.full((3, 2, 1), k, "f4"), task="ab"[k]) for k in range(2)])
    return made


@pytest.mark.parametrize("weights", WRONG, ids=repr)
def test_weights_of_another_type(weights: Any, buffer: TrajectoryReplayBuffer) -> None:
    for call in (lambda: Selection(weights=weights), lambda: buffer.sample(4, weights=weights)):
        with pytest.raises(ArgumentError) as caught:
            call()
        wanted = f"Expected a mapping of ids or tasks to weights, got `{type(weights).__name__}`"
        assert str(caught.value) == f"{wanted} - at `Selection(weights)`"


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ({None: 1}, "ids and tasks, got `None`"),
        ({1.0: 1}, "ids and tasks, got `1.0`"),
        ({True: 1}, "ids and tasks, got `True`"),
        ({1: "x"}, "a finite number >= 0, got `'x'`"),
        ({1: np.ones(2)}, "a finite number >= 0, got `array([1., 1.])`"),
        ({"a": -1}, "a finite number >= 0, got `-1`"),
        ({"a": np.nan}, "a finite number >= 0, got `nan`"),
    ],
)
def test_weights_that_are_none(weights: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Selection(weights=weights)
    assert f"Expected {text} - at `Selection(weights" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["max_staleness", "success", "min_length", "max_length", "where", "per", "replacement"]
)
@pytest.mark.parametrize("value", ["x", np.ones(2), [1], {"a": 1}, -1.5], ids=repr)
def test_other_rules_of_another_type(name: str, value: Any, buffer: TrajectoryReplayBuffer) -> None:
    with pytest.raises(ArgumentError, match=rf"at `Selection\({name}\)`"):
        buffer.sample(4, **{name: value})
    assert len(buffer.sample(4).rewards) == 4


def test_ids_as_a_batch_has_them(buffer: TrajectoryReplayBuffer) -> None:
    """Check that NumPy's integers name trajectories, too."""
    ids = buffer.sample(20, metadata=True).trajectory_ids
    assert (buffer.sample(50, weights={ids.max(): 1, ids.min(): 0}).rewards == 1).all()
