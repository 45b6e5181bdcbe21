"""Epochs: every drawable item once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from depth import LONG

import relive
from relive._ring import kernels, kernels_numpy


def filled(steps: int = 23, **choices: Any) -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 60, num_envs=2, **choices)
    for t in range(steps):
        ends = np.array([t % 5 == 4, t % 7 == 6])
        values = np.array([t, 100 + t], np.float32)
        step = {"obs": values, "action": values, "reward": values, "next_obs": values + 1}
        buffer.add(**step, terminated=ends, truncated=ends & False)
    return buffer


def drawable(buffer: relive.ReplayBuffer) -> list[int]:
    return sorted(buffer.ids().tolist())


@pytest.mark.parametrize("sampler", [relive.Uniform(), relive.Prioritized()], ids=repr)
@pytest.mark.parametrize("steps", [0, 2, 10, 70])
def test_each_drawable_item_comes_once(sampler: Any, steps: int) -> None:
    buffer = filled(steps, item=relive.Transitions(n_step=3), sampler=sampler, seed=0)
    drawn = buffer.stats().drawn
    batches = list(buffer.batches(4))
    ids = [number for batch in batches for number in batch.ids.tolist()]
    assert sorted(ids) == drawable(buffer)
    assert all(len(batch.ids) == 4 for batch in batches[:-1])
    assert steps < 10 or ids != sorted(ids)
    assert len(list(buffer.batches(4, drop_last=True))) == len(ids) // 4
    assert [n for batch in buffer.batches(5, shuffle=False) for n in batch.ids.tolist()] == drawable(buffer)
    assert buffer.stats().drawn == drawn
    for batch in batches:
        expected = buffer.read(batch.ids)
        assert all(np.array_equal(batch[name], expected[name]) for name in expected)


def test_the_order_comes_from_the_buffers_generator() -> None:
    def orders(seed: int) -> list[list[int]]:
        buffer = filled(seed=seed)
        return [[n for batch in buffer.batches(7) for n in batch.ids.tolist()] for _ in range(2)]

    assert orders(1) == orders(1)
    assert orders(1)[0] != orders(1)[1]
    assert orders(1) != orders(2)


def test_what_is_overwritten_meanwhile_is_left_out() -> None:
    buffer = filled(30, seed=0)
    epoch = buffer.batches(10)
    first = next(epoch)
    before = set(drawable(buffer)) - set(first.ids.tolist())
    step = dict.fromkeys(("obs", "action", "reward", "next_obs"), np.zeros(2, np.float32))
    for _ in range(10):
        buffer.add(**step, terminated=np.zeros(2, bool), truncated=np.zeros(2, bool))
    rest = [number for batch in epoch for number in batch.ids.tolist()]
    assert set(rest) == before & set(drawable(buffer))
    assert len(rest) == len(set(rest)) < len(before)


def test_sequences_have_epochs_too() -> None:
    buffer = filled(28, item=relive.Sequences(length=4, starts=2), seed=0)
    assert sorted(n for batch in buffer.batches(3) for n in batch.ids.tolist()) == drawable(buffer)


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 2**18, 2**18 + 1])
def test_the_order_is_that_of_the_numbers(count: int) -> None:
    """Check numbers that are equal, and those that differ in their last bits alone: those come in the order of ids."""
    rng = np.random.default_rng(0)
    near = rng.integers(0, 50, count) / 64 + rng.integers(0, 4, count) * 2.0**-53
    last = 1.0 - (1.0 + np.arange(count) % 3) * 2.0**-53
    kinds = [np.zeros(count), rng.random(count), near, rng.random(count) * 1e-12, last]
    for numbers in kinds if LONG or count <= 1000 else [kinds[1 + count % 2]]:
        before = numbers.copy()
        order = np.argsort(before, kind="stable")
        items = np.arange(count)[::-1] * 3
        assert np.array_equal(kernels_numpy.shuffled(items, numbers).ids, items[order])
        # Others; ascending ones; and those that are too far apart to be sorted along with the numbers.
        for each in (items, items[::-1] - 7, items[::-1] << 40):
            found = kernels.active().shuffled(each.copy(), numbers)
            for asked in (count // 3, count):
                found.upto(asked)
                assert np.array_equal(found.ids[:asked], each[order][:asked])
        assert np.array_equal(numbers, before)
