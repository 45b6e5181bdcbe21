"""`Shared` and `Mapped` where writers and creators are killed: nothing is lost, half seen, or left behind."""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from depth import eventually
from forking import forked
from whole_rows import make, native, steps, torn

import relive
from relive._buffer import stored
from relive.storage.shared import segments

pytestmark = [pytest.mark.filterwarnings("ignore:Expected:relive.errors.ReliveWarning"), native]


class Told:
    """The id of the last step that a process says it has added, which outlives it."""

    def __init__(self, path: Path) -> None:
        self.map = np.memmap(path, np.int64, "w+", shape=1)
        self.map[0] = -1

    @property
    def last(self) -> int:
        return int(self.map[0])


def killed_writer(address: str, lane: int, told: Told) -> None:
    with relive.Writer(address, env_ids=[lane]) as writer:
        for t in range(2**40):
            told.map[:] = writer.extend(**steps(2048, t, 1, lane))[0]


@pytest.mark.parametrize("kills", [8, pytest.param(250, marks=pytest.mark.slow)])
def test_a_killed_writer_blocks_nobody(storage: object, kills: int, tmp_path: Path) -> None:
    """Check that its half row is never seen, its last acknowledged step can be drawn, its lane is claimed again."""
    rng, told = np.random.default_rng(0), Told(tmp_path / "last")
    with make(2048, 30, storage=storage) as buffer:
        for _ in range(kills):
            told.map[0] = -1
            with forked(lambda: killed_writer(storage.address, 1, told), endless=True):
                eventually(lambda: buffer.can_sample(1))
                end = time.monotonic() + rng.uniform(0.002, 0.02)
                while time.monotonic() < end:
                    assert not torn(buffer.sample(4)).any()
            assert not torn(buffer.sample(64)).any()
            if told.last >= 0:
                assert not torn(buffer.read([told.last])).any()
            relive.Writer(storage.address, env_ids=[1]).close()


@pytest.mark.parametrize("kills", [12, pytest.param(600, marks=pytest.mark.slow)])
def test_counts_after_a_kill_are_those_of_the_steps_that_are_there(storage: object, kills: int) -> None:
    """Check that `len` and `stats()` count no step that the killed call had begun to overwrite, before a new claim."""
    lanes, rng = 16, np.random.default_rng(0)

    def write() -> None:
        with relive.Writer(storage.address) as writer:
            no = np.zeros(lanes, bool)
            for t in range(2**40):
                now = np.full((lanes, 1), t % 2**16)
                step = {"obs": now, "action": now[:, 0], "reward": now[:, 0], "next_obs": (now + 1) % 2**16}
                writer.add(**step, terminated=no, truncated=no)

    with make(1, 30, lanes, storage=storage) as buffer:
        for _ in range(kills):
            begun = stored.next_rows(buffer._core).max()
            with forked(write, endless=True):
                eventually(lambda begun=begun: (stored.next_rows(buffer._core) > begun + 2).all())
                time.sleep(rng.uniform(0.0, 0.003))
            size, found = len(buffer), buffer.stats()
            assert size == found.size == (buffer.column("ids") >= 0).sum()
            assert found.drawable == sum(len(batch.ids) for batch in buffer.batches(64, shuffle=False))


def test_a_killed_creator_of_a_mapped_ring_loses_no_step_that_was_added(tmp_path: Path) -> None:
    rng, told = np.random.default_rng(0), Told(tmp_path / "last")

    def work(number: int) -> None:
        path = tmp_path / f"ring{number}"
        buffer = make(300, 200, sampler=relive.Prioritized(), storage=relive.Mapped(path))
        for t in range(2**40):
            told.map[:] = buffer.extend(**steps(300, t, 1, 0))[0]
            if t % 7 == 6:
                ids = buffer.sample(8).ids
                buffer.update_priorities(ids, 1.0 + ids % 3)

    for number in range(5):
        told.map[0] = -1
        with forked(lambda number=number: work(number), endless=True):
            eventually(lambda: told.last >= 0)
            time.sleep(rng.uniform(0.0, 0.05))
        with relive.open(tmp_path / f"ring{number}") as buffer:
            assert not torn(buffer.read([told.last])).any()
            assert not torn(buffer.sample(100)).any()
            assert len(buffer) >= min(200, told.last // 2 + 1)
            buffer.extend(**steps(300, 0, 3, 0))


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_no_segment_is_left_behind(end: str) -> None:
    code = f"""
import os, signal, sys, time, relive
buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100, storage=relive.Shared())
print(buffer.storage.file, flush=True)
child = os.fork()
if child == 0:
    time.sleep(20)  # outlives its parent
    os._exit(0)
print(child, flush=True)
if {end == "kill"}: os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.Popen([sys.executable, "-X", "dev", "-c", code], stdout=subprocess.PIPE, text=True)
    file, child = done.stdout.readline().strip(), int(done.stdout.readline())
    try:
        done.wait(60)
        eventually(lambda: not os.path.exists(file))
    finally:
        os.kill(child, signal.SIGKILL)
        done.stdout.close()


def held() -> tuple[int, int, set[str]]:
    """Return descriptors of this process, its children, and the machine's segments of its making."""
    own = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return len(os.listdir("/proc/self/fd")), len(own), {path for path in segments() if f"-{os.getpid()}-" in path}


def write_for_ever(address: str) -> None:
    with relive.Writer(address, env_ids=[1]) as writer:
        for t in range(2**40):
            writer.extend(**steps(3, t, 1, 1))


@pytest.mark.parametrize("cycles", [20, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["shared", "mapped"])
def test_buffers_that_are_made_opened_and_killed_over_and_over_leave_nothing(
    kind: str, cycles: int, tmp_path: Path
) -> None:
    """Close or drop them, with a reader, a writer here, and one in a child that is killed."""
    gc.collect()  # what earlier tests left holds descriptors
    before = None
    for cycle in range(cycles):
        storage = relive.Shared() if kind == "shared" else relive.Mapped(tmp_path / f"{cycle}")
        buffer = make(3, 40, storage=storage)
        with relive.open(storage.address) as reader, buffer.writer([0]) as writer:
            writer.extend(**steps(3, 0, 5, 0))
            reader.sample(2)
        if cycle % 5 == 0:
            with forked(functools.partial(write_for_ever, storage.address), endless=True):
                eventually(lambda buffer=buffer: buffer.stats().added >= 10)
        if cycle % 2:
            buffer.close()
        buffer = reader = writer = None
        before = before or held()  # the first buffer brings the sweeper
    assert held() == before
    assert not held()[2]
