"""Recorded prioritized draws: priorities, draws, weights and updates of two systems, through the public buffer."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import Stream, Uniforms, cases, load

import relive

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


@pytest.mark.parametrize("name", cases("per"))
def test_prioritized_nstep(name, storage):
    """Draw without a few anchors that the recorded buffer leaves out; priority zero excludes them here.

    It excludes the oldest slot (its predecessor may be gone), and waits for n steps even where the episode ends first.
    When such an anchor enters its valid set, it gets its recorded priority.
    """
    params, arrays = load(name)
    alpha = params["alpha"]
    sampler = relive.Prioritized(alpha=alpha, eps=0.0, weights="batch", stratified=False)
    stream = Stream(params, arrays, sampler=sampler, storage=storage())
    for k, length in enumerate(params["chunks"]):
        given = arrays["in_priority"][stream.written : stream.written + length] if "in_priority" in arrays else 1.0
        stream.append(length, priority=np.broadcast_to(given, (length, stream.lanes)).astype(np.float64))
        set_leaves(stream, arrays["leaf_after_append"][k], alpha)
        if not arrays["sampled"][k]:
            continue
        check_draw(stream, arrays, k)
        slots, lanes = arrays["T_idxs"][k], arrays["B_idxs"][k]
        new = arrays["td_abs_by_slot"][k][slots * stream.lanes + lanes].astype(np.float64)
        ids = stream.id_at(slots, lanes)
        assert stream.buffer.update_priorities(ids, new) == len(ids)
        drawable = np.flatnonzero(arrays["leaf_after_update"][k].ravel() > 0)
        np.testing.assert_allclose(
            stream.buffer.priorities(stream.id_at(drawable // stream.lanes, drawable % stream.lanes)) ** alpha,
            arrays["leaf_after_update"][k].ravel()[drawable],
            rtol=1e-6,
        )


def set_leaves(stream, leaf, alpha):
    """Take anchors that only the recorded buffer leaves out from the draw, let late ones in; the rest must agree."""
    for row in range(max(0, stream.written - stream.rows), stream.written):
        for lane in range(stream.lanes):
            key, want = row * stream.lanes + lane, float(leaf[row % stream.rows, lane])
            try:
                have = float(stream.buffer.priorities([key])[0])
            except relive.errors.StaleId:
                assert want == 0.0, "the recorded buffer draws an anchor that cannot be drawn here"
                continue
            if want == 0.0 or have == 0.0:
                stream.buffer.update_priorities([key], [want ** (1 / alpha)])
            else:
                np.testing.assert_allclose(have**alpha, want, rtol=1e-6)


def check_draw(stream, arrays, k):
    before = stream.buffer.rng
    stream.buffer.rng = Uniforms(arrays["u"][k])
    batch = stream.buffer.sample(arrays["u"].shape[1], beta=float(arrays["beta"][k]))
    stream.buffer.rng = before
    np.testing.assert_array_equal(batch.ids, stream.id_at(arrays["T_idxs"][k], arrays["B_idxs"][k]))
    np.testing.assert_array_equal(batch.action, arrays["action"][k])
    np.testing.assert_allclose(batch.reward, arrays["return_"][k], rtol=1e-5, atol=1e-5)
    # The recorded weights add 1e-6 to the leaf (a relative change of 1e-5 at most here); the exact ones do not.
    np.testing.assert_allclose(batch.weights, arrays["is_weights"][k], rtol=2e-4)
    exact = arrays["leaf_sampled"][k] ** -arrays["beta"][k]
    np.testing.assert_allclose(batch.weights, exact / exact.max(), rtol=1e-5)


@pytest.mark.parametrize("name", cases("labml"))
def test_labml(name, storage):
    """Give new items the running raw maximum, draw independently, normalise weights over the buffer."""
    params, arrays = load(name)
    capacity, alpha = params["capacity"], params["alpha"]
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "int64")),
        capacity=capacity,
        sampler=relive.Prioritized(alpha=alpha, eps=0.0, weights="buffer", stratified=False, initial=1.0),
        storage=storage(),
        boundaries=0,
    )
    serial = 0
    for k, count in enumerate(arrays["n_add"]):
        for _ in range(count):
            buffer.add(obs=serial, action=0, reward=serial, next_obs=serial + 1, terminated=False, truncated=False)
            serial += 1
        filled = np.flatnonzero(arrays["slot_serial"][k] >= 0)
        ids = arrays["slot_serial"][k][filled]
        assert len(buffer) == len(filled)
        np.testing.assert_allclose(buffer.priorities(ids) ** alpha, arrays["leaf_after_add"][k][filled], rtol=1e-9)
        buffer.rng = Uniforms(arrays["u"][k])
        batch = buffer.sample(params["batch"], beta=float(arrays["beta"][k]))
        np.testing.assert_array_equal(batch.ids % capacity, arrays["idx"][k])
        np.testing.assert_array_equal(batch.reward, arrays["sampled_reward"][k])
        np.testing.assert_allclose(batch.weights, arrays["weights"][k], rtol=1e-5)
        buffer.update_priorities(batch.ids, arrays["new_p"][k])
        np.testing.assert_allclose(buffer.priorities(ids) ** alpha, arrays["leaf_after_update"][k][filled], rtol=1e-9)
