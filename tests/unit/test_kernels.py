"""The kernels: both back ends and every instruction set against each other, bit for bit, and against plain lists."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import math
import os
import re
import subprocess
import sys
from bisect import bisect_right
from itertools import accumulate
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive import _kernels, _kernels_numpy
from relive.errors import ArgumentError, ReliveWarning
from relive.sum_tree import allocate

HAS_NATIVE = importlib.util.find_spec("relive._native") is not None
BACKENDS: list[ModuleType] = [_kernels_numpy]
if HAS_NATIVE:
    BACKENDS.append(importlib.import_module("relive._native"))
CAPACITIES = [1, 7, 8, 9, 64, 65, 1000, 4097]

both = pytest.mark.parametrize("kernels", BACKENDS, ids=[module.simd() for module in BACKENDS])


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter with this folder and the package on its path."""
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    settings = {**os.environ, "PYTHONPATH": path, **environment}
    for name in ("RELIVE_KERNELS", "RELIVE_SIMD"):
        if name not in environment:
            settings.pop(name, None)
    return subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, timeout=300)


def instruction_sets() -> list[str]:
    """Those that the extension has and this processor can run, as it says itself when asked for another."""
    if not HAS_NATIVE:
        return []
    said = run_python("import relive._kernels as k; k.active()", RELIVE_SIMD="abacus").stderr.splitlines()[-1]
    return re.findall(r"`(\w+)`", said.partition(", got")[0])


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


def digest(value: object) -> str:
    """The bits of arrays, numbers and nests of them."""
    if isinstance(value, (tuple, list)):
        return hashlib.sha256("".join(map(digest, value)).encode()).hexdigest()
    array = np.asarray(value)
    return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()


def assert_consistent(pair: Pair, capacity: int) -> None:
    """Every entry above is the sum, and the minimum, of its eight; the state follows from the leaves alone."""
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
    """A capacity and writes to make, of few and of many leaves, sorted, runs, and with duplicates in any order."""
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
        name = draw(st.sampled_from(["set", "fill_zero_and_set", "fill_zero_and_assign"]))
        calls.append((name, (removed, added, values)))
    return capacity, calls


@given(programs(), st.integers(0, 2**32 - 1))
def test_random_programs(program, seed):
    """Same bits everywhere after every call; the leaves are those of a plain list."""
    capacity, calls = program
    pair, plain, rng = Pair(capacity), [0.0] * capacity, np.random.default_rng(seed)
    for name, (removed, added, values) in calls:
        if name == "set":
            pair.call("set", added, values)
        else:
            for i in removed.tolist():
                plain[i] = 0.0
            if name == "fill_zero_and_set":
                value = float(values[0]) if len(values) else 1.0
                pair.call(name, removed, added, value)
                values = np.full(len(added), value)
            else:
                pair.call(name, removed, added, values)
        for i, value in zip(added.tolist(), values.tolist(), strict=True):
            plain[i] = value
        np.testing.assert_array_equal(pair.leaves[:capacity], plain)
        assert_consistent(pair, capacity)
        if any(plain):
            check_draws(pair, plain, rng)


def check_draws(pair: Pair, plain: list[float], rng: np.random.Generator) -> None:
    """Draws find positive leaves, where the running sum of the plain list says."""
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
    """Whole levels are recomputed where a call touches most of them."""
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
def test_unsorted_duplicates_keep_the_last(kernels):
    """A version that drops all but neighbours, or keeps the first, or counts each write, fails one of these."""
    sums, mins, state = allocate(100)
    tree = kernels.Tree(sums, mins, state)
    tree.set(np.array([5, 90, 5, 17, 90, 5]), np.array([1.0, 2.0, 0.0, 4.0, 0.0, 3.0]))
    assert np.flatnonzero(sums[0]).tolist() == [5, 17]
    assert state.tolist() == [7.0, 3.0, 2.0]
    tree.fill_zero_and_set(np.array([17, 5, 17]), np.array([5, 60, 5]), 2.5)
    assert np.flatnonzero(sums[0]).tolist() == [5, 60]
    assert state.tolist() == [5.0, 2.5, 2.0]


