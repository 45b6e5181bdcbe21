"""What limits draws of single steps of rollouts that are in files, or in memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.limit_cases import Case, Runs
from benchmarks.question import Run, Scale
from benchmarks.trajectories import DRAW, LONG, SMALL
from benchmarks.workload import rollouts
from relive.trajectories import TrajectoryReplayBuffer

COUNT = 100  # rollouts; of these a tenth are in the cache, or all


class Stored:
    """The same rollouts in relive's files and, as somebody who knows their fields would write them, by hand."""

    def __init__(self, scale: Scale) -> None:
        shape: dict[str, Any] = SMALL if scale.name == "tiny" else LONG
        self.folder, self.count = Path(tempfile.mkdtemp()), 10 if scale.name == "tiny" else COUNT
        weakref.finalize(self, shutil.rmtree, self.folder)
        (fields,) = rollouts(1, *(shape[name] for name in ("length", "width", "side", "state")))
        self.width = shape["width"]
        self.rows = shape["length"] * self.width
        with TrajectoryReplayBuffer(self.folder / "relive") as buffer:
            for _ in range(self.count):
                buffer.add_trajectories([fields])
                buffer.sync()
        last = {name: fields["next_obs"][name][-1:] for name in fields["curr_obs"]}
        observed = {name: np.concatenate([now, last[name]]) for name, now in fields["curr_obs"].items()}
        kept = {name: fields[name] for name in fields if not name.endswith("_obs")} | observed
        self.fields = {name: values.reshape(-1, *values.shape[2:]) for name, values in kept.items()}
        self.observed = tuple(observed)

    def relive(self, cached: int) -> Run:
        buffer = TrajectoryReplayBuffer(cache_size=cached, sample_window_size=0, seed=0)
        buffer.load_checkpoint(self.folder / "relive")
        # After so many draws files are open, and what is kept in memory has been read.
        return self.repeated(lambda: buffer.sample(DRAW), warm=40)

    def array(self, name: str, *, mapped: bool) -> Any:
        """One field of all rollouts, each with the rows after its last step."""
        values = self.fields[name]
        shape = self.count, self.rows + self.width, *values.shape[1:]
        array: Any = np.empty(shape, values.dtype)
        if mapped:
            array = np.lib.format.open_memmap(self.folder / name, "w+", values.dtype, shape)
        array[:, : len(values)] = values
        return array.reshape(-1, *values.shape[1:])

    def by_hand(self, *, mapped: bool) -> Run:
        """An array for each field, and its rows by index."""
        return self.repeated(self.taking({name: self.array(name, mapped=mapped) for name in self.fields}))

    def records(self) -> Run:
        """One file of whole records, mapped: a row of all fields is in one place, and stays there in the batch."""
        row = np.dtype([(name, values.dtype, values.shape[1:]) for name, values in self.fields.items()])
        array = np.memmap(self.folder / "records", row, "w+", shape=(self.count, self.rows + self.width))
        for name, values in self.fields.items():
            array[name][:, : len(values)] = values
        array = array.reshape(-1)
        rng = np.random.default_rng(0)
        return self.repeated(lambda: (array[at := self.drawn(rng)], array[at + self.width]))

    def repeated(self, draw: Callable[[], object], warm: int = 1) -> Run:
        def run(calls: int, files: Stored = self) -> None:  # which are there as long as this is
            for _ in range(calls):
                draw()

        run(warm)
        return run

    def taking(self, arrays: Mapping[str, Any]) -> Callable[[], object]:
        rng = np.random.default_rng(0)

        def draw() -> object:
            at = self.drawn(rng)
            return [array[at] for array in arrays.values()] + [arrays[name][at + self.width] for name in self.observed]

        return draw

    def drawn(self, rng: np.random.Generator) -> Any:
        which, row = rng.integers(0, self.count, DRAW), rng.integers(0, self.rows, DRAW)
        return which * (self.rows + self.width) + row


def files(scale: Scale) -> Runs:
    stored = Stored(scale)
    return {
        f"relive, {stored.count} files, a cache of a tenth": stored.relive(stored.count // 10),
        "`np.memmap` by hand, one file a field": stored.by_hand(mapped=True),
        "`np.memmap` by hand, one file of whole records": stored.records(),
    }


def cached(scale: Scale) -> Runs:
    stored = Stored(scale)
    return {
        f"relive, {stored.count} files, all in the cache": stored.relive(stored.count),
        "NumPy, one array a field in memory": stored.by_hand(mapped=False),
    }


CASES: dict[str, Case] = {"trajectories": files, "trajectories-cached": cached}
