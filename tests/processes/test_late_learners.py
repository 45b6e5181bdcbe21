"""A learner that writers outrun: its draws take in a bounded number of rows, the newest last, and say what waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bursts import LANES, Bursts

import relive
from relive._ring import kernels
from relive.processes import joint

pytestmark = pytest.mark.skipif("_native" not in kernels.active().__name__, reason="lanes are published natively")
STEPS, BURST = 40_000, 30_000  # a lane
BOUND = 25_000  # rows that a draw may take in beside writers that add BURST of them at each of its looks


SAMPLERS = [relive.Uniform(), relive.Prioritized(alpha=0.5, beta=0.5), relive.Prioritized(weights="none")]


class Run(Bursts):
    """A learner and its writer, which adds a burst whenever the learner looks at the lanes, or behind such a look."""

    bursts, size, behind = 0, BURST // LANES, 0

    def known(self) -> int:
        """Return how many items the sampler has, as of its last refresh."""
        share = self.buffer._core.index.share
        assert share is not None
        return share().count


@pytest.fixture(params=SAMPLERS, ids=repr)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a run of which `bursts` of the next looks find that many more steps in each lane.

    And `behind` so many of them all that they found is overwritten.
    """
    look: Callable[[Any], None] = joint.JointAccess.look
    with Run(STEPS, 2, sampler=request.param, seed=0) as made:

        def look_and_find_more(self: Any) -> None:
            if made.bursts:
                made.bursts -= 1
                made.burst(made.size)
            look(self)
            if made.behind:
                made.behind -= 1
                made.burst(2 * STEPS)

        monkeypatch.setattr(joint.JointAccess, "look", look_and_find_more)
        yield made


def test_a_draw_takes_in_a_bounded_number_of_rows(run: Run) -> None:
    """Check that statistics say what waits, too."""
    run.burst(STEPS)
    run.bursts = 3
    batch = run.buffer.sample(64)
    assert 64 <= run.known() <= BOUND
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 1)
    np.testing.assert_array_equal(batch.obs, batch.ids // LANES)
    before, run.bursts = run.known(), 1
    stats = run.buffer.stats()
    assert stats.size == len(run.buffer) == LANES * STEPS
    assert stats.drawable == run.known() <= BOUND
    assert stats.drawable + stats.waiting == stats.size
    run.bursts = 1
    run.buffer.sample(64)
    assert 0 < run.known() <= before + BOUND // 2, "and so on while it is outrun"


def test_a_draw_of_which_all_rows_went_since_the_look_looks_again(run: Run) -> None:
    run.burst(STEPS)
    run.behind = 3
    batch = run.buffer.sample(64)
    assert run.behind == 0
    assert batch.obs.min() >= 6 * STEPS
    np.testing.assert_array_equal(batch.obs, batch.ids // LANES)
    for before in (STEPS, 100):
        run.burst(before)
        run.behind = 1
        assert run.buffer.can_sample(64)


def test_all_is_taken_in_when_the_writers_are_slower(run: Run) -> None:
    run.burst(STEPS // 4)
    run.bursts, run.size = 2, 3000
    run.buffer.sample(64)
    assert run.bursts == 0
    assert run.known() < len(run.buffer) // 2
    for _ in range(30):
        run.buffer.sample(64)
    assert run.known() == len(run.buffer), "of lanes of which less than half waits, every row"
    stats = run.buffer.stats()
    assert (stats.drawable, stats.waiting) == (len(run.buffer), 0)
    run.burst(STEPS)
    assert run.buffer.can_sample(64)
    assert run.known() == len(run.buffer), "and from now on at once"


def test_of_a_lane_of_which_half_waits_the_newest_rows_come_next(run: Run) -> None:
    run.burst(STEPS)
    run.bursts = 3
    run.buffer.sample(64)
    run.bursts = 0
    newest = run.buffer.sample(2000).obs.max()
    assert newest > run.steps - BOUND
    batch = run.buffer.sample(2000)
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 1)
    np.testing.assert_array_equal(batch.obs, batch.ids // LANES)
    for _ in range(30):  # until what was passed over is overwritten
        run.burst(STEPS // 10)
        run.buffer.sample(64)
    stats = run.buffer.stats()
    assert (stats.drawable, stats.waiting) == (len(run.buffer), 0)


@pytest.mark.parametrize("run", SAMPLERS[1:], ids=repr, indirect=True)
def test_what_waits_gets_no_priority_and_later_its_own(run: Run) -> None:
    run.burst(STEPS // 4)
    run.bursts, run.size = 2, 3000
    run.buffer.sample(64)
    last = np.arange(LANES, dtype=np.int64) + LANES * (run.steps - 1)
    assert run.buffer.update_priorities(last, np.full(LANES, 100.0)) == 0
    assert run.buffer.update_priorities(last.tolist(), [100.0] * LANES) == 0
    for _ in range(30):
        run.buffer.sample(64)
    assert run.known() == len(run.buffer)
    expected = 1.0 + last // LANES % 2
    np.testing.assert_allclose(run.buffer.priorities(last), expected, rtol=1e-6)
    assert run.buffer.update_priorities(last, np.full(LANES, 100.0)) == LANES


def test_draws_of_a_learner_that_keeps_up_are_the_same(run: Run) -> None:
    """Check that one that takes in a large burst in pieces draws what a buffer of its own would."""
    own = Run(STEPS, 2, shared=False, sampler=run.buffer.sampler, seed=0)
    alone = own.buffer
    for steps in (STEPS, 100, STEPS // 2, 7):
        run.burst(steps)
        own.burst(steps)
        for _ in range(2):
            ours, theirs = run.buffer.sample(256), alone.sample(256)
            for name in ours:
                np.testing.assert_array_equal(ours[name], theirs[name])
            if run.buffer.sampler.prioritizes:
                errors = ours.obs % 13 + 0.5
                assert run.buffer.update_priorities(ours.ids, errors) == alone.update_priorities(ours.ids, errors)


def test_a_save_has_the_priorities_of_what_waits(run: Run, tmp_path: Any) -> None:
    run.burst(STEPS // 2)
    run.bursts = 3
    run.buffer.sample(64)
    run.bursts = 0
    run.writer.close()
    run.buffer.save(tmp_path / "save")
    loaded = relive.load(tmp_path / "save")
    assert loaded.stats().drawable == len(run.buffer)
    np.testing.assert_array_equal(loaded.priorities(loaded.ids()), run.buffer.priorities(run.buffer.ids()))
