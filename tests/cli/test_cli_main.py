"""The command itself: help, version, refusals."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from depth import some

import relive
from relive import trajectories
from relive._ring import kernels
from relive.cli import main


def test_the_version() -> None:
    run = subprocess.run([sys.executable, "-m", "relive", "--version"], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"relive {relive.__version__}\n", "")


def test_what_to_put_into_a_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "numpy":
            raise importlib.metadata.PackageNotFoundError(name)
        return np.__version__

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert main(["--version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["relive"], found["packages"]) == (relive.__version__, {"numpy": np.__version__})
    assert found["kernels"].split(", ")[0] in kernels.active().__name__
    assert found["processor"]


@pytest.mark.parametrize("words", [["fly"], ["shm", "fly"], ["inspect", "a", "--wings", "2"], ["inspect"], []])
def test_an_unknown_command_or_option_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("word", ["train", "compare"])
def test_a_command_of_the_lab_says_how_to_get_it(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: [])
    assert main([word, "pairs", "--quick"]) == 2
    expected = f"relive: Expected the package `relive-lab`, got none - at `relive {word}`: pip install relive-lab\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("package", ["tyro", "rich"])
def test_a_missing_package_is_named(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["inspect", "x"]) == 2
    assert capsys.readouterr().err == (
        f"relive: Expected the package `{package}`, got none - at `relive`: pip install 'relive[cli]'\n"
    )


@pytest.mark.skipif(os.name != "posix", reason="a shell")
@pytest.mark.parametrize("words", some([["--help"], ["--version"], ["inspect", "--help"], ["inspect", "{empty}"]], 2))
def test_a_reader_that_ends_first_ends_the_command_quietly(words: list[str], tmp_path: Path) -> None:
    """End as `relive ... | head` does: here nobody reads at all."""
    trajectories.TrajectoryReplayBuffer(tmp_path / "replay").close()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "relive", *(word.format(empty=tmp_path / "replay") for word in words)]
    run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert (run.returncode, run.stderr) == (141, "")
