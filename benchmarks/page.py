"""Writes the tables of `PAGES` in docs/, and the charts: `python -m benchmarks.page`.

All questions are run, in an hour with all libraries; `--questions` runs some anew, and leaves the others' figures.
`--draw` runs nothing. The figures stand in docs/data/benchmarks.json; all have to be of one machine and version.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import charts, machine, report, suite
from benchmarks.harness import run_question
from benchmarks.peers import NO_LIBRARY
from benchmarks.question import Answer

DOCS = Path(__file__).parents[1] / "docs"
DATA = DOCS / "data" / "benchmarks.json"
ON_PAGE = tuple(name for name in suite.NAMES if name != "device")
OF_A_RUN = ("Date", "Load before the run")
PAGES = ("benchmarks.md", "measurements.md", "tables.md")
Answers = dict[str, Answer]
Data = dict[str, Any]

CALLS = (
    ("add one step, full buffer", "add_one", "full"),
    ("add one step of 64 environments", "add_batch", "64"),
    ("add one step of 1,024 environments", "add_batch", "1024"),
    ("add one step of 4,096 environments", "add_batch", "4096"),
    ("sample 256 uniformly", "uniform_sample", "256"),
    ("sample 256 uniformly, as PyTorch tensors", "uniform_sample", "256-torch"),
    ("sample 4,096 uniformly", "uniform_sample", "4096"),
    ("sample 16,384 uniformly", "uniform_sample", "16384"),
    ("sample 256 of n = 3", "n_step", "sample-n3"),
    ("sample 256 of 10^6 by priority, and update", "per_cycle", "256@1000000"),
    ("sample 4,096 of 10^6 by priority, and update", "per_cycle", "4096@1000000"),
    ("add one step, sample 64 sequences of 120", "sequences", "draw@1000000"),
    ("sample 64 sequences by priority, and update", "sequences", "cycle"),
    ("sample 32 stacks of Atari frames", "atari", "later-32"),
    ("sample 512 stacks", "atari", "later-512"),
    ("4 + 1 numbers: add one step without `next_obs`", "small_rows", "push"),
    ("4 + 1 numbers: add one step with `next_obs`", "small_rows", "add"),
    *((f"4 + 1 numbers: sample {n:,}", "small_rows", str(n)) for n in (32, 256, 1_024, 4_096)),
)
LOST = (
    *CALLS,
    ("as tensors, after a learner's step", "behind_learner", "torch-learner"),
    ("save a million transitions", "saves", "save"),
    ("load them", "saves", "load"),
    ("open a buffer in shared memory", "processes", "open"),
    ("an add of a trajectory of 20 MB blocks", "trajectories", "add"),
    ("an add of a small one blocks", "trajectories", "blocks-near"),
    ("import", "import_time", "after"),
)
# Questions, calls and goals, by how their names begin: what keeps relive from more.
WHY = {
    **dict.fromkeys(("add_one", "small_rows push", "small_rows add"), "relive compares observations and keeps streams"),
    "add_batch": "one ring for all environments is one copy; it has no streams for windows and sequences",
    "uniform_sample": "relive's batches have ids, discounts and numbers of steps, too: ten fields, not six",
    "small_rows": "ten fields, not six; copying such rows is nothing",
    "behind_learner add, draw, update": "all of it runs with cold caches, which any library's call finds",
    "behind_learner": "a tensor is made for each of ten fields, not six",
    **dict.fromkeys(("cliffs 256 of `H", "cliffs 4,096 of `H"), "the reward function takes nearly as long as the item"),
    "cliffs the same": "sequences of six episodes are copied in six pieces",
    "cliffs 256 steps": "each row is compared with its checksum",
    "cliffs a batch": "a share of putting the epoch in order is in each batch",
    "atari": "the copy limit is one `take` of as many frames",
    "saves": "relive writes checksums and syncs",
    "processes": "Reverb connects to a server that runs",
    "trajectories": "`torch.save` by hand has a queue without bound, and no checksums",
    "import_time": "modules, their functions and classes",
    "per_cycle": "the tree and the rows of 10^6 items are read from memory",
    "n_step": "marks and rewards of each further step",
    **dict.fromkeys(("sequences cycle", "sequences prioritized"), "sequences have ids, masks and discounts, too"),
    "sequences": "TorchRL takes milliseconds after a write, not a hundred",
    "memory first": "32 rows of an environment lie together, and huge pages count whole",
    "memory": "Python is two thirds of what is installed",
}


def why(question: str, what: str) -> str:
    """Return the first cause that fits."""
    return next((text for begin, text in WHY.items() if f"{question} {what}".startswith(begin)), "")


def figure(answers: Answers, question: str, key: str, peer: str) -> float | None:
    """Return a peer's figure in the unit of its column."""
    answer = answers.get(question)
    found = answer.figure(peer, key) if answer else None
    if answer is None or found is None:
        return None
    scale = next((s.scale for s in answer.settings if s.key == key), None)
    return found * (answer.question.unit_scale if scale is None else scale)


