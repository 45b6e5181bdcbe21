"""An empty path, as an unset variable gives one, is refused everywhere: it would be the current directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scalars import lived

import relive
from relive import trajectories
from relive.checkpoints import inspection, salvage
from relive.errors import ArgumentError
from relive.trajectories import Trajectory, TrajectoryReplayBuffer

EPISODE = Trajectory(rewards=np.zeros((3, 1, 1), np.float32))
CALLS: dict[str, Callable[[Any], Any]] = {
    "save": lambda path: lived(0).save(path),
    "save without waiting": lambda path: lived(0).save(path, wait=False),
    "load": lambda path: relive.load(path),
    "load of several": lambda path: relive.load([path]),
    "Mapped": lambda path: relive.Mapped(path),
    "Shared": lambda path: relive.Shared(path),
    "open": lambda path: relive.open(path),
    "Writer": lambda path: relive.Writer(path),
    "is_saved": inspection.is_saved,
    "inspect": inspection.inspect,
    "verify": inspection.verify,
    "salvage": lambda path: salvage.salvage(path, "target"),
    "salvage's target": lambda path: salvage.salvage(".", path),
    "trajectories": TrajectoryReplayBuffer,
    "save_checkpoint": lambda path: TrajectoryReplayBuffer().save_checkpoint(path),
    "save_checkpoint of RLinf": lambda path: TrajectoryReplayBuffer().save_checkpoint(save_path=path),
    "load_checkpoint": lambda path: TrajectoryReplayBuffer().load_checkpoint(path),
    "inspect of trajectories": trajectories.inspect,
    "verify of trajectories": trajectories.verify,
    "salvage of trajectories": lambda path: trajectories.salvage(path, "target"),
    "salvage's target of trajectories": lambda path: trajectories.salvage(".", path),
    "convert": lambda path: trajectories.convert(path, "target"),
    "convert to": lambda path: trajectories.convert(".", path),
    "merge": lambda path: trajectories.merge([path], "target"),
    "split": lambda path: trajectories.split(path, 1, "target"),
    "from_lerobot": lambda path: list(trajectories.from_lerobot(path)),
    "to_lerobot": lambda path: trajectories.to_lerobot([EPISODE], path),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_empty_path_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with TrajectoryReplayBuffer(tmp_path) as there:
        there.add_trajectories([EPISODE])
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ArgumentError, match=r"^Expected .*, got `''` - at `"):
        CALLS[name]("")
    assert sorted(os.listdir(tmp_path)) == before


def test_a_path_like_object_without_a_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    class Empty(os.PathLike):  # type: ignore[type-arg]
        def __fspath__(self) -> str:
            return ""

    for call in ("save", "load", "Mapped", "inspect", "trajectories"):
        with pytest.raises(ArgumentError, match=r"Expected .*a path"):
            CALLS[call](Empty())


@pytest.mark.parametrize("call", ["save", "load", "trajectories", "Mapped"])
def test_half_a_character_is_no_path(call: str) -> None:
    with pytest.raises(ArgumentError, match="a path"):
        CALLS[call]("runs/\ud800")
