"""Processes whose buffer saves itself are killed; what is loaded is what was added up to shortly before."""

from __future__ import annotations

import mmap
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import eventually
from forking import forked

import relive
from relive.checkpoints import _manifest

EPISODE, LONGEST = 50, 2_000_000
SAMPLERS = {"uniform": relive.Uniform(), "prioritized": relive.Prioritized(alpha=1.0, eps=0.0)}


def steps_of(first: int, count: int) -> dict[str, Any]:
    """Make the steps of these numbers: a counter whose episodes end after `EPISODE` steps."""
    number = np.arange(first, first + count)
    obs = np.repeat(number[:, None] + 0.5, 8, 1)
    ends = number % EPISODE == EPISODE - 1
    flags = {"terminated": ends, "truncated": np.zeros_like(ends)}
    return {"obs": obs, "action": number, "reward": number, "next_obs": obs + 1, **flags}


class Clock:
    """The moments at which steps were added, in memory that outlives a process.

    Attributes:
        ready: int64 `[1]`: 1 once the process is at work.
        count: int64 `[1]`: steps added.
        times: float64: of each its moment.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.touch()
            os.truncate(path, 16 + 8 * LONGEST)
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        self.ready, self.count = np.frombuffer(mapped, np.int64, 2).reshape(2, 1)
        self.times = np.frombuffer(mapped, np.float64, offset=16)


def live(folder: Path, sampler: str, rows: int, every: float, rate: float) -> None:
    """Add steps, and draw now and then, until the process is killed; go on from what an earlier one saved."""
    clock = Clock(folder / "clock")
    if (folder / "steps").exists() and os.listdir(folder / "steps"):
        buffer = relive.load(folder / "steps")
    else:
        schema = relive.Schema(obs=relive.Field((8,), "float64"), action=relive.Field((), "int64"))
        buffer = relive.ReplayBuffer(schema, rows, sampler=SAMPLERS[sampler], seed=0)
        buffer.extend(**steps_of(0, rows))
        clock.times[:rows] = time.monotonic()
    clock.count[0] = number = buffer.stats().added
    saving = buffer.autosave(folder / "steps", every=every)
    clock.ready[0] = 1
    begun, first = time.monotonic(), number
    while number < LONGEST:
        buffer.add(**{name: value[0] for name, value in steps_of(number, 1).items()})
        clock.times[number] = time.monotonic()
        clock.count[0] = number = number + 1
        if number % 32 == 0:
            batch = buffer.sample(64)
            if buffer.sampler.prioritizes:
                buffer.update_priorities(batch.ids, batch.ids + 1.0)
        if rate:
            time.sleep(max(0.0, begun + (number - first) / rate - time.monotonic()))
    saving.close()


@dataclass(frozen=True)
class Lost:
    """The loss by a kill: the number of steps, the age of the oldest of them, and the number of saves before."""

    steps: int
    age: float
    saves: int


def kill(folder: Path, sampler: str, rows: int, every: float, rate: float, after: float) -> Lost:
    """Let a process live so many seconds, kill it, and look at what it left."""
    clock = Clock(folder / "clock")
    clock.ready[0] = 0
    with forked(lambda: live(folder, sampler, rows, every, rate), endless=True):
        eventually(lambda: clock.ready[0], 60.0)
        time.sleep(after)
    now, buffer = time.monotonic(), relive.load(folder / "steps")
    count, added = int(clock.count[0]), buffer.stats().added
    check(buffer, rows, added)
    # A step may be saved before the clock knows it.
    numbers = os.listdir(folder / "steps")
    saves = max(filter(None, map(_manifest.number_of, numbers)))
    return Lost(count - added, now - clock.times[added] if added < count else 0.0, saves)


def check(buffer: relive.ReplayBuffer, rows: int, added: int) -> None:
    """Check that the stored steps are the added ones, without a gap between the oldest and the newest."""
    batch = next(buffer.batches(rows, shuffle=False))
    number = batch.action.astype(np.int64)
    assert len(buffer) == rows
    assert sorted(number) == list(range(added - rows, added))
    assert (batch.obs == (number + 0.5)[:, None]).all()
    assert (batch.next_obs == (number + 1.5)[:, None]).all()
    assert (batch.reward == number).all()
    assert (batch.terminated == (number % EPISODE == EPISODE - 1)).all()
    if buffer.sampler.prioritizes:
        raw = buffer.priorities(batch.ids)
        largest = np.unique(raw[raw != batch.ids + 1.0])
        assert (np.isin(largest - 1, batch.ids) | (largest <= batch.ids.min())).all(), "the largest so far, of new ones"


def moments(seed: int, kills: int, longest: float) -> list[float]:
    """Choose the moments of kills, in seconds after the process is ready."""
    rng = random.Random(seed)
    return [rng.uniform(0, longest) for _ in range(kills)]


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_kills(sampler: str, folder: Path, record_property: Any) -> None:
    """Check that a load at any moment gives the added steps, up to an instant shortly before."""
    lost = [kill(folder, sampler, 2_000, 0.1, 0, after) for after in (0.0, *moments(0, 3, 0.5))]
    record_property("cases", len(lost))
    assert max(each.age for each in lost) < 5.0, "by far: machines stop processes"
    assert lost[-1].saves > len(lost)


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "oldest"), [("uniform", 1.3), ("prioritized", 1.6)])
def test_five_hundred_kills(sampler: str, oldest: float, folder: Path, record_property: Any) -> None:
    """Add a thousand steps a second to a million; check the age of the oldest lost step at the 99th percentile."""
    lost = [kill(folder, sampler, 1_000_000, 1.0, 1_000, after) for after in moments(1, 250, 2.5)]
    record_property("cases", len(lost))
    ages = np.array([each.age for each in lost])
    spread = np.quantile(ages, [0.5, 0.9, 0.99, 1])
    print(f"{sampler}: ages at 50, 90, 99, 100 %: {spread}, at most {max(each.steps for each in lost)} steps")
    assert np.quantile(ages, 0.99) <= oldest
