"""Actors in processes of their own: what they store and are told, the pace, and how they end."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from actor_toys import Failing
from dqn_toys import Signs, small
from trainer_toys import Toy
from trainer_toys import small as small_sac

import relive
from relive import _kernels
from relive.errors import ArgumentError, ReliveError
from relive.gymnasium import Recorder
from relive.lab import DQNTrainer, R2D2Config, SACTrainer
from relive.lab._env import vectorize
from relive.lab._outbox import CHUNK, Outbox
from relive.lab._weights import SharedWeights
from relive.storage.shared import segments

pytestmark = pytest.mark.skipif("_native" not in _kernels.active().__name__, reason="lanes are published natively")


def publish_for(seconds: float, weights: SharedWeights, numbers: int) -> None:
    end, number = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        weights.publish([torch.full((numbers,), number := number + 1.0)])


def test_weights_are_never_torn() -> None:
    """Versions of one number each, published without a pause by another process."""
    size = 50_000
    weights, tensors = SharedWeights(size), [torch.zeros(size // 2), torch.zeros(5, size // 10)]
    process = multiprocessing.get_context("fork").Process(target=publish_for, args=(1.0, weights, size))
    process.start()
    version, reads = 0, 0
    while process.is_alive():
        before, version = version, weights.read(tensors, version)
        reads += version != before
        assert version >= before
        assert all((tensor == float(version)).all() for tensor in tensors), version
    process.join()
    assert reads > 20


def test_a_version_that_is_half_written_is_not_taken() -> None:
    """Where a slot is not what its header says, as when a publisher laps a reader, weights stay as they were."""
    weights, tensors = SharedWeights(4), [torch.zeros(4)]
    weights.publish([torch.ones(4)])
    assert weights.read(tensors, 0) == 1
    weights.publish([torch.full((4,), 2.0)])
    weights._slots[0][:2] = 4.0  # version 4 begins in the slot of version 2
    assert weights.read(tensors, 1) == 1
    assert tensors[0].tolist() == [1.0] * 4
    weights.publish([torch.full((4,), 3.0)])
    assert weights.read(tensors, 1) == 3
    assert tensors[0].tolist() == [3.0] * 4


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_initial_priorities_are_errors_of_the_windows_that_are_drawn(n_step: int, ends: str) -> None:
    """Judged by a function of all parts of a transition, here and on what the buffer draws: the same numbers."""
    lanes, gamma, steps = 2, 0.9, 47

    def td_error(batch: Any) -> Any:
        return batch.reward + batch.discount * batch.next_obs[:, 1] - batch.obs[:, 0] - 0.1 * batch.action

    envs = vectorize(functools.partial(Signs, ends=ends), lanes)
    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    item, sampler = relive.Transitions(n_step=n_step, gamma=gamma), relive.Prioritized(eps=0.25)
    choices: dict[str, Any] = {"item": item, "sampler": sampler, "storage": relive.Shared()}
    with relive.ReplayBuffer(schema, 1000, num_envs=3, **choices) as buffer, buffer.writer([2, 0]) as writer:
        outbox = Outbox(writer, n_step, gamma, 0.25, td_error)
        recorder = Recorder(envs, outbox)
        recorder.reset(seed=0)
        for t in range(steps):
            recorder.step(np.array([t % 2, t % 3 == 0], np.int64))
        assert steps * lanes - buffer.stats().added < lanes * (CHUNK + n_step)
        recorder.reset(seed=1)  # in mid-episode: adds the rest, and cuts
        assert buffer.stats().added == steps * lanes
        ids = np.unique(buffer.sample(20_000).ids)
        assert len(ids) == steps * lanes
        found = np.abs(td_error(buffer.read(ids))) + 0.25
        np.testing.assert_allclose(buffer.priorities(ids), found, rtol=1e-5, atol=1e-6)


def test_a_run_holds_its_pace_and_a_killed_actor_ends_it() -> None:
    """Steps per update, priorities of the actors, reports; then every process and every segment is gone."""
    config = small(actors=2, num_envs=2, total_steps=10**6, use_per=True, update_every=4, eval_every=200)
    trainer, ahead, seen = DQNTrainer(config, make_env=Signs), [], {}
    assert trainer.buffer.storage.file in segments()

    def watch(now: Any) -> None:
        crew = trainer._crew
        assert crew is not None
        ahead.append(crew._board.steps - now.step)
        due = (now.step - config.start_steps) // config.update_every
        assert due - 1 <= now.updates <= due + 1 or now.step <= config.start_steps
        if now.updates > 100 and now.eval_return == now.eval_return and not seen:
            seen.update(stats=trainer.buffer.stats(), version=crew._weights.version)
            seen["children"] = [process.pid for process in crew._processes]
            os.kill(seen["children"][1], signal.SIGKILL)
            seen["since"] = time.monotonic()

    with pytest.raises(ReliveError, match=rf"^Actor 1 \(process \d+\) was killed by signal {signal.SIGKILL.value} - "):
        trainer.train(watch)
    assert time.monotonic() - seen["since"] < 10
    assert 0 < max(ahead) <= 64 + 4  # what actors may be ahead, and a step of every lane
    quantiles = seen["stats"].priority_quantiles
    assert quantiles[0] != 1.0
    assert len(set(quantiles)) == 5
    assert seen["stats"].added > 400
    assert seen["version"] > 2
    result = trainer.result
    assert len(result.episode_returns) > 20
    assert (result.episode_returns <= 10).all()
    assert (np.diff(result.eval_steps) > 0).all()
    for process in seen["children"]:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    trainer.close()
    assert trainer.buffer.storage.file not in segments()


def test_a_failing_environment_ends_the_run_with_its_error() -> None:
    trainer = DQNTrainer(small(actors=1), make_env=Failing)
    with pytest.raises(ReliveError, match="Actor 0 failed with ZeroDivisionError: the simulator fell over") as caught:
        trainer.train()
    assert "actor_toys.py" in "".join(caught.value.__notes__)
    assert not multiprocessing.active_children()
    trainer.close()


def test_a_run_with_actors_is_saved_and_resumed(tmp_path: Path) -> None:
    """Learner, buffer and counts go on; the actors' environments begin new episodes, and a warning says so."""
    config = small_sac(actors=1, num_envs=2, total_steps=100, use_per=True, n_step=3, save_every=50, eval_every=0)
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
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_command_that_is_ended(how: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C reaches the actors, too, as in a terminal; a kill the learner alone."""
    words = ["--actors", "1", "--total-steps", "1000000", "--start-steps", "100", "--eval-every", "0"]
    words += ["--hidden-sizes", "16", "--save-every", "200", "--out", f"{tmp_path}"]
    command = [sys.executable, "-m", "relive", "train", "dqn", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            saves = set()
            while len(saves) < 3 and process.poll() is None:  # the first one is from before the first step
                saves |= {path.stat().st_mtime_ns for path in tmp_path.glob("learner.safetensors")}
                time.sleep(0.1)
            assert any(f"relive-{process.pid}-" in path for path in segments())
            os.killpg(process.pid, how) if how is signal.SIGINT else os.kill(process.pid, how)
            assert process.wait(60) == (130 if how is signal.SIGINT else -how)
        finally:
            process.kill()
    for _ in range(100):
        if not alive(process.pid) and not any(f"relive-{process.pid}-" in path for path in segments()):
            return
        time.sleep(0.1)
    pytest.fail(f"processes: {alive(process.pid)}, segments: {segments()}")


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
