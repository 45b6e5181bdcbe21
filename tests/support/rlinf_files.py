"""Small directories of RLinf's, and what a buffer makes of them."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

import relive
from relive._base.nests import mapped
from relive.trajectories import TrajectoryReplayBuffer

WEIGHTS = "9bfbbb2e-079e-53b7-a0d3-d92e05f99186"
STEPS, WIDTH = 4, 2


def fields(number: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {
        "max_episode_length": STEPS,
        "model_weights_id": WEIGHTS,
        "rewards": torch.from_numpy(rng.normal(size=(STEPS, WIDTH, 1)).astype(np.float32)),
        "curr_obs": {"states": torch.from_numpy(rng.normal(size=(STEPS, WIDTH, 3)).astype(np.float32))},
        "next_obs": {},
    }


def entry(number: int) -> dict[str, Any]:
    return {
        "num_samples": STEPS * WIDTH,
        "trajectory_id": number,
        "max_episode_length": STEPS,
        "shape": [STEPS, WIDTH, 1],
        "model_weights_id": WEIGHTS,
    }


def file(number: int, kind: str = "pt") -> str:
    return f"trajectory_{number}_{WEIGHTS}.{kind}"


def directory(path: Path, contents: list[dict[str, Any]], kind: str = "pt") -> Path:
    path.mkdir(exist_ok=True)
    for number, content in enumerate(contents):
        if kind == "pt":
            torch.save(content, path / file(number))
        else:
            (path / file(number, kind)).write_bytes(pickle.dumps(content))
    rewrite(path, kind, [entry(number) for number in range(len(contents))])
    return path


def rewrite(path: Path, kind: str, entries: list[dict[str, Any]], **metadata: Any) -> None:
    told = {"trajectory_format": kind, "size": len(entries), "total_samples": 0, "trajectory_counter": 9, "seed": 5}
    (path / "metadata.json").write_text(json.dumps({**told, **metadata}))
    index = {str(number): told for number, told in enumerate(entries)}
    (path / "trajectory_index.json").write_text(
        json.dumps({"trajectory_index": index, "trajectory_id_list": list(range(len(entries)))})
    )


def loaded(path: Path, **choices: Any) -> TrajectoryReplayBuffer:
    buffer = TrajectoryReplayBuffer(**{"sample_window_size": 0, **choices})
    buffer.load_checkpoint(path, allow_pickle=True)
    return buffer


def sampled(path: Path, cache: int) -> Any:
    """Draw rows of a directory: single ones, or from whole trajectories."""
    return loaded(path, cache_size=cache).sample(64)


def rows_in_order(buffer: TrajectoryReplayBuffer, total: int) -> relive.Batch:
    """Return all `total` rows that can be drawn, by a draw that has each: a copy of the generator says where."""
    n = 20 * total + 20
    if isinstance(buffer.rng, torch.Generator):
        drawn = torch.randint(0, total, (n,), generator=torch.Generator().set_state(buffer.rng.get_state())).numpy()
    else:
        drawn = copy.deepcopy(buffer.rng).integers(0, total, n)
    found, first = np.unique(drawn, return_index=True)
    assert len(found) == total
    return relive.Batch(mapped(lambda array: array[first], buffer.sample(n)))


def rows(path: Path, cache: int) -> Any:
    buffer = loaded(path, cache_size=cache)
    return rows_in_order(buffer, buffer.get_stats()["total_samples"])
