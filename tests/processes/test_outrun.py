"""Writers that overwrite all that a sampler knows before it is copied: draws come from the newest rows instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from statistics_of_draws import P_MIN, chi_square_p

import relive
from relive._buffer import drawing
from relive._ring import kernels
from relive.errors import ReliveError
from relive.processes import joint

pytestmark = pytest.mark.skipif("_native" not in kernels.active().__name__, reason="lanes are published natively")
LANES, STEPS = 2, 160  # a lane
SCHEMA = relive.Schema(obs=relive.Field(), action=relive.Field())


def newest(buffer: relive.ReplayBuffer) -> int:
    """Return a quarter of a lane's rows."""
    return buffer._core.ring.rows // 4


def outrun(monkeypatch: pytest.MonkeyPatch, sampler: Any, tries: int, **choices: Any) -> relive.ReplayBuffer:
    """Make a full shared buffer of steps with priorities 1 and 3, whose first `tries` draws are overtaken."""
    monkeypatch.setattr(drawing, "calls", lambda core: {})  # native calls look natively
    buffer = relive.ReplayBuffer(
        SCHEMA, LANES * STEPS, num_envs=LANES, storage=relive.Shared(), sampler=sampler, seed=0, **choices
    )
    steps = np.arange(2 * STEPS, dtype=np.float32)
    given = {"priority": np.tile([1.0, 3.0], (LANES, STEPS))} if sampler.prioritizes else {}
    rows, flags = np.tile(steps, (LANES, 1)), np.zeros((LANES, 2 * STEPS), bool)
    buffer.extend(obs=rows, next_obs=rows + 1, action=rows, reward=rows, terminated=flags, truncated=flags, **given)
    overtaken, calls = joint.JointAccess.overtaken, []

    def always_at_first(self: Any, ids: np.ndarray) -> Any:
        calls.append(len(ids))
        return np.ones(len(ids), bool) if len(calls) <= tries else overtaken(self, ids)

    monkeypatch.setattr(joint.JointAccess, "overtaken", always_at_first)
    return buffer


LAWS = [
    (relive.Uniform(), [1.0, 1.0]),
    (relive.Prioritized(alpha=0.5, beta=0.5), [1.0, 3**0.5]),
    (relive.Prioritized(alpha=0.0), [1.0, 1.0]),
]


def assert_law(buffer: relive.ReplayBuffer, law: list[float]) -> relive.Batch:
    """Check that a large draw has the newest rows by their priorities alone; return it."""
    batch, first = buffer.sample(40_000), 2 * STEPS - newest(buffer)
    steps = batch.obs.astype(int)
    assert steps.min() == first
    counts = np.bincount((steps - first) * LANES + batch.ids % LANES, minlength=newest(buffer) * LANES)
    expected = np.repeat(np.array(law)[np.arange(first, 2 * STEPS) % 2], LANES)
    assert chi_square_p(counts, expected / expected.sum()) > P_MIN
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 1)
    if buffer.sampler.prioritizes and buffer.sampler.alpha:
        weights = np.where(steps % 2, 3**-0.25, 1.0)
        np.testing.assert_allclose(batch.weights / batch.weights.max(), weights, rtol=1e-6)
    return batch


@pytest.mark.parametrize(("sampler", "law"), LAWS, ids=repr)
def test_the_law_of_the_newest_rows(monkeypatch: pytest.MonkeyPatch, sampler: Any, law: list[float]) -> None:
    with outrun(monkeypatch, sampler, 4) as buffer:
        batch = assert_law(buffer, law)
        assert not sampler.prioritizes or batch.weights.max() == 1


@pytest.mark.parametrize("scale", ["batch", "buffer", "none"])
def test_no_item_twice_without_replacement(monkeypatch: pytest.MonkeyPatch, scale: str) -> None:
    with outrun(monkeypatch, relive.Prioritized(replacement=False, weights=scale), 4) as buffer:
        n = newest(buffer)
        batch = buffer.sample(n)
        assert len(set(batch.ids.tolist())) == n
        assert batch.obs.min() >= 2 * STEPS - n
        assert buffer.update_priorities(batch.ids, np.ones(n)) == n


def test_no_index_is_asked_about_items_of_the_newest_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the look for monitors: all that the index knew may be overwritten, and it would raise."""
    with outrun(monkeypatch, relive.Uniform(), 4) as buffer:
        monkeypatch.setattr(buffer._core.index, "probability", lambda slots: pytest.fail("it was asked"))
        assert buffer.sample(8).obs.min() >= 2 * STEPS - newest(buffer)


@pytest.mark.parametrize("tries", [1, 3])
def test_a_few_redraws_keep_to_the_law_of_all_rows(monkeypatch: pytest.MonkeyPatch, tries: int) -> None:
    with outrun(monkeypatch, relive.Uniform(), tries) as buffer:
        assert buffer.sample(1000).obs.min() < 1.25 * STEPS


@pytest.mark.parametrize("choices", [{"over": "episodes"}, {"replacement": False}], ids=repr)
def test_a_sampler_without_a_law_for_new_items_raises(monkeypatch: pytest.MonkeyPatch, choices: Any) -> None:
    raising = pytest.raises(ReliveError, match="Writers overwrote items of")
    with outrun(monkeypatch, relive.Uniform(**choices), 10**9) as buffer, raising:
        buffer.sample(LANES * newest(buffer) + 1)  # more than there are without replacement


@pytest.mark.parametrize("scale", ["batch", "buffer", "none"])
def test_items_that_were_copied_in_time_stay(monkeypatch: pytest.MonkeyPatch, scale: str) -> None:
    """Check that items of short lanes overtaken at each try are drawn again alone, so that the draw ends."""
    rng, sampler = np.random.default_rng(7), relive.Prioritized(alpha=0.5, beta=0.5, weights=scale)
    with outrun(monkeypatch, sampler, 3) as buffer:
        all_at_first, calls = joint.JointAccess.overtaken, []

        def some(self: Any, ids: np.ndarray) -> Any:
            calls.append(len(ids))
            bad = all_at_first(self, ids)
            late = rng.random(len(ids)) < 0.3
            return bad if bad is not None and bad.all() else late if late.any() else bad

        monkeypatch.setattr(joint.JointAccess, "overtaken", some)
        assert_law(buffer, [1.0, 3**0.5])
        assert calls[:5] == [40_000] * 5, "from the newest rows the whole batch"
        assert sorted(calls[5:], reverse=True) == calls[5:], "then what is missing of it"
