"""Actors in processes of their own: the pace, what happens to one that is killed or fails, and how they end."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from actor_toys import Failing
from depth import MEMORY, eventually
from dqn_toys import Signs, small
from interrupted import ended
from needs import needs
from trainer_toys import Toy
from trainer_toys import small as small_sac

import relive
from relive._ring import kernels
from relive.errors import ArgumentError, ReliveError
from relive.storage.shared import segments
from relive_lab import DQNTrainer, R2D2Config, SACTrainer
from relive_lab.crew.crew import DEPTH, ROUNDS

pytestmark = pytest.mark.skipif("_native" not in kernels.active().__name__, reason="lanes are published natively")


@pytest.mark.parametrize("after", [0, pytest.param(50, marks=pytest.mark.slow)])  # updates; 0: before its first step
def test_a_run_holds_its_pace_and_goes_on_with_another_actor(
    after: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill an actor; check steps per update, priorities, reports; then every process and every segment is gone."""
    if not after:  # both actors fork from a process that has PyTorch, whose imports take most of the time
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(["relive_lab.crew.processes"])
        monkeypatch.setattr(multiprocessing, "get_context", lambda kind: server)
        monkeypatch.setattr(tempfile, "tempdir", MEMORY)  # its socket outlives the folder of all tests
    config = small(actors=1, num_envs=2, total_steps=10**6, use_per=True, eval_every=200)
    trainer, ahead, seen = DQNTrainer(config, make_env=Signs), [], {}
    processes: Any = trainer.run._backend
    assert trainer.buffer.storage.file in segments()

    def watch(now: Any) -> bool:
        crew = trainer.run.crew
        assert crew is not None
        ahead.append(crew.done - now.step)
        due = (now.step - config.start_steps) // config.update_every
        assert due - 1 <= now.updates <= due + 1 or now.step <= config.start_steps
        seen.setdefault("children", set()).update(process.pid for process in processes.processes.values())
        if now.updates >= after and "killed at" not in seen:
            os.kill(processes.processes[0].pid, signal.SIGKILL)
            seen["killed at"] = now.step
        if len(seen["children"]) < 2 or now.step < seen["killed at"] + 400:
            return True
        seen.update(stats=trainer.buffer.stats(), version=processes.weights.version, scalars=crew.scalars(now.step))
        return False

    with caplog.at_level(logging.WARNING, "relive"):
        trainer.train(watch)
    assert re.search(rf"Actor 0 died .*\(process \d+ was killed by signal {signal.SIGKILL.value}\)", caplog.text)
    assert 0 < max(ahead) <= DEPTH * ROUNDS * config.lanes + 4  # what actors may be ahead, and a step of every lane
    quantiles = seen["stats"].priority_quantiles
    assert quantiles[0] != 1.0
    assert len(set(quantiles)) == 5
    assert seen["stats"].added > 200
    assert seen["version"] > 2
    scalars = seen["scalars"]
    assert scalars["actors/steps_per_second"] > 0
    assert 0 <= scalars["actors/waiting_share"] <= 1
    assert 0 <= scalars["actors/learner_waiting_share"] <= 1
    assert scalars["actors/waiting_share"] + scalars["actors/learner_waiting_share"] > 0
    assert 0 <= scalars["actors/weights_behind"] < seen["version"]
    assert scalars["actors/steps_ahead"] >= 0
    result = trainer.result
    assert len(result.episode_returns) > 20
    assert (result.episode_returns <= 10).all()
    assert (np.diff(result.eval_steps) > 0).all()
    for process in seen["children"]:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    trainer.close()
    assert trainer.buffer.storage.file not in segments()


