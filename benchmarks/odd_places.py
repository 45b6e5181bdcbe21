"""Odd places of a buffer: other processes, files, other libraries' classes, each beside the plain one."""

from __future__ import annotations

import copy
import gc
import importlib
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.base import high_water, resident
from benchmarks.turns import BATCH, Pair, Size, laned, robot, turns
from benchmarks.workload import ACTION_SIZE, OBS_SIZE, endless_steps, lane_steps, rollouts

WRITERS, LATE = 8, 0.5


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp())
    try:
        yield made
    finally:
        shutil.rmtree(made)


def stored(relive: Any, size: Size, *, mapped: bool) -> Pair:
    """Time draws of a storage that other processes may see, over those of RAM."""
    with folder() as made:
        storage = relive.Mapped(made / "ring") if mapped else relive.Shared()
        buffer, plain = robot(relive, size.n // 10, storage=storage), robot(relive, size.n // 10)
        found = turns(size, lambda: buffer.sample(BATCH), lambda: plain.sample(BATCH))
        buffer.close()
    return found


def late(relive: Any, size: Size) -> Pair:
    """Time cycles of a learner that comes half a second late to eight writers at full speed, all on its core."""
    schema = relive.Schema(obs=relive.Field((OBS_SIZE,)), action=relive.Field((ACTION_SIZE,)))
    shared = relive.ReplayBuffer(
        schema, size.n, num_envs=WRITERS, sampler=relive.Prioritized(), storage=relive.Shared(), seed=0
    )
    context = multiprocessing.get_context("fork")
    stop = context.RawValue("b", 0)

    def write(lane: int) -> None:
        writer = shared.writer([lane])
        for step in endless_steps(64):
            if stop.value:
                break
            writer.extend(**step._asdict())

    children = [context.Process(target=write, args=(lane,), daemon=True) for lane in range(WRITERS)]
    try:
        for child in children:
            child.start()
        while not shared.can_sample(BATCH):
            time.sleep(0.001)
        time.sleep(LATE)
        found, begun = list[float](), time.perf_counter()
        while not found or (time.perf_counter() < begun + 10 and len(found) < 50):
            before = time.perf_counter()
            shared.update_priorities(shared.sample(BATCH).ids, np.ones(BATCH))
            found.append((time.perf_counter() - before) * 1e6)
    finally:
        stop.value = 1
        for child in children:
            child.join(5)
            child.kill()
        shared.close()
    return Pair(tuple(found))


def trajectories(relive: Any, size: Size, *, reads_alone: bool = False) -> Pair:
    """Time warm draws of 256 steps of files as tensors, over those of memory maps by hand.

    With `reads_alone` nothing but what no draw of checked rows can do without: calls of the system for both images of
    each step, and the CRC-32 of what they read.
    """
    torch, kernels = importlib.import_module("torch"), importlib.import_module("relive._ring.kernels").active()
    count, shape = (24, (100, 8, 64, 32)) if size.n > 100_000 else (6, (8, 2, 4, 4))
    pool = rollouts(3, *shape)
    steps, lanes = shape[:2]
    random = np.random.default_rng(0)
    with folder() as made:
        buffer = relive.TrajectoryReplayBuffer(made / "store", cache_size=2, sample_window_size=0, seed=0)
        buffer.add_trajectories(pool[i % 3] for i in range(count))
        buffer.sync()
        columns = {
            name: np.lib.format.open_memmap(made / f"{name}.npy", "w+", values.dtype, (count, *values.shape))
            for name, values in flat(pool[0]).items()
        }
        for i in range(count):
            for name, values in flat(pool[i % 3]).items():
                columns[name][i] = values

        def by_hand() -> Any:
            which, t, lane = (random.integers(0, high, BATCH) for high in (count, steps, lanes))
            return [
                torch.from_numpy(column[which, row, lane])
                for name, column in columns.items()
                for row in ((t, t + 1) if name.startswith("obs") else (t,))
            ]

        images, rows = columns["obs.image"], np.empty((2 * BATCH, *pool[0]["curr_obs"]["image"].shape[2:]), np.uint8)
        images[: count if reads_alone else 0].tofile(made / "rows")

        def reads() -> Any:
            which, t, lane = (random.integers(0, high, BATCH) for high in (count, steps, lanes))
            at = np.sort((which * (steps + 1) + t) * lanes + lane)
            offsets = np.concatenate([at, at + lanes]) * rows[0].nbytes
            return kernels.read_rows(np.full(2 * BATCH, file.fileno()), offsets, np.arange(2 * BATCH), rows)

        for _ in range(20):  # a draw is warm once narrow fields of all files are in memory: after some ten draws
            buffer.sample(BATCH)
        few = size._replace(rounds=min(size.rounds, 20))
        with open(made / "rows", "rb") as file:
            found = turns(few, reads if reads_alone else lambda: buffer.sample(BATCH).torch(), by_hand)
        buffer.close()
    return found


def reads_alone(relive: Any, size: Size) -> Pair:
    return trajectories(relive, size, reads_alone=True)


def flat(rollout: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays that a careful hand keeps: each observation once."""
    rest = {name: values for name, values in rollout.items() if not isinstance(values, dict)}
    seen = {
        f"obs.{name}": np.concatenate([values, rollout["next_obs"][name][-1:]])
        for name, values in rollout["curr_obs"].items()
    }
    return seen | rest


def tianshou(relive: Any, size: Size) -> Pair:
    """Time an add of four lanes to relive's buffer for Tianshou, over one to Tianshou's own."""
    data, own = importlib.import_module("tianshou.data"), importlib.import_module("relive.tianshou")
    made = [lib.PrioritizedVectorReplayBuffer(size.n // 10, 4, alpha=0.6, beta=0.4) for lib in (own, data)]
    names = {"obs": "obs", "action": "act", "reward": "rew", "next_obs": "obs_next"}
    steps = cycle(
        [
            data.Batch({names.get(name, name): column for name, column in step._asdict().items()}, info=data.Batch())
            for step in lane_steps(4, 256)
        ]
    )
    return turns(size, *(partial(lambda buffer: buffer.add(next(steps), buffer_ids=range(4)), each) for each in made))


def recorder(relive: Any, size: Size, lanes: int) -> Pair:
    """Time a step through a `Recorder`, over stepping and adding by hand."""
    gymnasium, Recorder = importlib.import_module("gymnasium"), importlib.import_module("relive.gymnasium").Recorder
    step = lane_steps(max(lanes, 1), 64)
    space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS_SIZE,), np.float32)
    moves = gymnasium.spaces.Box(-1, 1, (ACTION_SIZE,), np.float32)
    made = []
    for _ in range(2):
        env = still(gymnasium, lanes, space, moves, [each.obs if lanes else each.obs[0] for each in step])
        schema = relive.Schema(obs=relive.Field((OBS_SIZE,)), action=relive.Field((ACTION_SIZE,)))
        made.append((env, relive.ReplayBuffer(schema, size.n // 10, num_envs=max(lanes, 1), seed=0)))
    recorded = Recorder(*made[0])
    recorded.reset()
    env, buffer = made[1]
    obs, _ = env.reset()
    action = step[0].action if lanes else step[0].action[0]

    def by_hand() -> None:
        nonlocal obs
        later, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs=obs, action=action, reward=reward, next_obs=later, terminated=terminated, truncated=truncated)
        obs = later

    return turns(size, lambda: recorded.step(action), by_hand)


def still(gymnasium: Any, lanes: int, space: Any, moves: Any, observations: list[Any]) -> Any:
    """Return an environment, or `lanes` of them, that only hands out what is ready."""
    seen = cycle(observations)
    rest = (np.zeros(lanes), np.zeros(lanes, bool), np.zeros(lanes, bool)) if lanes else (0.0, False, False)

    class Still(gymnasium.vector.VectorEnv if lanes else gymnasium.Env):  # type: ignore[misc]
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return next(seen), {}

        def step(self, action: Any) -> Any:
            return next(seen), *rest, {}

    env = Still()
    env.observation_space = env.single_observation_space = space
    env.action_space = env.single_action_space = moves
    if lanes:
        env.num_envs, env.metadata = lanes, {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
    return env


def on_device(relive: Any, size: Size) -> Pair:
    """Time an add of 64 lanes to a `DeviceBuffer` on the processor, over one to a `ReplayBuffer`."""
    as_tensor = importlib.import_module("torch").as_tensor
    buffer, steps = laned(relive, size.n // 10, 64, sampler=relive.Prioritized())
    device = relive.DeviceBuffer(buffer.schema, size.n // 10, num_envs=64, device="cpu", sampler=relive.Prioritized())
    tensors = cycle([{name: as_tensor(each) for name, each in next(steps).items()} for _ in range(4)])
    few = size._replace(rounds=min(size.rounds, 20))
    return turns(few, lambda: device.add(**next(tensors)), lambda: buffer.add(**next(steps)))


def copied(relive: Any, size: Size) -> Pair:
    """Measure the bytes by which a process grows at most for a deep copy, over those of the buffer."""
    buffer = robot(relive, size.n)
    gc.collect()
    before = high_water(anew=True)
    copy.deepcopy(buffer)
    return Pair((float(max(high_water() - before, os.sysconf("SC_PAGE_SIZE"))),), (float(buffer.stats().nbytes),))


def short_lanes(relive: Any, size: Size) -> Pair:
    """Measure the bytes that many lanes of 64 steps take, over those of their steps."""
    lanes = size.lanes
    small, steps = laned(relive, lanes, lanes)  # what is added is none of the buffer's bytes
    gc.collect()
    before = resident() or 0
    buffer = relive.ReplayBuffer(small.schema, 64 * lanes, num_envs=lanes, seed=0)
    for _ in range(150):
        buffer.add(**next(steps))
    return Pair((float(max((resident() or 0) - before, 1)),), (float(64 * lanes * buffer.schema.nbytes),))
