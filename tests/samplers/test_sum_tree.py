"""`relive.SumTree` against plain arrays, and the forms of its arguments and results."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import relive
from relive._ring import kernels
from relive.errors import ArgumentError, NotEnoughData

CAPACITIES = [1, 2, 7, 8, 9, 63, 64, 65, 100, 513, 4097, 70_001]


def filled(*values: float) -> relive.SumTree:
    tree = relive.SumTree(len(values))
    tree.set(np.arange(len(values)), values)
    return tree


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_new_tree_is_empty(capacity):
    tree = relive.SumTree(capacity)
    assert (tree.total, tree.min, tree.capacity, len(tree)) == (0.0, math.inf, capacity, capacity)
    assert tree.values.tolist() == [0.0] * capacity
    with pytest.raises(NotEnoughData) as refused:
        tree.find(0.0)
    assert str(refused.value) == "Expected at least 1 positive leaf, got 0 - at `SumTree.find`: set some values first"


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_any_capacity(capacity):
    """Check total, minimum and search against a plain array; that no sum drifts is checked in `tests/ring`."""
    rng = np.random.default_rng(capacity)
    tree, leaves = relive.SumTree(capacity), np.zeros(capacity)
    for _ in range(6):
        where = rng.integers(0, capacity, max(1, capacity // 2))
        values = np.where(rng.random(len(where)) < 0.3, 0.0, 10 ** rng.uniform(-6, 6, len(where)))
        tree.set(where, values)
        leaves[where] = values  # the last of several values for one leaf stays here, too
        np.testing.assert_array_equal(tree.values, leaves)
        assert math.isclose(tree.total, math.fsum(leaves), rel_tol=1e-13)
        assert tree.min == leaves[leaves > 0].min(initial=math.inf)
        if tree.total:
            edges, slack = np.cumsum(leaves), 1e-12 * tree.total
            prefix = np.append(rng.random(500) * tree.total, [0.0, tree.total, np.nextafter(tree.total, 0.0)])
            found = tree.find(prefix)
            first, last = (np.searchsorted(edges, prefix + each, side="right") for each in (-slack, slack))
            assert (leaves[found] > 0).all()
            assert ((first <= found) & (found <= last)).all()


def test_half_open_shares():
    """Check that a prefix equal to a running sum finds the next positive leaf, and the total the last one."""
    tree = filled(0.0, 1.0, 0.0, 3.0, 0.0)
    assert [tree.find(p) for p in (0.0, 0.999, 1.0, 3.999, 4.0)] == [1, 1, 3, 3, 3]
    assert tree.find(4.0 * (1 + 1e-15)) == 3


def test_shapes_of_results():
    """Check that a number gives a number, an array its own shape, and an empty one an empty one."""
    tree = filled(1.0, 2.0, 3.0)
    assert type(tree.find(0.5)) is int
    assert type(tree.find(np.float32(0.5))) is int
    assert type(tree[1]) is float
    assert type(tree.get(np.int64(1))) is float
    found = tree.find([[0.5, 1.5], [3.5, 6.0]])
    assert found.dtype == np.int64
    assert found.tolist() == [[0, 1], [2, 2]]
    assert tree.get([[0, 1], [2, 2]]).tolist() == [[1.0, 2.0], [3.0, 3.0]]
    assert tree.find([]).shape == tree.get([]).shape == (0,)
    assert tree.find(np.zeros((0, 4))).shape == (0, 4)
    assert tree.find(range(3)).tolist() == [0, 1, 1]


def test_forms_of_set():
    """Check one index, one value for all, any shape, any integer or float type, strided, nothing at all."""
    tree = relive.SumTree(10)
    tree.set(3, 2)
    tree.set([0, 1], 0.5)
    tree.set(np.array([[4, 5], [6, 7]], np.uint8), np.array([[1, 2], [3, 4]], np.float32))
    tree.set(np.arange(9, dtype=np.int32)[8::-4], np.arange(6.0)[::2])
    tree.set([], [])
    tree.set([], 1.0)
    tree.set(np.arange(2, 3)[::-1], [5.0])
    assert tree.values.tolist() == [4.0, 0.5, 5.0, 2.0, 2.0, 2.0, 3.0, 4.0, 0.0, 0.0]


def test_values_are_a_view_that_cannot_be_written():
    tree = filled(1.0, 2.0)
    view = tree.values
    tree.set(0, 4.0)
    assert view.tolist() == [4.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1.0


def test_the_largest_values_keep_the_total_finite():
    largest = sys.float_info.max / 8
    tree = filled(*[largest] * 8)
    assert math.isfinite(tree.total)
    assert tree.find(tree.total) == 7


def test_repr():
    assert repr(filled(1.0, 2.5)) == "SumTree(capacity=2, total=3.5)"


def test_a_capacity_beyond_all_memory():
    with pytest.raises(ArgumentError, match="Expected a capacity that fits in memory"):
        relive.SumTree(2**47)


def test_a_tree_keeps_the_kernels_it_was_built_with():
    with kernels.use("numpy"):
        tree = relive.SumTree(20)
    tree.set(range(20), 1.0)
    assert tree.find(np.arange(20.0)).tolist() == list(range(20))
