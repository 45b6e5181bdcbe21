"""`relive-lab train dqn`: small tasks and Atari games."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from needs import needs

from relive.errors import ArgumentError
from relive_lab import DQNConfig, DQNTrainer, dqn
from relive_lab.cli import main

SHORT = ["--start-steps", "100", "--batch-size", "16", "--hidden-sizes", "8", "--eval-episodes", "2"]
CARTPOLE = ["train", "dqn", "--env-id", "CartPole-v1", *SHORT]


def test_a_run_leaves_a_learner_and_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--use-per", "--dueling", "--frame-stack", "2", "--total-steps", "200", "--eval-every", "100"]
    assert main([*CARTPOLE, *settings, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "DQN on CartPole-v1" in shown
    assert re.search(r"replay +│ prioritized \(alpha 0.6\), 3-step", shown)
    assert re.search(r"200/200 .* \d+ MB, eval return \d+", shown)
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["config"]["frame_stack"] == 2
    assert found["eval_steps"] == [100, 200]
    assert DQNTrainer.load(tmp_path).config.dueling is True


@pytest.mark.slow
def test_an_atari_game_gets_settings_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("ale_py", "cv2", "tensorboard")
    words = ["train", "dqn", "--env-id", "ALE/Pong-v5", "--use-per", "--torch-threads", "1"]
    short = ["--total-steps", "120", "--start-steps", "100", "--buffer-capacity", "500", "--eval-every", "0"]
    assert main([*words, *short, "--log-dir", str(tmp_path / "events"), "--out", str(tmp_path)]) == 0
    assert "DQN on ALE/Pong-v5" in capsys.readouterr().out
    config = json.loads((tmp_path / "result.json").read_text())["config"]
    assert (config["frame_stack"], config["learning_rate"], config["update_every"]) == (4, 1e-4, 4)
    assert (config["start_steps"], config["use_per"]) == (100, True)
    assert list((tmp_path / "events").glob("events.*"))


def test_settings_of_a_game_are_its_own_unless_given_or_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a given setting counts where it is the default of other games, too."""
    seen: list[Any] = []

    class Noted:
        def __init__(self, config: DQNConfig) -> None:
            seen.append(config)
            raise ArgumentError("enough")

        @classmethod
        def load(cls, path: Path, **changes: Any) -> Any:
            seen.append(changes)
            raise ArgumentError("enough")

    monkeypatch.setattr(dqn, "DQNTrainer", Noted)
    game, every = "ALE/Pong-v5", DQNConfig().update_every
    for words in (["--tau", "0.5"], ["--update-every", f"{every}"], ["--tau", "0.5", "--resume", "run"]):
        assert main(["train", "dqn", f"--env-id={game}", *words]) == 2
    wanted = [DQNConfig.atari(game, tau=0.5), DQNConfig.atari(game, update_every=every), {"env_id": game, "tau": 0.5}]
    assert seen == wanted
