"""The order of ranks: the back ends against each other, through growth, shrinkage and drifts that unbalance a tree."""

from __future__ import annotations

import numpy as np
import pytest
from back_ends import BACKENDS, both, digest

from relive.sum_tree import allocate

MIDDLE = 0.5


class Ranking:
    """One back end's ranking of `n` slots, and its arrays."""

    def __init__(self, kernels, n: int) -> None:
        self.n, self.raw, self.stamps = n, np.zeros(n), np.zeros(n, np.int64)
        self.levels, self.order, self.state = allocate(n), np.zeros(kernels.order_size(n)), np.zeros(2)
        # With alpha 0 every rank has the same share.
        self.ranks = kernels.Ranks(kernels.Tree(*self.levels), self.order, self.raw, self.stamps, self.state, 0.0)

    def slots(self) -> np.ndarray:
        """All slots that have a rank, in order."""
        return self.ranks.draw(np.full(np.count_nonzero(self.raw), MIDDLE), True).leaves

    def expected(self) -> np.ndarray:
        known = np.flatnonzero(self.raw)
        return known[np.lexsort((self.stamps[known], -self.raw[known]))]

    def nodes(self) -> tuple[int, int]:
        """Leaves and inner nodes that the native order ever made; it has room for a quarter of `n`, and of that."""
        leaves = self.n // 4 + 16
        inner = leaves // 4 + 16
        made = self.order[leaves * 24 + inner * 32 :].view(np.int64)[[3, 5]]
        assert made[0] <= leaves
        assert made[1] <= inner
        return int(made[0]), int(made[1])


def changes(n: int, rng: np.random.Generator):
    """Slots and TD errors: all at once, few, ties, ascending, descending, nearly none left, all in one place."""
    yield np.arange(n), np.ones(n)
    for shrink in range(4):
        for size in (n // 3, 40, 1, 700):
            yield rng.integers(0, n, size), rng.standard_normal(size)
            yield rng.integers(0, n, size), rng.integers(0, 4, size) / 2.0
        yield rng.permutation(n)[: n // 2], np.linspace(*([0.1, 9.0] if shrink % 2 else [9.0, 0.1]), n // 2)
        # Of every run of a hundred ranks one entry stays: nodes all over the tree become small and merge.
        yield rng.permutation(n)[: n - n // 100 * (shrink + 1)], np.zeros(n - n // 100 * (shrink + 1))
        yield rng.permutation(n)[: n // 2], 5.0 + shrink + 1e-9 * rng.random(n // 2)
        for start in range(0, n, 97):
            slots = np.arange(start, min(start + 97, n))
            yield slots, np.where(slots % 50 == shrink, 1.0 + shrink, 0.0)


@pytest.mark.parametrize("n", [1, 14, 15, 300, 6000])
def test_random_changes(n):
    """After every change the same order and the same bits everywhere, that of a plain sort."""
    rng = np.random.default_rng(n)
    rankings = [Ranking(module, n) for module in BACKENDS]
    for number, (slots, td) in enumerate(changes(n, rng)):
        assert all(ranking.ranks.update(slots, td, None, 0.0) for ranking in rankings)
        bits = [digest([ranking.raw, ranking.stamps, ranking.state]) for ranking in rankings]
        assert bits == bits[:1] * len(bits)
        if number % 7 == 0 or n < 1000:
            for ranking in rankings:
                np.testing.assert_array_equal(ranking.slots(), ranking.expected())
            u = rng.random(min(len(rankings[0].expected()), 40))
            drawn = [digest(ranking.ranks.draw_distinct(u)) for ranking in rankings]
            assert drawn == drawn[:1] * len(drawn)
    if len(rankings) > 1:
        assert n < 6000 or min(rankings[1].nodes()) > 50


@both
def test_an_order_is_rebuilt_from_priorities_and_times(kernels):
    """As a killed process left them: the clock may be behind. What was set at most, priorities alone do not say."""
    rng = np.random.default_rng(3)
    ranking, again = Ranking(kernels, 500), Ranking(kernels, 500)
    for _ in range(20):
        ranking.ranks.update(rng.integers(0, 500, 90), rng.integers(0, 5, 90) / 1.0, None, 0.0)
    again.raw[:], again.stamps[:] = ranking.raw, ranking.stamps
    again.ranks.rebuild()
    np.testing.assert_array_equal(again.slots(), ranking.expected())
    assert again.state[0] == 0
    assert again.state[1] == ranking.stamps[ranking.raw > 0].max() + 1
    again.ranks.update(np.array([7]), np.array([2.0]), None, 0.0)
    np.testing.assert_array_equal(again.slots(), again.expected())


@both
@pytest.mark.parametrize("keep", [None, [True, True, False, True]])
def test_the_last_of_several_counts(kernels, keep):
    """Slot 1 is set to 9, then to 2: 9 was never anybody's priority. Nor was what is not kept."""
    ranking = Ranking(kernels, 8)
    slots, td = np.array([1, 3, 5, 1]), np.array([9.0, -4.0, 1.0, 2.0])
    assert ranking.ranks.update(slots, td, None if keep is None else np.array(keep), 0.5)
    assert ranking.state[0] == 4.5
    assert ranking.raw.tolist() == [0, 2.5, 0, 4.5, 0, 0 if keep else 1.5, 0, 0]
    before = digest([ranking.raw, ranking.stamps, ranking.state])
    for bad in (np.nan, np.inf):
        assert not ranking.ranks.update(slots, np.array([1.0, 1.0, bad, 1.0]), None, 0.5)
    assert digest([ranking.raw, ranking.stamps, ranking.state]) == before
    np.testing.assert_array_equal(ranking.slots(), ranking.expected())
