"""Draws from the rows of a ring that are overwritten last, for a learner whose writers outrun it.

Writers that fill a lane several times while a sampler takes in what they wrote leave nothing of what the sampler knows.
The newest rows of each lane are known from marks and counters alone, and stay for the rest of a lap.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._base import check
from .._base.types import Float64, Int64
from .._ring.lanes import OLDEST, READY, anchors_in, ranges
from .._ring.ring import Ring
from ..samplers import Sampler
from ..samplers._protocol import Draw

# Rows that are looked at for a draw, over all lanes: a few milliseconds at most.
_ROWS = 1 << 15


def draw_newest(
    ring: Ring,
    look: Callable[[], None],
    sampler: Sampler,
    masses_of: Callable[[Float64], Float64],
    n: int,
    rng: np.random.Generator,
    beta: float,
) -> Draw | None:
    """Draw `n` items from the newest quarter of every lane, of some thousand rows at most, by the sampler's law.

    Items count as new: their priorities are those that they came with, or else the largest that the sampler knows of.

    Args:
        ring: As the items see it.
        look: Notes which rows are ready, for the look behind the copies.
        sampler: Whether it may repeat an item, and what its weights are divided by.
        masses_of: Of the sampler's index.
        n: Items to draw.
        rng: The buffer's generator.
        beta: The exponent of the weights.

    Returns:
        The draw; None where there are too few such items.
    """
    ready = ring.counters[:, READY].copy()  # before the look, to which other rows are not ready yet
    look()
    most = max(min(ring.rows // 4, _ROWS // ring.lanes), 1)
    lanes, rows = ranges(np.maximum(ring.counters[:, OLDEST], ready - most), ready)
    places = ring.at(rows, lanes)
    anchors = anchors_in(ring.marks[places])
    raw = np.full(len(rows), np.nan)
    if ring.given is not None and ring.clock[1]:
        given = ring.given[places]
        raw = np.where(np.signbit(given), -given, np.nan)
    masses = masses_of(raw[anchors])
    chosen = _chosen(masses, n, sampler.replacement, rng)
    if chosen is None:
        return None
    slots: Int64 = (rows % ring.rows * ring.lanes + lanes)[anchors][chosen]
    weights, scale = np.ones(n, np.float32), sampler.weights
    if scale is not None:
        drawn = masses[chosen]
        one = {"batch": drawn.min(), "buffer": masses[masses > 0].min(), "none": masses.mean()}[scale]
        weights = ((drawn / one) ** -beta).astype(np.float32)
    return Draw(slots, weights, masses[chosen] if scale == "batch" else None, beta)


def _chosen(masses: Float64, n: int, replacement: bool, rng: np.random.Generator) -> Int64 | None:
    """Draw positions in proportion to `masses`; without replacement, one after the other from those left."""
    if np.count_nonzero(masses) < (1 if replacement else n):
        return None
    if replacement:
        sums = np.cumsum(masses)
        found = np.searchsorted(sums, check.uniforms(rng, n) * sums[-1], side="right")
        return np.asarray(np.minimum(found, np.flatnonzero(masses)[-1]))
    # The first of so many exponential clocks, each as fast as its mass, are successive draws.
    with np.errstate(divide="ignore"):
        times = -np.log1p(-check.uniforms(rng, len(masses))) / masses
    times[masses == 0] = np.inf
    return np.argsort(times, kind="stable")[:n]
