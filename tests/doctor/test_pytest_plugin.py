"""`pytest --relive-doctor`: a test for each check, also in several processes, and relive stays away without it."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from relive.doctor._catalogue import CATALOGUE

STYLES = Path(__file__).parent


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(
        f"import sys\nsys.path.insert(0, {str(STYLES)!r})\nfrom styles import Stored\n"
        "def make():\n    return Stored('done either')\n"
        "def broken():\n    raise RuntimeError('no')\n"
    )
    named = [word for name in ("relive-doctor", "xdist", "no:cacheprovider") for word in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "-q", *named, "--rootdir", str(folder), *words]
    # Other plug-ins take longer to load than the examination.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)


@pytest.fixture(autouse=True)
def installed() -> None:
    if not entry_points(group="pytest11", name="relive-doctor"):
        pytest.skip("relive was installed before it had the plug-in")


@pytest.mark.parametrize("processes", ["0", "2"])
def test_each_check_is_a_test(processes: str, tmp_path: Path) -> None:
    words = ["--relive-doctor=mine:make", "--junitxml=j.xml", "-rs"]
    done = run(tmp_path, *words, *(["-n", processes] if processes != "0" else []))
    assert done.returncode == 1
    assert "to check priorities, too" in done.stdout
    cases = ElementTree.parse(tmp_path / "j.xml").findall(".//testcase")
    assert {case.get("name") for case in cases} == CATALOGUE.keys()
    assert {case.get("classname") for case in cases} == {"relive-doctor.mine:make"}
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert failed == ["truncation taken for an end"]
    assert sum(case.find("skipped") is not None for case in cases) == 23


def test_a_pipeline_that_does_not_run_fails_once(tmp_path: Path) -> None:
    done = run(tmp_path, "--relive-doctor=mine:broken")
    assert f"1 failed, {len(CATALOGUE) - 1} skipped" in done.stdout


def test_relive_is_imported_only_where_the_option_is_given(tmp_path: Path) -> None:
    (tmp_path / "test_none.py").write_text("import sys\n\ndef test_none():\n    assert 'relive' not in sys.modules\n")
    assert run(tmp_path).returncode == 0
