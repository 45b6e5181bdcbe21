"""The examples that need a Ray cluster."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from needs import needs

needs("ray")
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # Ray's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("cluster"),
]


def run(name: str, *words: str, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run an example, and return its output."""
    patch.setattr(sys, "argv", [name, *words])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    return capsys.readouterr().out


def test_the_example_of_rollouts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--collectors", "3", "--rollouts", "2", "--rounds", "3"]
    said = run("ray_trajectories.py", *words, patch=monkeypatch, capsys=capsys)
    assert "merged: 6 trajectories" in said
    assert "shares: [3, 3]" in said
    before, after = said.split("before: ")[1].split(", after 3 rounds: ")
    assert float(after) > 3 * float(before)


def test_the_example_of_a_learner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = run("ray_dqn.py", "--runners", "1", "--steps", "1500", patch=monkeypatch, capsys=capsys)
    added, missing = re.search(r"(\d+) steps in 2 shards \((\d+) missing\)", said).groups()  # type: ignore[union-attr]
    assert int(added) >= 1500
    assert int(missing) == 0
