"""Buffers of other projects: each finding is shown, and none on what is repaired."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from os import environ
from pathlib import Path
from typing import Any

import pytest
from needs import needs

from relive.doctor import examine, pipelines
from relive.doctor.pipelines._dreamerv3 import DreamerV3, DreamerV3Mixture
from relive.doctor.pipelines._lightzero import LightZero
from relive.doctor.pipelines._ogbench import OGBench
from relive.doctor.pipelines._r2dreamer import R2Dreamer
from relive.doctor.pipelines._trl import TRL

ROOT = Path(__file__).parents[2]
UPSTREAM = sorted(path.parent for path in ROOT.glob("upstream/*/fix.patch"))
SOURCES = environ.get("RELIVE_SOURCES", "")
FOUND = {
    "dreamerv3": {"a write before a save"},
    "dreamerv3-mixture": {"items never drawn"},
    "lightzero": {"items never drawn", "priorities after a later add"},
    "lightzero-spring": {"items never drawn", "update reaches its item"},
    "ogbench": {"items never drawn"},
    "r2dreamer": {"late values"},
    "trl": {"step missing"},
}
REPAIRED = (DreamerV3, DreamerV3Mixture, LightZero, OGBench, R2Dreamer, TRL)
# What a project's own module imports, but for what is replaced.
WANTS = {"dreamerv3": "elements", "r2dreamer": "torchrl", "lightzero": "torch", "trl": "torch"}


@pytest.mark.parametrize("name", FOUND)
def test_what_a_project_does_is_found_in_its_stand_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELIVE_SOURCES", raising=False)
    assert {bug.probe for bug in examine(pipelines.named(name), n_steps=1).bugs} == FOUND[name]


@pytest.mark.parametrize("kind", REPAIRED, ids=lambda kind: kind.__name__)
def test_nothing_is_found_in_a_repaired_one(kind: Callable[[bool], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELIVE_SOURCES", raising=False)
    report = examine(lambda: kind(True), n_steps=1)
    assert report.right, report.bugs


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FOUND if name != "lightzero-spring"])
def test_the_project_itself_does_what_its_stand_in_does_and_its_patch_mends_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = name.partition("-")[0]
    needs(WANTS.get(project, "numpy"))
    source = Path(SOURCES, project)
    if not SOURCES or not source.is_dir():
        pytest.skip(f"RELIVE_SOURCES has no folder {project}")
    assert {bug.probe for bug in examine(pipelines.named(name), n_steps=1).bugs} == FOUND[name]
    monkeypatch.syspath_prepend(ROOT / "upstream")
    upstream = importlib.import_module("check")
    upstream.copy(project, source, tmp_path / project)
    upstream.mend(project, tmp_path / project)
    monkeypatch.setenv("RELIVE_SOURCES", str(tmp_path))
    report = examine(pipelines.named(name), n_steps=1)
    assert report.right, report.bugs


@pytest.mark.parametrize("folder", UPSTREAM, ids=lambda path: path.name)
def test_a_patch_is_short_and_has_a_test_and_a_text(folder: Path) -> None:
    assert len((folder / "fix.patch").read_text("utf-8").splitlines()) <= 60
    assert "def test_" in (folder / "test_fault.py").read_text("utf-8")
    assert (folder / "issue.md").read_text("utf-8").startswith("# ")


@pytest.mark.slow
@pytest.mark.parametrize("folder", UPSTREAM, ids=lambda path: path.name)
def test_a_patch_turns_red_into_green(folder: Path) -> None:
    source = Path(SOURCES, folder.name)
    if not SOURCES or not source.is_dir():
        pytest.skip(f"RELIVE_SOURCES has no folder {folder.name}")
    done = subprocess.run(
        [sys.executable, str(ROOT / "upstream" / "check.py"), folder.name, str(source)], capture_output=True, text=True
    )
    assert done.stdout == f"{folder.name}: red, and green with the patch\n", done.stderr
