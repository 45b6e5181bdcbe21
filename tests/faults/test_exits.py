"""A process ends as its program says, whatever its daemon threads are doing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from children import run_program
from depth import LONG
from storages import NAMES

EXITS = int(os.environ.get("RELIVE_EXITS", "200"))
PROGRAM = """
import sys, threading, time
import numpy as np
import relive

work, storage, folder = sys.argv[1:]
schema = relive.Schema(obs=relive.Field(16), action=relive.Field())
store = relive.Shared() if storage == "shared" else relive.Ram()
buffer = relive.ReplayBuffer(schema, 5000, sampler=relive.Prioritized(), storage=store, seed=0)
flags, obs = np.zeros(2000, bool), np.zeros((2000, 16))
steps = dict(obs=obs, action=flags, reward=flags, next_obs=obs, terminated=flags, truncated=flags)
buffer.extend(**steps)
if work == "load":
    buffer.save(folder)
if work == "trajectories":
    from relive.trajectories import Trajectory, TrajectoryReplayBuffer

    trajectories = TrajectoryReplayBuffer(folder, cache_bytes=0)
    for _ in range(4):
        trajectories.add_trajectories([Trajectory(rewards=np.zeros((2000, 1, 1)))])
    trajectories.sample(1)

def draw_ahead():
    with buffer.prefetch(2000) as batches:
        for _ in zip(range(6), batches):  # a buffer that ends ends them
            pass

def repeat(call):
    while True:
        call()

draw = lambda: buffer.sample(2000)
update = lambda: buffer.update_priorities(draw().ids, np.ones(2000))
calls = {"draw": [draw] * 2, "all": [draw, update, lambda: buffer.extend(**steps), draw_ahead],
         "save": [lambda: buffer.save(f"{folder}/{threading.get_ident()}"), draw],
         "load": [lambda: relive.load(folder).sample(2000)] * 2, "trajectories": [lambda: trajectories.sample(8)] * 2}
for call in calls[work]:
    threading.Thread(target=repeat, args=(call,), daemon=True).start()
time.sleep(0.03)
"""


CASES = [(work, storage) for work in ("draw", "all") for storage in NAMES if storage != "mapped"]
CASES += [("save", "ram"), ("load", "ram"), ("trajectories", "ram")]


@pytest.mark.parametrize("times", [2 if LONG else 1, pytest.param(EXITS // len(CASES) + 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("work", "storage"), CASES)
def test_daemon_threads_do_not_abort_the_process(
    work: str, storage: str, times: int, folder: Path, record_property: Any
) -> None:
    record_property("cases", times)
    for number in range(times):
        place = folder / f"{number}"
        place.mkdir()
        done = run_program(PROGRAM, work, storage, place, flags=["-W", "ignore"])
        assert done.returncode == 0, (number, done.stderr)
        if work != "trajectories":  # a buffer that is closed under its readers says so, and what it wrote at the end
            assert done.stderr == "", number