@pytest.mark.parametrize("actors", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_samples_per_insert_are_held_by_the_limiter(actors: int, tmp_path: Path) -> None:
    """Check, for any `update_every`, that draws stay in the limiter's band, and the actor within its bounds."""
    needs("tensorboard")
    config = small(
        actors=actors, num_envs=2, total_steps=600, samples_per_insert=4, buffer_capacity=5_000, update_every=1_000
    )
    config = dataclasses.replace(config, eval_every=0, use_per=True, n_step=3, log_dir=f"{tmp_path}", log_every=200)
    trainer, errors = DQNTrainer(config, make_env=Signs), []
    limiter = trainer.buffer.limiter
    assert limiter is not None

    def watch(now: Any) -> None:
        stats = trainer.buffer.stats().limiter
        errors.append(stats.error)
        if now.step > 200:
            assert abs(stats.error) <= limiter.error_buffer, stats

    result = trainer.train(watch)
    stats = trainer.buffer.stats().limiter
    assert stats.samples == result.updates * config.batch_size
    assert stats.samples / 4 == pytest.approx(600 - config.start_steps, rel=0.1, abs=limiter.error_buffer / 4 + 40)
    assert stats.insert_waits == stats.sample_waits == 0  # either side asks first
    if not actors:  # a run that is resumed goes on in the same band
        trainer.save(tmp_path / "run")
        with pytest.warns(relive.errors.ReliveWarning, match="New episodes begin"):
            again = DQNTrainer.load(tmp_path / "run", make_env=Signs, total_steps=800)
        assert again.buffer.stats().limiter == stats
        with pytest.raises(ArgumentError, match=r"got `None` - at `DQNTrainer.load\(samples_per_insert\)`"):
            DQNTrainer.load(tmp_path / "run", make_env=Signs, samples_per_insert=None)
        assert again.train().updates - result.updates == pytest.approx(200 * 4 / config.batch_size, abs=2)
        assert abs(again.buffer.stats().limiter.error) <= limiter.error_buffer
        again.close()
    trainer.close()
    assert "limiter/samples_per_insert" in scalars_of(tmp_path)


def scalars_of(folder: Path) -> list[str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(f"{folder}")
    events.Reload()
    return events.Tags()["scalars"]


@pytest.mark.slow
def test_a_failing_environment_ends_the_run_with_its_error() -> None:
    trainer = DQNTrainer(small(actors=1), make_env=Failing)
    with pytest.raises(ReliveError, match="Actor 0 failed with ZeroDivisionError: the simulator fell over") as caught:
        trainer.train()
    assert "actor_toys.py" in "".join(caught.value.__notes__)
    assert not multiprocessing.active_children()
    trainer.close()


@pytest.mark.slow
def test_a_run_with_actors_is_saved_and_resumed(tmp_path: Path) -> None:
    """Check that learner, buffer and counts continue; the actors' environments begin new episodes, with a warning."""
    config = small_sac(
        actors=1, num_envs=2, total_steps=100, update_every=1, use_per=True, n_step=3, save_every=50, eval_every=0
    )
    first = SACTrainer(config, make_env=Toy)
    first.train(out=tmp_path)
    assert (first.step, first.updates) == (100, 60)
    with pytest.warns(relive.errors.ReliveWarning, match="New episodes begin: .*actors step it"):
        again = SACTrainer.load(tmp_path, make_env=Toy, total_steps=160)
    assert again.buffer.stats().added == first.buffer.stats().added >= 100
    with pytest.raises(ArgumentError, match=r"Expected 1, as in the run, got `2` - at `SACTrainer.load\(actors\)`"):
        SACTrainer.load(tmp_path, make_env=Toy, actors=2)
    result = again.train()
    assert (again.step, again.updates, len(result.episode_returns) >= 12) == (160, 120, True)
    first.close()
    again.close()


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match=r"at most 5, .*got `6` - at `R2D2Config\(actors\)`"):
        R2D2Config(actors=6, num_envs=10, buffer_capacity=50, batch_size=8)
    trainer = DQNTrainer(small(actors=1), make_env=lambda: Signs())
    with pytest.raises(ArgumentError, match="make_env` at the top of a module"):
        trainer.train()
    assert not multiprocessing.active_children()
    trainer.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_command_that_is_ended(how: signal.Signals, tmp_path: Path) -> None:
    """Check that Ctrl-C and a scheduler's SIGTERM reach the actors, too; a kill the learner alone."""
    words = ["--actors", "1", "--total-steps", "1000000", "--start-steps", "100", "--eval-every", "0"]
    words += ["--hidden-sizes", "16", "--save-every", "200", "--out", f"{tmp_path}"]
    command = [sys.executable, "-m", "relive_lab", "train", "dqn", *words]
    third = tmp_path / "buffer" / "save-0000000003.json"  # the first is of step 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            eventually(lambda: third.exists() or process.poll() is not None, 300)
            assert any(f"relive-{process.pid}-" in path for path in segments())
            os.kill(process.pid, how) if how is signal.SIGKILL else os.killpg(process.pid, how)
            assert process.wait(60) == (-how if how is signal.SIGKILL else 130)
        finally:
            process.kill()
    eventually(lambda: ended(process.pid) and not any(f"relive-{process.pid}-" in path for path in segments()))
