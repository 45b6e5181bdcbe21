"""Recorded n-step rings, time limits and frame stacks: every legal slot after every append, and no other."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import Stream, cases, load

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


@pytest.mark.parametrize("name", [*cases("nstep"), *cases("timelimit"), *cases("frame")])
def test_items_of_every_legal_slot(name, storage):
    params, arrays = load(name)
    stream = Stream(params, arrays, storage=storage())
    checked = 0
    for append, length in enumerate(params["chunks"]):
        stream.append(length)
        rows = np.flatnonzero(arrays["x_append"] == append)
        slots, lanes = arrays["x_T_idx"][rows], arrays["x_B_idx"][rows]
        legal = {(slot, lane) for slot in np.flatnonzero(arrays["valid_exact"][append]) for lane in range(stream.lanes)}
        assert set(zip(slots.tolist(), lanes.tolist(), strict=True)) == legal
        ids = stream.id_at(slots, lanes)
        np.testing.assert_array_equal(ids, arrays["x_abs_step"][rows] * stream.lanes + lanes)
        if len(rows):
            batch = stream.buffer.read(ids)
            check(batch, {k: v[rows] for k, v in arrays.items() if k.startswith("x_")}, params)
            np.testing.assert_allclose(batch.reward, arrays["return_"][append, slots, lanes], rtol=1e-5, atol=1e-5)
        check_the_others(stream, legal)
        checked += len(rows)
    assert checked == len(arrays["x_append"]) > 40


def check(batch, want, params):
    assert batch.obs.tobytes() == want["x_observation"].tobytes()
    np.testing.assert_array_equal(batch.action, want["x_action"])
    np.testing.assert_allclose(batch.reward, want["x_return_"], rtol=1e-5, atol=1e-5)
    done, timeout = want["x_done_n"], want.get("x_timeout_n", np.zeros_like(want["x_done_n"]))
    np.testing.assert_array_equal(batch.truncated, timeout)
    np.testing.assert_array_equal(batch.terminated, done & ~timeout)
    assert batch.next_obs[~done].tobytes() == want["x_target_observation"][~done].tobytes()
    n, gamma = params["n_step_return"], params["discount"]
    np.testing.assert_allclose(batch.discount, np.where(done, 0.0, gamma**n), rtol=1e-6)
    np.testing.assert_array_equal(batch.steps[~done], n)
    np.testing.assert_array_equal(batch.steps[want["x_done"]], 1)
    assert ((batch.steps >= 1) & (batch.steps <= n)).all()


def check_the_others(stream, legal):
    """Check that slots outside the recorded set are refused, unless they are complete without the rows it asks for.

    That are windows which an end completes before n steps have passed, and steps whose older frames or predecessor are
    gone and not needed: frames before an episode's start are padding, and `Transitions` reads no predecessor.
    """
    done, oldest = stream.arrays["in_done"], max(0, stream.written - stream.rows)
    for row in range(oldest, stream.written):
        for lane in range(stream.lanes):
            if (row % stream.rows, lane) in legal:
                continue
            complete = row + stream.n < stream.written or done[row : stream.written, lane][: stream.n].any()
            older = np.flatnonzero(done[:row, lane])
            begin = older[-1] + 1 if len(older) else 0
            whole = max(begin, row - stream.frames + 1) >= oldest
            assert stream.reads(row * stream.lanes + lane) is bool(complete and whole), (row, lane)
