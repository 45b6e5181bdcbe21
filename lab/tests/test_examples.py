"""The examples run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from depth import some

FOLDER = Path(__file__).parents[1] / "examples"
# The arguments that make each short.
ARGUMENTS = {
    "pairs_trading.py": ["episode.png", "--episodes", "3"],
    "train_dqn.py": ["--steps", "60"],
    "train_sac.py": ["--steps", "60"],
}


@pytest.mark.parametrize("path", some(sorted(FOLDER.glob("*.py")), 1), ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [path.name, *ARGUMENTS[path.name]])
    runpy.run_path(str(path), run_name="__main__")
