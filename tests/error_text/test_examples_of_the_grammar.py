"""Messages that the documentation shows, word for word, and what makes the fingerprint of these tests trustworthy."""

from __future__ import annotations

import numpy as np
import pytest
from refused_calls import F, fingerprint, prioritized, step

import relive


def test_a_wrong_shape_of_one_camera():
    schema = relive.Schema(obs={"camera": F((84, 84), "float32")}, action=F())
    buffer = relive.ReplayBuffer(schema, 10)
    camera = {"camera": np.zeros((84, 84, 1))}
    with pytest.raises(relive.errors.SchemaError) as caught:
        buffer.add(obs=camera, action=0, reward=0, next_obs=camera, terminated=False, truncated=False)
    assert str(caught.value) == ("Expected shape `(84, 84)`, got shape `(84, 84, 1)` - at `obs.camera`")


def test_three_bad_td_errors_of_256():
    buffer = prioritized()
    ids = np.resize(buffer.sample(4).ids, 256)
    td_error = np.ones(256)
    td_error[[17, 40, 200]] = np.nan
    with pytest.raises(relive.errors.PriorityError) as caught:
        buffer.update_priorities(ids, td_error)
    assert str(caught.value) == "Expected a finite TD error, got `nan` (3 of 256) - at `td_error[17]`: check the loss"


@pytest.mark.parametrize("batch_size", [1, 32])
def test_the_first_window_is_not_complete(batch_size):
    buffer = relive.ReplayBuffer(relive.Schema(obs=F(), action=F()), 10, item=relive.Transitions(n_step=3))
    for t in range(2):
        buffer.add(obs=t, action=0, reward=0, next_obs=t + 1, terminated=False, truncated=False)
    with pytest.raises(relive.errors.NotEnoughData) as caught:
        buffer.sample(batch_size)
    assert str(caught.value) == (
        "Expected at least 1 drawable item, got 0 - at `ReplayBuffer.sample`: "
        "2 of 3 steps of the first 3-step window are stored; `can_sample` says when there are enough"
    )


def test_a_truncation_without_its_observation_is_said_once():
    buffer = relive.ReplayBuffer(relive.Schema(obs=F(), action=F()), 10)

    def three_truncations():
        for _ in range(3):
            buffer.add(obs=0, action=0, reward=0, terminated=False, truncated=True)

    with pytest.warns(relive.errors.ReliveWarning, match=r"a final observation with every truncated step") as said:
        three_truncations()
    assert len(said) == 1
    batch = buffer.read([0, 1, 2])
    assert batch.truncated.all()
    assert (batch.discount == 0).all()


def test_observations_that_change_between_calls_are_said_once():
    buffer = relive.ReplayBuffer(relive.Schema(obs=F(), action=F()), 1000)

    def three_hundred_cuts():
        for t in range(300):
            buffer.add(obs=t, action=0, reward=0, next_obs=t + 0.5, terminated=False, truncated=False)

    with pytest.warns(relive.errors.ReliveWarning, match="byte for byte") as said:
        three_hundred_cuts()
    assert len(said) == 1
    assert buffer.stats().cuts == 299


@pytest.mark.filterwarnings("error")
def test_one_step_in_ten_may_be_cut_without_a_word():
    buffer = relive.ReplayBuffer(relive.Schema(obs=F(), action=F()), 1000)
    for t in range(300):
        after = t + (0.5 if t % 12 == 0 else 1)
        buffer.add(obs=t, action=0, reward=0, next_obs=after, terminated=t == 0, truncated=False)
    assert buffer.stats().cuts == 24


def test_every_error_is_one_family():
    names = ["SchemaError", "ArgumentError", "PriorityError", "NotEnoughData", "StaleId", "MissingExtra"]
    assert all(issubclass(getattr(relive.errors, name), relive.errors.ReliveError) for name in names)


def test_the_fingerprint_sees_every_change():
    """Each of these changes one thing; a fingerprint that misses it would make the tables of bad inputs worthless."""
    changes = [
        lambda b: b.add(**step()),
        lambda b: b.add(**{k: v if "obs" in k else v[:1] for k, v in step_of_one_lane().items()}, env_ids=[1]),
        lambda b: b.sample(1),
        lambda b: b.rng.random(),
        lambda b: b.update_priorities(b.sample(1).ids, [3.0]),
        lambda b: b.update_priorities([0], [3.0]),
        lambda b: b.cut([0]),
        lambda b: b.add(**step(last=np.array([0, 1], np.float16))),
    ]
    prints = [fingerprint(prioritized())]
    for change in changes:
        buffer = prioritized()
        change(buffer)
        prints.append(fingerprint(buffer))
    assert len(set(prints)) == len(prints)
    assert fingerprint(prioritized()) == prints[0]


def step_of_one_lane() -> dict:
    one = step()
    return {**one, **{k: {n: v[:1] for n, v in one[k].items()} for k in ("obs", "next_obs")}}
