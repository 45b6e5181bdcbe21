"""A save and a mapped file of sequences whose ids were those of their burn-in's first steps: `data/burnt_in`.

The last version that did so wrote them, with this buffer and this life; later ones have to open both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import relive

DATA = Path(__file__).parent / "data" / "burnt_in"
LANES, STEPS = 2, 60
SCHEMA = relive.Schema(obs=relive.Field(2, stack=2), action=relive.Field((), "int64"), state=relive.Field((), every=2))
ITEM = relive.Sequences(3, burn_in=4, n_step=2, gamma=0.5, starts=2)


def build(**choices: Any) -> relive.ReplayBuffer:
    """Make the buffer, which keeps 20 steps a lane."""
    choices = {"item": ITEM, "sampler": relive.Prioritized(), "boundaries": 0.25, "seed": 1, **choices}
    return relive.ReplayBuffer(SCHEMA, 20 * LANES, num_envs=LANES, **choices)


def live(buffer: relive.ReplayBuffer, first: int, last: int) -> None:
    """End an episode of lane k at every (7 + 4 k)-th step; a draw at every fourth sets priorities `id % 5 + 0.5`."""
    lanes = np.arange(LANES)

    def seen(now: int, of: int) -> np.ndarray:
        begun = of // (7 + 4 * lanes) * (7 + 4 * lanes)
        times = np.maximum(now - np.arange(2)[::-1, None], begun).T
        return np.where((now - np.arange(2)[::-1] >= begun[:, None])[..., None], times[..., None] + [0.0, 0.5], 0)

    for now in range(first, last):
        ended = (now + 1) % (7 + 4 * lanes) == 0
        ends = {"terminated": ended & (lanes == 0), "truncated": ended & (lanes == 1)}
        step = {"obs": seen(now, now), "next_obs": seen(now + 1, now), "action": lanes + now, "reward": lanes + now}
        buffer.add(**step, **ends, state=np.full(LANES, now))
        if now % 4 == 3 and buffer.can_sample(1):
            ids = buffer.sample(6).ids
            buffer.update_priorities(ids, ids % 5 + 0.5)
