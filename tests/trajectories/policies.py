"""Rollouts of a large policy: numbers for every step, and texts, tokens and success once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from relive.trajectories import TrajectoryReplayBuffer

STEPS, WIDTH = 4, 2


def rollout(number: int, steps: int = STEPS, tokens: int = 3, **more: Any) -> dict[str, Any]:
    full = {"rewards": np.float32, "versions": np.float32}
    return {
        **{name: np.full((steps, WIDTH, 1), number, dtype) for name, dtype in full.items()},
        "forward_inputs": {
            "ids": np.full((steps, WIDTH, tokens), number),
            "texts": [f"{number}, {env}" for env in range(WIDTH)],
            "length": np.arange(number + 1),
        },
        "task": "ab"[number % 2],
        "success": number % 3 == 0,
        **more,
    }


def buffers(path: Path, count: int = 6, **choices: Any) -> Any:
    """Yield the same trajectories in memory, on disk with a cache, and on disk without."""
    for place, cache in ((None, 5), (path / "cached", 9), (path / "bare", 0)):
        with TrajectoryReplayBuffer(place, cache_size=cache, **{"seed": 1, **choices}) as buffer:
            buffer.add_trajectories([rollout(number) for number in range(count)])
            buffer.sync()
            yield buffer
