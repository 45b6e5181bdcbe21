"""What all commands do with arguments that say nothing, directories of another kind, and warnings."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import run_program

import relive
from relive.checkpoints import sharded
from relive.checkpoints.salvage import salvage
from relive.cli import main
from relive.errors import ReliveWarning, StorageError
from relive.trajectories import Trajectory, TrajectoryReplayBuffer, merge, split

WEIGHTS = "00000000-0000-5000-8000-000000000000"


def save(path: Path) -> Path:
    """Save a buffer whose load warns."""
    seen = relive.Field(writable=True, saved=False)
    buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field(), seen=seen), 10)
    buffer.add(obs=0, action=0, reward=0, next_obs=0, terminated=False, truncated=False, seen=1)
    buffer.save(path)
    return path


def rollouts(path: Path, form: str = "safetensors", count: int = 3) -> Path:
    with TrajectoryReplayBuffer(trajectory_format=form) as buffer:
        for k in range(count):
            rewards = np.full((4, 2, 1), k, np.float32)
            buffer.add_trajectories([Trajectory(rewards=rewards, model_weights_id=WEIGHTS, max_episode_length=4)])
        buffer.save_checkpoint(path)
    return path


COMMANDS = [
    ["inspect", ""], ["inspect", "--html", ""], ["inspect", "runs", "--html="], ["verify", ""], ["salvage", "", "x"],
    ["salvage", "x", ""], ["convert", "", "x"], ["convert", "x", ""], ["top", ""], ["doctor", ""],
    ["doctor", "uniform", "--html", ""], ["bench", "--out", ""], ["train", "sac", "--out", ""], [""],
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_argument_that_says_nothing_is_refused(
    command: list[str], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """Check though the current directory has what the command would take."""
    save(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir())
    assert main(command) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "Expected an argument with a value, got" in told.err
    assert sorted(os.listdir()) == before
    assert main(["inspect", "."]) == 0


def test_saves_are_not_converted(tmp_path: Path, capsys: Any) -> None:
    """Check saves, shards, and the file of a mapped buffer: the error says what they are, and what works."""
    saved, shards, ring = save(tmp_path / "saved"), tmp_path / "shards", tmp_path / "ring"
    sharded.write_json(str(shards), sharded.MANIFEST, {"shards": 1})
    relive.ReplayBuffer(
        relive.Schema(obs=relive.Field(), action=relive.Field()), 10, storage=relive.Mapped(ring)
    ).close()
    for path, kind, remedy in (
        (saved, "a `ReplayBuffer`'s saves", "relive.load(path)"),
        (shards, "saves of `Shards`", "Shards.load(path)"),
        (ring, "a file", "relive.open"),
    ):
        assert main(["convert", str(path), str(tmp_path / "made")]) == 2
        told = capsys.readouterr().err
        assert kind in told
        assert str(path) in told
        assert remedy in told
        assert not (tmp_path / "made").exists()
    for wrong in (
        lambda: TrajectoryReplayBuffer().load_checkpoint(saved),
        lambda: merge([saved], tmp_path / "made"),
        lambda: split(saved, 1, tmp_path / "made"),
    ):
        with pytest.raises(StorageError, match="a directory of trajectories, got a `ReplayBuffer`'s saves"):
            wrong()
    assert main(["convert", str(tmp_path), str(tmp_path / "made")]) == 2
    assert "an index, got none" in capsys.readouterr().err


def warned(*command: str) -> str:
    """Run a command in a process of its own, and return its standard error."""
    program = "import sys\nfrom relive.cli import main\nsys.exit(main(sys.argv[1:]))"
    done = run_program(program, *command, loaded=["torch"])
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_warnings_of_commands_have_no_lines_of_code(tmp_path: Path) -> None:
    said = warned("salvage", str(save(tmp_path / "saved")), str(tmp_path / "salvaged")).splitlines()
    assert [line.partition(" of all steps")[0] for line in said] == ["relive: `$.seen`"]
    path = rollouts(tmp_path / "rlinf", "pt")
    min(path.glob("trajectory_*.pt")).unlink()
    said = warned("convert", str(path), str(tmp_path / "converted")).splitlines()
    assert [line[:52] for line in said] == ["relive: Expected the files of 3 trajectories, got 2 "]


def test_warnings_of_calls_name_the_line_of_the_call(tmp_path: Path) -> None:
    """Check for any depth in the package, and any function."""
    saved, made = save(tmp_path / "saved"), rollouts(tmp_path / "rlinf", "pt")
    min(made.glob("trajectory_*.pt")).unlink()
    own = rollouts(tmp_path / "own")
    (own / ".tmp-trajectory_000000000007.safetensors").touch()
    calls = [
        lambda: relive.load(saved),
        lambda: salvage(saved, tmp_path / "salvaged"),
        lambda: TrajectoryReplayBuffer().load_checkpoint(made),
        lambda: split(made, 1, tmp_path / "part"),
        lambda: TrajectoryReplayBuffer(own).close(),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call()
        assert [(each.category, each.filename, each.lineno) for each in found] == [
            (ReliveWarning, __file__, call.__code__.co_firstlineno)
        ]


def test_other_warnings_are_shown_as_ever(capsys: Any, monkeypatch: Any) -> None:
    from relive.cli import ended

    def run(arguments: list[str]) -> int:
        warnings.warn("of another", DeprecationWarning, stacklevel=1)
        warnings.warn("of ours", ReliveWarning, stacklevel=1)
        return json.loads(arguments[0])

    shown = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert ended("told", run, ["7"]) == 7
    assert warnings.showwarning is shown
    said = capsys.readouterr().err
    assert "told: of ours\n" in said
