"""A save and a mapped file of a buffer whose draws went by rank: `data/ranked`.

The last version that had `relive.Ranked` wrote them, with this buffer and this life; later ones open both with another
sampler.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import relive

DATA = Path(__file__).parent / "data" / "ranked"
LANES, STEPS = 2, 14


def build(**choices: Any) -> relive.ReplayBuffer:
    """Make the buffer, which keeps 10 steps a lane."""
    schema = relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "int64"))
    return relive.ReplayBuffer(schema, 10 * LANES, num_envs=LANES, item=relive.Transitions(n_step=2), seed=1, **choices)


def live(buffer: relive.ReplayBuffer, first: int, last: int) -> None:
    """Add steps that count up; lane 0 ends an episode at every fifth."""
    lanes, ends = np.arange(LANES), {"truncated": np.zeros(LANES, bool)}
    for now in range(first, last):
        step = {"obs": lanes + now, "next_obs": lanes + now + 1, "action": lanes, "reward": lanes + now}
        buffer.add(**step, **ends, terminated=(lanes == 0) & (now % 5 == 4))


def rank(buffer: relive.ReplayBuffer) -> None:
    """Live, give each item a priority, the newest first, and add steps that get the largest."""
    live(buffer, 0, STEPS)
    ids = np.unique(buffer.sample(2000).ids)[::-1]
    buffer.update_priorities(ids, priority_of(ids))
    live(buffer, STEPS, STEPS + 2)
    buffer.sample(4)  # a save has the last batch's ids


def priority_of(ids: np.ndarray) -> np.ndarray:
    """Return the priorities that items were given, several of them equal."""
    return ids % 5 + 0.5
