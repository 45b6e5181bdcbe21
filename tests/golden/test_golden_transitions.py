"""n-step returns, ends and time limits of the recorded rings: every legal slot after every append."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import Stream, cases, load

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


@pytest.mark.parametrize("name", [*cases("nstep"), *cases("timelimit")])
def test_items_of_every_legal_slot(name, storage):
    params, arrays = load(name)
    stream = Stream(params, arrays, storage=storage())
    checked = 0
    for append, length in enumerate(params["chunks"]):
        stream.append(length)
        rows = np.flatnonzero(arrays["x_append"] == append)
        slots, lanes = arrays["x_T_idx"][rows], arrays["x_B_idx"][rows]
        assert set(zip(slots.tolist(), lanes.tolist(), strict=True)) == {
            (slot, lane) for slot in np.flatnonzero(arrays["valid_exact"][append]) for lane in range(stream.lanes)
        }
        ids = stream.id_at(slots, lanes)
        np.testing.assert_array_equal(ids, arrays["x_abs_step"][rows] * stream.lanes + lanes)
        if len(rows):
            check(stream.buffer.read(ids), {k: v[rows] for k, v in arrays.items() if k.startswith("x_")}, params)
            np.testing.assert_allclose(
                stream.buffer.read(ids).reward, arrays["return_"][append, slots, lanes], rtol=1e-5, atol=1e-5
            )
        checked += len(rows)
    assert checked == len(arrays["x_append"]) > 50


def check(batch, want, params):
    np.testing.assert_array_equal(batch.obs, want["x_observation"])
    np.testing.assert_array_equal(batch.action, want["x_action"])
    np.testing.assert_allclose(batch.reward, want["x_return_"], rtol=1e-5, atol=1e-5)
    done, timeout = want["x_done_n"], want.get("x_timeout_n", np.zeros_like(want["x_done_n"]))
    np.testing.assert_array_equal(batch.terminated | batch.truncated, done)
    np.testing.assert_array_equal(batch.truncated, timeout)
    np.testing.assert_array_equal(batch.terminated, done & ~timeout)
    np.testing.assert_array_equal(batch.next_obs[~done], want["x_target_observation"][~done])
    n, gamma = params["n_step_return"], params["discount"]
    np.testing.assert_allclose(batch.discount, np.where(done, 0.0, gamma**n), rtol=1e-6)
    np.testing.assert_array_equal(batch.steps[~done], n)
    np.testing.assert_array_equal(batch.steps[want["x_done"]], 1)
    assert ((batch.steps >= 1) & (batch.steps <= n)).all()
