"""Ten facts that any prioritized replay must show, as one blog post on the subject lists them by name."""

from __future__ import annotations

import numpy as np
import pytest

import relive


def buffer(capacity: int = 100, n_step: int = 1, **sampler: object) -> relive.ReplayBuffer:
    """Make one lane of small observations."""
    return relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((4,)), action=relive.Field((2,))),
        capacity=capacity,
        item=relive.Transitions(n_step=n_step, gamma=0.99),
        sampler=relive.Prioritized(**sampler),
        seed=7,
    )


def push(target: relive.ReplayBuffer, count: int, start: int = 0, **extra: object) -> list[int]:
    """Add steps one after the other; the observation and the reward say which."""
    ids = []
    for t in range(start, start + count):
        obs, after = np.full(4, t, np.float32), np.full(4, t + 1, np.float32)
        ids += target.add(
            obs=obs, action=np.zeros(2), reward=t, next_obs=after, terminated=False, truncated=False, **extra
        ).tolist()
    return ids


def test_sumtree_basic_total():
    tree = relive.SumTree(4)
    tree.set([0, 1, 2, 3], [1, 2, 3, 4])
    assert tree.total == 10


def test_sumtree_get_returns_correct_leaf():
    tree = relive.SumTree(4)
    tree.set([0, 1, 2, 3], [1, 2, 3, 4])
    np.testing.assert_array_equal(tree.find([0.5, 2.5, 7.0]), [0, 1, 3])


def test_sumtree_update_propagates():
    tree = relive.SumTree(4)
    tree.set([0, 1, 2, 3], [1, 1, 1, 1])
    tree.set([0], [5])
    assert tree.total == 8
    np.testing.assert_array_equal(tree.find([4.9, 5.0, 7.9]), [0, 1, 3])


def test_sumtree_circular_overwrite():
    tree = relive.SumTree(3)
    tree.set([0, 1, 2, 0], [1, 2, 3, 10])
    assert (tree[0], tree.total) == (10, 15)
    ring = buffer(3, alpha=1.0, eps=0.0)
    ids = [push(ring, 1, start=t, priority=p)[0] for t, p in enumerate((1, 2, 3, 10))]
    assert len(ring) == 3
    np.testing.assert_allclose(ring.priorities(ids[1:]), [2, 3, 10])
    with pytest.raises(relive.errors.StaleId):
        ring.read(ids[:1])


def test_buffer_push_and_sample_shapes():
    target = buffer(n_step=3)
    push(target, 50)
    batch = target.sample(16)
    assert (batch.obs.shape, batch.next_obs.shape, batch.action.shape) == ((16, 4), (16, 4), (16, 2))
    for name in ("reward", "discount", "terminated", "truncated", "steps", "ids", "weights"):
        assert batch[name].shape == (16,), name
    assert (batch.obs.dtype, batch.reward.dtype, batch.weights.dtype) == (np.float32, np.float32, np.float32)
    assert (batch.ids.dtype, batch.terminated.dtype) == (np.int64, np.bool_)
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 3)
    np.testing.assert_allclose(batch.discount, 0.99**3, rtol=1e-6)


def test_empty_buffer_raises():
    target = buffer()
    assert not target.can_sample(1)
    with pytest.raises(relive.errors.NotEnoughData, match="Expected at least 1 drawable item, got 0"):
        target.sample(8)


def test_priorities_bias_sampling():
    target = buffer(100, alpha=1.0, beta=0.4, eps=0.0)
    ids = push(target, 100)
    target.update_priorities(ids, [100.0] + [0.01] * 99)
    drawn = np.concatenate([target.sample(8).ids for _ in range(200)])
    expected = 1600 * 100 / 100.99
    assert abs((drawn == ids[0]).sum() - expected) < 5 * np.sqrt(expected * 0.99 / 100.99)


def test_is_weights_range_and_inverse_relation():
    target = buffer(100, alpha=0.6, beta=0.4)
    ids = push(target, 100)
    td = np.linspace(0.01, 5, 100)
    target.update_priorities(ids, td)
    batch = target.sample(64)
    assert ((batch.weights > 0) & (batch.weights <= 1)).all()
    assert batch.weights.max() == 1
    order = np.argsort(td[batch.ids])
    assert (np.diff(batch.weights[order]) <= 0).all()
    assert batch.weights[order][0] > batch.weights[order][-1]


def test_beta_anneals_toward_one():
    target = buffer(100, beta=relive.Anneal(0.4, 1.0, over=10))
    push(target, 100)
    betas = []
    for _ in range(13):
        target.sample(4)
        betas.append(target.stats().beta)
    np.testing.assert_allclose(betas, [*np.linspace(0.4, 1.0, 11), 1.0, 1.0])


def test_sac_trainer_runs_with_per():
    from relive_lab import SACConfig, SACTrainer

    config = SACConfig(
        env_id="Pendulum-v1",
        total_steps=130,
        start_steps=100,
        batch_size=32,
        hidden_sizes=(32, 32),
        eval_every=130,
        eval_episodes=1,
        buffer_capacity=1_000,
        n_step=3,
        use_per=True,
    )
    trainer = SACTrainer(config)
    result = trainer.train()
    assert result.updates == trainer.updates == 30
    assert np.isfinite(result.eval_returns).all()
    assert trainer.buffer.stats().drawn == 30 * 32
    low, *_, high = trainer.buffer.stats().priority_quantiles
    assert high > low > 0, "the TD errors did not become priorities"
