"""What batches of two buffers may have in common; `test_mixtures_of_many.py` has shares and priorities."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scalars import rolled

import relive
from relive._ring.kernels import active
from relive.batch import joined_at_once
from relive.testing.agreement import assert_same_batch
from relive.trajectories import Mixture, TrajectoryReplayBuffer


def buffer(value, seed=0, **more):
    made = TrajectoryReplayBuffer(seed=seed)
    states = np.full((6, 2, 3), value, np.float32)
    fields = {"rewards": np.full((6, 2, 1), value, np.float32), "curr_obs": {"states": states}, **more}
    made.add_trajectories([fields])
    return made


def test_fields_that_both_have_are_kept():
    only = {"prev_logprobs": np.zeros((6, 2, 1), np.float32)}
    batch = Mixture(buffer(0.0, **only), buffer(1.0)).sample(4)
    assert set(batch) == {"rewards", "curr_obs"}


def test_what_differs_is_refused():
    other = buffer(1.0, actions=np.zeros((6, 2, 4), np.float64))
    mixture = Mixture(buffer(0.0, actions=np.zeros((6, 2, 4), np.float32)), other)
    with pytest.raises(relive.SchemaError) as caught:
        mixture.sample(4)
    text = "Expected `float32` of shape `(4,)`, as in the replay, got `float64` of shape `(4,)` - at `actions`"
    assert str(caught.value) == text
    nested = Mixture(buffer(0.0, extra={"a": np.zeros((6, 2))}), buffer(1.0, extra=np.zeros((6, 2))))
    with pytest.raises(relive.SchemaError, match=r"Expected a mapping, as in the replay, got `float64`"):
        nested.sample(4)


def test_an_empty_buffer_says_so():
    with pytest.raises(relive.NotEnoughData):
        Mixture(buffer(0.0), TrajectoryReplayBuffer()).sample(4)


PIXELS, FAR = relive.Field((2, 2), "uint8", stack=3), relive.Field((40, 30))
SCHEMAS = {
    "nested": relive.Schema(obs={"a": relive.Field(2), "b": {"c": relive.Field(3)}}, action=relive.Field()),
    "stacked": relive.Schema(obs=PIXELS, action=relive.Field((), "int64")),
    "large": relive.Schema(obs=FAR, action=relive.Field(600)),  # in memory that is used again
}


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(
    "item", [relive.Transitions(), relive.Transitions(n_step=2, chunk=True), relive.Sequences(2)], ids=repr
)
def test_parts_are_copied_at_once_as_field_by_field(schema, item, monkeypatch):
    made = [rolled(SCHEMAS[schema], 30, 40, item=item, seed=seed) for seed in range(3)]
    mixture, states = relive.Mixture(*made), [each.rng.bit_generator.state for each in made]
    batches = []
    for joined in (joined_at_once, lambda parts: None):
        monkeypatch.setattr("relive.mixture.joined_at_once", joined)
        for each, state in zip(made, states, strict=True):
            each.rng.bit_generator.state = state
        batches.append(mixture.sample(33))
    assert_same_batch(*batches)


def test_parts_of_other_fields_are_not_copied_at_once():
    batches = []
    for dtype, shape in (("float32", 2), ("float64", 2), ("float32", 3)):
        steps = relive.ReplayBuffer(relive.Schema(obs=relive.Field(shape, dtype), action=relive.Field()), 10, seed=0)
        steps.extend(**{name: np.zeros((3, shape)) for name in ("obs", "next_obs")}, action=np.zeros(3), **ENDS)
        batches.append(steps)
    for other, got in ((batches[1], "`float64` of shape `(2,)`"), (batches[2], "`float32` of shape `(3,)`")):
        with pytest.raises(relive.SchemaError, match=re.escape(f"got {got} - at `obs`")):
            relive.Mixture(batches[0], other).sample(4)
    assert active().joined([{}, {}]) is None
    assert active().joined([]) is None


ENDS = {"reward": np.zeros(3), "terminated": np.zeros(3, bool), "truncated": np.zeros(3, bool)}
