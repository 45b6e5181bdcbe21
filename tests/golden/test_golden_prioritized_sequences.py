"""Recorded prioritized sequences: leaves, draws, weights and updates, with alpha applied once in every path."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import Stream, Uniforms, cases, documented_stream, load

import relive

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


@pytest.mark.parametrize("name", cases("perseq"))
def test_prioritized_sequences(name, storage):
    """Map the recorded leaf of each stored state to an anchor, which is a step here; the others have no priority.

    The recorded system is up to one leaf more cautious than its own rule, and waits for the predecessor of an
    episode's first step; such anchors are taken out of the draw by a priority of zero.
    """
    params, recorded = load(name)
    alpha = params["alpha"]
    sampler = relive.Prioritized(alpha=alpha, eps=0.0, weights="batch", stratified=False)
    stream = Stream(params, {**documented_stream(params), **recorded}, sampler=sampler, storage=storage())
    drawn, parked = 0, {}
    for k, length in enumerate(params["chunks"]):
        stream.append(length, **given_priorities(stream, k, length))
        set_leaves(stream, recorded["leaf_after_append"][k], recorded["valid_exact"][k], parked)
        if not recorded["sampled"][k]:
            continue
        batch = check_draw(stream, k)
        td = recorded["td_by_slot"][k][(batch.ids // stream.lanes % stream.rows) // interval(stream) * stream.lanes
                                       + batch.ids % stream.lanes]  # fmt: skip
        assert stream.buffer.update_priorities(batch.ids, td.astype(np.float64)) == len(batch.ids)
        check_leaves(stream, recorded["leaf_after_update"][k])
        drawn += len(batch.ids)
    assert drawn > 50


def interval(stream):
    return max(1, stream.interval)


def given_priorities(stream, k, length):
    """Return the recorded input priorities, named by step.

    They were recorded as values of leaves (not raised to alpha), so the raw priority is their root. The one that came
    with chunk k belongs to the leaf `input_priority_shift` before the cursor: the chunk's own steps get the one that
    came that many chunks later.
    """
    params = stream.params
    if not params["input_priorities"]:
        return {"priority": np.ones((length, stream.lanes))}  # the recorded default, whatever the largest is by now
    assert set(params["chunks"]) == {interval(stream)}, "a chunk is one leaf"
    later = k + params["input_priority_shift"]
    if later >= len(params["chunks"]):
        return {"priority": np.ones((length, stream.lanes))}  # never drawable in what was recorded
    raw = stream.arrays["input_priority_B"][later] ** (1 / params["alpha"])
    return {"priority": np.broadcast_to(raw, (length, stream.lanes))}


def leaves_here(stream):
    """List id, leaf row, lane and value of every anchor that can be drawn."""
    found = []
    for row in range(max(0, stream.written - stream.rows), stream.written):
        for lane in range(stream.lanes):
            key = row * stream.lanes + lane
            if stream.reads(key):
                assert row % interval(stream) == 0
                value = stream.buffer.priorities([key])[0] ** stream.params["alpha"]
                found.append((key, row % stream.rows // interval(stream), lane, value))
    return found


def set_leaves(stream, want, valid, parked):
    """Give every recorded leaf's mass to its anchor, and take out leaves that only the recorded tree leaves out.

    `parked` holds what their priority was, for the time when the recorded tree lets them in.
    """
    alpha = stream.params["alpha"]
    have = {(slot, lane): (key, value) for key, slot, lane, value in leaves_here(stream)}
    assert {(slot, lane) for slot in np.flatnonzero(valid) for lane in range(stream.lanes)} <= set(have)
    for slot, lane in np.argwhere(want > 0).tolist():
        key, value = have[slot, lane]
        if key in parked:
            value = parked.pop(key)
            stream.buffer.update_priorities([key], [value ** (1 / alpha)])
        np.testing.assert_allclose(value, want[slot, lane], rtol=1e-6)
    for (slot, lane), (key, value) in have.items():
        if want[slot, lane] == 0:
            parked.setdefault(key, value)
            stream.buffer.update_priorities([key], [0.0])


def check_leaves(stream, want):
    for _, slot, lane, value in leaves_here(stream):
        np.testing.assert_allclose(value, want[slot, lane], rtol=1e-6)


def check_draw(stream, k):
    recorded, before = stream.arrays, stream.buffer.rng
    stream.buffer.rng = Uniforms(recorded["u"][k])
    batch = stream.buffer.sample(recorded["u"].shape[1], beta=stream.params["beta"])
    stream.buffer.rng = before
    np.testing.assert_array_equal(batch.ids, stream.id_at(recorded["T_idxs"][k], recorded["B_idxs"][k]))
    np.testing.assert_allclose(batch.weights, recorded["is_weights"][k], rtol=1e-5)
    return batch
