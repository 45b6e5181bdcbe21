"""`stats()` tells how much is drawn, how old it is, and how evenly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from laws import lanes_of, law

import relive
from relive.errors import ArgumentError

SCHEMA = relive.Schema(obs=relive.Field(), action=relive.Field())
U, P, R = relive.Uniform(), relive.Prioritized(), relive.Recent(share=0.1)


def filled(sampler: object, steps: int = 1000) -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(SCHEMA, 4000, num_envs=4, sampler=sampler, seed=0)
    add(buffer, steps)
    return buffer


def add(buffer: relive.ReplayBuffer, steps: int) -> None:
    time, off = np.tile(np.arange(float(steps)), (4, 1)), np.zeros((4, steps), bool)
    buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=off, truncated=off)


def test_volume() -> None:
    buffer = filled(U)
    assert buffer.stats().replay_volume == 0.0
    buffer.sample(2000)
    add(buffer, 250)
    stats = buffer.stats()
    assert stats.replay_volume == stats.replay_ratio == 2000 / stats.added


@pytest.mark.parametrize(
    "sampler",
    [
        U,
        P,
        R,
        relive.Recent(mean_age=20.0),
        relive.Blend((U, 0.5), (P, 0.3), (R, 0.2)),
        relive.Uniform(over="episodes"),
    ],
    ids=repr,
)
def test_age_and_entropy(sampler: object) -> None:
    buffer = filled(sampler)
    assert (buffer.stats().draw_age, buffer.stats().draw_entropy) == ((), None)
    if sampler.prioritizes:
        ids = buffer.ids()
        buffer.update_priorities(ids, np.random.default_rng(0).exponential(1.0, len(ids)))
    batch = buffer.sample(20_000)
    stats, ages = buffer.stats(), 999 - batch.ids // 4
    assert stats.draw_age == (ages.mean(), np.quantile(ages, 0.95))
    if sampler == relive.Uniform(over="episodes"):
        assert abs(stats.draw_entropy) < 1e-9
        return
    lanes = lanes_of(buffer)
    priorities = {key: float(buffer.priorities([key])[0]) for lane in lanes for key in lane}
    chances = np.array([*law(sampler, lanes, priorities).values()])
    exact = -(chances * np.log(chances * len(chances))).sum()
    assert abs(stats.draw_entropy - exact) < 0.03
    assert (exact < -0.05) == (sampler != U)


def test_entropy_of_recent_draws_is_that_of_their_share() -> None:
    """A geometric law with a mean age of a tenth is spread over about e tenths."""
    buffer = filled(R)
    buffer.sample(20_000)
    assert math.exp(buffer.stats().draw_entropy) == pytest.approx(math.e / 10, rel=0.03)


def test_items_that_are_gone_do_not_count() -> None:
    buffer = filled(R)
    buffer.sample(100)
    add(buffer, 1000)
    assert buffer.stats().draw_entropy is None
    once = filled(relive.Once())
    once.sample(100)
    assert once.stats().draw_entropy is None


def test_beta_goes_up_with_the_draws() -> None:
    buffer, betas = filled(relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=10))), []
    for _ in range(13):
        buffer.sample(4)
        betas.append(buffer.stats().beta)
    np.testing.assert_allclose(betas, [*np.linspace(0.4, 1.0, 11), 1.0, 1.0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: relive.Recent(), "one of `mean_age` and `share`, got none"),
        (lambda: relive.Recent(mean_age=1.0, share=0.1), "one of `mean_age` and `share`, got both"),
        (lambda: relive.Recent(share=0.5), r"Recent\(share\)"),
        (lambda: relive.Recent(mean_age=0.0), r"Recent\(mean_age\)"),
        (lambda: relive.Blend(), "members"),
        (lambda: relive.Blend((U, 0.5), (R, 0.4)), "shares whose sum is 1, got a sum of `0.9`"),
        (lambda: relive.Blend((P, 0.5), (relive.Prioritized(alpha=1.0), 0.5)), "at most one member with priorities"),
        (lambda: relive.Blend((relive.Blend((U, 1.0)), 1.0)), "members that are no blends"),
        (lambda: relive.Blend((relive.Uniform(replacement=False), 1.0)), "members with replacement"),
        (lambda: relive.Blend((relive.Once(), 1.0)), "a member that can draw an item again"),
        (lambda: relive.Blend((relive.Prioritized(weights="buffer"), 1.0)), "no member knows the least probability"),
        (lambda: relive.Blend(U, R), "pairs of a sampler and its share"),
        (lambda: relive.Blend((U, 1.0), shuffle=1), r"Blend\(shuffle\)"),
        (lambda: filled(U).sample(3, beta=0.5), "a sampler with priorities"),
    ],
)
def test_refusals(make: object, words: str) -> None:
    with pytest.raises((ArgumentError, TypeError), match=words):
        make()


@pytest.mark.parametrize("sampler", [relive.Blend((U, 0.5), (R, 0.5)), relive.Once()], ids=["blend", "once"])
def test_shards_refuse_by_name(sampler: object) -> None:
    from local import local_shards

    with pytest.raises(ArgumentError, match=r"Shards\(sampler\).*no shard knows"):
        local_shards(SCHEMA, 100, sampler=sampler)


def test_a_batch_has_the_shares() -> None:
    """Check counts: the expected ones, rounded so that the mean is exact, and places that are mixed, or not."""
    newest = relive.Recent(mean_age=1e-9)
    for shares, n in (((0.5, 0.5), 8), ((0.3, 0.7), 7), ((0.05, 0.95), 10)):
        buffer = filled(relive.Blend((newest, shares[0]), (relive.Recent(mean_age=1e12), shares[1]), shuffle=False))
        counts = np.array([(buffer.sample(n).ids >= 3996).sum() for _ in range(3000)])
        wanted = n * shares[0]
        assert set(np.unique(counts)) <= {math.floor(wanted), *range(math.ceil(wanted), 4), math.ceil(wanted) + 1}
        assert abs(counts.mean() - wanted - (n - wanted) * 4 / 4000) < 0.06
    buffer = filled(relive.Blend((newest, 0.5), (relive.Recent(mean_age=1e12), 0.5)))
    first = np.mean([buffer.sample(8).ids >= 3996 for _ in range(3000)], axis=0)
    assert (abs(first - 0.5) < 0.06).all()


def test_members_of_a_blend_share_a_queue() -> None:
    """Check that a queue of anchors is kept once, and another one where episodes are followed."""
    share = relive.Recent(share=0.2)
    blend = relive.Blend(
        (relive.Uniform(), 0.25), (share, 0.25), (relive.Uniform(over="episodes"), 0.25), (share, 0.25)
    )
    queues = [name for name in blend.spec(2, 10) if name.endswith(".anchors")]
    assert queues == ["0.anchors", "2.anchors"]
    assert {name for name in blend.spec(2, 10) if name.startswith(("1", "3"))} == {"1.recency.draws", "3.recency.draws"}
