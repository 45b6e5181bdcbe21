"""A learner's crew on a cluster, with Ray and the shards played by objects of this process."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from needs import needs

needs("ray")
import r2d2_toys
import trainer_toys
from actor_toys import Failing
from dqn_toys import Signs, small
from fake_ray import FakeRay
from local import local_shards

import relive
import relive.ray
from relive._buffer import stored
from relive.errors import ReliveError
from relive_lab import DQNTrainer, R2D2Trainer, SACTrainer, run
from relive_lab.crew import Crew, cluster, crew


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    ray = FakeRay()
    monkeypatch.setattr(run, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(cluster, "ray", ray)
    monkeypatch.setattr(relive.ray, "Shards", lambda *of, **choices: local_shards(*of, **choices)[0])
    return ray


def trainer_of(make_env: Any = Signs, **changes: Any) -> DQNTrainer:
    given = {"actors": 2, "num_envs": 2, "cluster": "local", "shards": 3, "use_per": True, "update_every": 4}
    return DQNTrainer(
        small(**{**given, "total_steps": 500, "eval_every": 0, "buffer_capacity": 2_000, **changes}), make_env=make_env
    )


def test_a_run_holds_its_pace(fake: FakeRay) -> None:
    trainer, ahead, behind = trainer_of(), [], []

    def watch(now: Any) -> None:
        ahead.append(trainer.run.crew.done - now.step)
        if now.updates:
            behind.append((now.step - trainer.config.start_steps) // 4 - now.updates)

    result = trainer.train(watch)
    assert result.steps == 500
    # There is nothing to draw until the first blocks have come; from then on no update is lost and none comes twice.
    assert behind[0] >= -1
    assert max(behind) - min(behind) <= 1
    assert len(behind) > 10
    assert 0 < max(ahead) <= crew.DEPTH * crew.ROUNDS * 4
    assert fake.most <= crew.DEPTH
    assert fake.puts > 2  # weights
    assert len(result.episode_returns) > 30
    assert (result.episode_returns <= 10).all()
    assert (np.diff(result.episode_steps) >= 0).all()
    stats = trainer.buffer.stats()
    assert stats.added >= 500
    assert stats.size == stats.added
    ids = trainer.buffer.sample(500).ids
    assert set((ids % 4).tolist()) == {0, 1, 2, 3}
    assert all(handle.dead for handle in fake.handles)
    trainer.close()


@pytest.mark.parametrize("use_per", [False, True])
@pytest.mark.parametrize("kind", ["sac", "r2d2"])
def test_the_other_trainers(fake: FakeRay, kind: str, use_per: bool) -> None:
    given: dict[str, Any] = {"actors": 2, "num_envs": 2, "cluster": "local", "shards": 3, "use_per": use_per}
    trainer: Any
    if kind == "sac":
        trainer = SACTrainer(trainer_toys.small(**given, total_steps=200, eval_every=0), make_env=trainer_toys.Toy)
    else:
        trainer = R2D2Trainer(r2d2_toys.small(**given, eval_every=0), make_env=r2d2_toys.Walk)
    result = trainer.train()
    assert result.steps == trainer.config.total_steps
    assert result.updates >= 6  # of 15 and more: none is due while the first steps are on their way
    assert trainer.buffer.stats().drawn >= result.updates * trainer.config.batch_size
    trainer.close()


def stopped(handle: Any) -> None:
    """Kill the actor at once, with all that its writer holds."""
    sender = handle.made._writer._sender
    sender._work = lambda: False
    sender._thread.join()
    handle.die()


def test_an_actor_that_is_replaced_goes_on_where_its_lanes_are(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that later steps are judged as the items that start there, with the state of their first step."""
    given: dict[str, Any] = {"actors": 2, "num_envs": 2, "cluster": "local", "shards": 2, "use_per": True}
    steps = {"total_steps": 1_200, "start_steps": 1_200, "starts": 5, "eval_every": 0, "buffer_capacity": 4_000}
    trainer = R2D2Trainer(r2d2_toys.small(**given, **steps), make_env=r2d2_toys.Walk)
    shards, rows, wait = trainer.buffer._transport.objects, np.zeros(4, np.int64), Crew.wait

    def waited(own: Any, *of: Any) -> int:
        if own.done > 300 and len(fake.handles) == 2 and not fake.handles[1].dead:
            stopped(fake.handles[1])
            for shard in shards:
                rows[shard.ids.lanes] = stored.next_rows(shard.buffer._core)
        return wait(own, *of)

    monkeypatch.setattr(Crew, "wait", waited)
    assert trainer.train().steps == 1_200
    assert len(fake.handles) == 3
    later = 0
    for shard in shards:
        for batch in shard.buffer.batches(64, shuffle=False):
            row, lane = np.divmod(shard.ids.outer(batch.ids), 4)
            new = row >= rows[lane]
            theirs = np.abs(trainer.agent.errors(batch)) + trainer.buffer.sampler.eps
            np.testing.assert_allclose(shard.buffer.priorities(batch.ids)[new], theirs[new], rtol=1e-4, atol=1e-6)
            assert not batch.state[batch.first].any()
            later += int(new[lane > 1].sum())
    assert later > 5
    trainer.close()


def test_a_failing_environment_ends_the_run_with_its_error(fake: FakeRay) -> None:
    trainer = trainer_of(Failing)
    with pytest.raises(ReliveError, match=r"Actor [01] failed with ZeroDivisionError: the simulator fell over"):
        trainer.train()
    assert all(handle.dead for handle in fake.handles)
    trainer.close()


def test_a_limiter_holds_the_pace(fake: FakeRay) -> None:
    trainer = trainer_of(samples_per_insert=4, update_every=1_000)
    limiter, ahead = trainer.buffer.limiter, []
    trainer.buffer._transport.begun = time.monotonic()

    def watch(now: Any) -> None:
        ahead.append(trainer.run.crew.done - now.updates * trainer.config.batch_size / 4)

    result = trainer.train(watch)
    band = limiter.error_buffer / 4
    held = trainer.run.crew is None and crew.ROUNDS * 4  # a call may be begun a step before the bound
    assert -band < max(ahead) - limiter.min_size <= band + held
    assert result.updates * trainer.config.batch_size == pytest.approx(
        4 * (500 - limiter.min_size), abs=4 * (band + held)
    )
    trainer.close()


def test_a_limiter_does_not_wait_for_steps_that_were_lost(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop more steps than the limiter's band, as the deaths of many actors do."""
    add, lost = relive.ray.Writer.add, []

    def losing(writer: Any, **step: Any) -> None:
        if len(lost) < 26:
            lost.append(step)
        else:
            add(writer, **step)

    monkeypatch.setattr(relive.ray.Writer, "add", losing)
    trainer = trainer_of(samples_per_insert=4, use_per=False)
    trainer.buffer._transport.begun = begun = time.monotonic()
    result = trainer.train(lambda now: time.monotonic() < begun + 60)
    limiter = trainer.buffer.limiter
    assert 2 * len(lost) > 2 * limiter.error_buffer / 4
    assert result.steps == 500
    added = trainer.buffer.stats().added
    assert added == 500 - 2 * len(lost)
    missing = 4 * (added - limiter.min_size) - result.updates * trainer.config.batch_size
    assert abs(missing) <= limiter.error_buffer + 2 * 4 * crew.ROUNDS * trainer.config.num_envs
    trainer.close()
