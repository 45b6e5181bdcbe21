"""Saves of a buffer that other processes fill at full speed: each is one instant, and keeps no writer for long."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import LONG, eventually, some

import relive
from relive._buffer import stored
from relive._ring import kernels
from relive.checkpoints import _save_task

pytestmark = pytest.mark.skipif(not kernels.is_native(), reason="the NumPy kernels share nothing")

SCHEMA = relive.Schema(obs=relive.Field((8,), "int64"), action=relive.Field((), "int64"))
EPISODE = 37


def steps_of(number: int, count: int) -> dict[str, Any]:
    """Make steps of a lane from a number on: the observation is the number; episodes have `EPISODE` steps."""
    numbers = np.arange(number, number + count)
    obs = np.repeat(numbers[:, None], 8, 1)
    ends = numbers % EPISODE == EPISODE - 1
    flags = {"terminated": ends, "truncated": np.zeros_like(ends)}
    return {"obs": obs, "action": numbers, "reward": numbers, "next_obs": obs + 1, **flags}


def write(writer: relive.Writer, stop: Any, length: int) -> None:
    """Add as fast as that goes, until `stop` is 1; a step at a time, or `length` of them."""
    number = 0
    with writer:
        while not stop.value:
            steps = steps_of(number, length)
            if length == 1:
                writer.add(**steps)
            else:
                writer.extend(**{name: value[None] for name, value in steps.items()})
            number += length


@contextmanager
def writing(buffer: relive.ReplayBuffer, lengths: tuple[int, ...]) -> Iterator[list[Any]]:
    """Run a writing process for each of the first lanes."""
    context = multiprocessing.get_context("fork")
    stop = context.RawValue("i", 0)  # without a lock, which a kill would leave taken
    processes = [
        context.Process(target=write, args=(buffer.writer([lane]), stop, length)) for lane, length in enumerate(lengths)
    ]
    for process in processes:
        process.start()
    try:
        eventually(lambda: (stored.lane_steps(buffer._core)[: len(lengths)] > 0).all())
        yield processes
    finally:
        stop.value = 1
        for process in processes:
            process.join()


def check(saved: relive.ReplayBuffer) -> None:
    """Check that it has the newest steps of each lane, one after the other, with their own values."""
    ids, number = saved.column("ids"), saved.column("action")
    for lane in range(saved.num_envs):
        found = np.sort(number[(ids >= 0) & (ids % saved.num_envs == lane)])
        assert (np.diff(found) == 1).all(), lane
        assert len(found) == 0 or found[-1] == stored.lane_steps(saved._core)[lane] - 1, "the newest one is there"
    if saved.can_sample(64):
        batch = saved.sample(64)
        assert (batch.obs == batch.action[:, None]).all()
        assert (batch.next_obs == batch.action[:, None] + 1).all()
        assert (batch.terminated == (batch.action % EPISODE == EPISODE - 1)).all()


def made(path: Path, rows: int, lanes: int = 3) -> relive.ReplayBuffer:
    storage = relive.Mapped(path / "ring")
    return relive.ReplayBuffer(
        SCHEMA, rows * lanes, num_envs=lanes, storage=storage, sampler=relive.Prioritized(), seed=0
    )


@pytest.mark.parametrize("rows", [200, 3_000])
def test_an_autosave_completes(rows: int, tmp_path: Path) -> None:
    """Save during writers that fill the ring again and again, and one that writes many steps at a time."""
    with made(tmp_path, rows) as buffer, buffer.autosave(tmp_path / "saves", every=0.1) as saving:
        with writing(buffer, (1, 1, 64)):
            numbers = set()
            for _ in range(4 if LONG else 2):
                before = saving.stats().number
                eventually(lambda before=before: saving.stats().number > before)  # type: ignore[misc]
                saved = relive.load(tmp_path / "saves", storage=relive.Ram())
                check(saved)
                numbers.add(saved.stats().added)
            assert len(numbers) > 1, "later ones have more, unless nothing else got a turn meanwhile"
            began = stored.lane_steps(buffer._core)
            eventually(lambda: (stored.lane_steps(buffer._core) > began).all())
        assert saving.stats().errors < 3  # tried again: on a starved machine a writer may stay in mid-call
        saving.close()
        saved = relive.load(tmp_path / "saves", storage=relive.Ram())
        check(saved)
        assert (stored.lane_steps(saved._core) == stored.lane_steps(buffer._core)).all()
        saved = relive.load(tmp_path / "saves", storage=relive.Ram())  # since the check has drawn
        batch, again = buffer.sample(32), saved.sample(32)
        assert (batch.ids == again.ids).all()
        assert (batch.weights == again.weights).all()


def test_what_copies_all_of_it(tmp_path: Path) -> None:
    with made(tmp_path, 500) as buffer, writing(buffer, (1, 1)):
        for take in some(range(8), 4):
            check(copy.deepcopy(buffer))
            saved = buffer.save(tmp_path / "saves", wait=take % 4 < 2)
            check(copy.deepcopy(buffer))
            saved.wait()
            check(relive.load(tmp_path / "saves", storage=relive.Ram()))


def test_writers_of_this_process(tmp_path: Path) -> None:
    with made(tmp_path, 100) as buffer, buffer.writer([0]) as writer:
        for number in range(300):
            writer.add(**steps_of(number, 1))
            buffer.add(env_ids=[1], **steps_of(number, 1))
            if number % 50 == 0:
                buffer.save(tmp_path / "saves")
                check(relive.load(tmp_path / "saves", storage=relive.Ram()))


def saved_in(buffer: relive.ReplayBuffer, path: Path) -> float:
    """Check a save, and time it."""
    begun = time.monotonic()
    buffer.save(path)
    took = time.monotonic() - begun
    check(relive.load(path, storage=relive.Ram()))
    return took


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_writer_that_does_not_come_back(number: signal.Signals, tmp_path: Path) -> None:
    with made(tmp_path, 100) as buffer:
        took = []
        for take in some(range(4), 2):
            with writing(buffer, (1, 1)) as processes:
                process = processes[take % 2]
                os.kill(process.pid, number)
                if number == signal.SIGKILL:
                    process.join()
                took.append(saved_in(buffer, tmp_path / f"{take}"))
                if number == signal.SIGSTOP:
                    os.kill(process.pid, signal.SIGCONT)
            buffer.clear()
        assert min(took) < 2.0, took


def test_a_killed_learner_lets_its_writers_go_on(tmp_path: Path) -> None:
    """Kill a learner that was about to write a save, for which the lanes may go no further."""
    context = multiprocessing.get_context("fork")
    ready, stop = context.Event(), context.RawValue("i", 0)

    def learn() -> None:
        with made(tmp_path, 100) as buffer:
            ready.set()
            eventually(lambda: stored.lane_steps(buffer._core)[0] > 500)
            _save_task.SaveTask.run = lambda self: (ready.set(), time.sleep(30))  # type: ignore[assignment, return-value]
            buffer.save(tmp_path / "saves")

    learner = context.Process(target=learn)
    learner.start()
    assert ready.wait(30)
    ready.clear()
    writer = context.Process(target=write, args=(relive.Writer._later(str(tmp_path / "ring"), [0]), stop, 1))
    writer.start()
    try:
        assert ready.wait(30)
        with relive.open(tmp_path / "ring", seed=0) as reader:
            before = stored.lane_steps(reader._core)[0]
            time.sleep(0.2)
            assert stored.lane_steps(reader._core)[0] <= before + 200, "it waits"
            assert learner.pid is not None
            os.kill(learner.pid, signal.SIGKILL)
            held = stored.lane_steps(reader._core)[0]
            eventually(lambda: stored.lane_steps(reader._core)[0] > held + 1000)
    finally:
        stop.value = 1
        learner.kill()
        writer.join()
        learner.join()


def test_a_call_that_a_kill_ended_keeps_no_save(tmp_path: Path) -> None:
    """Leave a call begun for ever, in the same group of lanes as an active writer's."""
    with made(tmp_path, 500) as buffer, writing(buffer, (1,)):
        buffer._core.ring.touched[0] += 1
        took = [saved_in(buffer, tmp_path / "saves") for _ in range(3)]
        assert min(took[1:]) < 1.0, "that is known"


def test_who_saves_waits_for_another_who_saves(tmp_path: Path) -> None:
    """Check that it keeps the limits that this one has set."""
    with made(tmp_path, 500) as buffer, relive.open(tmp_path / "ring", seed=0) as reader, writing(buffer, (1,)):
        hold = buffer._core.access.hold
        hold.still(lambda: np.full(3, stored.next_rows(buffer._core) + 400))
        limits = hold.limits.copy()
        saving = threading.Thread(target=reader.save, args=(tmp_path / "saves",))
        saving.start()
        time.sleep(0.3)
        assert saving.is_alive()
        assert (hold.limits == limits).all()
        hold.release()
        saving.join()
        check(relive.load(tmp_path / "saves", storage=relive.Ram()))
