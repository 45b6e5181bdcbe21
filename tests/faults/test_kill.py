"""A writer is killed; what was flushed or saved is there, whole, and what was left is put in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from depth import LONG


def killed(folder: Path, count: int, seed: int, what: str = "rollouts") -> dict[str, Any]:
    """Counts of so many kills; fails with what the oracle found."""
    script = str(Path(__file__).with_name("killer.py"))
    command = [sys.executable, script, what, str(folder / "lives"), str(count), str(seed)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=count + 60)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_meta_a_save_that_is_acknowledged_too_early_is_found(folder):
    with pytest.raises(AssertionError, match=r"assert found\[0\] in|assert not self.saved"):
        killed(folder, 100 if LONG else 24, 0, "rash saves")


@pytest.mark.slow
def test_kills(folder, record_property):
    kills = 100 if LONG else 24
    told = killed(folder, kills, 0)
    record_property("cases", kills)
    assert told["kills"] == kills
    assert told["trajectories"] > 10 * kills, "the writers had written something"
    assert told["unfinished"] > kills / 10
    assert told["adopted"] > 0


def test_kills_of_saves(folder, record_property):
    """Every other one comes at a given call of a save."""
    kills = 50 if LONG else 14
    told = killed(folder, kills, 0, "saves")
    record_property("cases", kills)
    assert told["saves"] > kills // 2
    assert told["unfinished"] > 0, "none came in the middle of a save"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_five_hundred_kills_of_saves(seed, folder, record_property):
    record_property("cases", 100)
    assert killed(folder, 100, 1 + seed, "saves")["saves"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_kills(seed, folder, record_property):
    record_property("cases", 100)
    assert killed(folder, 100, 1 + seed)["trajectories"] > 1000
