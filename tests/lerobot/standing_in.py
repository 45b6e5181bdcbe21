"""The stand-in for LeRobot as an installed package, and demonstrations for its learner."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STAND_IN = Path(__file__).parent / "stand_in"
LAYOUTS = ("0.4.4", "main")
DEMONSTRATION = 150_000  # the number of its first step
CAPACITIES = {"online": 4096, "offline": 1 << 17}  # for all interventions that a fast machine makes in a test


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`import lerobot` finds the stand-in, of this layout."""
    monkeypatch.setenv("STAND_IN_LAYOUT", request.param)
    monkeypatch.syspath_prepend(str(STAND_IN))
    forget()
    yield request.param
    forget()


def forget() -> None:
    """Remove its modules, to import them anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "lerobot"]:
        del sys.modules[name]


def demonstrations(root: Path, episodes: int = 3, length: int = 5) -> None:
    """Make a data set of the stand-in's; the last frame of an episode is `next.done`."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.rl.arm import state_of

    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": [3]},
        "observation.images.top": {"dtype": "image", "shape": [3, 4, 4]},
        "action": {"dtype": "float32", "shape": [2]},
        "next.reward": {"dtype": "float32", "shape": [1]},
        "next.done": {"dtype": "bool", "shape": [1]},
    }
    dataset = LeRobotDataset.create(repo_id="stand/in", fps=10, features=features, root=root, use_videos=True)
    for episode in range(episodes):
        for place in range(length):
            number = DEMONSTRATION + episode * (length + 1) + place
            state = {key: values[0] for key, values in state_of(number).items()}
            state["observation.images.top"] = np.full((3, 4, 4), number % 256, np.uint8)
            reward, done = np.array([number], np.float32), np.array([place == length - 1])
            frame = {**state, "action": np.full(2, number, np.float32), "next.reward": reward, "next.done": done}
            dataset.add_frame({**frame, "task": "demonstrate"})
        dataset.save_episode()
    dataset.finalize()


def configuration(folder: Path, online_steps: int) -> None:
    """Write the configuration of a run in a folder that has demonstrations to a file."""
    policy: dict[str, Any] = {"online_steps": online_steps}
    policy |= {f"{name}_buffer_capacity": capacity for name, capacity in CAPACITIES.items()}
    policy["input_features"] = ["observation.state", "observation.images.top"]
    dataset = {"repo_id": "stand/in", "root": str(folder / "demonstrations")}
    given = {"output_dir": str(folder), "policy": policy, "dataset": dataset}
    (folder / "train.json").write_text(json.dumps(given))