@both
def test_a_prefix_on_an_edge_belongs_to_the_leaf_behind_it(kernels):
    """The classic `s <= left` goes left here, and to a leaf of zero at prefix 0."""
    leaves = np.array([0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 0.0])
    tree = kernels.Tree(*allocate(len(leaves)))
    tree.set(np.arange(len(leaves)), leaves)
    found, values = tree.find(np.array([0.0, 0.5, 1.0, 2.9, 3.0, 6.9, 7.0, 7.1]))
    assert found.tolist() == [1, 1, 3, 3, 9, 9, 9, 9]
    assert values.tolist() == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0]


@both
def test_rounding_cannot_reach_a_zero(kernels):
    """Scans in pairs are not monotone: with these leaves some targets fall on a zero between two rounded sums."""
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
    """Two tiny leaves beside a large one: what rounding swallows must not lead past the last positive leaf."""
    tree = kernels.Tree(*allocate(8))
    tree.set(np.arange(8), np.array([1.0, 1e-17, 0.0, 1e-17, 0.0, 0.0, 0.0, 0.0]))
    found, values = tree.find(np.array([0.0, np.nextafter(1.0, 0.0), 1.0]))
    assert found[:2].tolist() == [0, 0]
    assert values[2] == 1e-17


@both
def test_successive_sampling_follows_its_law(kernels):
    """Without replacement: P(first, second) = p_i / S * p_j / (S - p_i), chi-square at the 1e-6 level."""
    leaves = np.array([1.0, 2.0, 0.0, 3.0, 4.0])
    tree = kernels.Tree(*allocate(5))
    tree.set(np.arange(5), leaves)
    rng, counts = np.random.default_rng(0), np.zeros((5, 5))
    draws = 20_000 if kernels is not _kernels_numpy else 4000
    for _ in range(draws):
        first, second = tree.draw_distinct(rng.random(2))[0]
        counts[first, second] += 1
    expected = draws * leaves[:, None] / 10 * leaves[None, :] / (10 - leaves[:, None])
    np.fill_diagonal(expected, 0.0)
    possible = expected > 0
    assert not counts[~possible].any()
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    assert chi_square < 55.0  # 11 degrees of freedom


@both
def test_powers(kernels):
    """Within 4e-15 of the true power at ordinary exponents; exact at 0, 1, and 1 ** e; monotone limits at the ends."""
    rng = np.random.default_rng(0)
    x = np.concatenate([10.0 ** rng.uniform(-6, 6, 20_000), rng.uniform(0.99, 1.01, 1000), [1e-6, 0.5, 2.0]])
    for exponent in (0.1, 0.4, 0.5, 0.6, 0.7, 0.9, 1.5, -0.4):
        true = np.power(x.astype(np.longdouble), np.longdouble(exponent))
        error = np.abs(kernels.power(x, exponent) / true - 1.0).max()
        assert error < 4e-15, exponent
    far = 10.0 ** rng.uniform(-300, 300, 20_000)
    true = np.power(far.astype(np.longdouble), np.longdouble(0.6))
    assert np.abs(kernels.power(far, 0.6) / true - 1.0).max() < 1e-13
    assert kernels.power(np.array([0.0, 1.0, 5.0]), 0.0).tolist() == [0.0, 1.0, 1.0]
    np.testing.assert_array_equal(kernels.power(x, 1.0), x)
    for exponent in (0.37, 1.0, 2.0):
        assert kernels.power(np.array([0.0, 1.0]), exponent).tolist() == [0.0, 1.0]
        ends = kernels.power(np.array([5e-324, 1e-310, 1e-200, 1.0, 1e200, 1.7e308]), exponent)
        assert (np.diff(ends) >= 0.0).all()
        assert ends[0] >= 2.0**-1000
        assert ends[-1] <= 2.0**960


@both
def test_masses(kernels):
    """(|td| + eps) ** alpha and the largest raw priority; one bad value among many is told by NaN."""
    td = np.array([-3.0, 0.0, 1.0])
    values, largest = kernels.mass(td, 0.5, 0.6)
    np.testing.assert_allclose(values, [3.5**0.6, 0.5**0.6, 1.5**0.6], rtol=1e-14)
    assert largest == 3.5
    assert kernels.mass(td, 0.0, 0.6)[0][1] == 0.0
    assert kernels.mass(td[:0], 1e-6, 0.6)[1] == 0.0
    for bad in (np.nan, -np.nan, np.inf, -np.inf):
        for at in (0, 7, 40):
            spoilt = np.ones(41)
            spoilt[at] = bad
            assert math.isnan(kernels.mass(spoilt, 1e-6, 0.6)[1])


