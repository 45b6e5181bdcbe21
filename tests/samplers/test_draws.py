"""Draws follow P(i) = p_i^alpha / sum whatever the priorities look like: chi-square on 400,000 draws each."""

from __future__ import annotations

import numpy as np
import pytest
from counted import extend, make
from depth import LONG, pairs
from statistics_of_draws import P_MIN, chi_square_p, largest_z

import relive

DRAWS, BATCH = 400_000, 20_000


def decades(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw log-uniformly over twelve decades."""
    return 10.0 ** rng.uniform(-6, 6, n)


def sparse(rng: np.random.Generator, n: int) -> np.ndarray:
    """Set nine in ten to zero, the first and the last of them too."""
    p = np.where(rng.random(n) < 0.9, 0.0, rng.random(n) + 0.1)
    p[[0, -1]], p[n // 2] = 0.0, 1.0
    return p


def giant(rng: np.random.Generator, n: int) -> np.ndarray:
    """Give one as much as all others together."""
    p = rng.random(n) + 0.5
    p[n // 3] = p.sum()
    return p


PROFILES = {
    "uniform": (1000, lambda rng, n: np.ones(n)),
    "ramp": (777, lambda rng, n: np.arange(n) + 1.0),
    "twelve decades": (4097, decades),
    "one giant": (1000, giant),
    "one giant of 1e5": (4096, lambda rng, n: np.where(np.arange(n) == 5, 1e5, rng.random(n))),
    "many zeros": (5000, sparse),
    "zeros in blocks of eight": (4096, lambda rng, n: np.where(np.arange(n) // 8 % 3 == 1, rng.random(n), 0.0)),
    "only the last": (513, lambda rng, n: np.eye(1, n, n - 1)[0]),
    "only the first": (513, lambda rng, n: np.eye(1, n, 0)[0]),
    "pareto": (2000, lambda rng, n: rng.pareto(1.1, n) + 1e-3),
    "two levels": (64, lambda rng, n: np.where(np.arange(n) % 2, 1.0, 1e-3)),
    "tiny numbers": (300, lambda rng, n: rng.random(n) * 1e-200),
    "huge numbers": (300, lambda rng, n: rng.random(n) * 1e200),
    "five leaves": (5, lambda rng, n: np.array([0.0, 1.0, 0.0, 3.0, 0.5])),
}


def buffer_of(priorities: np.ndarray, **sampler: object) -> relive.ReplayBuffer:
    """Make a full one-lane buffer with these raw priorities, in the order of ids."""
    buffer = make(relive.Prioritized(eps=0.0, **sampler), rows=len(priorities), seed=20260)
    extend(buffer, len(priorities), priority=priorities)
    return buffer


def count(buffer: relive.ReplayBuffer, ids: np.ndarray, draws: int = DRAWS, batch: int = BATCH) -> np.ndarray:
    """Count the draws of each of `ids` (ascending)."""
    counts = np.zeros(len(ids), np.int64)
    for _ in range(draws // batch):
        drawn = np.searchsorted(ids, buffer.sample(batch).ids)
        counts += np.bincount(drawn, minlength=len(ids))
    return counts


@pytest.mark.parametrize(("profile", "stratified"), pairs(PROFILES, [False, True]))
def test_draws_follow_the_priorities(profile, stratified):
    n, make = PROFILES[profile]
    raw = make(np.random.default_rng(7), n)
    for alpha in (1.0,) if profile != "twelve decades" else (1.0, 0.6):
        mass = np.where(raw > 0, raw**alpha, 0.0)
        buffer = buffer_of(raw, alpha=alpha, stratified=stratified)
        counts = count(buffer, np.arange(n))
        assert counts[raw == 0].sum() == 0
        if (raw > 0).sum() > 1:
            # Strata make the counts vary less than independent draws do, so the bound holds all the more.
            assert chi_square_p(counts, mass / mass.sum()) > P_MIN


@pytest.mark.parametrize(
    "profile", [name for name in PROFILES if name not in ("uniform", "only the last", "only the first")]
)
def test_meta_uniform_draws_of_the_positive_ones_are_found(profile):
    """Check that a sampler that ignores the size of priorities fails the test above, for all priorities."""
    n, make = PROFILES[profile]
    rng = np.random.default_rng(7)
    raw = make(rng, n)
    counts = rng.multinomial(DRAWS, (raw > 0) / (raw > 0).sum())
    assert chi_square_p(counts, raw / raw.sum()) <= P_MIN


def test_meta_a_test_without_freedom_is_refused():
    with pytest.raises(ValueError, match="nothing to compare"):
        chi_square_p(np.array([999, 1, 0]), np.array([0.998, 0.001, 0.001]))


@pytest.mark.parametrize(("size", "batch"), [(4, 2), (12, 4), (40, 39)])
@pytest.mark.parametrize("kind", ["prioritized", "uniform"])
def test_without_replacement(kind, size, batch):
    """Check that nothing repeats, and that inclusions are as frequent as in NumPy's successive draws."""
    rng = np.random.default_rng(size)
    raw = decades(rng, size) ** 0.3
    buffer = buffer_of(raw, alpha=1.0, replacement=False)
    if kind == "uniform":
        raw, buffer = np.ones(size), make(relive.Uniform(replacement=False), rows=size, seed=8)
        extend(buffer, size)
    rounds = 4_000 if LONG else 1_500
    included, reference = np.zeros(size, int), np.zeros(size, int)
    for _ in range(rounds):
        ids = buffer.sample(batch).ids
        assert len(np.unique(ids)) == batch
        included[ids] += 1
        reference[rng.choice(size, batch, replace=False, p=raw / raw.sum())] += 1
    assert largest_z(included, reference, rounds) < 5.5
