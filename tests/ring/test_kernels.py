"""The tree: the back ends against each other, bit for bit, and against plain lists."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from back_ends import BACKENDS, CAPACITIES, both, digest
from hypothesis import given
from hypothesis import strategies as st

from relive.sum_tree import allocate


class Pair:
    """The same tree on every back end."""

    def __init__(self, capacity: int) -> None:
        self.arrays = [allocate(capacity) for _ in BACKENDS]
        self.trees = [module.Tree(*arrays) for module, arrays in zip(BACKENDS, self.arrays, strict=True)]

    def call(self, name: str, *arguments: object) -> object:
        """Call one method on all, and hold all results and all arrays to the same bits."""
        results = [getattr(tree, name)(*arguments) for tree in self.trees]
        for result in results[1:]:
            assert digest(result) == digest(results[0])
        for arrays in self.arrays[1:]:
            assert digest(arrays) == digest(self.arrays[0])
        return results[0]

    @property
    def leaves(self) -> np.ndarray:
        return self.arrays[0][0][0]

    @property
    def state(self) -> np.ndarray:
        return self.arrays[0][2]


def assert_consistent(pair: Pair, capacity: int) -> None:
    """Check that every entry above is the sum, and the minimum, of its eight; the state follows from the leaves."""
    sums, mins, state = pair.arrays[0]
    for level, above in enumerate([*sums[1:], state[:1]]):
        x = sums[level].reshape(-1, 8).T
        expected = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))
        np.testing.assert_array_equal(above[: len(expected)], expected)
        assert not above[len(expected) :].any()
    for level, above in enumerate(mins):
        below = sums[0] if level == 0 else mins[level - 1]
        expected = np.where(below > 0, below, np.inf).reshape(-1, 8).min(axis=1)
        np.testing.assert_array_equal(above[: len(expected)], np.where(np.isinf(expected), 0.0, expected))
    leaves = sums[0][:capacity]
    assert not sums[0][capacity:].any()
    assert state[1] == leaves[leaves > 0].min(initial=np.inf)
    assert state[2] == np.count_nonzero(leaves)


values_of_leaves = st.one_of(
    st.just(0.0), st.floats(1e-9, 1e9), st.sampled_from([1.0, 2.0**-1000, 2.0**900, 1e-300, 1e17])
)


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, list[tuple[str, tuple[np.ndarray, ...]]]]:
    """Draw a capacity and writes, of few and of many leaves, sorted, runs, and with duplicates in any order."""
    capacity = draw(st.sampled_from(CAPACITIES))
    index = st.integers(0, capacity - 1)

    def indices(longest: int) -> np.ndarray:
        kind = draw(st.sampled_from(["any", "sorted", "run"]))
        if kind == "run":
            start = draw(index)
            return np.arange(start, min(capacity, start + draw(st.integers(0, longest))), dtype=np.int64)
        chosen = np.array(draw(st.lists(index, max_size=longest)), np.int64)
        return np.sort(chosen) if kind == "sorted" else chosen

    calls = []
    for _ in range(draw(st.integers(1, 6))):
        longest = draw(st.sampled_from([1, 3, 30]))
        removed, added = indices(longest), indices(longest)
        values = np.array(draw(st.lists(values_of_leaves, min_size=len(added), max_size=len(added))), np.float64)
        name = draw(st.sampled_from(["set", "fill_zero_and_set"]))
        calls.append((name, (removed, added, values)))
    return capacity, calls


@given(programs(), st.integers(0, 2**32 - 1))
def test_random_programs(program, seed):
    """Check for the same bits everywhere after every call; the leaves are those of a plain list."""
    capacity, calls = program
    pair, plain, rng = Pair(capacity), [0.0] * capacity, np.random.default_rng(seed)
    for name, (removed, added, values) in calls:
        if name == "set":
            pair.call("set", added, values)
        else:
            for i in removed.tolist():
                plain[i] = 0.0
            value = float(values[0]) if len(values) else 1.0
            pair.call(name, removed, added, value)
            values = np.full(len(added), value)
        for i, value in zip(added.tolist(), values.tolist(), strict=True):
            plain[i] = value
        np.testing.assert_array_equal(pair.leaves[:capacity], plain)
        assert_consistent(pair, capacity)
        if any(plain):
            check_draws(pair, plain, rng)


def check_draws(pair: Pair, plain: list[float], rng: np.random.Generator) -> None:
    """Check that draws find positive leaves, at the running sums of the plain list."""
    u = rng.random(int(rng.choice([1, 5, 70])))
    u[-1] = np.nextafter(1.0, 0.0)
    total = float(pair.state[0])
    edges, slack = list(accumulate(plain)), 1e-12 * total
    prefixes = np.concatenate([u * total, [0.0, total, total * (1 + 1e-13)], np.minimum(edges, total)])
    found, _ = pair.call("find", prefixes)
    for i, prefix in zip(found.tolist(), prefixes.tolist(), strict=True):
        assert plain[i] > 0.0
        assert edges[i] - plain[i] - slack <= prefix <= edges[i] + slack
    for stratified in (True, False):
        drawn, values = pair.call("draw", u, stratified)
        assert values.tolist() == [plain[i] for i in drawn.tolist()]
        assert (values > 0.0).all()
        assert not stratified or (np.diff(drawn) >= 0).all()
    some = min(len(u), int(pair.state[2]))
    drawn, values = pair.call("draw_distinct", u[:some])  # compares all arrays with the other back ends' too
    assert len(set(drawn.tolist())) == some
    assert values.tolist() == [plain[i] for i in drawn.tolist()]


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_many_writes_at_once(capacity):
    """Check that whole levels are recomputed if a call touches most of them."""
    rng = np.random.default_rng(capacity)
    pair, plain = Pair(capacity), np.zeros(capacity)
    for size in (capacity, 3 * capacity, 5000):
        where = rng.integers(0, capacity, size)
        values = np.where(rng.random(size) < 0.3, 0.0, 10.0 ** rng.uniform(-6, 6, size))
        pair.call("set", where, values)
        for i, value in zip(where.tolist(), values.tolist(), strict=True):
            plain[i] = value
        np.testing.assert_array_equal(pair.leaves[:capacity], plain)
        assert_consistent(pair, capacity)
    pair.call("fill_zero_and_set", np.arange(capacity), np.arange(0, capacity, 3), 0.5)
    assert_consistent(pair, capacity)
    assert pair.state[2] == len(range(0, capacity, 3))


@both
def test_a_prefix_on_an_edge_belongs_to_the_leaf_behind_it(kernels):
    """Check against the classic `s <= left`, which goes left here, and to a leaf of zero at prefix 0."""
    leaves = np.array([0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 0.0])
    tree = kernels.Tree(*allocate(len(leaves)))
    tree.set(np.arange(len(leaves)), leaves)
    found, values = tree.find(np.array([0.0, 0.5, 1.0, 2.9, 3.0, 6.9, 7.0, 7.1]))
    assert found.tolist() == [1, 1, 3, 3, 9, 9, 9, 9]
    assert values.tolist() == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0]


@both
def test_rounding_cannot_reach_a_zero(kernels):
    """Check leaves with targets on a zero between two rounded sums, since scans in pairs are not monotone."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        leaves = np.where(rng.random(64) < 0.5, 0.0, 10.0 ** rng.uniform(-17, 0, 64))
        leaves[rng.integers(64)] = 1.0
        tree = kernels.Tree(*allocate(64))
        tree.set(np.arange(64), leaves)
        edges = np.cumsum(leaves)
        around = np.concatenate([edges, np.nextafter(edges, 0.0), np.nextafter(edges, 9.0)])
        assert (tree.find(around)[1] > 0.0).all()


@both
def test_the_search_by_adding_up_is_right_too(kernels):
    """Check two tiny leaves and a large one: rounding must not lead past the last positive leaf."""
    tree = kernels.Tree(*allocate(8))
    tree.set(np.arange(8), np.array([1.0, 1e-17, 0.0, 1e-17, 0.0, 0.0, 0.0, 0.0]))
    found, values = tree.find(np.array([0.0, np.nextafter(1.0, 0.0), 1.0]))
    assert found[:2].tolist() == [0, 0]
    assert values[2] == 1e-17
