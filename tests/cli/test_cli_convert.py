"""`relive convert`."""

from __future__ import annotations

import json
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from relive import trajectories
from relive.cli import main
from relive.trajectories import Trajectory, TrajectoryReplayBuffer
from relive.trajectories._store import StoreSnapshot


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    with TrajectoryReplayBuffer(path) as buffer:
        buffer.add_trajectories([Trajectory(rewards=np.full((2, 1, 1), k, np.float32)) for k in range(3)])
    return path


def rewards(path: Path) -> list[float]:
    buffer = TrajectoryReplayBuffer()
    buffer.load_checkpoint(path)
    return [float(stored.block().rows(("rewards",))[0, 0]) for stored in StoreSnapshot(buffer._store)]


def test_there_and_back(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    assert main(["convert", str(source), str(there), "--format", "pt"]) == 0
    assert json.loads((there / "metadata.json").read_text())["size"] == 3
    assert main(["convert", str(there), str(back)]) == 0
    assert (back / "index.sqlite").exists()
    assert rewards(source) == rewards(there) == rewards(back) == [0, 1, 2]
    assert f"3 trajectories written to {back}." in capsys.readouterr().out


def test_compress(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    source, target = tmp_path / "source", tmp_path / "target"
    with TrajectoryReplayBuffer(source) as buffer:
        buffer.add_trajectories([Trajectory(rewards=np.zeros((2, 1)), seen=np.zeros((2, 1, 64, 64), np.uint8))])
    assert main(["convert", str(source), str(target), "--compress", "zstd"]) == 0
    assert trajectories.inspect(target).compressed == ("seen",)


def test_pickles_only_with_the_option(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there, target = tmp_path / "there", tmp_path / "target"
    trajectories.convert(source, there, "pt")
    for path in there.glob("*.pt"):
        path.with_suffix(".pkl").write_bytes(pickle.dumps(torch.load(path, weights_only=True)))
    told = (there / "metadata.json").read_text()
    (there / "metadata.json").write_text(told.replace('"pt"', '"pkl"'))
    assert main(["convert", str(there), str(target)]) == 2
    assert "`pkl` without `allow_pickle`" in capsys.readouterr().err
    assert not target.exists()
    assert main(["convert", str(there), str(target), "--allow-pickle"]) == 0
    assert rewards(target) == [0, 1, 2]


def test_errors_end_with_2(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(source), str(source)]) == 2
    assert "Expected a new or an empty directory" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "none"), str(tmp_path / "target")]) == 2
    assert "Expected a directory" in capsys.readouterr().err


def test_ctrl_c_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    convert = trajectories.convert

    def interrupted(*arguments: object) -> int:
        *others, progress = arguments

        def report(written: int, total: int) -> None:
            if written == 2:
                os.kill(os.getpid(), signal.SIGINT)
            progress(written, total)

        return convert(*others, report)

    monkeypatch.setattr(trajectories, "convert", interrupted)
    assert main(["convert", str(source), str(tmp_path / "target")]) == 130
    assert list((tmp_path / "target").iterdir()) == []
    assert "Stopped; nothing was written." in capsys.readouterr().out
