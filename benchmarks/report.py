"""Answers as Markdown tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from benchmarks.question import Answer, Cell, Question, Row, Scale, Setting

NAMES = {
    "numpy": "NumPy by hand",
    "sb3": "Stable-Baselines3",
    "torchrl": "TorchRL, `cache_values`",
    "torchrl-plain": "TorchRL",
    "torchrl-shared": "TorchRL, uniform draws from shared memmaps",
    "reverb": "Reverb, in an environment of its own",
    "limit": "copy limit",
    "tensors": "PyTorch by hand, for FastTD3's class",
    "rlinf": "RLinf",
    "torchsave": "`torch.save` by hand",
}
LEGEND = (
    "Each cell: 20th percentile of the chunks (median). `x` is the ratio to the best library of that column, which is "
    "x1; relive and what is no library (NumPy by hand, the copy limit) stand outside that comparison, so below x1 they "
    "are faster than every library."
)

KEPT = ("key", "label", "table", "unit", "scale", "base")  # of a setting, in JSON


def markdown(answers: Sequence[Answer], facts: dict[str, str]) -> str:
    """Return the whole report: facts, then a section a question."""
    lines = ["| | |", "|---|---|", *(f"| {label} | {text} |" for label, text in facts.items()), "", LEGEND]
    for answer in answers:
        lines += ["", *section(answer)]
    return "\n".join(lines) + "\n"


def section(answer: Answer) -> list[str]:
    """Return one question's section: table, notes, targets."""
    question = answer.question
    measured = [s for s in answer.settings if any(s.key in row.cells for row in answer.rows.values())]
    single = ": the median of single calls (their 99th percentile)" * question.single
    figures = f"Figures in {question.unit}" if question.unit else "Figures as the columns say"
    notice = ["", question.notice(answer), ""] if question.notice else []
    lines = [f"## {question.title}", "", question.text, *notice, f"{figures}{single}."]
    asked = [] if any(s.base for s in measured) else _targets(answer)
    return lines + tables(answer) + _notes(answer) + asked


def tables(answer: Answer) -> list[str]:
    """Return the tables of a question, each below its name."""
    measured = [s for s in answer.settings if any(s.key in row.cells for row in answer.rows.values())]
    lines: list[str] = []
    for table in dict.fromkeys(s.table for s in measured):
        of_it = [s for s in measured if s.table == table]
        lines += ["", *([f"**{table}**", ""] if table else [])]
        lines += _pairs(answer, of_it) if any(s.base for s in measured) else _table(answer, of_it)
    return lines


def _pairs(answer: Answer, settings: Sequence[Setting]) -> list[str]:
    """Return a row for each odd form, with the plain one that it is held against, and what is asked."""
    cells, asked = answer.rows["relive"].cells, {v["key"]: v for v in target_figures(answer)}
    lines = ["| odd form | | plain form | | odd / plain | asked | |", "|---|---:|---|---:|---:|---:|---|"]
    for odd in settings:
        plain = next((s for s in answer.settings if s.key == odd.base), None)
        if any(s.base == odd.key for s in answer.settings):
            continue
        goal, below = asked.get(odd.key), cells.get(odd.base)
        times = f"{cells[odd.key].figure / below.figure:.2f}" if below else ""
        texts = [odd.label, _shown(odd, cells[odd.key].figure)]
        texts += [plain.label, _shown(plain, below.figure), times] if plain and below else ["", "", ""]
        if goal:
            own = "" if not goal["unit"] else f" {odd.unit}{' more' * bool(plain)}"
            texts += [f"≤ {goal['at_most']:g}{own}", goal["verdict"]]
        lines.append("| " + " | ".join(texts + [""] * (7 - len(texts))) + " |")
    return lines


def _shown(setting: Setting, figure: float) -> str:
    return f"{number(figure * (setting.scale or 1))} {setting.unit}"


def _table(answer: Answer, settings: Sequence[Setting]) -> list[str]:
    grows = answer.question.growth and len(settings) > 1
    weighed = answer.question.memory in (s.key for s in settings)
    heads = [s.label for s in settings] + ["last / first"] * grows + ["bytes a step"] * weighed
    lines = ["| | output | " + " | ".join(heads) + " |", "|---|---|" + "---:|" * len(heads)]
    best = {s.key: answer.best(s.key) for s in settings}
    for name, row in answer.rows.items():
        if row.missing:
            continue
        cells = [_cell(answer, s, best[s.key], name) for s in settings]
        if grows:
            first, last = (row.cells.get(s.key) for s in (settings[0], settings[-1]))
            cells.append(f"{last.figure / first.figure:.2f}" if first and last else "-")
        if weighed:
            cells.append("-" if row.memory is None else f"{row.memory:,.0f}")
        title = f"{NAMES.get(name, name)} {row.version}".strip()
        lines.append(f"| {f'**{title}**' if name == 'relive' else title} | {row.output} | " + " | ".join(cells) + " |")
    return lines


