"""What samplers take per row of capacity is what their documentation says, and they hold nothing else of that size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relive
from relive.sum_tree import allocate

ROWS = 10_000
# Bytes per row, and what else there may be: counters of the lane, padding of the tree's levels.
TABLE = {
    "uniform": (relive.Uniform(), 4.0),
    "episodes": (relive.Uniform(over="episodes"), 8.0),
    "prioritized": (relive.Prioritized(), 8 + 16 / 7 + 8),
}


def arrays_of(thing: Any, seen: set[int]) -> list[np.ndarray]:
    """List every array that `thing` holds, in lists, too."""
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
    sums, mins, _ = allocate(capacity)
    taken = sum(array.nbytes for array in [*sums, *mins])
    assert all(level.ctypes.data % 64 == 0 and len(level) % 8 == 0 for level in sums + mins)
    # Every level is padded to whole groups of eight: at most one group a level, twice.
    assert 0 <= taken - capacity * (8 + 16 / 7) + 2 * 8 * 8 <= 64 * 2 * (len(sums) + 1)


@pytest.mark.parametrize("name", TABLE)
def test_a_sampler_asks_the_storage_for_what_its_documentation_says(name: str) -> None:
    sampler, each = TABLE[name]
    asked = sum(wanted.nbytes for wanted in sampler.spec(1, ROWS).values())
    kept = 8 * ROWS * sampler.prioritizes  # what steps are given
    assert 0 <= asked + kept - each * ROWS <= 1024


@pytest.mark.parametrize("name", ["uniform", "episodes", "prioritized"])
def test_a_sampler_has_no_large_array_of_its_own(name: str) -> None:
    """Check that all its arrays are in the storage's memory."""
    opened: list[np.ndarray] = []

    class Watched(relive.Ram):
        def open(self, spec: Any, identity: bytes) -> Any:
            memory = super().open(spec, identity)
            opened.extend(memory.host(array) for array in spec)
            return memory

    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, ROWS, sampler=TABLE[name][0], storage=Watched())
    for array in arrays_of(buffer._core.index, set()):
        assert array.nbytes < 1024 or any(np.shares_memory(array, other) for other in opened)
