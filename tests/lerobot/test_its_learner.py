"""LeRobot's learner with the functions that docs/lerobot.md replaces: what a kill leaves is what the next run has."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from depth import LONG, some
from needs import needs
from standing_in import DEMONSTRATION, LAYOUTS, STAND_IN, configuration, installed

needs("torch")
from relive.lerobot import ReplayBuffer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "lerobot.md"
LOST = 2.0  # seconds, by far: machines stop processes


@pytest.fixture(params=some(LAYOUTS, 1))
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with installed(request.param, monkeypatch):
        yield request.param


def program(folder: Path) -> Path:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if "train_cli" in block)
    (folder / "learner.py").write_text(block)
    return folder / "learner.py"


def run(folder: Path, layout: str, after: int | None) -> int:
    """Run the page's program in a process that is killed after so many saves; return how it ended."""
    environment = {**os.environ, "PYTHONPATH": str(STAND_IN), "STAND_IN_LAYOUT": layout}
    command = [sys.executable, str(program(folder)), f"--config_path={folder / 'train.json'}"]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 120.0
        if after is not None:
            while not any((folder / "experience/online").glob(f"save-*{after}.json")) and time.monotonic() < until:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        _, said = process.communicate(timeout=120.0)
    assert process.returncode in (0, -signal.SIGKILL), said.decode()
    return process.returncode


def kept(folder: Path, name: str) -> list[int]:
    buffer = ReplayBuffer(4096, "cpu", path=folder / "experience" / name, use_drq=False)
    return [int(reward) for reward in buffer.rewards]


def test_a_run_continues_with_the_experience_of_one_that_was_killed(layout: str, tmp_path: Path) -> None:
    from lerobot.rl.arm import EPISODE, Arm

    configuration(tmp_path, online_steps=10**6, online_buffer_capacity=4096, offline_buffer_capacity=4096)
    assert run(tmp_path, layout, after=4) == -signal.SIGKILL
    killed, arm = time.monotonic(), Arm(tmp_path / "run")
    added = [number for number in range(int(arm.count[0])) if arm.times[number] > 0]
    online, offline = kept(tmp_path, "online"), kept(tmp_path, "offline")
    assert online == added[: len(online)]
    assert online
    assert not LONG or killed - arm.times[added[min(len(online), len(added) - 1)]] < LOST
    assert sum(number >= DEMONSTRATION for number in offline) == 15
    assert all(number >= DEMONSTRATION or number % EPISODE < 3 for number in offline)
    # A new directory of the run, the same experience. The arm counts on, so that no two steps have one number.
    (tmp_path / "run").rename(tmp_path / "run.killed")
    settings = json.loads((tmp_path / "train.json").read_text())
    settings["policy"]["online_steps"] = 2
    (tmp_path / "train.json").write_text(json.dumps(settings))
    assert run(tmp_path, layout, after=None) == 0
    assert kept(tmp_path, "online")[: len(online)] == online
    assert len(kept(tmp_path, "online")) > len(online)
