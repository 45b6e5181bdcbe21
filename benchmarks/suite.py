"""All questions, and how a run of some of them ends in one report."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import charts, machine, report
from benchmarks.harness import Interrupted, Progress, run_question
from benchmarks.peers import ADAPTERS
from benchmarks.question import FULL, QUICK, TINY, Answer, Question, Scale

NAMES = (
    "behind_learner",
    "add_one",
    "add_batch",
    "uniform_sample",
    "small_rows",
    "per_cycle",
    "n_step",
    "cliffs",
    "sequences",
    "atari",
    "trajectories",
    "processes",
    "device",
    "memory",
    "saves",
    "import_time",
)
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


def run_file(asked: Question, arguments: Sequence[str] | None = None) -> None:
    """Serve `python -m benchmarks.<question>`."""
    parser = argparse.ArgumentParser(description=asked.title)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, fewer and shorter chunks")
    parser.add_argument("--peers", nargs="*", choices=list(ADAPTERS), help="only these peers")
    parser.add_argument("--core", type=int, help="the core to run on; default: the one that idles most")
    parser.add_argument("--out", type=Path, help="write the report here: .md, .json, or a chart as .svg or .png")
    given = parser.parse_args(arguments)

    def progress(line: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{line}")

    text = run_suite(
        [asked.name],
        scale=QUICK if given.quick else FULL,
        peers=given.peers,
        core=given.core,
        out=given.out,
        progress=progress,
    )
    sys.stdout.write(text)
