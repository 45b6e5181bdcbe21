"""Sequences learn from every step of an episode, the first ones included, whatever is in front of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relive

F = relive.Field
LENGTHS = (2, 3, 1, 4, 11)  # of episodes, in turn
SAMPLERS = [relive.Uniform(), relive.Uniform(over="episodes"), relive.Prioritized(), relive.Uniform(replacement=False)]
ITEMS = [
    relive.Sequences(4, burn_in=3),
    relive.Sequences(2, burn_in=8, n_step=3, time_major=True),
    relive.Sequences(1, burn_in=1, starts=2),
    relive.Sequences(80, burn_in=40, n_step=5, starts=40),
    relive.Sequences(4),
]


def filled(item: Any, steps: int = 400, schema: relive.Schema | None = None, **choices: Any) -> relive.ReplayBuffer:
    """Fill one lane; the observation is `100 * episode + step`."""
    schema = schema or relive.Schema(obs=F((), "int64"), action=F((), "int64"))
    buffer = relive.ReplayBuffer(schema, 400, item=item, boundaries=1.0, seed=0, **choices)
    left = episode = 0
    for t in range(steps):
        left = left or LENGTHS[episode % len(LENGTHS)]
        here = 100 * episode + LENGTHS[episode % len(LENGTHS)] - left
        left -= 1
        more = {name: t for name in schema.tree if name not in ("obs", "action", "reward", "terminated", "truncated")}
        ends = {"terminated": left == 0 and episode % 2 == 0, "truncated": left == 0 and episode % 2 == 1}
        buffer.add(obs=here, action=here, reward=1, next_obs=here + 1, **ends, **more)
        episode += left == 0
    return buffer


def batch_first(item: relive.Sequences, array: np.ndarray) -> np.ndarray:
    return array.T if item.time_major else array


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("item", ITEMS, ids=repr)
def test_every_item_has_something_to_learn_from(item: relive.Sequences, sampler: relive.Sampler) -> None:
    buffer = filled(item, sampler=sampler)
    batch = buffer.sample(3000 if sampler.replacement else 9)
    mask, obs = (batch_first(item, array) for array in (batch.mask, batch.obs))
    assert mask[:, item.burn_in].all()
    anchors = obs[:, item.burn_in]
    if sampler.replacement:
        learned = set(obs[:, item.burn_in :][mask[:, item.burn_in :]] % 100)
        assert learned == set(range(11)) or item.starts > 1
        assert {0, 1} <= learned
    in_front = mask[:, : item.burn_in].sum(1)
    np.testing.assert_array_equal(in_front, np.minimum(anchors % 100, item.burn_in))
    np.testing.assert_array_equal(batch.first, anchors % 100 <= item.burn_in)
    assert (np.diff(mask.astype(int), axis=1) == 1).sum() == (in_front < item.burn_in).sum()  # padding, then steps
    td = np.ones_like(mask, float)
    priority = relive.sequence_priority(td[:, item.burn_in :], mask[:, item.burn_in :])
    assert (priority > 0.9).all()


def test_padding_in_front() -> None:
    """Check by hand: an episode's second step with a burn-in of three."""
    schema = relive.Schema(obs=F((), "int64"), action=F((), "int64"), cost=F())
    item = relive.Sequences(2, burn_in=3, n_step=2, gamma=0.5, step_ids=True)
    buffer = filled(item, 20, schema)
    batch = buffer.read(np.sort(buffer.ids()))
    (row,) = np.flatnonzero(batch.obs[:, 3] == 401)  # of eleven steps
    assert batch.all_obs[row].tolist() == [400, 400, 400, 401, 402, 403, 404]
    assert batch.mask[row].tolist() == [False, False, True, True, True]
    assert batch.step_ids[row].tolist() == [-1, -1, *(batch.ids[row] + [-1, 0, 1])]
    assert batch.action[row].tolist() == [0, 0, 400, 401, 402]
    assert batch.all_prev_action[row].tolist() == [0, 0, 0, 400, 401, 402, 403]
    assert batch.all_prev_reward[row].tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert batch.reward[row].tolist() == [0, 0, 1.5, 1.5, 1.5]
    assert batch.discount[row].tolist() == [0, 0, 0.25, 0.25, 0.25]
    assert batch.steps[row].tolist() == [0, 0, 2, 2, 2]
    assert batch.cost[row].tolist() == [0, 0, 10, 11, 12]
    assert batch.first[row]
    assert not batch.terminated[row].any()
    (row,) = np.flatnonzero(batch.obs[:, 3] == 404)
    assert batch.obs[row].tolist() == [401, 402, 403, 404, 405]
    assert not batch.first[row]


def test_a_field_of_the_schemas_own_stays() -> None:
    schema = relive.Schema(obs=F((), "int64"), action=F((), "int64"), first=F((), "int64"))
    for item in (relive.Sequences(2, burn_in=1), relive.Sequences(2, across_episodes=True)):
        buffer = filled(item, 50, schema)
        batch = buffer.sample(9)
        assert batch.first.shape == batch.mask.shape
        assert batch.first.dtype == np.int64
        assert buffer.read(batch.ids).first.tolist() == batch.first.tolist()


def test_what_is_refused() -> None:
    schema = relive.Schema(obs=F(), action=F(), state=F(every=4))
    with pytest.raises(relive.ArgumentError) as caught:
        relive.ReplayBuffer(schema, 100, item=relive.Sequences(8, burn_in=6, starts=4))
    assert str(caught.value) == (
        "Expected `burn_in` to be a multiple of 4, the steps at which `state` is kept, got `6` - at "
        "`Sequences(burn_in)`: say `Sequences(burn_in=4)`, so that no item starts without its state"
    )
    relive.ReplayBuffer(schema, 100, item=relive.Sequences(8, burn_in=6, starts=4, across_episodes=True))
    buffer = relive.ReplayBuffer(relive.Schema(obs=F(), action=F()), 20, item=relive.Sequences(3, burn_in=9, n_step=2))
    for t in range(3):
        buffer.add(obs=t, action=0, reward=0, next_obs=t + 1, terminated=False, truncated=False)
    with pytest.raises(relive.NotEnoughData, match="3 of 4 steps of the first 4-step window are stored"):
        buffer.sample(1)
    buffer.add(obs=3, action=0, reward=0, next_obs=4, terminated=False, truncated=False)
    assert buffer.sample(2).ids.tolist() == [0, 0]
