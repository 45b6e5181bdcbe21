"""What every sampler owes the buffer; a new sampler joins by one line in `SAMPLERS`."""

from __future__ import annotations

import numpy as np
import pytest

import relive

SAMPLERS = {
    "uniform": relive.Uniform(),
    "uniform, no repeats": relive.Uniform(replacement=False),
    "prioritized": relive.Prioritized(),
    "prioritized, independent": relive.Prioritized(stratified=False, weights="buffer"),
    "prioritized, no repeats": relive.Prioritized(replacement=False, weights="none"),
    "prioritized, annealed": relive.Prioritized(beta=relive.Anneal(0.0, 1.0, over=5)),
    "ranked": relive.Ranked(),
    "ranked, independent": relive.Ranked(alpha=1.0, stratified=False, weights="buffer"),
    "ranked, no repeats": relive.Ranked(replacement=False, weights="none", beta=relive.Anneal(0.0, 1.0, over=5)),
}


@pytest.fixture(params=SAMPLERS, name="sampler")
def _sampler(request):
    return SAMPLERS[request.param]


def filled(sampler, steps=30, seed=1, **choices):
    """Three lanes of 16 rows that went round, with ends in them."""
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((2,)), action=relive.Field()),
        capacity=48,
        num_envs=3,
        item=relive.Transitions(n_step=2),
        sampler=sampler,
        seed=seed,
        **choices,
    )
    for t in range(steps):
        buffer.add(**step(t))
    return buffer


def step(t):
    obs = np.stack([np.arange(3.0), np.full(3, t)], axis=1)
    ended = np.array([t % 7 == 6, t % 5 == 4, False])
    return {
        "obs": obs, "action": np.full(3, t), "reward": np.ones(3), "next_obs": obs + np.array([0, 1]),
        "terminated": ended, "truncated": ~ended & (t % 11 == 10),
    }  # fmt: skip


def drawable(buffer):
    """Ids that can be read, found by trying all."""
    found = []
    for key in range(3 * 40):
        try:
            buffer.read([key])
        except relive.errors.StaleId:
            continue
        found.append(key)
    return found


def test_shapes_and_dtypes(sampler):
    batch = filled(sampler).sample(8)
    assert (batch.ids.shape, batch.ids.dtype) == ((8,), np.int64)
    assert (batch.weights.shape, batch.weights.dtype) == ((8,), np.float32)
    assert (batch.weights > 0).all()


def test_only_drawable_items_and_sooner_or_later_all(sampler):
    buffer = filled(sampler)
    ids = drawable(buffer)
    assert len(ids) == buffer.stats().drawable
    drawn = np.concatenate([buffer.sample(8).ids for _ in range(400)])
    assert set(drawn.tolist()) == set(ids)


def test_a_batch_is_what_read_gives(sampler):
    buffer = filled(sampler)
    batch = buffer.sample(8)
    again = buffer.read(batch.ids)
    for name in set(batch) - {"weights"}:
        np.testing.assert_array_equal(batch[name], again[name], err_msg=name)


def test_the_same_seed_and_calls_give_the_same_ids(sampler):
    draws = []
    for _ in range(2):
        buffer, ids = filled(sampler), []
        for t in range(30, 50):
            batch = buffer.sample(7)
            ids += batch.ids.tolist() + batch.weights.tolist()
            if sampler.prioritizes:
                buffer.update_priorities(batch.ids, np.sin(batch.ids))
            buffer.add(**step(t))
        draws.append(ids)
    assert draws[0] == draws[1]
    assert filled(sampler, seed=2).sample(16).ids.tolist() != filled(sampler, seed=3).sample(16).ids.tolist()


def test_without_repeats_a_batch_can_be_everything(sampler):
    buffer = filled(sampler)
    n = buffer.stats().drawable
    assert buffer.can_sample(n + 1) is sampler.replacement
    if not sampler.replacement:
        assert sorted(buffer.sample(n).ids.tolist()) == drawable(buffer)
        with pytest.raises(relive.errors.NotEnoughData):
            buffer.sample(n + 1)


def test_one_item_is_enough_with_repeats(sampler):
    buffer = filled(sampler, steps=0)
    assert not buffer.can_sample(1)
    lane = {name: value[:1] for name, value in step(6).items()}  # terminates at once
    buffer.add(**lane, env_ids=[0])
    assert buffer.can_sample(1)
    assert buffer.can_sample(10) is sampler.replacement
    assert buffer.sample(1).ids.tolist() == [0]


def test_a_refused_draw_moves_nothing(sampler):
    buffer = filled(sampler, steps=0)
    state = buffer.rng.bit_generator.state
    with pytest.raises(relive.errors.NotEnoughData):
        buffer.sample(3)
    assert buffer.rng.bit_generator.state == state
    assert buffer.stats().drawn == 0


def test_uniforms_come_from_one_call_a_draw(sampler):
    class Counting:
        def __init__(self):
            self.calls = []

        def random(self, n):
            self.calls.append(n)
            return np.linspace(0, 1, n, endpoint=False)

    buffer = filled(sampler)
    buffer.rng = Counting()
    buffer.sample(5)
    buffer.sample(9)
    assert buffer.rng.calls == [5, 9]


@pytest.mark.parametrize("edge", [0.0, 1.0 - 2.0**-53])
def test_uniforms_at_the_edges(sampler, edge):
    """The smallest and the largest number below one that a generator gives."""

    class Edge:
        def random(self, n):
            return np.full(n, edge)

    buffer = filled(sampler)
    buffer.rng = Edge()
    ids = buffer.sample(6).ids
    buffer.read(ids)
    assert len(set(ids.tolist())) == 6 or sampler.replacement
