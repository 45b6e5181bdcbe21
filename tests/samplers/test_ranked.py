"""The sampler of `examples/ranked_sampler.py`: ranks are exact at every draw, and draws follow `rank**-alpha`."""

from __future__ import annotations

import numpy as np
import pytest
from counted import extend, make
from ranked_sampler import Ranked, TestRanked
from statistics_of_draws import largest_z

import relive
from relive.testing.agreement import assert_same_batch

__all__ = ["TestRanked"]  # collected by pytest


def buffer_of(capacity: int, **settings: object) -> relive.ReplayBuffer:
    return make(Ranked(**{"eps": 0.0, **settings}), rows=capacity)


def ranking(buffer: relive.ReplayBuffer, ranked: int) -> list[int]:
    """Ids by rank: with alpha 0 and strata, uniforms of one half draw every rank once, in order."""

    class Middle:
        def random(self, n: int) -> np.ndarray:
            return np.full(n, 0.5)

    generator, buffer.rng = buffer.rng, Middle()
    ids = buffer.sample(ranked).ids.tolist()
    buffer.rng = generator
    return ids


def law(priority: np.ndarray, alpha: float) -> np.ndarray:
    """`rank**-alpha`, normalised; 0 where the priority is 0."""
    rank = np.empty(len(priority))
    rank[np.argsort(-priority, kind="stable")] = np.arange(1, len(priority) + 1)
    mass = np.where(priority > 0, rank**-alpha, 0.0)
    return mass / mass.sum()


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize("capacity", [1, 5, 64])
def test_ranks_are_exact_after_any_history(capacity: int) -> None:
    """Additions that go round, priorities given and zero, updates with duplicates, ties everywhere."""
    rng, buffer = np.random.default_rng(capacity), buffer_of(capacity, alpha=0.0)
    priority: dict[int, float] = {}  # in the order in which they were set
    largest, clock = 0.0, 0
    for _ in range(120):
        if not priority or rng.random() < 0.4:
            n = min(int(rng.geometric(0.3)), capacity)
            given = rng.integers(0, 6, n) / 2.0 if rng.random() < 0.5 else None
            largest = largest if given is None else max(largest, given.max())
            keys = extend(buffer, n, start=clock, priority=given).tolist()
            clock += n
            values = [largest or 1.0] * n if given is None else given.tolist()
        else:
            drawn = rng.choice(list(priority), int(rng.integers(1, 2 + capacity // 8)))
            errors = rng.integers(-6, 6, len(drawn)) / 2.0
            buffer.update_priorities(drawn, errors)
            last = {key: (at, abs(error)) for at, (key, error) in enumerate(zip(drawn.tolist(), errors, strict=True))}
            keys = sorted(last, key=last.__getitem__)
            values = [last[key][1] for key in keys]
            largest = max(largest, *values)
        for key, value in zip(keys, values, strict=True):
            priority.pop(key, None)
            priority[key] = value
            priority.pop(key - capacity, None)
        wanted = sorted((key for key in priority if priority[key] > 0), key=lambda key: -priority[key])
        assert buffer.can_sample(1) is bool(wanted)
        assert not wanted or ranking(buffer, len(wanted)) == wanted
        assert buffer.priorities(list(priority)).tolist() == list(priority.values())


def test_without_replacement() -> None:
    """No repeats, and each item is in a batch as often as when NumPy draws them one after the other."""
    rng, buffer = np.random.default_rng(0), buffer_of(12, alpha=1.0, replacement=False)
    extend(buffer, 12, priority=rng.permutation(12) + 1.0)
    share = law(buffer.priorities(np.arange(12)), 1.0)
    included, reference = np.zeros(12, int), np.zeros(12, int)
    for _ in range(1500):
        ids = buffer.sample(4).ids
        assert len(np.unique(ids)) == 4
        included[ids] += 1
        reference[rng.choice(12, 4, replace=False, p=share)] += 1
    assert largest_z(included, reference, 1500) < 5.5


def test_priorities_go_from_and_to_other_samplers(tmp_path) -> None:
    buffer = buffer_of(5)
    ids = extend(buffer, 5, priority=[3, 1, 2, 5, 0])
    buffer.save(tmp_path / "ranked")
    assert_same_batch(relive.load(tmp_path / "ranked").sample(9), buffer.sample(9))
    other = relive.load(tmp_path / "ranked", sampler=relive.Prioritized())
    np.testing.assert_allclose(other.priorities(ids), [3, 1, 2, 5, 0])
    other.save(tmp_path / "other")
    loaded = relive.load(tmp_path / "other", sampler=Ranked(alpha=0.0))
    assert ranking(loaded, 4) == [3, 0, 2, 1]
    assert loaded.priorities(extend(loaded, 1, start=5)).tolist() == pytest.approx([5.0])
