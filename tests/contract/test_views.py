"""Readers whose item is another one than the creator's: a view of the ring, compared with a buffer of its own."""

from __future__ import annotations

import numpy as np
import pytest
from test_processes import make, native

import relive
from relive.testing.agreement import assert_same_batch

pytestmark = [native, pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")]
T, S = relive.Transitions, relive.Sequences
VIEWS = [
    (T(), T(n_step=3)),
    (T(n_step=4), T()),
    (T(), S(4, burn_in=1)),
    (S(4, burn_in=2), S(3, n_step=2)),
    (T(), S(5, across_episodes=True)),
    (S(5, across_episodes=True, starts=2), S(3)),
    (S(5, across_episodes=True), S(3, burn_in=1, across_episodes=True)),
]


@pytest.mark.parametrize(("made", "drawn"), VIEWS)
@pytest.mark.parametrize("sampler", [relive.Uniform(), relive.Prioritized()], ids=repr)
def test_a_reader_with_another_item_draws_what_a_buffer_of_its_own_would(made, drawn, sampler) -> None:
    """Every batch and every count, while streams end, are cut and overwritten."""
    rng, t = np.random.default_rng(0), 0
    schema = relive.Schema(obs=relive.Field(2), action=relive.Field())
    with relive.ReplayBuffer(schema, 60, num_envs=2, storage=relive.Shared(), item=made) as buffer:
        alone = relive.ReplayBuffer(schema, 60, num_envs=2, item=drawn, sampler=sampler, seed=1)
        reader = relive.open(buffer.storage.name, item=drawn, sampler=sampler, seed=1)
        for _ in range(200):
            n = int(rng.integers(1, 5))
            obs = np.tile(t + np.arange(n, dtype=np.float32)[:, None], (2, 1, 2))
            terminated, truncated = rng.random((2, n)) < 0.1, rng.random((2, n)) < 0.05
            given = {"obs": obs, "action": np.zeros((2, n)), "reward": rng.random((2, n)), "next_obs": obs + 1}
            if rng.random() < 0.2:
                del given["next_obs"]
            for each in (buffer, alone):
                each.extend(**given, terminated=terminated, truncated=truncated)
            if rng.random() < 0.1:
                for each in (buffer, alone):
                    each.cut([1])
            t += n + (rng.random() < 0.1)
            assert reader.can_sample(1) == alone.can_sample(1)
            if alone.can_sample(1) and rng.random() < 0.7:
                batch, expected = reader.sample(8), alone.sample(8)
                assert_same_batch(batch, expected)
                if sampler.prioritizes:
                    errors = np.sin(expected.ids)
                    assert reader.update_priorities(batch.ids, errors) == alone.update_priorities(batch.ids, errors)
            ours, theirs = vars(reader.stats()), vars(alone.stats())
            own = ("nbytes", "slow_adds")
            assert {k: v for k, v in ours.items() if k not in own} == {k: v for k, v in theirs.items() if k not in own}
        reader.close()


def test_a_reader_cannot_number_steps_anew() -> None:
    with (
        make(3, 40, storage=relive.Shared()) as buffer,
        pytest.raises(relive.ArgumentError, match="start every 1 steps"),
    ):
        relive.open(buffer.storage.name, item=relive.Sequences(4, starts=2))
