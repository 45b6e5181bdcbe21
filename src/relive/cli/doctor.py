"""`relive doctor`: what a replay buffer gets wrong. Users of any library run it, so it needs neither Rich nor Tyro."""

from __future__ import annotations

import argparse
import inspect
import json as plain
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relive._base import page as _page
from relive._base.extras import needs
from relive.cli.terminal import columns, console
from relive.errors import ArgumentError, message

if TYPE_CHECKING:
    from relive.doctor import Report

MODES = ("next_step", "same_step", "disabled")
# How `examine` calls them, which takes several of each.
PLURALS = ("--modes", "--n-steps")
TITLES = {"A": "A. Items", "B": "B. Streams", "C": "C. Priorities", "D": "D. Draws", "E": "E. Threads"}
NOTES = {
    "A": "Wrong items, of those stored after 120 calls in two environments.",
    "B": "Wrong items where the ring has wrapped, and where environments were reset in mid-episode.",
    "C": "What late and bad TD errors, and slots that were never filled, do to the draws.",
    "D": "Whether a draw leaves the stored arrays alone, and whether its sums are fit for 42 million rows.",
    "E": "Draws that gave a wrong item because another thread added at the same time.",
}


def doctor(
    pipeline: str,
    n_step: int | None = None,
    mode: str | None = None,
    json: bool = False,
    html: Path | None = None,
    trace: bool = False,
) -> int:
    """Examine a replay buffer with the loop that fills it: phantom steps, wrong targets, poisoned priorities.

    The environment counts its steps, so every stored item is compared with what it should be. The exit status is 0
    where all is right, 1 where something is wrong, 2 for a pipeline that is unknown or does not run.

    Example: relive doctor sb3 --n-step 3

    Args:
        pipeline: `relive`, `sb3`, `tianshou`, `cpprb`, `torchrl`, `fasttd3` or one of their variants (an unknown name
            lists them), or `module:function` for a function of yours that returns a pipeline; its code runs.
        n_step: Steps of the targets; 1 and 3 unless given.
        mode: Gymnasium's autoreset mode, one of `MODES`; all that the pipeline knows unless given.
        json: Print the verdict as JSON.
        html: Also write the verdict to this file, as a page that needs nothing but itself.
        trace: Print three short episodes instead, and every item that is stored of them, as JSON: what the boundary
            explorer in the documentation shows. For n = 1, 3 and 5 unless `n_step` is given.
    """
    with needs("gymnasium", "relive doctor"):
        import relive.doctor as examining
        from relive.doctor import pipelines

    default = (1,) if pipeline in pipelines.ONE_STEP else (1, 3, 5) if trace else (1, 3)
    n_steps, modes = default if n_step is None else (n_step,), None if mode is None else (mode,)
    made = pipelines.named(pipeline)
    if trace:
        traced = examining.trace(made, n_steps=n_steps, modes=modes, name=pipeline)
        sys.stdout.write(plain.dumps(traced.to_dict()) + "\n")
        return int(any(state.wrong or state.missing for state in traced.states))
    report = examining.examine(made, n_steps=n_steps, modes=modes, name=pipeline)
    if html:
        html.write_text(_as_page(report), encoding="utf-8")
    if json:
        sys.stdout.write(plain.dumps(report.to_dict(), indent=2) + "\n")
    else:
        _show(report)
        if html:
            _say(f"wrote {html}")
    return 0 if report.right else 1


def main(arguments: Sequence[str]) -> int:
    """Run `relive doctor ARGUMENTS`.

    Raises:
        ArgumentError: An option has the name of an argument of `examine`.
    """
    for option in (word.partition("=")[0] for word in arguments):
        if option in PLURALS:
            one = f"`{option[:-1]}`"
            raise ArgumentError(message(one, f"`{option}`", "relive doctor", "give one, or leave it out for all"))
    text = inspect.cleandoc(str(doctor.__doc__)).partition("Args:")
    shown, wanted = (
        argparse.RawDescriptionHelpFormatter,
        "relive, sb3, tianshou, cpprb, torchrl, fasttd3 or one of their variants",
    )
    parser = argparse.ArgumentParser("relive doctor", description=text[0], formatter_class=shown)
    parser.add_argument("pipeline", metavar="PIPELINE", help=f"{wanted}, or module:function for one of yours")
    parser.add_argument("--n-step", type=int, help="steps of the targets (default: 1 and 3; 1, 3 and 5 with --trace)")
    parser.add_argument("--mode", choices=MODES, help="autoreset mode (default: all that the pipeline knows)")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the verdict as a page")
    parser.add_argument("--trace", action="store_true", help="print the items of three short episodes as JSON instead")
    return doctor(**vars(parser.parse_args(arguments)))


def _show(report: Report) -> None:
    for name, title in TITLES.items():
        titles, rows = report.table(name)
        if rows:
            _show_table(title, titles, rows, NOTES[name])
    for finding in report.findings:
        where = f"{finding.autoreset_mode}, n = {finding.n_step}"
        _say(f"{finding.table}. {finding.probe} ({where}): {finding.wrong} of {finding.of}")
        _say(f"   {finding.example}")
        _say(f"   remedy: {finding.remedy}")
    for reason in report.skipped:
        _say(f"not examined: {reason}")
    _say(f"{report.pipeline}: {_verdict(report)}")


def _show_table(title: str, titles: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> None:
    """Print a table, with Rich if it is installed."""
    try:
        from rich.table import Table
    except ModuleNotFoundError:
        _say(f"{title}\n\n{columns([titles, *rows], '<' * len(titles))}\n\n{note}\n")
        return
    table = Table(*titles, title=title, title_justify="left", caption=note, caption_justify="left")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _verdict(report: Report) -> str:
    if not report.right:
        return f"{len(report.findings)} of {len(report.checks)} checks found faults"
    judged = {(check.autoreset_mode, check.n_step): check.of for check in report.checks if check.table == "A"}
    items = sum(judged.values()) + sum(check.of for check in report.checks if check.table == "B")
    modes, steps = (", ".join(f"{each}" for each in dict.fromkeys(part)) for part in zip(*judged, strict=True))
    return f"nothing is wrong in {len(report.checks)} checks of {items:,} items ({modes}; n = {steps})"


def _as_page(report: Report) -> str:
    tiles = [
        ("checks", f"{len(report.checks)}", ""),
        ("with faults", f"{len(report.findings)}", ""),
        ("not examined", f"{len(report.skipped)}", ""),
    ]
    sections = []
    for name, title in TITLES.items():
        titles, rows = report.table(name)
        if rows:
            sections.append(_page.section(title, NOTES[name], _page.table(titles, rows), wide=True))
    found = [
        (f"{f.table}. {f.probe}", f"{f.autoreset_mode}, n = {f.n_step}", f"{f.wrong} of {f.of}", f.example, f.remedy)
        for f in report.findings
    ]
    if found:
        body = _page.table(("fault", "where", "wrong", "example", "remedy"), found)
        sections.append(_page.section("Findings", "One item that shows each, and what to change.", body, wide=True))
    if report.skipped:
        body = _page.table(("not examined",), [(reason,) for reason in report.skipped])
        sections.append(_page.section("Not examined", "", body, wide=True))
    return _page.page("relive doctor", f"{report.pipeline}: {_verdict(report)}", tiles, sections)
