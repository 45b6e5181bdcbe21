"""All questions, and how a run of some of them ends in one report."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import charts, machine, report
from benchmarks.harness import Interrupted, Progress, run_question
from benchmarks.question import FULL, QUICK, TINY, Answer, Question, Scale
from relive.cli.bench import QUESTIONS as NAMES

SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}


def question(name: str) -> Question:
    """Return a question by the name of its file."""
    found = importlib.import_module(f"benchmarks.{name}").QUESTION
    if not isinstance(found, Question):
        raise TypeError(f"benchmarks/{name}.py has no Question")
    return found


def run_suite(
    names: Sequence[str] = NAMES,
    *,
    scale: Scale = FULL,
    peers: Sequence[str] | None = None,
    core: int | None = None,
    out: Path | None = None,
    progress: Progress = lambda _: None,
) -> str:
    """Run the questions one after another; return the Markdown, and write it (or JSON, or a chart) to `out`.

    The suffix of `out` says which; `.svg` and `.png` are charts of the first question.

    Ctrl-C ends the run; the report then holds what was reached.
    """
    facts = machine.facts()
    answers: list[Answer] = []
    for name in names:
        try:
            answers.append(run_question(question(name), scale, peers, core, progress))
        except Interrupted as stop:
            answers.append(stop.answer)
            facts["Interrupted"] = f"during `{name}`; what follows is incomplete"
            break
    text = report.markdown(answers, facts)
    if out is not None:
        if out.suffix == ".json":
            out.write_text(json.dumps(report.as_json(answers, facts), indent=1, ensure_ascii=False) + "\n")
        elif out.suffix in (".svg", ".png"):
            charts.draw(answers[0], out)
        else:
            out.write_text(text)
    return text
