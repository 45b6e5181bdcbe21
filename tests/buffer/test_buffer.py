"""The fine print of the buffer: shapes of ids, seeds, counts, and what is never touched."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from depth import pairs
from scalars import lived, step

import relive
from relive._ring import kernels as _kernels


def make(num_envs=1, **choices):
    return relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((3,)), action=relive.Field((), "int64")),
        capacity=16 * num_envs,
        num_envs=num_envs,
        **choices,
    )


def steps(*axes, start=0):
    """Make uneventful steps with the given leading axes; time is the last of them."""
    t = np.broadcast_to(np.arange(axes[-1] if axes else 1) + start, axes or (1,)).reshape(axes)
    obs = np.repeat(t[..., None], 3, axis=-1).astype(np.float32)
    off = np.zeros(axes, bool)
    return {"obs": obs, "action": t, "reward": t, "next_obs": obs + 1, "terminated": off, "truncated": off}


def test_one_lane_may_leave_its_axis_out():
    buffer = make()
    ids = buffer.add(**{k: v[0] for k, v in steps(1).items()})
    assert (ids.dtype, ids.tolist()) == (np.int64, [0])
    np.testing.assert_array_equal(buffer.add(**steps(1, start=1)), [1])
    np.testing.assert_array_equal(buffer.extend(**steps(4, start=2)), [2, 3, 4, 5])
    np.testing.assert_array_equal(buffer.extend(**steps(1, 4, start=6)), [[6, 7, 8, 9]])
    assert buffer.stats().cuts == 0
    np.testing.assert_array_equal(buffer.read(range(10)).obs[:, 0], np.arange(10))


def test_no_ids_are_no_items():
    buffer = make(sampler=relive.Prioritized())
    buffer.extend(**steps(5))
    assert buffer.read([]).obs.shape == (0, 3)
    assert buffer.update_priorities([], []) == 0


def test_can_sample_never_raises():
    buffer = make()
    for thing in (0, -1, 1.5, "3", None, np.nan, [1], True, object()):
        assert buffer.can_sample(thing) is False
    buffer.extend(**steps(5))
    assert buffer.can_sample(1) is True
    assert buffer.can_sample(np.int64(7)) is True
    for thing in (0, -1, 1.5, "3", None, np.nan, [1], object()):
        assert buffer.can_sample(thing) is False


def test_a_generator_is_used_itself():
    rng = np.random.default_rng(5)
    buffer = make(seed=rng)
    assert buffer.rng is rng
    buffer.extend(**steps(8))
    buffer.sample(4)
    assert rng.random() != np.random.default_rng(5).random()


def test_no_global_generator_is_touched():
    np.random.seed(987)
    random.seed(654)
    before, python = np.random.get_state(), random.getstate()
    buffer = make(sampler=relive.Prioritized())
    buffer.extend(**steps(8))
    for _ in range(3):
        buffer.sample(4)
    after = np.random.get_state()
    assert after[2] == before[2]
    np.testing.assert_array_equal(after[1], before[1])
    assert random.getstate() == python


def test_data_is_copied_in_and_out():
    buffer, given = make(), steps(6)
    buffer.extend(**given)
    given["obs"][:] = -1
    batch = buffer.read(range(5))
    batch.obs[:] = -2
    batch.next_obs[:] = -3
    np.testing.assert_array_equal(buffer.read(range(5)).obs[:, 0], np.arange(5))
    np.testing.assert_array_equal(buffer.read(range(5)).next_obs[:, 0], np.arange(5) + 1)


def test_a_cut_ends_a_window_and_still_bootstraps():
    buffer = make(item=relive.Transitions(n_step=3, gamma=0.5))
    buffer.extend(**steps(2))
    buffer.cut()
    buffer.cut()  # nothing is open any more
    buffer.extend(**steps(2, start=100))
    batch = buffer.read([0, 1])
    np.testing.assert_array_equal(batch.steps, [2, 1])
    np.testing.assert_array_equal(batch.discount, [0.25, 0.5])
    np.testing.assert_array_equal(batch.next_obs[:, 0], [2, 2])
    assert not (batch.terminated | batch.truncated).any()
    assert buffer.stats().cuts == 1


def test_stats_of_a_known_history():
    sampler = relive.Prioritized(alpha=0.5, beta=1.0, eps=0.0, weights="none", stratified=False)
    buffer = make(num_envs=2, sampler=sampler)
    buffer.extend(**steps(2, 20))
    buffer.update_priorities(buffer.sample(8).ids, np.full(8, 4.0))
    buffer.update_priorities([0, 1, 38], [9.0, 9.0, 9.0])
    stats = buffer.stats()
    assert (stats.size, stats.capacity, stats.drawable, stats.added, stats.drawn) == (32, 32, 32, 40, 8)
    assert (stats.cuts, stats.stale_updates, stats.replay_ratio, stats.beta) == (0, 2, 0.2, 1.0)
    np.testing.assert_allclose([stats.priority_quantiles[0], stats.priority_quantiles[-1]], [1.0, 9.0])
    assert stats.effective_sample_size == pytest.approx(8.0)  # all eight had the same weight
    assert 0 <= min(stats.age_quantiles) <= max(stats.age_quantiles) <= 15
    assert stats.nbytes >= 32 * buffer.schema.nbytes


def test_a_zero_priority_means_never_until_updated():
    buffer = make(sampler=relive.Prioritized(alpha=0.0), seed=1)
    ids = buffer.extend(**steps(4), priority=[0.0, 0.0, 0.0, 0.0])
    assert not buffer.can_sample(1)
    with pytest.raises(relive.errors.NotEnoughData, match="4 of 4 items have priority 0"):
        buffer.sample(1)
    buffer.read(ids)  # an item is an item
    buffer.update_priorities(ids[2:3], [0.0])  # eps makes it positive
    assert set(buffer.sample(50).ids.tolist()) == {2}


HOW = ["plain", "saved and loaded", "shared", "plain", "saved and loaded"]


@pytest.mark.parametrize(("start", "how"), pairs([2**31 - 5, 2**32 - 5, 2**53 - 5, 2**58, 2**62 // 3 - 170], HOW))
def test_counters_do_not_overflow(start, how, tmp_path):
    """Run ten laps across the edges of smaller integers, on a ring that seems that old; ids end at 2**62."""
    lanes, rows = 3, 16
    if how == "shared" and not _kernels.is_native():
        pytest.skip("the NumPy kernels cannot share")
    storage = relive.Shared() if how == "shared" else relive.Ram()
    choices = {"item": relive.Transitions(n_step=2, gamma=0.5), "sampler": relive.Prioritized(), "storage": storage}
    buffer = make(num_envs=lanes, **choices, seed=0)
    place = start % buffer._core.ring.marks[:, 0].size
    buffer._core.ring.counters[:, :9] = [start, place, start, start, 0, start, 0, 0, start]
    for t in range(10 * rows):
        if how == "saved and loaded" and t % rows == 7:
            buffer.save(tmp_path)
            buffer = relive.load(tmp_path)
        ids = buffer.add(**{name: value[:, 0] for name, value in steps(lanes, 1, start=t).items()})
        np.testing.assert_array_equal(ids, (start + t) * lanes + np.arange(lanes))
        if t:
            batch = buffer.sample(4)
            np.testing.assert_array_equal(batch.ids // lanes - start, batch.obs[:, 0].astype(int))
            np.testing.assert_array_equal(batch.next_obs, batch.obs + 2)
            assert buffer.update_priorities(batch.ids, batch.reward) == 4
    with pytest.raises(relive.errors.StaleId, match="overwritten"):
        buffer.read([start * lanes])
    buffer.close()


@pytest.mark.parametrize("sampler", [relive.Prioritized(), relive.Prioritized(newest="stored")])
def test_a_final_observation_has_no_priority(sampler: Any) -> None:
    """Check with rows of earlier steps that were given priorities, before a `clear`."""
    buffer = lived(0, 4, sampler=sampler)
    for t in range(6):
        buffer.add(**step(t), priority=90.0)
    buffer.clear()
    for t in range(12):  # final observations in every row
        buffer.add(**step(t, next_obs=t + 0.5, terminated=t % 2 == 1))
        assert buffer.can_sample(1)  # takes the step in
    ids = buffer.sample(50).ids
    assert buffer.priorities(ids).tolist() == pytest.approx([sampler.initial] * 50)


@pytest.mark.parametrize("reserved", [8, np.int64(8), 1000])
def test_short_lanes_reserve_as_many_rows_as_they_are_told(reserved, tmp_path):
    """Reserve fewer rows than a share does at least, at most one for each step, and keep the number in a save."""
    buffer = make(boundaries=reserved)
    buffer.extend(**steps(40))
    buffer.save(tmp_path)
    loaded = relive.load(tmp_path)
    for each in (buffer, loaded):
        assert (each.boundaries, each._core.ring.rows, len(each)) == (reserved, 16 + min(reserved, 16), 16)
    assert relive.load(tmp_path, boundaries=2)._core.ring.rows == 18