def _cell(answer: Answer, setting: Setting, best: tuple[str, float] | None, name: str) -> str:
    cell = answer.rows[name].cells.get(setting.key)
    if cell is None:
        return "-"
    scale = answer.question.unit_scale if setting.scale is None else setting.scale
    beside = cell.median if cell.p99 is None else cell.p99
    text = number(cell.figure * scale)
    if not cell.p20 == cell.median == cell.p99:  # beside the only call there was, nothing stands
        text += f" ({number(beside * scale)})"
    if best is not None:
        text += f" x{cell.figure / best[1]:.{2 if cell.figure >= 0.1 * best[1] else 4}f}"
    return f"**{text}**" if best is not None and best[0] == name else text


def number(value: float) -> str:
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"


def _notes(answer: Answer) -> list[str]:
    """Name every peer and every cell that is missing, and say where a core was shared."""
    labels = {s.key: f"{s.table}, {s.label}" if s.table else s.label for s in answer.settings}
    notes: list[str] = []
    for name, row in answer.rows.items():
        title = NAMES.get(name, name)
        if row.missing:
            notes.append(f"{title}: skipped, it does not import ({row.missing})")
        reasons: dict[str, list[str]] = {}
        for key, reason in row.notes.items():
            reasons.setdefault(reason, []).append(labels[key])
        notes += [f"{title}: {reason} ({'; '.join(where)})" for reason, where in reasons.items()]
        shared = [labels[key] for key, cell in row.cells.items() if cell.cpu < 0.9]
        if shared:
            notes.append(f"{title}: the core was shared for more than a tenth of the time ({'; '.join(shared)})")
    return ["", *(f"* {note}" for note in notes)] if notes else []


def _targets(answer: Answer) -> list[str]:
    """Hold relive against what is asked; nothing is said where relive was not measured."""
    verdicts = target_figures(answer)
    if not verdicts:
        return []
    lines = ["", "| asked of relive | asked | measured | |", "|---|---:|---:|---|"]
    for v in verdicts:
        asked = f"≥ {v['at_least']:g}" if v["at_least"] is not None else f"≤ {v['at_most']:g}"
        found = "not measured" if v["figure"] is None else f"{v['figure']:.2f}"
        lines.append(f"| {v['text']} | {asked} | {found} | {v['verdict']} |")
    return lines


def target_figures(answer: Answer) -> list[dict[str, Any]]:
    """Return every target of a question with its figure and its verdict: pass, LOSE or nothing."""
    if "relive" not in answer.rows or not answer.rows["relive"].cells:
        return []
    found = []
    for target in answer.question.targets:
        figure = target.measure(answer)
        verdict = "" if figure is None else "pass" if target.holds(figure) else "**LOSE**"
        facts = {name: getattr(target, name) for name in ("text", "key", "unit", "at_least", "at_most")}
        found.append({**facts, "figure": figure, "verdict": verdict})
    return found


def restored(found: dict[str, Any], question: Question, scale: Scale) -> Answer:
    """Return the answer of one question of those that `as_json` returned."""
    settings = [Setting(values={}, **kept) for kept in found["settings"]]
    rows = {name: Row(**row) for name, row in found["peers"].items()}
    for row in rows.values():
        row.cells = {key: Cell(**cell) for key, cell in cast("dict[str, Any]", row.cells).items()}
    return Answer(question, scale, settings, rows)


def as_json(answers: Sequence[Answer], facts: dict[str, str]) -> dict[str, Any]:
    """Return everything measured as plain values."""
    return {
        "machine": facts,
        "questions": [
            {
                "name": a.question.name,
                "title": a.question.title,
                "notice": a.question.notice(a) if a.question.notice else "",
                "scale": a.scale.name,
                "settings": [{name: getattr(s, name) for name in KEPT} for s in a.settings],
                "peers": {name: asdict(row) for name, row in a.rows.items()},
                "targets": target_figures(a),
            }
            for a in answers
        ],
    }