@both
def test_weights(kernels):
    """(reference / value) ** beta in float32, exactly 1 for the reference itself; the smallest of any number."""
    values = np.random.default_rng(0).random(100) + 0.01
    for beta in (0.0, 0.4, 1.0):
        weights = kernels.weights(values, float(values.min()), beta)
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights, (values.min() / values) ** beta, rtol=1e-6)
        assert weights.max() == weights[values.argmin()] == 1.0
    for n in (1, 7, 8, 9, 100):
        assert kernels.smallest(values[:n]) == values[:n].min()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8))
def test_dense_sets(dtype, seeds):
    """Members come and go, in the same order everywhere; draws are members, and distinct where they have to be."""
    capacity = 50
    arrays = [(np.zeros(capacity, dtype), np.zeros(capacity, dtype), np.zeros(1, np.int64)) for _ in BACKENDS]
    sets = [module.Dense(*own) for module, own in zip(BACKENDS, arrays, strict=True)]
    members = np.zeros(capacity, bool)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        removed = rng.permutation(np.flatnonzero(members))[: rng.integers(0, 6)]
        members[removed] = False
        added = rng.permutation(np.flatnonzero(~members))[: rng.integers(0, 9)]
        members[added] = True
        u = rng.random(20)
        u[0] = np.nextafter(1.0, 0.0)
        distinct = u[: members.sum()]
        results = []
        for dense, own in zip(sets, arrays, strict=True):
            dense.change(removed, added)
            drawn = [dense.draw(u), dense.draw_distinct(distinct)] if members.any() else []
            results.append(digest([*drawn, *own]))
            assert all(members[each].all() and each.dtype == np.int64 for each in drawn)
            assert not drawn or len(set(drawn[1].tolist())) == len(distinct)
            order, where, state = own
            assert sorted(order[: state[0]].tolist()) == np.flatnonzero(members).tolist()
            np.testing.assert_array_equal(where[order[: state[0]]], np.arange(state[0]))
        assert len(set(results)) == 1


@both
def test_dense_draws_are_uniform(kernels):
    """The place in the list is the uniform's share of it."""
    dense = kernels.Dense(np.zeros(9, np.int32), np.zeros(9, np.int32), np.zeros(1, np.int64))
    dense.change(np.zeros(0, np.int64), np.array([8, 2, 5, 0]))
    u = np.linspace(0.0, 1.0, 41)[:-1]
    expected = [[8, 2, 5, 0][bisect_right([0.25, 0.5, 0.75], each)] for each in u]
    assert dense.draw(u).tolist() == expected


def transcript(kernels: ModuleType) -> str:
    """A digest of everything the kernels give over a fixed program with sizes around every block and switch."""
    rng, seen = np.random.default_rng(7), []
    for capacity in (*CAPACITIES, 70_001):
        arrays = allocate(capacity)
        tree = kernels.Tree(*arrays)
        for size in (1, 2, 3, 4, 9, 64, 65, 700, 5000):
            where = rng.integers(0, capacity, size)
            values = np.where(rng.random(size) < 0.3, 0.0, 10.0 ** rng.uniform(-9, 9, size))
            tree.set(where, values)
            some, others = where[::3].copy(), where[::2].copy()
            tree.fill_zero_and_set(some, others, 1.25)
            tree.fill_zero_and_assign(others, where, values[::-1].copy())
            tree.fill_zero_and_set(where[:0], where[:1], 1.5)
            u = rng.random(min(size, 500))
            several = u[: min(int(arrays[2][2]), 40)]
            seen += [tree.draw(u, True), tree.draw(u, False), tree.draw_distinct(several), tree.get(where), arrays]
    x = np.concatenate([10.0 ** rng.uniform(-300, 300, 4001), rng.random(999), [0.0, 1.0, 5e-324]])
    for exponent in (0.0, 0.4, 0.6, 1.0, 1.7):
        seen += [kernels.power(x, exponent), kernels.mass(x - 0.5, 1e-6, exponent)]
        seen += [kernels.weights(x[:-3], 0.3, min(exponent, 0.1))]
    return digest(seen)


