"""Calls other than draws beside writers at full speed: one moment, whole rows, nothing that is gone."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from depth import LONG, some
from forking import forked
from whole_rows import native

import relive

pytestmark = [native, pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")]
WIDTH, ROWS, EPISODE, EVERY = 1000, 64, 7, 2
SECONDS = 1.5 if LONG else 0.25
SCHEMA = relive.Schema(
    obs=relive.Field(WIDTH, "int64"), action=relive.Field((), "int64"), state=relive.Field((), "int64", every=EVERY)
)
MADE = relive.Sequences(2, starts=EVERY)


def write(name: str, lane: int) -> None:
    """Write steps whose every value is their number; an episode and its final observation take eight rows."""
    pool = np.arange(4 * ROWS)[:, None] + np.zeros(WIDTH, np.int64)
    with relive.Writer(name, env_ids=[lane]) as writer:
        for step in range(2**40):
            ended = step % EPISODE == EPISODE - 1
            now, after = pool[step % len(pool)], pool[(step + 1) % len(pool)]
            writer.add(obs=now, action=step, state=step, reward=step, next_obs=after, terminated=ended, truncated=False)


def steps_of(ids: np.ndarray, lanes: int) -> np.ndarray:
    rows = ids // lanes
    return rows - rows // (EPISODE + 1)


def columns(buffer: relive.ReplayBuffer) -> int:
    """Check that rows are one step each; the steps of a lane follow each other, and those with state have their own."""
    obs, found = buffer.column("obs"), 0
    assert (obs == obs[..., :1]).all(), "torn rows"
    for name, apart in (("ids", buffer.num_envs), ("action", 1), ("state", EVERY), ("reward", 1)):
        for values in buffer.column(name):
            kept = np.sort(values[values > 0]).astype(np.int64)
            assert (kept % apart == kept[:1] % apart).all()
            gaps = np.diff(kept) // apart
            assert ((gaps >= 1) & (gaps <= 1 + (name == "ids"))).all(), (name, values)
            found += len(kept)
    return found


def epochs(buffer: relive.ReplayBuffer) -> int:
    seen = [batch.ids for batch in buffer.batches(16) if items_are_right(buffer, batch)]
    ids = np.concatenate([np.empty(0, np.int64), *seen])
    assert len(np.unique(ids)) == len(ids)
    return len(ids)


def items_are_right(buffer: relive.ReplayBuffer, batch: relive.Batch) -> bool:
    steps = steps_of(batch.ids, buffer.num_envs)
    first = batch.action if batch.action.ndim == 1 else batch.action[:, 0]
    np.testing.assert_array_equal(first, steps)
    obs = batch.obs.reshape(len(steps), -1, WIDTH)
    assert (obs == obs[..., :1]).all(), "torn rows"
    np.testing.assert_array_equal(obs[:, 0, 0], steps % (4 * ROWS))
    return True


def reads(buffer: relive.ReplayBuffer) -> int:
    ids = buffer.column("ids")
    ids = ids[(ids >= 0) & (steps_of(ids, buffer.num_envs) % EVERY == 0)][-8:]
    try:
        return len(ids) and items_are_right(buffer, buffer.read(ids))
    except relive.StaleId:
        return 0


def walks(buffer: relive.ReplayBuffer) -> int:
    """Follow stored steps to the end of the episode, or to the newest or oldest step."""
    ids = buffer.column("ids")
    ids = np.sort(ids[ids >= 0])[len(ids) // 2 :]
    try:
        for wanted in (3, -3):
            reached, made = buffer.follow(ids, wanted)
            before, after = steps_of(ids, buffer.num_envs), steps_of(reached, buffer.num_envs)
            np.testing.assert_array_equal(after - before, made)
            assert (before // EPISODE == after // EPISODE).all()
            short = made != np.clip(wanted, -(before % EPISODE), EPISODE - 1 - before % EPISODE)
            assert short.sum() <= 3 * buffer.num_envs
        return len(ids)
    except relive.StaleId:
        return 0


def counts(buffer: relive.ReplayBuffer) -> int:
    stats = buffer.stats()
    assert 0 <= stats.drawable <= stats.size <= buffer.capacity
    assert stats.size <= stats.added
    return stats.size


@pytest.mark.parametrize("asked", some([columns, epochs, reads, walks, counts], 2))
def test_what_is_read_beside_writers(asked: Callable[[relive.ReplayBuffer], int]) -> None:
    """Check the creator, a reader with its item, and one with another item."""
    with relive.ReplayBuffer(SCHEMA, 2 * ROWS, num_envs=2, item=MADE, storage=relive.Shared(), seed=0) as buffer:
        name = buffer.storage.name
        with (
            relive.open(name, seed=0) as same,
            relive.open(name, item=relive.Sequences(4, starts=EVERY), seed=0) as other,
            forked(lambda: write(name, 0), endless=True),
            forked(lambda: write(name, 1), endless=True),
        ):
            found, until = [0, 0, 0], time.monotonic() + SECONDS
            while time.monotonic() < until or (not all(found) and time.monotonic() < until + 60):
                for i, each in enumerate((buffer, same, other)):
                    found[i] += asked(each)
            assert all(found), found
