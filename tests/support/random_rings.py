"""Random lives of a ring, written to the rings of several back ends: ends, cuts, lanes of different speeds, wraps."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType

import numpy as np

import relive
from relive._base.arrays import Section
from relive._ring.plans import State, Window
from relive._ring.ring import TOUCHED, Ring, kernels

SCHEMA = relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "uint8"))


def ring_of(
    module: ModuleType,
    lanes: int,
    rows: int,
    window: Window,
    keeps: tuple[str, ...] = (),
    steps: int = 0,
    touched: bool = True,
) -> Ring:
    """Make an empty ring on a back end, whose lanes keep `steps` steps; 0: as many as they have rows."""
    keeps = (*keeps, TOUCHED) if touched else keeps
    spec = {f"ring/{name}": wanted for name, wanted in Ring.spec(SCHEMA, window, lanes, rows, keeps).items()}
    memory = relive.Ram().open(spec, b"")
    with kernels.use("numpy" if module.__name__.endswith("numpy") else "native"):
        return Ring(SCHEMA, window, rows, steps or rows, Section(memory, "ring/"), keeps, lambda found: None)


@dataclass
class Life:
    """A life of several rings alike; `stream_of` gives the stream of the step with an id."""

    rings: list[Ring]
    rng: np.random.Generator
    priorities: bool = False
    stream_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lanes = self.rings[0].lanes
        self.weights = self.rng.random(lanes) + 0.1  # how often a lane is among those that are written to
        self.now = np.zeros(lanes, np.int64)
        self.stream = np.arange(lanes)
        self.fresh = np.ones(lanes, bool)

    def go_on(self) -> None:
        """Make one call: steps of some lanes, or a cut."""
        lanes = np.flatnonzero(self.rng.random(len(self.weights)) < self.weights)
        if not len(lanes):
            return
        if self.rng.random() < 0.1:
            for ring in self.rings:
                ring.cut(lanes)
            self.stream[lanes] += len(self.stream)
            return
        self._write(lanes, int(self.rng.integers(1, 6)))

    def _write(self, lanes: np.ndarray, length: int) -> None:
        shape = (len(lanes), length)
        ends = self.rng.random(shape) < 0.15
        terminated = ends & (self.rng.random(shape) < 0.5)
        with_next = self.rng.random() < 0.8
        obs, streams = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for i, lane in enumerate(lanes.tolist()):
            for t in range(length):
                if with_next and self.rng.random() < 0.05:  # another observation than the `next_obs` before it: a cut
                    self.now[lane] += 1000
                    self.stream[lane] += len(self.stream)
                obs[i, t], streams[i, t] = self.now[lane], self.stream[lane]
                self.now[lane] += 1
                if ends[i, t]:
                    self.now[lane] += 1000
                    self.stream[lane] += len(self.stream)
        given = self.rng.choice([0.0, 0.5, 3.0], shape) if self.priorities and self.rng.random() < 0.4 else None
        made = {"obs": obs, "action": obs.astype(np.uint8), "reward": obs.astype(np.float32)}
        values = [made[column.keys[0]] for column in SCHEMA.columns]
        results = [
            ring.write(values, [obs + 1] if with_next else None, terminated, ends & ~terminated, lanes, given)
            for ring in self.rings
        ]
        for ids in results[1:]:
            np.testing.assert_array_equal(ids, results[0])
        self.stream_of.update(zip(results[0].ravel().tolist(), streams.ravel().tolist(), strict=True))
        self._check_standing(results[0].ravel(), obs.ravel())

    def _check_standing(self, ids: np.ndarray, obs: np.ndarray) -> None:
        """Check that every ring finds the written steps, those that a walk of no steps finds, and no others."""
        ring = self.rings[0]
        around = np.arange(-3, (int(ring.counters[:, 0].max()) + 2) * ring.lanes)
        rows = ring.kernel.standing(around)
        np.testing.assert_array_equal(rows >= 0, ring.kernel.follow(around, np.zeros_like(around)).ids >= 0)
        for other in self.rings[1:]:
            np.testing.assert_array_equal(other.kernel.standing(around), rows)
        kept = rows[ids + 3]
        np.testing.assert_array_equal(ring.observations[0][kept[kept >= 0]], obs[kept >= 0])

    def drawable(self) -> list[int]:
        """Return the ids that can be drawn, lane by lane, oldest first."""
        ring, ids = self.rings[0], np.array(sorted(self.stream_of), np.int64)
        _, states = ring.locate(ids)
        found = ids if states is None else ids[states == State.DRAWABLE]
        return found[np.lexsort((found, found % ring.lanes))].tolist()
