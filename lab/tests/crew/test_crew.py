"""The crew, wherever its actors run: the pace, weights, deaths, failures, pauses; actors are played by this process."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import r2d2_toys
import trainer_toys
from actor_toys import Failing
from dqn_toys import Signs, small
from local_backend import Local
from needs import needs

from relive._ring import kernels
from relive.errors import ReliveError
from relive_lab import DQNTrainer, R2D2Trainer, SACTrainer, run
from relive_lab.agent import weights_of
from relive_lab.crew import crew

pytestmark = pytest.mark.skipif("_native" not in kernels.active().__name__, reason="lanes are published natively")
GIVEN: dict[str, Any] = {"actors": 2, "num_envs": 2, "use_per": True, "eval_every": 0}


@pytest.fixture(autouse=True)
def _every_round_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "REPORT_SECONDS", 0.0)


def on_local(make: Callable[[], Any]) -> tuple[Any, Local]:
    """Make a trainer with actors of this process."""
    backend = Local()
    with mock.patch.object(run, "backend_of", return_value=backend):
        return make(), backend


def made(make_env: Any = Signs, **changes: Any) -> tuple[Any, Local]:
    settings = {**GIVEN, "update_every": 4, "total_steps": 700, "buffer_capacity": 2_000, **changes}
    return on_local(lambda: DQNTrainer(small(**settings), make_env=make_env))


@pytest.fixture(params=["here", "cluster"])
def crew_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a trainer with actors of this process, or of a cluster that it plays."""
    if request.param == "here":
        return lambda kind, config, env: on_local(lambda: kind(config, make_env=env))
    needs("ray")
    from fake_ray import played

    ray, choices = played(monkeypatch), {"cluster": "local", "shards": 3}
    return lambda kind, config, env: (kind(dataclasses.replace(config, **choices), make_env=env), ray)


def test_a_run_holds_its_pace(crew_of: Any) -> None:
    config = small(**{**GIVEN, "update_every": 4, "total_steps": 700, "buffer_capacity": 2_000})
    trainer, backend = crew_of(DQNTrainer, config, Signs)
    ahead, behind = [], []

    def watch(now: Any) -> None:
        ahead.append(trainer.run.crew.done - now.step)
        if now.updates:
            behind.append((now.step - config.start_steps) // 4 - now.updates)

    result = trainer.train(watch)
    assert result.steps == 700
    # There is nothing to draw until the first steps have come; from then on no update is lost and none comes twice.
    assert behind[0] >= -1
    assert max(behind) - min(behind) <= (1 if config.cluster else 2)
    assert len(behind) > 10
    assert 0 < max(ahead) <= crew.DEPTH * crew.ROUNDS * 4
    assert backend.most <= crew.DEPTH
    assert backend.published > 2
    assert len(result.episode_returns) > 50
    assert (result.episode_returns <= 10).all()
    assert (np.diff(result.episode_steps) >= 0).all()
    stats = trainer.buffer.stats()
    assert stats.size == stats.added >= 700
    assert set((trainer.buffer.sample(500).ids % 4).tolist()) == {0, 1, 2, 3}
    if isinstance(backend, Local):
        assert len(set(stats.priority_quantiles)) > 2
        theirs = np.concatenate([t.detach().numpy().ravel() for t in backend.actors[0].weights])
        ours = np.concatenate([t.detach().numpy().ravel() for t in weights_of(trainer.agent)])
        assert np.abs(theirs - ours).max() < 0.1
    trainer.close()


OTHERS = {
    "sac": (SACTrainer, trainer_toys.small, {"total_steps": 200}, trainer_toys.Toy),
    "r2d2": (R2D2Trainer, r2d2_toys.small, {}, r2d2_toys.Walk),
}


@pytest.mark.parametrize("use_per", [False, True])
@pytest.mark.parametrize("kind", OTHERS)
def test_the_other_trainers(kind: str, use_per: bool, crew_of: Any) -> None:
    maker, settings, more, env = OTHERS[kind]
    trainer, _ = crew_of(maker, settings(**{**GIVEN, **more, "use_per": use_per}), env)
    result = trainer.train()
    assert result.steps == trainer.config.total_steps
    assert result.updates >= 6  # of 15 and more: none is due while the first steps are on their way
    assert trainer.buffer.stats().drawn >= result.updates * trainer.config.batch_size
    trainer.close()


def test_a_failing_environment_ends_the_run_with_its_error(crew_of: Any) -> None:
    trainer, backend = crew_of(DQNTrainer, small(**GIVEN), Failing)
    text = r"Actor [01] failed with ZeroDivisionError: the simulator fell over"
    with pytest.raises(ReliveError, match=text) as caught:
        trainer.train()
    if isinstance(backend, Local):
        assert "actor_toys.py" in "".join(caught.value.__notes__)
    assert all(handle.dead for handle in getattr(backend, "handles", ()))
    trainer.close()


def test_a_dead_actor_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    trainer, backend = made()

    def watch(now: Any) -> None:
        # Its lanes have 96 to 144 steps, a multiple of 16, in the buffer: none is at the end of an episode of 10.
        if now.step > 400 and backend.started == {0: 1, 1: 1}:
            backend.kill(1)

    with caplog.at_level(logging.WARNING, "relive"):
        result = trainer.train(watch)
    assert (result.steps, backend.started) == (700, {0: 1, 1: 2})
    assert "Actor 1 died and is started again (was killed by a test)" in caplog.text
    assert trainer.buffer.stats().cuts >= 2  # its lanes go on with new episodes
    trainer.close()


def test_an_actor_that_dies_again_and_again_ends_the_run() -> None:
    trainer, backend = made()
    backend.doomed.add(0)
    with pytest.raises(ReliveError, match="Actor 0 died 4 times in a row"):
        trainer.train()
    trainer.close()


def test_a_pause_has_all_steps_in_the_buffer() -> None:
    trainer, found = made()[0], []

    def watch(now: Any) -> None:
        if now.step > 300 and not found:
            with trainer.run.crew.paused():
                found.append((trainer.buffer.stats().added, trainer.run.crew.done))
                assert not any(calls.asked for calls in trainer.run.crew._calls)

    trainer.train(watch)
    assert found[0][0] == found[0][1] > 300
    trainer.close()


def test_silence_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    trainer, backend = made()
    backend.silent = True
    monkeypatch.setattr(crew, "SILENCE", 0.0)
    monkeypatch.setattr(crew, "PATIENCE", 0.01)
    looks: list[int] = []
    wait = crew.Crew.wait

    def waited(own: Any, *of: Any) -> int:
        looks.append(own.done)
        backend.silent = len(looks) < 3
        return wait(own, *of)

    monkeypatch.setattr(crew.Crew, "wait", waited)
    with caplog.at_level(logging.WARNING, "relive"):
        trainer.train(lambda now: False)
    assert caplog.text.count("No actor has answered for 0 s - at `actors`: a test wants it") == 1
    trainer.close()
