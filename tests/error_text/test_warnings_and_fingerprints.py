"""Warnings, which are said once, and what makes the fingerprint of these tests trustworthy."""

from __future__ import annotations

import numpy as np
import pytest
from refused_calls import F, fingerprint, prioritized, step

import relive


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
