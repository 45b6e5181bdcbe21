"""Hostile directories, relive's and RLinf's, opened in every way: a named error or good rows, at once; no code is run.

Each directory is loaded and verified, and opened in some of the other ways in turn; in the long mode in all of them.
`RELIVE_BITS=17` flips every 17th bit in place of every 2,003rd.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from depth import LONG, MEMORY

pytestmark = pytest.mark.slow
BITS = int(os.environ.get("RELIVE_BITS", "2003"))
PARTS = 2
MOST_SECONDS, MOST_MEBIBYTES = 1.0, 64


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    """Collect the outcome of every attack, by every way in; two processes share them."""
    homes = [tempfile.mkdtemp(prefix="attacks-", dir=MEMORY) for _ in range(PARTS)]
    script = Path(__file__).with_name("opened.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment["OMP_NUM_THREADS"] = "1"
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    running = [
        subprocess.Popen([sys.executable, str(script), home, str(BITS), str(part), str(PARTS)], **pipes)
        for part, home in enumerate(homes)
    ]
    found: list[dict[str, Any]] = []
    try:
        for process in running:
            output, errors = process.communicate(timeout=400 if BITS > 1000 else 1200)
            lines = [json.loads(line) for line in output.splitlines()]
            assert process.returncode == 0, f"ended by {process.returncode} in {lines[-1:]}: {errors[-2000:]}"
            baseline = max(line["peak"] for line in lines if line["case"].startswith("none"))
            found += [{**line, "grown": (line["peak"] - baseline) / 1024} for line in lines if "way" in line]
    finally:
        for process in running:
            process.kill()
            process.wait()
        for home in homes:
            shutil.rmtree(home)
    return found


def attacked(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [result for result in results if not result["case"].startswith("none")]


def test_there_are_enough_of_them(results: list[dict[str, Any]], record_property: Any) -> None:
    record_property("cases", len(attacked(results)))
    assert len({result["case"] for result in attacked(results)}) > 400
    saved = {result["case"] for result in attacked(results) if result["way"] == "load some lanes"}
    assert len(saved) > (150 if LONG else 30)
    assert len({result["way"] for result in results}) == 16
    refused = sum(result["outcome"] != "fine" for result in attacked(results))
    assert refused > (len(attacked(results)) - refused) / 2


def test_good_directories_are_read(results: list[dict[str, Any]]) -> None:
    """Check the good ones, since others might be refused for some other reason."""
    good = [result for result in results if result["case"] in ("none, relive", "none, saved")]
    assert good
    assert {result["outcome"] for result in good} == {"fine"}
    loaded = [result for result in results if result["case"] == "none, pt" and result["way"].startswith("load")]
    assert {result["outcome"] for result in loaded} == {"fine"}


def test_nothing_but_named_errors_and_good_rows(results: list[dict[str, Any]]) -> None:
    bad = [(result["case"], result["way"], result["problems"]) for result in results if result["problems"]]
    assert not bad, f"{len(bad)}: {bad[:5]}"


def test_each_is_over_at_once_and_takes_little_memory(results: list[dict[str, Any]]) -> None:
    slow = [result for result in attacked(results) if result["seconds"] > MOST_SECONDS]
    assert not slow, slow
    worst = max(attacked(results), key=lambda result: result["grown"])
    assert worst["grown"] < MOST_MEBIBYTES, worst
