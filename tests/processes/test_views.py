"""Readers whose item is another one than the creator's: a view of the ring, compared with a buffer of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from depth import LONG, pairs
from whole_rows import make, native

import relive
from relive._buffer import drawing
from relive.testing import GO, JUMP, SCHEMAS, STAY, TERMINATED, TRUNCATED, Script, SyntheticEnvs
from relive.testing.agreement import assert_same_batch

pytestmark = [native, pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")]
T, S = relive.Transitions, relive.Sequences
VIEWS = [
    (T(), T(n_step=3)),
    (T(n_step=4), T()),
    (T(n_step=3), T(n_step=3, chunk=True)),
    (T(n_step=4, chunk=True), T(n_step=2)),
    (T(), S(4, burn_in=1)),
    (S(4, burn_in=2), S(3, n_step=2)),
    (S(3, burn_in=4), S(2, burn_in=1)),
    (S(2), S(3, burn_in=5)),
    (S(2, burn_in=3), T(n_step=2)),
    (T(), S(5, across_episodes=True)),
    (S(5, across_episodes=True, starts=2), S(3)),
    (S(4, starts="episodes"), T(n_step=2)),
    (S(4, starts="episodes"), S(3, starts="episodes", trim=True)),
    (S(5, across_episodes=True), S(3, burn_in=1, across_episodes=True)),
]
OWN = ("nbytes", "slow_adds")  # statistics that each process has for itself


def drawable(alone: relive.ReplayBuffer) -> np.ndarray:
    return np.sort(np.concatenate([np.empty(0, np.int64), *(batch.ids for batch in alone.batches(64, shuffle=False))]))


def stored(alone: relive.ReplayBuffer) -> np.ndarray:
    ids = alone.column("ids")
    return np.sort(ids[ids >= 0])


def assert_equal(ours: Any, theirs: Any) -> None:
    np.testing.assert_array_equal(ours, theirs)


def epochs(reader: relive.ReplayBuffer, alone: relive.ReplayBuffer) -> None:
    for ours, theirs in zip(reader.batches(7), alone.batches(7), strict=True):
        assert_same_batch(ours, theirs)


def columns(reader: relive.ReplayBuffer, alone: relive.ReplayBuffer) -> None:
    for name in ("ids", "terminated", "truncated", "reward"):
        assert_equal(reader.column(name), alone.column(name))


def counts(reader: relive.ReplayBuffer, alone: relive.ReplayBuffer) -> None:
    ours, theirs = vars(reader.stats()), vars(alone.stats())
    assert {k: v for k, v in ours.items() if k not in OWN} == {k: v for k, v in theirs.items() if k not in OWN}


def draws(reader: relive.ReplayBuffer, alone: relive.ReplayBuffer) -> None:
    if len(drawable(alone)):
        assert_same_batch(reader.sample(8), alone.sample(8))


def updates(reader: relive.ReplayBuffer, alone: relive.ReplayBuffer) -> None:
    """Update ids that were drawn lately, some of which are gone by now."""
    ids = vars(alone)["seen"] = np.union1d(vars(alone).get("seen", drawable(alone)), drawable(alone))[-30:]
    if alone.sampler.prioritizes and len(ids):
        assert reader.update_priorities(ids, np.sin(ids)) == alone.update_priorities(ids, np.sin(ids))


def divided(reader: relive.ReplayBuffer, alone: relive.ReplayBuffer) -> None:
    assert drawing.share(reader._core) == drawing.share(alone._core)


# What a reader may be asked for first, after others have written.
ASKED: list[Callable[[relive.ReplayBuffer, relive.ReplayBuffer], None]] = [
    lambda reader, alone: assert_equal(len(reader), len(alone)),
    lambda reader, alone: assert_same_batch(reader.read(drawable(alone)), alone.read(drawable(alone))),
    lambda reader, alone: assert_equal(reader.priorities(drawable(alone)), alone.priorities(drawable(alone))),
    lambda reader, alone: assert_equal(reader.can_sample(3), alone.can_sample(3)),
    lambda reader, alone: assert_equal(reader.follow(stored(alone), 3), alone.follow(stored(alone), 3)),
    lambda reader, alone: assert_equal(reader.follow(stored(alone), -2), alone.follow(stored(alone), -2)),
    epochs,
    columns,
    counts,
    draws,
    updates,
    divided,
]


@pytest.mark.parametrize(
    ("choices", "schema"),
    pairs(
        [(made, drawn, sampler) for made, drawn in VIEWS for sampler in (relive.Uniform(), relive.Prioritized())],
        ["flat", "stacked"],
    ),
    ids=repr,
)
def test_a_reader_with_another_item_is_like_a_buffer_of_its_own(choices: tuple[Any, Any, Any], schema: str) -> None:
    """Check all calls, while streams end, are cut, continue without `next_obs`, and are overwritten."""
    (made, drawn, sampler), rng, rows = choices, np.random.default_rng(0), 24
    sizes = {"schema": SCHEMAS[schema], "capacity": 2 * rows, "num_envs": 2}
    envs = SyntheticEnvs(SCHEMAS[schema], 2)
    with relive.ReplayBuffer(**sizes, storage=relive.Shared(), item=made) as buffer:
        alone = relive.ReplayBuffer(**sizes, item=drawn, sampler=sampler, seed=1)
        reader = relive.open(buffer.storage.name, item=drawn, sampler=sampler, seed=1)
        for _ in range(150 if LONG else 50):
            chance = rng.random()
            if chance < 0.85:
                n = int(rng.integers(1, 5))
                flags = rng.choice([GO, TERMINATED, TRUNCATED], size=2 * n, p=[0.85, 0.1, 0.05]).tolist()
                moves = rng.choice([STAY, JUMP], size=2 * n, p=[0.95, 0.05]).tolist()
                steps = envs.rollout([0, 1], n, Script(flags, moves, bool(rng.random() < 0.8)))
            for each in (buffer, alone):
                if chance < 0.85:
                    each.extend(**steps)
                elif chance < 0.98:
                    each.cut([int(100 * chance) % 2])
                else:
                    each.clear()
            ASKED[rng.integers(len(ASKED))](reader, alone)
        reader.close()


def test_a_reader_cannot_number_steps_anew() -> None:
    with (
        make(3, 40, storage=relive.Shared()) as buffer,
        pytest.raises(relive.ArgumentError, match="start every 1 steps"),
    ):
        relive.open(buffer.storage.name, item=relive.Sequences(4, starts=2))
