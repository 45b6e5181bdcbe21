"""LeRobot's learner with the functions that docs/lerobot.md replaces: what a kill leaves is what the next run has."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from children import run_program
from depth import LONG, eventually, some
from forking import forked
from needs import needs
from standing_in import CAPACITIES, DEMONSTRATION, LAYOUTS, STAND_IN, configuration, demonstrations
from standing_in import layout as layout

needs("torch")
from relive.lerobot import ReplayBuffer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "lerobot.md"
LOST = 2.0  # seconds, by far: machines stop processes


def program() -> str:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if "train_cli" in block)
    return block


def kept(folder: Path, name: str) -> list[int]:
    buffer = ReplayBuffer(CAPACITIES[name], "cpu", path=folder / "experience" / name, use_drq=False)
    return [int(reward) for reward in buffer.rewards]


@pytest.mark.parametrize("layout", some(LAYOUTS, 1), indirect=True)
def test_a_run_continues_with_the_experience_of_one_that_was_killed(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lerobot.rl.arm import EPISODE, Arm

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["learner.py", "--config_path=train.json"])
    demonstrations(tmp_path / "demonstrations")
    configuration(tmp_path, online_steps=10**6)
    with forked(lambda: exec(program(), {"__name__": "__main__"}), endless=True):
        eventually(lambda: any((tmp_path / "experience/online").glob("save-*2.json")), 120)
    killed, arm = time.monotonic(), Arm(tmp_path)
    added, online, offline = arm.added(), kept(tmp_path, "online"), kept(tmp_path, "offline")
    assert online
    assert online == added[added.index(online[0]) :][: len(online)]
    assert not LONG or killed - arm.times[added[min(len(online), len(added) - 1)]] < LOST
    assert sum(number >= DEMONSTRATION for number in offline) == 15
    assert all(number >= DEMONSTRATION or number % (EPISODE + 1) < 3 for number in offline)
    # The same experience. The arm counts on, so that no two steps have one number.
    configuration(tmp_path, online_steps=2)
    ended = run_program(program(), *sys.argv[1:], path=[STAND_IN], loaded=["torch"], STAND_IN_LAYOUT=layout)
    assert ended.returncode == 0, ended.stderr
    newest = kept(tmp_path, "online")
    assert newest == (online + [number for number in arm.added() if number > added[-1]])[-len(newest) :]
    assert len(newest) > 0.9 * min(len(online), CAPACITIES["online"])  # a full buffer keeps fewer of them where more episodes end