def name_of(peer: str) -> str:
    return charts.SHORT.get(peer, peer)


def faster(answers: Answers, question: str, key: str) -> list[tuple[float, str]]:
    """Return the figures and names of all others, the fastest first."""
    rows = answers[question].rows if question in answers else {}
    found = [(figure(answers, question, key, peer), peer) for peer in rows if peer != "relive"]
    return sorted((value, peer) for value, peer in found if value is not None)


def calls(answers: Answers) -> Iterable[str]:
    yield "| call | relive, µs | by hand, µs | best library, µs | |"
    yield "|---|---:|---:|---:|---:|"
    for label, question, key in CALLS:
        own = figure(answers, question, key, "relive")
        if own is None:
            continue
        others = faster(answers, question, key)
        hand = [value for value, peer in others if peer in NO_LIBRARY]
        library = next(((value, peer) for value, peer in others if peer not in NO_LIBRARY), None)
        by_hand = bold(hand[0], than=own) if hand else ""
        best = f"{name_of(library[1])} {bold(library[0], than=own)} | {library[0] / own:.1f}x" if library else "|"
        yield f"| {label} | {report.number(own)} | {by_hand} | {best} |"


def bold(value: float, *, than: float) -> str:
    text = report.number(value)
    return f"**{text}**" if value < than else text


def losses(answers: Answers) -> Iterable[str]:
    yield "| call | relive | faster | times as fast | why |"
    yield "|---|---:|---:|---:|---|"
    for label, question, key in LOST:
        own, others = figure(answers, question, key, "relive"), faster(answers, question, key)
        if own is not None and others and others[0][0] < own:
            value, peer = others[0]
            unit = next(
                (s.label.rpartition(", ")[2] for s in answers[question].settings if s.key == key and s.scale), ""
            )
            unit = unit or answers[question].question.unit
            cells = (f"{report.number(own)} {unit}", f"{name_of(peer)} {report.number(value)}", f"{own / value:.1f}")
            yield f"| {label} | {' | '.join(cells)} | {why(question, key)} |"


def learner(answers: Answers) -> Iterable[str]:
    yield "| | after a learner's step, µs | in a loop of nothing else, µs |"
    yield "|---|---:|---:|"
    rows = (
        ("`add`, `sample` and `update_priorities`, one of each", "cycle"),
        ("`add` and uniform `sample`", "plain"),
        ("uniform `sample`", "uniform"),
        ("the same, as tensors", "torch"),
    )
    for label, call in rows:
        for who in ("relive", "library", "numpy"):
            cells = [versus(answers, f"{call}-{where}", who) for where in ("learner", "loop")]
            if any(cells):
                head = {"relive": label, "library": "the best library", "numpy": "NumPy by hand"}[who]
                yield f"| {head} | {' | '.join(cells)} |"


def versus(answers: Answers, key: str, who: str) -> str:
    """Return the figure of relive, or the best library's or another peer's with its ratio to relive's."""
    own = figure(answers, "behind_learner", key, "relive")
    if who == "relive" or own is None:
        return "" if own is None else report.number(own)
    others = [
        (value, peer)
        for value, peer in faster(answers, "behind_learner", key)
        if peer == who or (who == "library" and peer not in NO_LIBRARY)
    ]
    if not others:
        return ""
    value, peer = others[0]
    name = f"{name_of(peer)} " * (who == "library")
    return f"{name}{bold(value, than=own)} ({value / own:.1f}x)"


def beside(answers: Answers, question: str, *keys: str) -> Iterable[str]:
    """Return a table with a row a setting, and a column a library; the shortest is bold."""
    answer = answers[question]
    wanted = [s for s in answer.settings if s.key in keys or not keys]
    peers = [peer for peer, row in answer.rows.items() if any(s.key in row.cells for s in wanted)]
    yield "| | " + " | ".join(name_of(peer) for peer in peers) + " |"
    yield "|---|" + "---:|" * len(peers)
    several = len({setting.table for setting in wanted}) > 1
    for setting in wanted:
        values = [figure(answers, question, setting.key, peer) for peer in peers]
        least = min((value for value in values if value is not None), default=0.0)
        texts = ["" if v is None else f"**{report.number(v)}**" if v == least else report.number(v) for v in values]
        label = f"{setting.table}: {setting.label}" if several else setting.label
        if any(texts):
            yield f"| {label} | " + " | ".join(texts) + " |"


def memory(answers: Answers) -> Iterable[str]:
    yield "| bytes a step | relive | others |"
    yield "|---|---:|---|"
    for label, question in (("sequences of 120", "sequences"), ("Atari stacks, 84 x 84, 7,056 a frame", "atari")):
        rows = answers[question].rows if question in answers else {}
        sizes = {name: row.memory for name, row in rows.items() if row.memory}
        own = sizes.pop("relive", None)
        others = ", ".join(f"{name_of(name)} {size:,.0f}" for name, size in sorted(sizes.items(), key=lambda i: i[1]))
        if own:
            yield f"| {label} | {own:,.0f} | {others} |"


