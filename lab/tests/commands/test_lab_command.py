"""The command itself: help, version, refusals, and the way from `relive train`."""

from __future__ import annotations

import re

import pytest

import relive.cli
import relive_lab
from relive_lab.cli import main


def test_the_version_and_the_command_of_relive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"relive-lab {relive_lab.__version__}\n"
    assert relive.cli.main(["compare", "pairs", "--seeds", "0"]) == 2
    assert "at `--seeds`" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["fly"], ["train", "ppo"], ["compare", "pairs", "--wings", "2"], ["train"], []])
def test_an_unknown_command_or_option_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err


ARMS = "Expected arms out of `uniform`, `td`, `precision`, `3-step`, got `per` - at `--arms`"
FEW = "Expected two or more arms out of `uniform`, `td`, `precision`, `3-step`, got 1 - at `--arms`"
REFUSED = {
    "compare pairs --seeds 0": "Expected at least 1, got `0` - at `--seeds`",
    "compare pairs --jobs 0": "Expected at least 1, got `0` - at `--jobs`",
    "compare pairs --episodes 0": "Expected at least 1, got `0` - at `--episodes`",
    "compare pairs --cost -1": "got `-1.0` - at `PairsTrading-v0(cost)`",
    "compare pairs --episodes 20": "Expected at least --eval-every (25), got `20` - at `--episodes`",
    "compare pairs --arms uniform per": ARMS,
    "compare pairs --arms td uniform td": "Expected every arm once, got `td` 2 times - at `--arms`",
    "compare pendulum --arms uniform per": ARMS,
    "compare pendulum --arms td": FEW,
    "compare pendulum --first-seed -1": "Expected at least 0, got `-1` - at `--first-seed`",
    "compare pendulum --steps 100": "Expected at least 250, got `100` - at `--steps`",
    "compare cliffwalk --n 1": "Expected lengths from 2 to 20, got `1` - at `--n`",
    "compare cliffwalk --n 4 21": "Expected lengths from 2 to 20, got `21` - at `--n`",
    "compare cliffwalk --seeds 0": "Expected at least 1, got `0` - at `--seeds`",
    "compare cliffwalk --learners forest": "Expected `table`, `linear` or `network`, got `forest` - at `--learners`",
    "compare final-observations --steps 100": "Expected at least 2560, got `100` - at `--steps`",
    "compare recency --steps 100": "Expected at least 5120, got `100` - at `--steps`",
    "compare tmaze --steps 100": "Expected at least 2000, got `100` - at `--steps`",
    "train sac --gamma 2": "Expected a finite number >= 0 and <= 1, got `2.0` - at `SACConfig(gamma)`",
    "train sac --env-id CartPole-v1": "Expected a `Box` action space of floats",
    "train r2d2 --env-id Pendulum-v1": "Expected a `Discrete` action space",
    "train sac --resume no/such/file": "no/such/file",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_bad_value_ends_with_2_and_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(words.split())
    except SystemExit as ended:
        status = int(ended.code or 0)
    error = capsys.readouterr().err
    assert status == 2
    assert REFUSED[words] in " ".join(re.sub("[│╭╮╰╯─]", " ", error).split())
    assert "Traceback" not in error
