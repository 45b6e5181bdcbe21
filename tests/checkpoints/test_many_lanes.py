"""Buffers of many lanes are saved, copied and loaded as a whole, not lane by lane."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from sizes import with_sizes

import relive
from relive._ring import kernels as _kernels
from relive.checkpoints.inspection import inspect, verify
from relive.checkpoints.salvage import salvage
from relive.testing._lives import BACK_ENDS

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
SCHEMA = relive.Schema(obs=relive.Field((3,)), action=relive.Field())
OTHERS = {"item": relive.Transitions(n_step=2), "sampler": relive.Prioritized()}
WAYS: dict[str, Callable[[relive.ReplayBuffer, Path, Path], Any]] = {
    "save": lambda buffer, saved, new: buffer.save(new),
    "load": lambda buffer, saved, new: relive.load(saved),
    "load as another": lambda buffer, saved, new: relive.load(saved, capacity=8 * buffer.num_envs, **OTHERS),
    "load some lanes": lambda buffer, saved, new: relive.load(saved, lanes=range(0, buffer.num_envs, 2)),
    "pickle": lambda buffer, saved, new: pickle.loads(pickle.dumps(buffer)),
    "deepcopy": lambda buffer, saved, new: copy.deepcopy(buffer),
    "inspect": lambda buffer, saved, new: inspect(saved),
    "verify": lambda buffer, saved, new: verify(saved),
    "salvage": lambda buffer, saved, new: salvage(saved, new),
}


def build(lanes: int, rows: int = 12, sampler: Any = None) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(SCHEMA, rows * lanes, num_envs=lanes, sampler=sampler or relive.Prioritized(), seed=0)


def add(buffer: relive.ReplayBuffer, steps: int, lanes: list[int]) -> np.ndarray:
    shape = (len(lanes), steps)
    ends = np.zeros(shape, bool)
    ends[:3, 4] = True  # as many episodes, whatever the lanes
    zeros = np.zeros((*shape, 3))
    flags = {"terminated": ends, "truncated": np.zeros(shape, bool)}
    return buffer.extend(
        obs=zeros, next_obs=zeros, action=np.zeros(shape), reward=np.zeros(shape), **flags, env_ids=lanes
    )


def lines_of(run: Callable[[], Any]) -> int:
    """Count the lines of relive's Python that run; loops count each time."""
    count, before = 0, sys.gettrace()
    gc.collect()  # what earlier tests left is not torn down in between
    gc.disable()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "relive" in frame.f_globals.get("__name__", "") else None

    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


@pytest.mark.skipif("native" not in BACK_ENDS, reason="the NumPy kernels copy lane by lane")
@pytest.mark.parametrize("way", WAYS)
def test_as_much_python_runs_for_many_lanes_as_for_few(way: str, tmp_path: Path) -> None:
    with _kernels.use("native"):
        counts = []
        for lanes in (8, 8, 64):  # what is imported at the first time does not count
            folder = tmp_path / str(len(counts))
            buffer = build(lanes)
            add(buffer, 9, list(range(lanes)))
            buffer.save(folder / "saved")
            add(buffer, 9, list(range(lanes)))
            buffer.save(folder / "saved")
            counts.append(lines_of(lambda: WAYS[way](buffer, folder / "saved", folder / "new")))  # noqa: B023
        assert counts[2] - counts[1] < 64 - 8  # not a line for each lane more


def test_a_save_whose_files_have_rows_of_a_lane_that_are_gone_can_be_salvaged(tmp_path: Path) -> None:
    """Check with a file that other lanes still need."""
    buffer = build(2, rows=20)
    add(buffer, 10, [0, 1])
    buffer.save(tmp_path / "saved")
    add(buffer, 25, [0])
    buffer.save(tmp_path / "saved")
    found = salvage(tmp_path / "saved", tmp_path / "new")
    assert (found.stored, found.lost, found.problems) == ((20, 10), (0, 0), ())
    assert relive.load(tmp_path / "new").stats().drawable == buffer.stats().drawable


@pytest.mark.parametrize("lanes", [1, 3])
@with_sizes(copied=64)
def test_copies_are_made_piece_by_piece(lanes: int) -> None:
    """Check pieces of a few rows, fields that are kept at every third step, and what is freed on the way."""
    from relive.checkpoints import _copying

    schema = relive.Schema(obs=relive.Field(3), action=relive.Field(), state=relive.Field(2, every=3))
    buffer = relive.ReplayBuffer(schema, 11 * lanes, num_envs=lanes, item=relive.Sequences(3, starts=3), seed=0)
    rng = np.random.default_rng(0)
    for t in range(27):
        values = {name: rng.random((lanes, *size)) for name, size in (("obs", [3]), ("action", []), ("state", [2]))}
        buffer.add(**values, reward=rng.random(lanes), terminated=[t % 7 == 6] * lanes, truncated=[False] * lanes)
        if t % 5 > 1 and t > 4:
            continue
        made = _copying.copied(buffer._core)
        assert len(made.columns) > 4 or t < 4
        for twin in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer)), _copying.rebuilt(type(buffer), made)):
            for name in ("obs", "action", "state", "reward", "terminated", "ids"):
                np.testing.assert_array_equal(twin.column(name), buffer.column(name), err_msg=name)
        assert not made.columns


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is given back at once is mapped on Linux alone")
def test_a_deep_copy_holds_its_steps_once() -> None:
    import tracemalloc

    schema, no = relive.Schema(obs=relive.Field(100), action=relive.Field()), np.zeros(20_000, bool)
    buffer, obs = relive.ReplayBuffer(schema, 20_000), np.ones((20_000, 100), np.float32)
    buffer.extend(obs=obs, action=no, reward=no, terminated=no, truncated=no)
    tracemalloc.start()
    try:
        twin = copy.deepcopy(buffer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(twin.column("obs"), buffer.column("obs"))
    assert peak < 0.1 * buffer.stats().nbytes  # pages from the system, which hold the steps, are not traced
