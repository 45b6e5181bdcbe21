"""The sum tree against sums that cannot drift: `math.fsum`, cumulative sums, and ten million updates."""

from __future__ import annotations

import math

import numpy as np
import pytest

import relive

CAPACITIES = [1, 2, 7, 8, 9, 63, 64, 65, 100, 513, 4097, 70_001]


def exactly(a: float, b: float) -> bool:
    """Return True if equal within the rounding of a dozen additions."""
    return math.isclose(a, b, rel_tol=1e-14 * 12, abs_tol=0.0)


def assert_is_tree_of(tree: relive.SumTree, leaves: np.ndarray, rng: np.random.Generator, probes: int = 2000) -> None:
    """Check that total, minimum and search all agree with the plain array."""
    assert exactly(tree.total, math.fsum(leaves))
    positive = leaves[leaves > 0]
    assert tree.min == (positive.min() if len(positive) else math.inf)
    if not len(positive):
        return
    edges = np.cumsum(leaves)
    prefix = np.concatenate([rng.random(probes) * tree.total, [0.0, tree.total, np.nextafter(tree.total, 0.0)]])
    found = tree.find(prefix)
    assert (leaves[found] > 0).all()
    slack = 1e-12 * tree.total
    assert (edges[found] >= prefix - slack).all()
    assert (edges[found] - leaves[found] <= prefix + slack).all()
    clear = np.abs(edges[:, None] - prefix[None, :200]).min(axis=0) > slack
    expected = np.searchsorted(edges, prefix[:200], side="right")
    np.testing.assert_array_equal(found[:200][clear], expected[clear])


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_any_capacity(capacity):
    """Check leaves in order, for powers of two and everything else; zeros are never found."""
    rng = np.random.default_rng(capacity)
    tree, leaves = relive.SumTree(capacity), np.zeros(capacity)
    for _ in range(6):
        where = rng.integers(0, capacity, max(1, capacity // 2))
        values = np.where(rng.random(len(where)) < 0.3, 0.0, 10 ** rng.uniform(-6, 6, len(where)))
        tree.set(where, values)
        leaves[where] = values  # the last of several values for one leaf stays here too
        for index, value in zip(where.tolist(), values.tolist(), strict=True):
            leaves[index] = value
        np.testing.assert_array_equal(tree.values, leaves)
        assert_is_tree_of(tree, leaves, rng, 500)


@pytest.mark.parametrize("capacity", [9, 100, 4097])
def test_a_leaf_of_zero_is_never_found(capacity):
    """Check at 0, at all edges, one step of rounding from them, and at the total."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        leaves = np.where(rng.random(capacity) < 0.7, 0.0, 10 ** rng.uniform(-9, 9, capacity))
        leaves[rng.integers(capacity)] = 1.0
        leaves[[0, -1]] = 0.0 if leaves[1:-1].any() else 1.0
        tree = relive.SumTree(capacity)
        tree.set(np.arange(capacity), leaves)
        edges = np.concatenate([[0.0], np.cumsum(leaves)])
        prefix = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, 0.0)])
        found = tree.find(np.minimum(prefix, tree.total))
        assert (leaves[found] > 0).all()


@pytest.mark.slow
def test_ten_million_updates_and_then_a_shrink():
    """Check against drift: sums stay those of the leaves, also after priorities fall by twelve decades.

    A tree that adjusts its sums by differences passes the first half and fails the second by several per cent.
    """
    capacity, rng = 65_537, np.random.default_rng(0)
    tree, leaves = relive.SumTree(capacity), np.zeros(capacity)
    for _ in range(100):
        where = rng.integers(0, capacity, 100_000)
        values = 10 ** rng.uniform(-6, 6, 100_000)
        values[rng.random(100_000) < 0.05] = 0.0
        tree.set(where, values)
        last = np.unique(where[::-1], return_index=True)
        leaves[last[0]] = values[::-1][last[1]]
    np.testing.assert_array_equal(tree.values, leaves)
    assert_is_tree_of(tree, leaves, rng)
    leaves *= 1e-12
    tree.set(np.arange(capacity), leaves)
    assert_is_tree_of(tree, leaves, rng)
    dismantle(tree, leaves, rng)


def dismantle(tree: relive.SumTree, leaves: np.ndarray, rng: np.random.Generator) -> None:
    """Zero the leaves in blocks, largest sums first: each inner sum is the total once, so each must be right."""
    order = rng.permutation(-(-len(leaves) // 64))
    for block in order[:-1]:
        where = np.arange(block * 64, min(block * 64 + 64, len(leaves)))
        tree.set(where, 0.0)
        leaves[where] = 0.0
        if block % 16 == 0:
            assert exactly(tree.total, math.fsum(leaves))
    for where in np.flatnonzero(leaves):
        assert exactly(tree.total, math.fsum(leaves))
        tree.set(where, 0.0)
        leaves[where] = 0.0
    assert (tree.total, tree.min) == (0.0, math.inf)


def test_a_spike_leaves_nothing_behind():
    """Check 1e17 and back to 1: a tree of differences has total 0 afterwards."""
    tree = relive.SumTree(5)
    tree.set(np.arange(5), 1.0)
    tree.set(2, 1e17)
    tree.set(2, 1.0)
    assert tree.total == 5.0
    np.testing.assert_array_equal(tree.find(np.arange(5) + 0.5), np.arange(5))


def test_the_last_of_several_values_for_one_leaf_counts():
    tree = relive.SumTree(20)
    tree.set([3, 11, 3, 11, 3], [1.0, 2.0, 5.0, 0.0, 4.0])
    assert (tree[3], tree[11], tree.total, tree.min) == (4.0, 0.0, 4.0, 4.0)


def test_prefixes_reach_leaves_in_order():
    tree = relive.SumTree(6)
    tree.set(np.arange(6), [1, 2, 0, 3, 0, 4])
    expected = [0, 1, 1, 3, 3, 3, 5, 5, 5, 5]
    np.testing.assert_array_equal(tree.find(np.arange(10.0)), expected)
    assert tree.find(10.0) == 5
    assert tree.find(np.arange(10.0).reshape(2, 5)).shape == (2, 5)
