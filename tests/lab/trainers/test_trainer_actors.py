"""Actors in processes of their own: what they store and are told, the pace, and how they end."""

from __future__ import annotations

import dataclasses
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
from dqn_toys import Drift, Signs, small
from r2d2_toys import Walk
from r2d2_toys import small as small_r2d2
from trainer_toys import Toy
from trainer_toys import small as small_sac

import relive
from relive._ring import kernels
from relive.errors import ArgumentError, ReliveError
from relive.gymnasium import Recorder
from relive.lab import DQNTrainer, R2D2Config, R2D2Trainer, SACTrainer
from relive.lab._crew import acting
from relive.lab._env import vectorize
from relive.lab._outbox import Outbox
from relive.lab._weights import SharedWeights, flattened, restore
from relive.storage.shared import segments

pytestmark = pytest.mark.skipif("_native" not in kernels.active().__name__, reason="lanes are published natively")


def publish(weights: SharedWeights, numbers: int) -> None:
    for number in range(1, 2**24):
        weights.publish([torch.full((numbers,), float(number))])


def test_weights_are_never_torn() -> None:
    """Versions of one number each, published without a pause by another process."""
    size = 50_000
    weights, tensors = SharedWeights(size), [torch.zeros(size // 2), torch.zeros(5, size // 10)]
    process = multiprocessing.get_context("fork").Process(target=publish, args=(weights, size))
    process.start()
    version, reads, begin = 0, 0, time.monotonic()
    while reads <= 20 or time.monotonic() < begin + 1:  # a busy machine may take a while
        before, version = version, weights.read(tensors, version)
        reads += version != before
        assert version >= before
        assert all((tensor == float(version)).all() for tensor in tensors), version
    process.kill()
    process.join()


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


KINDS: dict[str, Any] = {
    "sac, 3 steps": (SACTrainer, small_sac(use_per=True, n_step=3), Toy),
    "sac, precision": (SACTrainer, small_sac(use_per=True, priority="precision"), Toy),
    "dqn, terminated": (DQNTrainer, small(use_per=True, n_step=3), functools.partial(Signs, ends="terminated")),
    "dqn, frames": (DQNTrainer, small(use_per=True, frame_stack=3), functools.partial(Drift, "CHW")),
    "r2d2": (R2D2Trainer, small_r2d2(use_per=True), Walk),
    "r2d2, zero": (R2D2Trainer, small_r2d2(use_per=True, n_step=2, state="zero", starts=3), Walk),
}


@pytest.mark.parametrize("kind", KINDS)
def test_initial_priorities_are_those_of_the_learner(kind: str) -> None:
    """What an actor says of a step that is on its way, the learner's nets say of the item that its buffer draws."""
    maker, config, make_env = KINDS[kind]
    trainer = maker(config, make_env=make_env)
    trainer.train()
    own = dataclasses.replace(config, num_envs=2, seed=5)
    choices: dict[str, Any] = {"item": trainer._item(), "sampler": trainer._sampler(), "storage": relive.Shared()}
    counts = (5, 61)  # the second actor begins where items do not start
    with relive.ReplayBuffer(trainer.buffer.schema, 1000, num_envs=3, **choices) as buffer:
        for number, steps in enumerate(counts):
            with buffer.writer([2, 0]) as writer:
                actor, outbox = acting(maker._for_acting, own, make_env, writer, trainer._log)
                restore(actor._acting(), flattened(trainer._acting()))
                for each in (actor, trainer):  # SAC draws the next actions of its targets
                    each._noise = lambda rows, source: torch.zeros(rows, 2)
                obs = actor._reset()
                for _ in range(steps):
                    obs = actor._interact(obs)
                late = 2 * sum(counts[: number + 1]) - buffer.stats().added
                assert late <= 2 * outbox.held
                assert late > 0
                actor._reset()  # in mid-episode: adds the rest, and cuts
                actor.close()
        assert buffer.stats().added == 2 * sum(counts)
        ids = np.concatenate([batch.ids for batch in buffer.batches(64, shuffle=False)])
        assert len(ids) >= 2 * sum(counts) // getattr(trainer._item(), "starts", 1) - 2
        found = np.abs(trainer._judgement()(buffer.read(ids))) + buffer.sampler.eps
        np.testing.assert_allclose(buffer.priorities(ids), found, rtol=1e-4, atol=1e-6)
        assert len(np.unique(found)) > 20
    trainer.close()


def test_a_pause_sends_what_waits_and_streams_go_on() -> None:
    """Items end at the pause when they are judged; the learner draws them whole, and later ones are judged whole."""
    envs, seen = vectorize(Signs, 1), []

    def judge(batch: Any) -> Any:
        seen.append(batch)
        return batch.reward

    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    item = relive.Transitions(n_step=3)
    with relive.ReplayBuffer(schema, 100, item=item, storage=relive.Shared(), sampler=relive.Prioritized()) as buffer:
        with buffer.writer() as writer:
            outbox = Outbox(writer, item, 0.25, judge)
            recorder = Recorder(envs, outbox)
            recorder.reset(seed=0)
            for t in range(30):
                recorder.step(np.array([t % 2]))
                if t == 13:
                    outbox.flush()
                    assert buffer.stats().added == 14
            outbox.flush()
        assert (buffer.stats().added, buffer.stats().cuts) == (30, 0)
        assert [len(batch.ids) for batch in seen] == [14, 16]
        assert seen[0].steps.tolist() == [3] * 8 + [2, 1] + [3, 3, 2, 1]
        assert buffer.read([12, 13]).steps.tolist() == [3, 3]


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
            seen.update(stats=trainer.buffer.stats(), version=crew._weights.version, scalars=crew.scalars())
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
    """Whatever `update_every` says: the draws stay in the limiter's band, and the actor within what it lets in."""
    config = small(
        actors=actors, num_envs=2, total_steps=1_500, samples_per_insert=4, buffer_capacity=5_000, update_every=1_000
    )
    config = dataclasses.replace(config, eval_every=0, use_per=True, n_step=3, log_dir=f"{tmp_path}", log_every=500)
    trainer, errors = DQNTrainer(config, make_env=Signs), []
    limiter = trainer.buffer.limiter
    assert limiter is not None

    def watch(now: Any) -> None:
        stats = trainer.buffer.stats().limiter
        errors.append(stats.error)
        if now.step > 200:
            assert abs(stats.error) <= limiter.error_buffer, stats

    begin = time.monotonic()
    result = trainer.train(watch)
    stats = trainer.buffer.stats().limiter
    assert stats.samples == result.updates * config.batch_size
    assert stats.samples / 4 == pytest.approx(1_500 - config.start_steps, rel=0.1, abs=limiter.error_buffer / 4 + 40)
    assert stats.insert_waits == stats.sample_waits == 0  # either side asks first
    assert time.monotonic() - begin < 60
    if not actors:  # a run that is resumed goes on in the same band
        trainer.save(tmp_path / "run")
        with pytest.warns(relive.errors.ReliveWarning, match="New episodes begin"):
            again = DQNTrainer.load(tmp_path / "run", make_env=Signs, total_steps=2_000)
        assert again.buffer.stats().limiter == stats
        with pytest.raises(ArgumentError, match=r"got `None` - at `DQNTrainer.load\(samples_per_insert\)`"):
            DQNTrainer.load(tmp_path / "run", make_env=Signs, samples_per_insert=None)
        assert again.train().updates - result.updates == pytest.approx(500 * 4 / config.batch_size, abs=2)
        assert abs(again.buffer.stats().limiter.error) <= limiter.error_buffer
        again.close()
    trainer.close()
    assert "limiter/samples_per_insert" in scalars_of(tmp_path)


def scalars_of(folder: Path) -> list[str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(f"{folder}")
    events.Reload()
    return events.Tags()["scalars"]


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
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_command_that_is_ended(how: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C and a scheduler's SIGTERM reach the actors, too; a kill the learner alone."""
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
            os.kill(process.pid, how) if how is signal.SIGKILL else os.killpg(process.pid, how)
            assert process.wait(60) == (-how if how is signal.SIGKILL else 130)
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
