"""The command itself: help, version, refusals, and the way from `relive train`."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import relive.cli
import relive_lab
from relive_lab.cli import main

GROUPS = [[], ["train"], ["compare"]]
COMMANDS = [
    *(["train", name] for name in ("sac", "dqn", "r2d2")),
    *(["compare", name] for name in ("pairs", "pendulum", "final-observations")),
]


@pytest.mark.parametrize("words", [*GROUPS, *COMMANDS], ids=" ".join)
def test_help_shows_an_example_and_no_stuttering_group(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: {' '.join(['relive-lab', *words])} " in shown
    assert re.search(r"Example: relive-lab (train|compare) ", shown)
    groups = re.findall(r"^\W*((?:\w+ )?options)\W*$", shown, re.MULTILINE)
    assert "options" in groups
    assert not [name for name in groups if len(set(name.split())) < len(name.split())]


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


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["compare", "pairs", "--seeds", "0"], "Expected at least 1, got `0` - at `--seeds`"),
        (["compare", "pairs", "--jobs", "0"], "Expected at least 1, got `0` - at `--jobs`"),
        (["compare", "pairs", "--episodes", "0"], "Expected at least 1, got `0` - at `--episodes`"),
        (["compare", "pairs", "--cost", "-1"], "got `-1.0` - at `PairsTrading-v0(cost)`"),
        (["compare", "pairs", "--episodes", "20"], "Expected at least --eval-every (25), got `20` - at `--episodes`"),
        (["compare", "pendulum", "--first-seed", "-1"], "Expected at least 0, got `-1` - at `--first-seed`"),
        (["compare", "pendulum", "--steps", "100"], "Expected at least 250, got `100` - at `--steps`"),
        (["train", "sac", "--gamma", "2"], "Expected a finite number >= 0 and <= 1, got `2.0` - at `SACConfig(gamma)`"),
        (["train", "sac", "--env-id", "CartPole-v1"], "Expected a `Box` action space of floats"),
        (["train", "sac", "--resume", "no/such/file"], "no/such/file"),
    ],
)
def test_a_bad_value_ends_with_2_and_one_line(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(words)
    except SystemExit as ended:
        status = int(ended.code or 0)
    error = capsys.readouterr().err
    assert status == 2
    assert text in " ".join(re.sub("[│╭╮╰╯─]", " ", error).split())
    assert "Traceback" not in error


def test_pytorch_is_loaded_with_the_command_that_needs_it() -> None:
    code = (
        "import sys; from relive_lab.cli import main\n"
        "for words in ([], ['train']):\n"
        "    try: main([*words, '--help'])\n"
        "    except SystemExit: pass\n"
        "print('loaded', sorted({'torch', 'gymnasium', 'matplotlib'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.endswith("loaded []\n")
