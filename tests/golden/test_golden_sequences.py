"""Recorded sequences, with stored state and with frames: every recorded row, and every legal start and no other."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import Stream, cases, load

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
CASES = [*cases("seq"), *cases("seqframe")]


@pytest.mark.parametrize("name", CASES)
def test_recorded_sequences(name, storage):
    params, arrays = load(name)
    stream = Stream(params, arrays, storage=storage())
    checked = 0
    for append, length in enumerate(params["chunks"]):
        stream.append(length)
        check_starts(stream, arrays["valid_exact"][append])
        rows = np.flatnonzero(arrays["x_append"] == append)
        if len(rows):
            ids = stream.id_at(arrays["x_T_idx"][rows], arrays["x_B_idx"][rows])
            np.testing.assert_array_equal(ids, arrays["x_abs_step"][rows] * stream.lanes + arrays["x_B_idx"][rows])
            want = {key[2:]: value[rows] for key, value in arrays.items() if key.startswith("x_")}
            check(stream.buffer.read(ids), want, stream)
        checked += len(rows)
    assert checked == len(arrays["x_append"]) > 10


def check(batch, want, stream):
    n, length = stream.n, stream.params["batch_T"]
    assert batch.all_obs.tobytes() == want["all_observation"].tobytes()
    assert batch.obs.tobytes() == want["all_observation"][:, :length].tobytes()
    done, done_n = want["done"], want["done_n"]
    assert batch.mask.all()
    np.testing.assert_array_equal(batch.terminated, done_n)
    assert not batch.truncated.any()
    np.testing.assert_allclose(batch.reward, want["return_"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batch.discount, np.where(done_n, 0.0, stream.params["discount"] ** n), rtol=1e-6)
    np.testing.assert_array_equal(batch.steps[done], 1)
    shifted = want["all_observation"][:, n : n + length]
    assert batch.next_obs[~done_n].tobytes() == shifted[~done_n].tobytes()
    # Element i of the recorded actions is that of step i - 1; here it is 0 where step i is the first of its episode.
    first = starts_of(stream, want["abs_step"], want["B_idx"], length + n)
    np.testing.assert_array_equal(batch.all_prev_action, np.where(first, 0, want["all_action"]))
    np.testing.assert_array_equal(batch.all_prev_reward, np.where(first, 0, want["all_reward"]))
    np.testing.assert_array_equal(batch.prev_action, batch.all_prev_action[:, :length])
    np.testing.assert_array_equal(batch.action, want["all_action"][:, 1 : length + 1])
    if stream.interval:
        assert batch.state.tobytes() == want["init_rnn_state"].tobytes()


def starts_of(stream, rows, lanes, length):
    """Mark the steps from `rows` on that are the first of an episode."""
    rows = rows[:, None] + np.arange(length)
    return (rows == 0) | stream.arrays["in_done"][rows - 1, lanes[:, None]]


def check_starts(stream, valid):
    """Check that the legal starts are the recorded ones, and episodes' first steps, which need no predecessor."""
    oldest, length = max(0, stream.written - stream.rows), stream.params["batch_T"] + stream.n
    done = stream.arrays["in_done"]
    for row in range(oldest, stream.written):
        for lane in range(stream.lanes):
            before = np.flatnonzero(done[:row, lane])
            begin = before[-1] + 1 if len(before) else 0
            free = row % max(1, stream.interval) == 0 and row + length <= stream.written
            # Frames before the episode's start are padding: only younger ones must be stored.
            free = free and max(begin, row - max(1, stream.frames - 1)) >= oldest
            legal = bool(valid[row % stream.rows])
            assert free or not legal, "the recorded set holds a start that lacks a row"
            assert stream.reads(row * stream.lanes + lane) is bool(legal or free), (row, lane)
