"""Full lanes that are written together, of which the native kernels remember how long a step goes for each new one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import HAS_NATIVE, digest
from random_rings import SCHEMA

import relive
from relive._base.arrays import Section
from relive._ring import kernels
from relive._ring.plans import Window
from relive._ring.ring import TOUCHED, Ring
from relive.testing._lives import BACK_ENDS

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
LANES, STEPS, ROWS = 70, 12, 18  # lanes of two groups, and no whole number of eights


class Streams:
    """Streams of all lanes side by side, of which few end or break."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._now = np.arange(LANES) * 1000

    def moment(self, lanes: np.ndarray, rate: float) -> dict[str, np.ndarray]:
        """Make one step of each of some lanes; `rate` is how many end, and how many begin with another observation."""
        broken, ended, late = self._rng.random((3, len(lanes))) < [[rate], [rate], [0.5]]
        self._now[lanes] += 1_000_000 * broken
        obs = self._now[lanes]
        self._now[lanes] += 1 + 1_000_000 * (ended & late)
        ends = {"terminated": ended & late, "truncated": ended & ~late}
        made = {"obs": obs, "action": obs.astype(np.uint8), "reward": obs.astype(np.float32), "next_obs": obs + 1}
        return {**made, **ends}


def everything(ring: Ring) -> str:
    return digest([ring.counters, ring.marks, *ring.columns])


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_both_back_ends_write_the_same(seed: int, n_step: int) -> None:
    """Add all lanes and some, with ends, breaks, cuts and clears in between; ids, counters, marks and rows agree."""
    found: list[list[Any]] = []
    for back_end in BACK_ENDS:
        rng = np.random.default_rng(seed)
        streams, everyone, results = Streams(rng), np.arange(LANES), []
        with kernels.use(back_end):
            item = relive.Transitions(n_step=n_step)
            buffer = relive.ReplayBuffer(SCHEMA, LANES * STEPS, num_envs=LANES, item=item, boundaries=0.5, seed=0)
        for turn in range(150):
            rate = rng.choice([0.0, 0.001, 0.02], p=[0.6, 0.3, 0.1])
            lanes = rng.permutation(LANES)[:40] if turn > 30 and rng.random() < 0.1 else everyone
            where = {} if lanes is everyone else {"env_ids": lanes}
            results.append(buffer.add(**streams.moment(lanes, rate), **where))
            if rng.random() < 0.05:
                buffer.cut([int(rng.integers(LANES))])
            if rng.random() < 0.01:
                buffer.clear()
            results.append(everything(buffer._core.ring))
        found.append(results)
    for ours, theirs in zip(found[0], found[-1], strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.skipif(not HAS_NATIVE, reason="needs the native kernels")
def test_another_writer_is_noticed() -> None:
    """Write the same lanes by two kernels in turns: what one knew of them no longer holds."""
    window = Window(span=1)
    spec = {f"ring/{name}": wanted for name, wanted in Ring.spec(SCHEMA, window, LANES, ROWS, (TOUCHED,)).items()}

    def ring_on(memory: Any, back_end: str) -> Ring:
        with kernels.use(back_end):
            return Ring(SCHEMA, window, ROWS, STEPS, Section(memory, "ring/"), (TOUCHED,), lambda found: None)

    one = relive.Ram().open(spec, b"")
    plain = ring_on(relive.Ram().open(spec, b""), "numpy")
    first, second = ring_on(one, "native"), ring_on(one, "native")
    streams, lanes = Streams(np.random.default_rng(0)), np.arange(LANES)
    for turn in range(120):
        ring = second if turn > 40 and turn % 5 == 0 else first
        made = {key: value[:, None] for key, value in streams.moment(lanes, 0.02 if ring is second else 0.0).items()}
        values = [made[column.keys[0]] for column in SCHEMA.columns]
        for written in (ring, plain):
            written.write(values, [made["next_obs"]], made["terminated"], made["truncated"], lanes, None)
        assert everything(ring) == everything(plain)