def tables(answers: Answers) -> Iterable[str]:
    """Return the tables of docs/tables.md: all but the cliffs, which docs/benchmarks.md has whole."""
    for name, answer in answers.items():
        if name != "cliffs":
            yield from ("", f"## {answer.question.title}", "", *textwrap.wrap(answer.question.text, 100))
            yield from report.tables(answer)


def misses(answers: Answers) -> Iterable[str]:
    """Return the goals that were missed, with what holds them up."""
    yield "| question | goal | asked | reached | cause |"
    yield "|---|---|---:|---:|---|"
    for answer in answers.values():
        for found in report.target_figures(answer):
            if found["verdict"] not in ("", "pass"):
                asked = f"≥ {found['at_least']:g}" if found["at_least"] is not None else f"≤ {found['at_most']:g}"
                reached = report.number(found["figure"])
                cause = why(answer.question.name, found["text"])
                yield f"| {answer.question.title} | {found['text']} | {asked} | {reached} | {cause} |"


def made_on(facts: dict[str, str]) -> Iterable[str]:
    return textwrap.wrap("; ".join(f"{label}: {text}" for label, text in facts.items()) + ".", 100)


def write_pages(data: Data) -> None:
    """Write the pages' tables and the charts from the kept figures."""
    answers = {
        found["name"]: report.restored(found, suite.question(found["name"]), suite.SCALES[found["scale"]])
        for found in data["questions"]
    }
    for page in PAGES:
        path = DOCS / page
        path.write_text(filled(path.read_text(encoding="utf-8"), data["machine"], answers), encoding="utf-8")
    for name, drawn in charts.pages(answers):
        charts.write(drawn, DOCS / "images" / name)


def filled(text: str, facts: dict[str, str], answers: Answers) -> str:
    """Put tables between the marks that name them."""
    made: dict[str, Callable[[], Iterable[str]]] = {
        "machine": lambda: made_on(facts),
        **{part.__name__: partial(part, answers) for part in (learner, calls, losses, memory, tables, misses)},
        "cliffs": lambda: report.tables(answers["cliffs"]),
        "processes": lambda: beside(answers, "processes"),
        "saves": lambda: beside(answers, "saves", "save", "again", "again-bytes", "load"),
        "trajectories": lambda: beside(answers, "trajectories"),
        "import": lambda: beside(answers, "import_time"),
    }

    def table(found: re.Match[str]) -> str:
        question = {"import": "import_time"}.get(found[1], found[1])
        there = question in answers or question not in ON_PAGE
        body = "\n".join(made[found[1]]()).strip("\n") if there else "Not measured on this machine."
        return f"<!-- figures: {found[1]} -->\n\n{body}\n\n<!-- end of figures -->"

    return re.sub("<!-- figures: (\\w+) -->.*?<!-- end of figures -->", table, text, flags=re.S)


def measured(names: Sequence[str], scale: str, core: int | None) -> Data:
    """Run questions and put them among the kept ones, unless these are of another machine."""
    kept: Data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {"machine": {}, "questions": []}
    run = "full" if scale == "full" else f"short, `--scale {scale}`: fewer sizes, rougher figures"
    facts = {"relive": importlib.import_module("relive").__version__, "Run": run, **machine.facts()}
    other = any(kept["machine"].get(label) != text for label, text in facts.items() if label not in OF_A_RUN)
    kept = {"machine": facts, "questions": [] if other else kept["questions"]}
    for name in names:
        answer = run_question(suite.question(name), suite.SCALES[scale], core=core, progress=said)
        found = report.as_json([answer], facts)["questions"][0]
        kept["questions"] = [q for q in kept["questions"] if q["name"] != name] + [found]
        kept["questions"].sort(key=lambda q: ON_PAGE.index(q["name"]))
        lines = ",\n".join(json.dumps(question, ensure_ascii=False) for question in kept["questions"])
        text = f'{{"machine": {json.dumps(facts, ensure_ascii=False)},\n"questions": [\n{lines}\n]}}\n'
        DATA.write_text(text, encoding="utf-8")  # after each: an interrupted run goes on with `--questions`
    return kept


def said(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line}")


def main() -> None:
    """Run what is asked, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", nargs="*", choices=ON_PAGE, default=ON_PAGE)
    parser.add_argument("--scale", choices=list(suite.SCALES), default="full")
    parser.add_argument("--core", type=int, help="the core to run on; default: the one that idles most")
    parser.add_argument("--draw", action="store_true", help="run nothing")
    chosen = parser.parse_args()
    data = (
        json.loads(DATA.read_text(encoding="utf-8"))
        if chosen.draw
        else measured(chosen.questions, chosen.scale, chosen.core)
    )
    write_pages(data)


if __name__ == "__main__":
    main()
