"""The generator of a buffer: replaced, changed behind the buffer, or no generator at all."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest
from local import local_shards
from scalars import SCHEMA, lived

import relive
from relive.errors import ArgumentError

SAMPLERS = [relive.Uniform(), relive.Prioritized(), relive.Uniform(replacement=False)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_other_bits_in_the_same_generator(sampler: Any) -> None:
    """Check that draws are those of a generator with these bits, however often the old ones were freed."""
    buffer, other = lived(sampler=sampler), lived(sampler=sampler)
    for seed, kind in enumerate([np.random.PCG64, np.random.MT19937, np.random.SFC64, np.random.PCG64]):
        buffer.sample(4)
        buffer.rng.__init__(kind(seed))  # type: ignore[misc]
        gc.collect()
        _ = [np.random.PCG64(9) for _ in range(50)]  # what freed memory may have become
        other.rng = np.random.Generator(kind(seed))
        for _ in range(3):
            np.testing.assert_array_equal(buffer.sample(32).ids, other.sample(32).ids)


class Class:
    random = 5


@pytest.mark.parametrize(
    "wrong", [None, 5, np.int64(5), "PCG64", np.random.PCG64(0), np.random.Generator, random, Class()]
)
def test_what_is_no_generator(wrong: Any) -> None:
    """Check that it is refused on assignment, and draws continue with the old one."""
    buffer, other = lived(), lived()
    with pytest.raises(ArgumentError, match=r"Expected a `numpy.random.Generator`, got .* - at `ReplayBuffer.rng`"):
        buffer.rng = wrong
    np.testing.assert_array_equal(buffer.sample(32).ids, other.sample(32).ids)


def test_other_generators() -> None:
    """Check that NumPy's old one is taken; Python's own has another `random`, which the draw's error tells."""
    buffer = lived()
    buffer.rng = np.random.RandomState(0)  # type: ignore[assignment]
    assert len(buffer.sample(32).ids) == 32
    buffer.rng = random.Random(0)  # type: ignore[assignment]
    with pytest.raises(ArgumentError, match=r"Expected a generator with `random\(size\)`, got `<random.Random"):
        buffer.sample(32)
    assert buffer.stats().drawn == 32


def test_shards() -> None:
    shards, _ = local_shards(SCHEMA, 40, num_envs=2, shards=2)
    for wrong in (None, "PCG64", np.random.PCG64(0), True, -1):
        with pytest.raises(ArgumentError, match=r"at `Shards.rng`"):
            shards.rng = wrong  # type: ignore[assignment]
    shards.rng = 5
    assert shards.rng.random() == np.random.default_rng(5).random()
    shards.rng = np.random.default_rng(6)
    assert shards.rng.random() == np.random.default_rng(6).random()
