"""A sum tree that follows a ring: the back ends against each other, bit for bit, and against a plain dict."""

from __future__ import annotations

import numpy as np
import pytest
from back_ends import BACKENDS, both, digest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rings import Life, ring_of

from relive._ring.plans import Window
from relive.sum_tree import allocate

EPS, ALPHA, INITIAL = 0.125, 0.6, 1.5
LARGEST, ITEMS = 3, 4


@settings(max_examples=max(settings().max_examples // 4, 1))
@given(
    st.integers(1, 4),
    st.integers(6, 20),
    st.integers(4, 20),
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_random_lives(lanes, rows, steps, starts, gives, seed):
    """Check for the same bits in all arrays after every call; leaves are powers of a plain dict's values."""
    rng = np.random.default_rng(seed)
    window = Window(span=2, lookback=1, starts=starts)
    rings = [ring_of(module, lanes, rows, window, ("given",), min(rows, steps)) for module in BACKENDS]
    life = Life(rings, rng, priorities=gives)
    arrays = [allocate(rings[0].slots) for _ in BACKENDS]
    trees = [module.Tree(*own) for module, own in zip(BACKENDS, arrays, strict=True)]
    seen = [np.zeros((lanes, 3), np.int64) for _ in BACKENDS]
    raw: dict[int, float] = {}
    for _ in range(int(rng.integers(1, 30))):
        life.go_on()
        if rng.random() < 0.5:
            continue
        before = float(arrays[0][2][LARGEST])
        counts = [
            tree.refresh(ring.kernel, own, INITIAL, ALPHA) for tree, ring, own in zip(trees, rings, seen, strict=True)
        ]
        assert counts == counts[:1] * len(counts)
        drawable = life.drawable()
        largest = float(arrays[0][2][LARGEST])
        assert largest >= before
        raw = {key: raw.get(key, given_to(rings[0], key, largest or INITIAL)) for key in drawable}
        assert counts[0] == sum(value > 0 for value in raw.values())
        assert arrays[0][2][ITEMS] == len(drawable)
        if drawable and rng.random() < 0.7:
            chosen = rng.choice(drawable, int(rng.integers(1, 12)))
            td, keep = rng.normal(size=len(chosen)), rng.random(len(chosen)) < 0.7 if rng.random() < 0.5 else None
            slots = chosen % rings[0].slots
            assert all(tree.update(slots, td, keep, EPS, ALPHA) for tree in trees)
            kept = [True] * len(chosen) if keep is None else keep.tolist()
            raw |= {
                key: abs(error) + EPS
                for key, error, took in zip(chosen.tolist(), td.tolist(), kept, strict=True)
                if took
            }
            won = [raw[key] for key, took in zip(chosen.tolist(), kept, strict=True) if took]
            assert arrays[0][2][LARGEST] == max([largest, *won])
        bits = [
            digest([own, known, tree.get(np.arange(rings[0].slots))])
            for own, known, tree in zip(arrays, seen, trees, strict=True)
        ]
        assert bits == bits[:1] * len(bits)
        expected = np.zeros(rings[0].slots)
        expected[np.array([*raw], np.int64) % rings[0].slots] = BACKENDS[0].power(np.array([*raw.values()]), ALPHA)
        np.testing.assert_array_equal(arrays[0][0][0][: len(expected)], expected)


def given_to(ring, key: int, usual: float) -> float:
    """Return the priority that a step was given, or the usual one."""
    row, lane = divmod(key, ring.lanes)
    given = float(ring.given[ring.at(np.asarray(row), lane)])
    return -given if np.signbit(given) else usual


@both
@pytest.mark.parametrize("keep", [None, [True, True, False, True]])
def test_the_running_maximum_counts_what_won(kernels, keep):
    """Set slot 1 to 9, then to 2: 9 was never anybody's priority, nor was one that is not kept."""
    sums, mins, state = allocate(8)
    tree = kernels.Tree(sums, mins, state)
    slots, td = np.array([1, 3, 5, 1]), np.array([9.0, -4.0, 1.0, 2.0])
    assert tree.update(slots, td, None if keep is None else np.array(keep), 0.5, 1.0)
    assert state[LARGEST] == 4.5
    assert sums[0].tolist() == [0, 2.5, 0, 4.5, 0, 0 if keep else 1.5, 0, 0]
    before = digest([sums, mins, state])
    assert not tree.update(slots, np.array([1.0, np.nan, 1.0, 1.0]), None, 0.5, 1.0)
    assert not tree.update(slots, np.array([1.0, 1.0, np.inf, 1.0]), None, 0.5, 1.0)
    assert digest([sums, mins, state]) == before
