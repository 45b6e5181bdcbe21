"""Buffers and directories of simple trajectories, which their serial numbers tell apart, and of a large policy's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rollouts import simple

from relive.trajectories import TrajectoryReplayBuffer

MODES: dict[str, dict[str, Any]] = {"memory": {}, "disk": {"enable_cache": False}, "both": {"cache_size": 3}}


def opened(mode: str, path: Path, serials: Iterable[int] = (), **options: Any) -> TrajectoryReplayBuffer:
    """Open a buffer in memory, on disk, or both, and add these trajectories."""
    return filled(None if mode == "memory" else path, serials, **{**MODES[mode], "seed": 1, **options})


def filled(path: Path | None, serials: Iterable[int], **options: Any) -> TrajectoryReplayBuffer:
    """Open a buffer with these trajectories; those on disk are durable."""
    buffer = TrajectoryReplayBuffer(path, **options)
    buffer.add_trajectories([simple(k) for k in serials])
    buffer.sync()
    return buffer


def saved(path: Path, serials: Iterable[int], **options: Any) -> Path:
    """Make a checkpoint of these trajectories."""
    with filled(None, serials, **options) as buffer:
        buffer.save_checkpoint(path)
    return path


def loaded(path: Path, **options: Any) -> TrajectoryReplayBuffer:
    """Open a buffer in memory that has loaded a directory."""
    buffer = TrajectoryReplayBuffer(**options)
    buffer.load_checkpoint(path)
    return buffer


def codes(held: TrajectoryReplayBuffer | Path, n: int = 500) -> set[int]:
    """Return serial numbers of the trajectories that a buffer or directory has, very probably all of them."""
    if isinstance(held, Path):
        with loaded(held) as buffer:
            return codes(buffer, n)
    return set(np.unique(held.sample(n)["code"][:, 0]).tolist())


def files(path: Path) -> list[Path]:
    """List a directory's files of trajectories in the order of their ids."""
    return sorted(path.glob("trajectory_*"))


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
