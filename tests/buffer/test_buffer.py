"""The fine print of the buffer: shapes of ids, seeds, counts, and what is never touched."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from depth import pairs

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


def test_ids_name_lane_and_row():
    buffer = make(num_envs=2)
    np.testing.assert_array_equal(buffer.extend(**steps(2, 3)), [[0, 2, 4], [1, 3, 5]])
    time_major = {k: np.swapaxes(v, 0, 1) for k, v in steps(2, 3, start=3).items()}
    np.testing.assert_array_equal(buffer.extend(**time_major, time_major=True), [[6, 7], [8, 9], [10, 11]])
    step = {name: value[:, 0] for name, value in steps(2, 1, start=6).items()}
    ids = buffer.add(**step)
    np.testing.assert_array_equal(ids, [12, 13])
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(buffer.add(**{k: v[:1] for k, v in step.items()}, env_ids=[1]), [15 + 2])


def test_one_lane_may_leave_its_axis_out():
    buffer = make()
    np.testing.assert_array_equal(buffer.add(**{k: v[0] for k, v in steps(1).items()}), [0])
    np.testing.assert_array_equal(buffer.add(**steps(1, start=1)), [1])
    np.testing.assert_array_equal(buffer.extend(**steps(4, start=2)), [2, 3, 4, 5])
    np.testing.assert_array_equal(buffer.extend(**steps(1, 4, start=6)), [[6, 7, 8, 9]])
    assert buffer.stats().cuts == 0
    np.testing.assert_array_equal(buffer.read(range(10)).obs[:, 0], np.arange(10))


def test_ids_never_repeat():
    buffer = make(num_envs=2)
    every = np.concatenate([buffer.extend(**steps(2, 7, start=7 * k)).ravel() for k in range(20)])
    assert len(np.unique(every)) == len(every) == 280
    assert buffer.stats().size == len(buffer) == 32


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


def test_the_newest_transition_can_be_drawn_at_once():
    buffer = make(item=relive.Transitions(n_step=3, gamma=0.5))
    for t in range(3):
        ids = buffer.add(**{k: v[0] for k, v in steps(1, start=t).items()})
        assert buffer.can_sample(1) is (t == 2)
    batch = buffer.read([0])
    assert (batch.reward[0], batch.discount[0], batch.next_obs[0, 0], batch.steps[0]) == (1.0, 0.125, 3.0, 3)
    with pytest.raises(relive.errors.StaleId, match="not complete yet"):
        buffer.read(ids)


def test_without_next_obs_the_newest_step_waits():
    buffer, given = make(), steps(4)
    del given["next_obs"]
    buffer.extend(**given)
    assert buffer.read([2]).next_obs[0, 0] == 3
    with pytest.raises(relive.errors.StaleId):
        buffer.read([3])


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


def test_truncation_bootstraps_and_termination_does_not():
    buffer = make(num_envs=3, item=relive.Transitions(n_step=2, gamma=0.5))
    given = {name: value[:, 0] for name, value in steps(3, 1).items()}
    given["terminated"], given["truncated"] = np.array([True, False, True]), np.array([False, True, True])
    batch = buffer.read(buffer.add(**given))
    np.testing.assert_array_equal(batch.discount, [0, 0.5, 0])
    np.testing.assert_array_equal(batch.terminated, [True, False, True])
    np.testing.assert_array_equal(batch.truncated, [False, True, True])
    np.testing.assert_array_equal(batch.next_obs[:, 0], [1, 1, 1])


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


def test_an_explicit_beta_is_for_one_call():
    buffer = make(sampler=relive.Prioritized(alpha=1.0, beta=1.0, eps=0.0, weights="none", stratified=False), seed=1)
    buffer.extend(**steps(4), priority=[1.0, 2.0, 3.0, 4.0])
    batch = buffer.sample(64, beta=0.0)
    assert (batch.weights == 1).all()
    batch = buffer.sample(64)
    np.testing.assert_allclose(batch.weights, 10 / (4 * (batch.ids + 1)), rtol=1e-6)


def test_with_batches_of_one_batch_weights_are_one():
    buffer = make(sampler=relive.Prioritized(weights="batch"), seed=1)
    buffer.extend(**steps(4), priority=[1.0, 2.0, 3.0, 4.0])
    assert all(buffer.sample(1).weights[0] == 1 for _ in range(20))


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
    buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 4, sampler=sampler)
    step = {"action": 0.0, "reward": 0.0, "terminated": False, "truncated": False}
    for t in range(6):
        buffer.add(obs=t, next_obs=t + 1, priority=90.0, **step)
    buffer.clear()
    for t in range(12):  # final observations in every row
        buffer.add(obs=t, next_obs=t + 0.5, **{**step, "terminated": t % 2 == 1})
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
