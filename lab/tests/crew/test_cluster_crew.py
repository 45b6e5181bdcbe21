"""What a crew on a cluster does besides, with Ray and the shards played by objects of this process."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from needs import needs

needs("ray")
import r2d2_toys
from dqn_toys import Signs, small
from fake_ray import FakeRay, played

import relive
import relive.ray
from relive._buffer import stored
from relive_lab import DQNTrainer, R2D2Trainer
from relive_lab.crew import Crew, crew


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return played(monkeypatch)


def trainer_of(make_env: Any = Signs, **changes: Any) -> DQNTrainer:
    given = {"actors": 2, "num_envs": 2, "cluster": "local", "shards": 3, "use_per": True, "update_every": 4}
    return DQNTrainer(
        small(**{**given, "total_steps": 500, "eval_every": 0, "buffer_capacity": 2_000, **changes}), make_env=make_env
    )


def stopped(handle: Any) -> None:
    """Kill the actor at once, with all that its writer holds."""
    sender = handle.made._writer._sender
    sender.work = lambda: False
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
