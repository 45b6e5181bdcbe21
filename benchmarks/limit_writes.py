"""What limits adds: one step, and one step of many environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np

from benchmarks.limit_cases import CACHED, Case, Runs, made
from benchmarks.peers import Peer, Spec, adapter
from benchmarks.question import Run, Scale, count
from benchmarks.workload import ACTION_SIZE, EPISODE, OBS_SIZE, Array, Step, lane_steps, single_steps
from relive._ring.lanes import block_of

CACHED_ROWS = 32  # of each lane


def one(scale: Scale) -> Runs:
    steps = single_steps(2 * EPISODE)
    full, cached = made("relive", Spec(scale.capacity, prioritized=True)), made("relive", Spec(CACHED))
    by_hand = made("numpy", Spec(scale.capacity))

    def of(work: Callable[[Iterable[Step]], None]) -> Run:
        forever = cycle(steps)
        return lambda calls: work(islice(forever, calls))

    return {
        "relive": of(full.add),
        f"relive, `Uniform`, {CACHED:,} rows: all in the caches": of(cached.add),
        "the loop, nothing called": of(nothing),
        "the loop, a function in C called with these six keywords (`dict`)": of(called),
        "NumPy: six rows assigned": of(by_hand.add),
    }


def nothing(steps: Iterable[Step]) -> None:
    for _obs, _action, _reward, _next_obs, _terminated, _truncated in steps:
        pass


def called(steps: Iterable[Step]) -> None:
    keywords = dict
    for obs, action, reward, next_obs, terminated, truncated in steps:
        keywords(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated)


def many(scale: Scale, lanes: int) -> Runs:
    lanes, n = min(lanes, scale.capacity // CACHED_ROWS), scale.capacity
    steps = lane_steps(lanes, max(4, min(64, 32_768 // lanes)))
    few = CACHED_ROWS * lanes

    def of(work: Callable[[Iterable[Step]], None], capacity: int) -> Run:
        forever = cycle(steps)
        work(islice(forever, capacity // lanes + 1))
        return lambda calls: work(islice(forever, calls))

    def of_lanes(name: str, capacity: int, prioritized: bool) -> Peer:
        peer = adapter(name)()
        peer.ensure(Spec(capacity, num_envs=lanes, prioritized=prioritized))
        return peer

    large, small = of_lanes("relive", n, True), of_lanes("relive", few, True)
    alone, plain = of_lanes("relive", few, True), of_lanes("relive", few, False)
    return {
        f"relive, {count(n)} rows": of(large.add_lanes, n),
        f"relive, {CACHED_ROWS} rows a lane: all in the caches": of(small.add_lanes, few),
        "... without `next_obs`": of(partial(observed, alone.buffer), few),
        "... `Uniform`: no tree": of(plain.add_lanes, few),
        f"the same bytes to the same places by NumPy's copies, {count(n)} rows": of(Scattered(n, lanes), n),
        f"... {CACHED_ROWS} rows a lane": of(Scattered(few, lanes), few),
        f"NumPy by hand: one block, {count(n)} rows": of(of_lanes("numpy", n, False).add_lanes, n),
    }


def observed(buffer: Any, steps: Iterable[Step]) -> None:
    for obs, action, reward, _, terminated, truncated in steps:
        buffer.add(obs=obs, action=action, reward=reward, terminated=terminated, truncated=truncated)


class Scattered:
    """Rows as relive lays them, written by one copy a field: nothing is compared, counted or remembered."""

    def __init__(self, capacity: int, lanes: int) -> None:
        self.rows, self.at = max(1, capacity // lanes), 0
        self.block = block = block_of(lanes, self.rows)
        shape = (self.rows // block + 1, lanes, block)
        self.values: Array = np.zeros((*shape, OBS_SIZE + ACTION_SIZE + 1), np.float32)
        self.marks: Array = np.zeros(shape, np.uint8)

    def __call__(self, steps: Iterable[Step]) -> None:
        for obs, action, reward, next_obs, terminated, truncated in steps:
            block, row = divmod(self.at, self.block)
            after = divmod(self.at + 1, self.block)
            values = self.values[block, :, row]
            values[:, :OBS_SIZE] = obs
            values[:, OBS_SIZE:-1] = action
            values[:, -1] = reward
            self.values[after[0], :, after[1], :OBS_SIZE] = next_obs
            self.marks[block, :, row] = terminated | truncated
            self.at = (self.at + 1) % self.rows


CASES: dict[str, Case] = {
    "add-one": one,
    **{f"add-{lanes}": partial(many, lanes=lanes) for lanes in (8, 64, 1024, 4096)},
}
