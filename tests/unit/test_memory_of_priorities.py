"""What priorities cost is what the documentation says: 8 + 16/7 bytes per row of capacity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relive


def arrays_of(thing: Any, seen: set[int]) -> list[np.ndarray]:
    """Every array that `thing` holds, in lists, too; views count as what they show."""
    if id(thing) in seen:
        return []
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return [thing]
    if isinstance(thing, list | tuple):
        return [array for item in thing for array in arrays_of(item, seen)]
    return [array for value in getattr(thing, "__dict__", {}).values() for array in arrays_of(value, seen)]


@pytest.mark.parametrize("capacity", [8**4, 10_000, 100_003])
def test_the_tree_takes_what_the_formula_says(capacity: int) -> None:
    from relive.sum_tree import allocate

    sums, mins, _ = allocate(capacity)
    taken = sum(array.nbytes for array in [*sums, *mins])
    # Every level is padded to whole groups of eight: at most one group a level, twice.
    assert 0 <= taken - capacity * (8 + 16 / 7) + 2 * 8 * 8 <= 64 * 2 * (len(sums) + 1)


def index_of(sampler):
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    return relive.ReplayBuffer(schema, 10_000, sampler=sampler)._index


def test_a_uniform_sampler_takes_two_integers_a_row_and_given_priorities_one_more_float() -> None:
    uniform = index_of(relive.Uniform())
    assert sum(array.nbytes for array in arrays_of(uniform, set())) == 10_000 * 8 + 8
    prioritized = index_of(relive.Prioritized())
    before = sum(array.nbytes for array in arrays_of(prioritized, set()))
    prioritized.offer(np.array([3]), np.array([2.0]))
    assert sum(array.nbytes for array in arrays_of(prioritized, set())) - before == 10_000 * 8
