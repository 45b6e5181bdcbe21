"""`relive-lab train sac` from the first step to the files it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from depth import eventually

from relive_lab import SACConfig, SACTrainer
from relive_lab.cli import main

SHORT = ["--start-steps", "100", "--batch-size", "16", "--hidden-sizes", "8", "8", "--eval-episodes", "2"]
PENDULUM = ["train", "sac", "--env-id", "Pendulum-v1", *SHORT]


def test_a_run_leaves_a_learner_a_curve_and_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main([*PENDULUM, "--use-per", "--total-steps", "140", "--eval-every", "70", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"replay +│ prioritized \(alpha 0.6\), 1-step", shown)
    assert re.search(r"updates +│ 40", shown)
    assert re.search(r"evaluation return, last +│ -\d+", shown)
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((out / "result.json").read_text())
    assert found["eval_steps"] == [70, 140]
    assert found["config"]["use_per"] is True
    assert SACTrainer.load(out).updates == 40


def test_a_run_goes_on_from_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precise = ["--use-per", "--priority", "precision", "--critic-loss", "huber", "--save-every", "150"]
    out = str(tmp_path)
    assert main([*PENDULUM, *precise, "--seed", "5", "--total-steps", "120", "--out", out]) == 0
    assert re.search(r"replay +│ precision, 1-step", capsys.readouterr().out)
    assert main(["train", "sac", "--resume", out, "--total-steps", "140"]) == 0
    assert re.search(r"environment steps +│ 140", capsys.readouterr().out)
    trainer = SACTrainer.load(tmp_path)
    assert (trainer.config.seed, trainer.config.batch_size, trainer.step) == (5, 16, 140)
    assert (trainer.updates, trainer.config.save_every) == (40, 150)
    assert main([*PENDULUM, "--total-steps", "200", "--out", out]) == 2
    assert "saves of another buffer" in capsys.readouterr().err


def test_a_run_is_saved_by_the_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that saves take at most a hundredth of the time."""
    out, numbers = tmp_path / "run", set[int]()
    trainer = SACTrainer(SACConfig(env_id="Pendulum-v1", hidden_sizes=(8,), total_steps=10**6, save_every="0.1s"))

    def look(progress: object) -> bool:
        numbers.update(int(path.stem.split("-")[1]) for path in (out / "buffer").glob("save-*.json"))
        return max(numbers) < 4

    begun = time.monotonic()
    trainer.train(look, out=out)
    assert 0.2 < time.monotonic() - begun < 60
    assert SACTrainer.load(out).step == trainer.step
    assert main([*PENDULUM, "--save-every", "0.01s", "--out", str(tmp_path / "other")]) == 2
    assert "a time such as `1s`" in capsys.readouterr().err


def test_a_run_gets_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main([*PENDULUM, "--total-steps", "50"]) == 0
    names = ["sac-Pendulum-v1-uniform-seed0", "sac-Pendulum-v1-uniform-seed0-2"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == names


def test_saving_has_a_group_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "sac", "--help"])
    _, group = capsys.readouterr().out.split(" saving options ")
    assert [word for word in ("--out", "--save-every", "--resume", "--seed") if f"{word} " in group] == [
        "--out",
        "--save-every",
        "--resume",
    ]


def test_arguments_of_the_environment_are_typed(tmp_path: Path) -> None:
    words = ["--env-kwargs", "mode", "dislocation", "sigma", "0.3", "--env-id", "relive/PairsTrading-v0"]
    assert main(["train", "sac", *SHORT, *words, "--total-steps", "120", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["config"]["env_kwargs"] == {"mode": "dislocation", "sigma": 0.3}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_scheduler_save_what_was_reached(how: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "relive_lab", *PENDULUM, "--total-steps", "1000000", "--eval-every", "100"]
    command += ["--save-every", "200", "--out", str(tmp_path)]
    third = tmp_path / "buffer" / "save-0000000003.json"  # the first is of step 0
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as run:
        try:
            eventually(lambda: third.exists() or run.poll() is not None, 300)
            run.send_signal(how)
            out, error = run.communicate(timeout=60)
        finally:
            run.kill()
    assert run.returncode == 130, error
    assert "Traceback" not in error
    assert f"relive-lab train sac --resume {tmp_path}" in out
    assert SACTrainer.load(tmp_path).step >= 400
