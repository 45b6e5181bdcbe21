"""The pages in docs/ have the tables and charts of docs/data/benchmarks.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from answers import answer, cell
from benchmarks import charts, page, report, suite
from benchmarks.question import TINY, Answer, Setting

DATA: dict[str, Any] = json.loads(page.DATA.read_text(encoding="utf-8"))
WRITE = "python -m benchmarks.page --draw"


def kept() -> dict[str, Answer]:
    return {
        found["name"]: report.restored(found, suite.question(found["name"]), suite.SCALES[found["scale"]])
        for found in DATA["questions"]
    }


@pytest.mark.parametrize("name", page.PAGES)
def test_the_tables_are_those_of_the_figures(name: str) -> None:
    text = (page.DOCS / name).read_text(encoding="utf-8")
    assert text == page.filled(text, DATA["machine"], kept()), WRITE


def test_all_figures_are_of_one_version_and_one_size_of_run() -> None:
    versions = {found.rows["relive"].version for found in kept().values()}
    assert versions == {DATA["machine"]["relive"]}
    assert len({found["scale"] for found in DATA["questions"]}) == 1


def test_a_run_of_some_questions_has_the_date_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that it keeps the other questions' figures, and that pages say what the file says."""
    monkeypatch.setattr(page, "DATA", tmp_path / "figures.json")
    now = page.measured([], "quick", None)["machine"]
    page.DATA.write_text(json.dumps({"machine": {**now, "Date": "before"}, "questions": DATA["questions"]}))
    found = page.measured([], "quick", None)
    assert found["machine"]["Date"] != "before"
    assert found["questions"] == DATA["questions"]


def test_the_front_chart_has_every_library_with_its_figure() -> None:
    learner = kept()["behind_learner"]
    drawn = (page.DOCS / "images" / "behind_learner.svg").read_text(encoding="utf-8")
    values = charts.column(learner, "cycle-learner", versions=True) | charts.column(
        learner, "plain-learner", versions=True
    )
    names = {name.split()[0] for name in values}
    assert {"relive", "Stable-Baselines3"} <= names
    assert not [name for name in names if f">{name}" not in drawn], WRITE
    shown = charts.shown(charts.column(learner, "cycle-learner")["relive"], "µs")
    assert f">{shown}<" in drawn, WRITE
    assert "shorter is better" in drawn


def answered(question: str, figures: dict[str, dict[str, float]]) -> dict[str, Answer]:
    """Make an answer with a figure of every key of each peer."""
    asked = suite.question(question)
    cells = {
        peer: {key: cell(v, v if asked.single else None) for key, v in found.items()} for peer, found in figures.items()
    }
    return {question: answer(asked, cells)}


def test_a_call_that_is_lost_stands_in_the_table_with_its_reason() -> None:
    rows = {"relive": {"32": 2.0, "256": 10.0}, "rlox": {"32": 4.0, "256": 5.0}, "numpy": {"32": 8.0}}
    answers = answered("small_rows", rows)
    assert list(page.calls(answers))[2:] == [
        "| 4 + 1 numbers: sample 32 | 2.00 | 8.00 | rlox 4.00 | 2.0x |",
        "| 4 + 1 numbers: sample 256 | 10.0 |  | rlox **5.00** | 0.5x |",
    ]
    why = page.why("small_rows", "256")
    assert list(page.losses(answers))[2:] == [f"| 4 + 1 numbers: sample 256 | 10.0 µs | rlox 5.00 | 2.0 | {why} |"]


def test_a_cliff_stands_beside_its_plain_form_with_what_is_asked() -> None:
    plain = {"mixture": 30.0, "mixture-plain": 10.0, "recorder": 3.0, "recorder-plain": 1.0}
    answers = answered("cliffs", {"relive": {**plain, "cut": 2.0, "time-major": 5.0}})
    found = list(page.misses(answers))
    assert re.search(r"\| 256 of a `Mixture` of two \| ≤ 2.2 \| 3.00 \|", "\n".join(found))
    table = "\n".join(report.tables(answers["cliffs"]))
    assert "| 256 of a `Mixture` of two | 30.0 µs | 256 of one | 10.0 µs | 3.00 | ≤ 2.2 | **LOSE** |" in table
    by_hand = "stepping and adding by hand | 1.00 µs | 3.00 | ≤ 1.5 µs more | **LOSE** |"
    assert f"| a step through `Recorder` | 3.00 µs | {by_hand}" in table
    assert "| cut one of 16,384 | 2.00 µs |  |  |  | ≤ 3 µs | pass |" in table


def test_figures_between_marks_are_replaced_and_the_rest_stays() -> None:
    begin, end = "<!-- figures: {} -->\n".format, "<!-- end of figures -->\n"
    text = f"a\n{begin('calls')}old\n{end}b\n{begin('saves')}{end}"
    new = page.filled(text, {}, answered("small_rows", {"relive": {"32": 2.0}}))
    assert new.startswith("a\n<!-- figures: calls -->\n\n| call |")
    assert "old" not in new
    assert new.endswith("b\n<!-- figures: saves -->\n\nNot measured on this machine.\n\n<!-- end of figures -->\n")
    assert page.filled(new, {}, answered("small_rows", {"relive": {"32": 2.0}})) == new


def test_kept_figures_come_back_as_they_were() -> None:
    made = answered("small_rows", {"relive": {"32": 2.0}, "rlox": {"32": 4.0}})["small_rows"]
    found = json.loads(json.dumps(report.as_json([made], {})))["questions"][0]
    back = report.restored(found, made.question, TINY)
    assert back.rows == made.rows
    assert [(s.key, s.label, s.table) for s in back.settings] == [(s.key, s.label, s.table) for s in made.settings]
    assert isinstance(back.settings[0], Setting)
