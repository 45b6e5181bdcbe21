"""Reverb stands in the table by an interpreter of its own, or says how to get one. No test needs Reverb."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from benchmarks import report, suite
from benchmarks.peers import adapter
from benchmarks.peers.reverb import VARIABLE
from benchmarks.question import TINY, Answer, Found, Row
from benchmarks.worker import open_session

ROOT = Path(__file__).resolve().parents[2]


def test_without_an_interpreter_the_report_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    session, hello = open_session("processes", "reverb")
    assert session is None
    asked = suite.question("processes")
    text = report.markdown([Answer(asked, TINY, asked.settings(TINY), {"reverb": Row(**hello)})], {})
    assert "* Reverb, in an environment of its own: skipped" in text
    assert "ENV/bin/pip install 'dm-reverb[tensorflow]==0.14.0'; RELIVE_REVERB_PYTHON=ENV/bin/python)" in text


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_what_the_other_interpreter_measures_stands_in_the_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in, given = tmp_path / "python", tmp_path / "given"
    stand_in.write_text(f"""#!/bin/sh
echo "$* PYTHONPATH=$PYTHONPATH" >> {given}
case "$1 $3" in
  -c*) echo 9.9.9 ;;
  *rounds) echo "[[40.0, [5000.0, 6000.0, 7000.0]], [60.0, [5500.0]]]" ;;
  *) echo "a long story" >&2; echo "out of luck" >&2; exit 1 ;;
esac
""")
    stand_in.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(stand_in))
    monkeypatch.setenv("PYTHONPATH", "this one's")
    asked, peer = suite.question("processes"), adapter("reverb", "shared")()
    assert peer.version() == "9.9.9"
    found = {each.key: asked.prepare(peer, each.values) for each in asked.settings(TINY) if each.key != "open"}
    assert found["add-1"] == found["add-64"] == Found((40.0, 60.0))
    assert found["cycle-64"] == Found((5000.0, 6000.0, 7000.0, 5500.0))
    orders = [line for line in given.read_text().splitlines() if " rounds " in line]
    assert [f'"several": {several},' in line for line, several in zip(orders, (1, 64), strict=True)] == [True, True]
    assert all('"capacity": 8192,' in line and line.endswith("PYTHONPATH=") for line in orders)
    with pytest.raises(RuntimeError, match="out of luck"):
        asked.prepare(peer, asked.settings(TINY)[-1].values)


def test_the_other_interpreter_needs_no_more_than_it_says() -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "reverb", "tensorflow", "benchmarks"}
    for name in ("reverb_side", "workload"):
        tree = ast.parse((ROOT / "benchmarks" / f"{name}.py").read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module) for node in imports if isinstance(node, ast.ImportFrom)}
        assert {each.partition(".")[0] for each in names} <= allowed
        assert {each for each in names if each.startswith("benchmarks")} <= {"benchmarks.workload"}
