"""Draws, probabilities and weights follow the laws of `laws.py`, whatever the lanes hold."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from counted import SCHEMA
from depth import LONG
from laws import lanes_of, law
from statistics_of_draws import P_MIN, chi_square_p

import relive
from relive._ring import kernels
from relive.testing._lives import BACK_ENDS

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
DRAWS, BATCH = (10_000_000 if LONG else 200_000), 20_000
UNIFORM, PRIORITIZED = relive.Uniform(), relive.Prioritized(alpha=0.7, beta=0.5, stratified=False)
SAMPLERS = {
    "uniform": UNIFORM,
    "prioritized": PRIORITIZED,
    "recent by age": relive.Recent(mean_age=12.5),
    "the newest": relive.Recent(mean_age=0.05),
    "about uniform": relive.Recent(mean_age=1e12),
    "recent by share": relive.Recent(share=0.2, beta=0.7, weights="buffer"),
    "a small share": relive.Recent(share=0.01, beta=0.3),
    "about a half": relive.Recent(share=0.49999, beta=1.0, weights="none"),
    "blend": relive.Blend((UNIFORM, 0.5), (PRIORITIZED, 0.3), (relive.Recent(share=0.1), 0.2)),
    "blend of recent": relive.Blend((relive.Recent(mean_age=3.0, beta=1.0, weights="none"), 0.25), (UNIFORM, 0.75)),
    "blend of one": relive.Blend((PRIORITIZED, 1.0), shuffle=False),
}
# The steps of each call, and how many calls: from one item to lanes that went round many times, and short lanes beside.
FILLS = {
    "one item": (1, [1]),
    "two items": (1, [2]),
    "three lanes, one empty": (3, [7, 0, 1]),
    "half full": (1, [250]),
    "full": (1, [500]),
    "went round": (1, [3000]),
    "short lanes": (5, [40, 0, 700, 3, 2500]),
    "many lanes": (70, [30 + 3 * lane for lane in range(70)]),
}


def filled(sampler: object, fill: str, item: object = None, seed: int = 3) -> relive.ReplayBuffer:
    """Fill lanes in pieces, with ends of both kinds and cuts; draws and updates come between."""
    lanes, steps = FILLS[fill]
    rng = np.random.default_rng(11)
    rows = 500 if lanes < 10 else 60
    buffer = relive.ReplayBuffer(
        SCHEMA, rows * lanes, num_envs=lanes, item=item or relive.Transitions(n_step=2), sampler=sampler, seed=seed
    )
    left = list(steps)
    while any(left):
        lane = int(rng.choice(np.flatnonzero(left)))
        n = min(left[lane], int(rng.integers(1, 90)))
        left[lane] -= n
        serial = np.arange(n)[None]
        ends = {"terminated": rng.random((1, n)) < 0.03, "truncated": rng.random((1, n)) < 0.03}
        if sum(steps) < 10:
            ends = {"terminated": np.ones((1, n), bool), "truncated": np.zeros((1, n), bool)}
        buffer.extend(obs=serial, action=serial % 2, reward=serial, next_obs=serial + 1, **ends, env_ids=[lane])
        if rng.random() < 0.2:
            buffer.cut([lane])
        if buffer.can_sample(1):
            batch = buffer.sample(32)
            if buffer.sampler.prioritizes:
                buffer.update_priorities(batch.ids, 10 ** rng.uniform(-3, 2, 32))
    if buffer.sampler.prioritizes:
        ids = buffer.ids()
        buffer.update_priorities(ids[::3], rng.uniform(0.1, 5.0, len(ids[::3])))
    return buffer


def stated(buffer: relive.ReplayBuffer) -> tuple[np.ndarray, np.ndarray]:
    """Return the drawable ids, ascending, and their probabilities by the law."""
    lanes = lanes_of(buffer)
    ids = np.sort(buffer.ids())
    priorities = dict(zip(ids.tolist(), buffer.priorities(ids).tolist(), strict=True))
    by_id = law(buffer.sampler, lanes, priorities)
    return ids, np.array([by_id[key] for key in ids.tolist()])


# Each sampler on every other fill by default, and each fill with every other sampler; their draws on the rest.
ALL = [((n + k) % 2, name, fill) for n, name in enumerate(SAMPLERS) for k, fill in enumerate(FILLS)]
CASES = [[case for half, *case in ALL if LONG or half == each] for each in (0, 1)]


@pytest.mark.parametrize(("name", "fill"), CASES[0])
def test_probabilities_and_weights(name: str, fill: str) -> None:
    """Check them by hand, in both back ends: the same bits."""
    found, original = [], filled(SAMPLERS[name], fill)
    for back_end in BACK_ENDS:
        with kernels.use(back_end):
            buffer = copy.deepcopy(original)
        ids, expected = stated(buffer)
        chances = buffer.probability(ids)
        np.testing.assert_allclose(chances, expected, rtol=1e-9, atol=1e-300)
        assert abs(chances.sum() - 1) < 1e-9
        batch = buffer.sample(64)
        weights = by_hand(buffer, expected[np.searchsorted(ids, batch.ids)], expected)
        np.testing.assert_allclose(batch.weights, weights, rtol=1e-6)
        found.append((chances, batch.ids, batch.weights))
    for one, other in zip(*found, strict=True) if len(found) > 1 else ():
        np.testing.assert_array_equal(one, other)


def by_hand(buffer: relive.ReplayBuffer, drawn: np.ndarray, every: np.ndarray) -> np.ndarray:
    sampler = buffer.sampler
    beta = sampler.beta_at(0) if sampler.weights else 0.0
    weights = (len(every) * drawn) ** -beta
    return weights / {"batch": weights.max(), "buffer": (len(every) * every.min()) ** -beta}.get(sampler.weights, 1.0)


@pytest.mark.parametrize(("name", "fill"), [case for case in CASES[1] if case[1] != "one item"])
def test_draws_follow_the_law(name: str, fill: str) -> None:
    buffer = filled(SAMPLERS[name], fill)
    ids, expected = stated(buffer)
    counts = np.zeros(len(ids), np.int64)
    for _ in range(DRAWS // BATCH):
        counts += np.bincount(np.searchsorted(ids, buffer.sample(BATCH).ids), minlength=len(ids))
    if (expected * DRAWS > 20).sum() > 1:
        assert chi_square_p(counts, expected) > P_MIN
    else:
        assert counts[expected.argmax()] > 0.9 * DRAWS


@pytest.mark.parametrize("name", ["blend", "blend of recent"])
def test_single_items_follow_the_law_of_a_blend(name: str) -> None:
    """Check batches of one, whose member a single number decides."""
    buffer = filled(SAMPLERS[name], "short lanes")
    ids, expected = stated(buffer)
    drawn = np.concatenate([buffer.sample(1).ids for _ in range(20_000)])
    counts = np.bincount(np.searchsorted(ids, drawn), minlength=len(ids))
    assert chi_square_p(counts, expected) > P_MIN


@pytest.mark.parametrize("wrong", ["another share", "lanes of equal mass"])
def test_meta_another_law_is_found(wrong: str) -> None:
    buffer = filled(relive.Recent(share=0.2), "went round" if wrong == "another share" else "short lanes")
    ids, expected = stated(buffer)
    other = np.array([*law(relive.Recent(share=0.21), [ids.tolist()], {}).values()])
    if wrong != "another share":
        each = expected / np.bincount(ids % buffer.num_envs, expected)[ids % buffer.num_envs]
        other = each / each.sum()
    counts = np.random.default_rng(0).multinomial(DRAWS, other)
    assert chi_square_p(counts, expected) <= P_MIN


@pytest.mark.parametrize("item", [relive.Sequences(6), relive.Sequences(4, starts=3, across_episodes=True)], ids=repr)
def test_other_items(item: relive.Sequences) -> None:
    """Check that ages count items, of which not every step is one."""
    for sampler in (relive.Recent(share=0.3), relive.Recent(mean_age=4.0), relive.Uniform(over="episodes")):
        buffer = filled(sampler, "short lanes", item=item)
        ids = np.sort(buffer.ids())
        chances = buffer.probability(ids)
        if isinstance(sampler, relive.Recent):
            np.testing.assert_allclose(chances, stated(buffer)[1], rtol=1e-9)
        assert abs(chances.sum() - 1) < 1e-9
        counts = np.zeros(len(ids), np.int64)
        for _ in range(10):
            counts += np.bincount(np.searchsorted(ids, buffer.sample(BATCH).ids), minlength=len(ids))
        assert chi_square_p(counts, chances) > P_MIN


def test_the_mean_age_is_as_asked() -> None:
    buffer = relive.ReplayBuffer(SCHEMA, 40_000, num_envs=4, sampler=relive.Recent(mean_age=100.0), seed=0)
    serial, off = np.tile(np.arange(10_000), (4, 1)), np.zeros((4, 10_000), bool)
    for k in range(2):
        buffer.extend(obs=serial, action=off, reward=off, next_obs=serial + 1, terminated=off, truncated=off)
        ages = 10_000 * (k + 1) - 1 - buffer.sample(200_000).ids // 4
        assert abs(ages.mean() - 100) < 1.5
    for share in (0.05, 0.25, 0.45):
        shares = relive.ReplayBuffer(SCHEMA, 40_000, num_envs=4, sampler=relive.Recent(share=share), seed=0)
        shares.extend(obs=serial, action=off, reward=off, next_obs=serial + 1, terminated=off, truncated=off)
        ages = 9_999 - shares.sample(200_000).ids // 4
        assert abs(ages.mean() / 10_000 - share) < 0.003