@pytest.mark.parametrize("name", instruction_sets())
def test_every_instruction_set_gives_the_same_bits(name):
    code = "import relive._native as n, test_kernels as t; print(n.simd(), t.transcript(n))"
    done = run_python(code, RELIVE_SIMD=name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [name, transcript(_kernels_numpy)]


def test_an_unknown_instruction_set_is_refused():
    """In relive's grammar, with what there is; without the extension the variable means nothing."""
    done = run_python("import relive._kernels as k; k.active()", RELIVE_SIMD="abacus")
    refusal = r"relive\.errors\.ArgumentError: Expected one of (`\w+`, )*`baseline`, got `abacus` - at `RELIVE_SIMD`"
    last = done.stderr.rstrip().rpartition("\n")[2]
    assert re.fullmatch(refusal, last) if HAS_NATIVE else not last


def test_an_unknown_back_end_is_refused():
    done = run_python("import relive; relive.SumTree(3)", RELIVE_KERNELS="fortran")
    assert done.stderr.splitlines()[-1] == (
        "relive.errors.ArgumentError: Expected `numpy` or `native`, got `fortran` - at `RELIVE_KERNELS`: "
        "leave it out to let relive choose"
    )


@pytest.mark.parametrize("name", [module.__name__.rpartition("_")[2] for module in BACKENDS])
def test_the_environment_forces_a_back_end(name):
    done = run_python("import relive._kernels as k; print(k.active().__name__)", RELIVE_KERNELS=name)
    assert done.stdout.strip().endswith(name)


def test_without_the_extension_numpy_serves_and_says_so_once():
    """And forcing what is not there is refused, naming what to do."""
    hide = "import sys; sys.modules['relive._native'] = None\n"
    code = hide + (
        "import warnings; from relive import _kernels as k\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always'); k.warn_once(); k.warn_once()\n"
        "print(k.active().__name__, [w.category.__name__ for w in said], str(said[0].message)[:34])"
    )
    done = run_python(code)
    assert done.stdout.split("\n")[0] == (
        "relive._kernels_numpy ['ReliveWarning'] relive runs on its NumPy kernels, "
    ), done.stderr
    silent = run_python(hide + "from relive import _kernels as k; k.warn_once()", RELIVE_KERNELS="numpy")
    assert silent.stderr == ""
    forced = run_python(hide + "from relive import _kernels as k; k.active()", RELIVE_KERNELS="native")
    last = forced.stderr.splitlines()[-1]
    assert last.startswith("relive.errors.ArgumentError: Expected the native kernels, got none (")
    assert last.endswith("- at `RELIVE_KERNELS`: install relive from a wheel, or from source with a C++20 compiler")


def test_use_switches_and_switches_back():
    before = _kernels.active()
    with _kernels.use("numpy") as chosen:
        assert chosen is _kernels.active() is _kernels_numpy
    assert _kernels.active() is before
    with pytest.raises(ArgumentError, match="Expected `numpy` or `native`, got `fortran`"), _kernels.use("fortran"):
        pass
    assert issubclass(ReliveWarning, UserWarning)


@pytest.mark.parametrize("kernels", BACKENDS[1:], ids=["native"] * (len(BACKENDS) - 1))
def test_the_extension_refuses_what_would_corrupt_memory(kernels):
    """Wrong element types, strides, lengths and levels: an exception, never a wild read."""
    tree = kernels.Tree(*allocate(100))
    one, half = np.array([1]), np.array([0.5])
    for bad in (np.array([1.5]), np.array([1], np.int32), np.arange(9)[::2], [1], None, np.array([1], ">i8")):
        with pytest.raises(TypeError):
            tree.set(bad, half)
    with pytest.raises(ValueError, match="lengths differ"):
        tree.set(np.array([1, 2]), half)
    with pytest.raises(ValueError, match="lengths differ"):
        tree.fill_zero_and_assign(one, one, np.ones(2))
    sums, mins, state = allocate(100)
    frozen = state.copy()
    frozen.flags.writeable = False
    with pytest.raises(TypeError):
        kernels.Tree(sums, mins, frozen)
    for levels in (([], []), (sums[:2], mins[:1]), (sums, mins[:-1]), (sums[1:], mins[1:] + mins[:1])):
        with pytest.raises(ValueError, match="levels of wrong lengths"):
            kernels.Tree(*levels, state)
    with pytest.raises(TypeError):
        kernels.Dense(np.zeros(3, np.int16), np.zeros(3, np.int16), np.zeros(1, np.int64))
