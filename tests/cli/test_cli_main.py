"""The command itself: help, version, refusals."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import relive
from relive import trajectories
from relive.cli import main

COMMANDS = [[], ["train"], ["train", "sac"], ["compare"], ["compare", "pairs"], ["compare", "pendulum"]]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: {' '.join(['relive', *words])} " in shown
    assert re.search(r"Example: relive (train|compare) ", shown)


def test_the_version() -> None:
    run = subprocess.run([sys.executable, "-m", "relive", "--version"], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"relive {relive.__version__}\n", "")


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


@pytest.mark.parametrize("package", ["tyro", "rich"])
def test_a_missing_package_is_named(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["train", "sac"]) == 2
    assert capsys.readouterr().err == (
        f"relive: Expected the package `{package}`, got none - at `relive`: pip install 'relive[train]'\n"
    )


@pytest.mark.skipif(os.name != "posix", reason="a shell")
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "sac", "--help"], ["inspect", "{empty}"]])
def test_a_reader_that_ends_first_ends_the_command_quietly(words: list[str], tmp_path: Path) -> None:
    """As `relive ... | head` does: here nobody reads at all."""
    trajectories.TrajectoryReplayBuffer(tmp_path / "replay").close()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "relive", *(word.format(empty=tmp_path / "replay") for word in words)]
    run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert (run.returncode, run.stderr) == (141, "")


@pytest.mark.parametrize("words", [*COMMANDS, ["train", "dqn"], ["train", "r2d2"]], ids=" ".join)
def test_no_group_of_options_has_a_stuttering_name(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    shown = capsys.readouterr().out
    groups = re.findall(r"^\W*((?:\w+ )?options)\W*$", shown, re.MULTILINE)
    assert "options" in groups
    assert not [name for name in groups if len(set(name.split())) < len(name.split())]


def test_parsing_loads_no_pytorch() -> None:
    code = (
        "import sys; from relive.cli import main\n"
        "try: main(['train', 'sac', '--help'])\n"
        "except SystemExit: pass\n"
        "print('loaded', sorted({'torch', 'gymnasium', 'matplotlib'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.endswith("loaded []\n")
