"""`relive-lab compare final-observations`: the settings of its arms, and from the command to the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relive_lab.cli import main
from relive_lab.studies.final_observations import ARMS, BASE, Learner
from relive_lab.td3 import TD3Config


def test_arms_differ_in_what_ends_bootstrap_from_alone() -> None:
    shared = Learner(n_step=3, use_per=True).settings()
    configs = {arm: TD3Config(**shared, **ARMS[arm].changes) for arm in ARMS}
    assert {arm: config.ends for arm, config in configs.items()} == {
        BASE: "final",
        "reset obs": "reset",
        "nothing": "none",
    }
    base = configs[BASE]
    assert (base.env, base.limit, base.n_step, base.use_per, base.num_envs) == ("reach", 30, 3, True, 256)
    assert (base.total_steps, base.eval_every, base.buffer_capacity) == (256_000, 25_600, 256_000)
    assert Learner(env="pendulum").settings()["limit"] == 200


@pytest.mark.slow
def test_from_the_command_to_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "final-observations", "--seeds", "1", "--first-seed", "7", "--jobs", "1"]
    assert main([*words, "--steps", "3200", "--num-envs", "16", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for text in ("TD3 on reach, episodes of 30 steps: 3 runs", "final return, IQM", "P(higher", "against final obs"):
        assert text in shown
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    found: dict[str, Any] = json.loads((tmp_path / "summary.json").read_text())
    assert (found["seeds"], found["complete"], found["settings"]["total_steps"]) == ([7], True, 3_200)
    assert [arm["arm"] for arm in found["arms"]] == list(ARMS)


def test_too_short_a_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "final-observations", "--steps", "100"]) == 2
    assert "Expected at least 2560, got `100` - at `--steps`" in capsys.readouterr().err
