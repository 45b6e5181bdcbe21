"""`relive-lab train r2d2`, small, and its way back from a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relive_lab.cli import main

SMALL = ["--num-envs", "4", "--start-steps", "200", "--buffer-capacity", "800", "--lstm-size", "8"]
WORDS = ["train", "r2d2", "--env-id", "relive/TMaze-v0", *SMALL, "--eval-every", "200", "--eval-episodes", "2"]


def test_a_run_leaves_a_learner_a_picture_and_numbers_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--hidden-sizes", "6", "--explore-weights", "4", "1", "1", "1", "--use-per", "--state", "zero"]
    assert main([*WORDS, *more, "--total-steps", "300", "--out", str(tmp_path / "a")]) == 0
    assert "R2D2 on relive/TMaze-v0" in capsys.readouterr().out
    assert (tmp_path / "a" / "curve.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "a" / "result.json").read_text())
    assert (found["steps"], found["updates"]) == (300, 10)
    assert found["config"]["explore_weights"] == [4.0, 1.0, 1.0, 1.0]
    again = ["--resume", str(tmp_path / "a"), "--out", str(tmp_path / "b")]
    assert main(["train", "r2d2", *again, "--total-steps", "400"]) == 0
    longer = json.loads((tmp_path / "b" / "result.json").read_text())
    assert (longer["steps"], longer["updates"], longer["config"]["state"]) == (400, 20, "zero")
