"""`relive doctor`: what a replay buffer gets wrong. Users of any library run it, so it needs neither Rich nor Tyro."""

from __future__ import annotations

import argparse
import inspect
import json as plain
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive._base import page as _page
from relive._base.extras import needs
from relive.cli.terminal import columns
from relive.errors import ArgumentError, message

if TYPE_CHECKING:
    from relive.doctor import Report

MODES = ("next_step", "same_step", "disabled")
# How `examine` calls them, which takes several of each.
PLURALS = ("--modes", "--n-steps")
TITLES = {
    "A": "A. Items: wrong ones, of those stored after 120 calls in two environments",
    "B": "B. Streams: wrong items after the ring has wrapped, and after resets in mid-episode",
    "C": "C. Priorities: late and bad TD errors, and slots that were never filled",
    "D": "D. Draws: do they leave the stored arrays alone, and are sums fit for 42 million rows",
    "E": "E. Threads: draws of wrong items while another thread adds",
    "F": "F. Consumption: what is drawn, and what is written back",
}


def doctor(
    pipeline: str = "",
    n_step: int | None = None,
    mode: str | None = None,
    verbose: bool = False,
    json: bool = False,
    html: Path | None = None,
    badge: Path | None = None,
    trace: bool = False,
    list: bool = False,
    template: bool = False,
) -> int:
    """Examine a replay buffer with the loop that fills it: phantom steps, wrong targets, poisoned priorities.

    The environment counts its steps, so every stored item is compared with what it should be. The exit status is 0
    where all is right, 1 where something is wrong, 2 for a pipeline that is unknown or does not run.

    Example: relive doctor sb3 --n-step 3

    Args:
        pipeline: A name of those that `--list` prints, or `module:function` for a function of yours that returns a
            pipeline; its code runs.
        n_step: Steps of the targets; 1 and 3 unless given.
        mode: Gymnasium's autoreset mode, one of `MODES`; all that the pipeline knows unless given.
        verbose: Also show every check, and those that were not made.
        json: Print the verdict as JSON.
        html: Also write the verdict to this file, as a page that needs nothing but itself.
        badge: Also write the verdict to this file, as JSON of an endpoint badge of shields.io.
        trace: Print three short episodes instead, and every item that is stored of them, as JSON: what the boundary
            explorer in the documentation shows. For n = 1, 3 and 5 unless `n_step` is given.
        list: Print the names of the pipelines instead.
        template: Print a file to begin with instead: `relive doctor --template > my_doctor.py`.
    """
    with needs("gymnasium", "relive doctor"):
        import relive.doctor as examining
        from relive.doctor import pipelines

    if list or template:
        sys.stdout.write(pipelines.listed() if list else pipelines.template())
        return 0
    default = (1,) if pipeline in pipelines.ONE_STEP else (1, 3, 5) if trace else (1, 3)
    choices: dict[str, Any] = {"modes": None if mode is None else (mode,), "name": pipeline}
    choices["n_steps"] = default if n_step is None else (n_step,)
    made = pipelines.named(pipeline)
    if trace:
        traced = examining.trace(made, **choices)
        sys.stdout.write(plain.dumps(traced.to_dict()) + "\n")
        return int(any(state.wrong or state.missing for state in traced.states))
    report = examining.examine(made, **choices)
    if html:
        html.write_text(_as_page(report, examining.drawings(made, report)), encoding="utf-8")
    if badge:
        badge.write_text(plain.dumps(report.to_badge()) + "\n", encoding="utf-8")
    sys.stdout.write(plain.dumps(report.to_dict(), indent=2) + "\n" if json else _in_words(report, verbose))
    return 0 if report.right else 1


def main(arguments: Sequence[str]) -> int:
    """Run `relive doctor ARGUMENTS`.

    Raises:
        ArgumentError: An option has the name of an argument of `examine`; no pipeline is named.
    """
    for option in (word.partition("=")[0] for word in arguments):
        if option in PLURALS:
            one = f"`{option[:-1]}`"
            raise ArgumentError(message(one, f"`{option}`", "relive doctor", "give one, or leave it out for all"))
    text = inspect.cleandoc(str(doctor.__doc__)).partition("Args:")
    parser = argparse.ArgumentParser(
        "relive doctor", description=text[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted = "a name that --list prints, or module:function for one of yours"
    parser.add_argument("pipeline", metavar="PIPELINE", nargs="?", default="", help=wanted)
    parser.add_argument("--n-step", type=int, help="steps of the targets (default: 1 and 3; 1, 3 and 5 with --trace)")
    parser.add_argument("--mode", choices=MODES, help="autoreset mode (default: all that the pipeline knows)")
    for option, shown in (
        ("--verbose", "also show every check, and those that were not made"),
        ("--json", "print the verdict as JSON"),
        ("--trace", "print the items of three short episodes as JSON instead"),
        ("--list", "print the names of the pipelines instead"),
        ("--template", "print a file to begin with instead"),
    ):
        parser.add_argument(option, action="store_true", help=shown)
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the verdict as a page")
    parser.add_argument("--badge", type=Path, metavar="FILE", help="also write the verdict as a badge's JSON")
    return doctor(**vars(parser.parse_args(arguments)))


def _in_words(report: Report, verbose: bool) -> str:
    lines = [report.verdict, ""] if report.bugs else [report.verdict]
    lines += [f"{number}. {bug}" for number, bug in enumerate(report.bugs, 1)]
    for name, title in TITLES.items() if verbose else ():
        titles, rows = report.table(name)
        lines += ["", title, "", columns([titles, *rows], "<" * len(titles))] if rows else []
    if report.skipped and verbose:
        lines += ["", "not examined:", *(f"  {reason}" for reason in report.skipped)]
    elif report.skipped:
        lines += ["", f"{len(report.skipped)} not examined; --verbose says what, and what it needs"]
    return "\n".join(lines) + "\n"


def _as_page(report: Report, drawings: Sequence[tuple[str, str]]) -> str:
    tiles = [
        ("bugs", f"{len(report.bugs)}", ""),
        ("checks", f"{len(report.checks)}", ""),
        ("not examined", f"{len(report.skipped)}", ""),
    ]
    sections = []
    found = [
        (", ".join([bug.probe, *bug.also]), bug.where, f"{bug.wrong} of {bug.of}", bug.example, bug.remedy)
        for bug in report.bugs
    ]
    if found:
        body = _page.table(("bug", "where", "wrong", "smallest example", "remedy"), found)
        sections.append(_page.section("Bugs", "", body, wide=True))
    for title, drawing in drawings:
        note = "Each line is a stored item: from its observation to the one that it bootstraps from."
        sections.append(_page.section(title, note, drawing, wide=True))
    for name, title in TITLES.items():
        titles, rows = report.table(name)
        if rows:
            name, _, note = title.partition(": ")
            sections.append(_page.section(name, note, _page.table(titles, rows), wide=True))
    if report.skipped:
        body = _page.table(("not examined",), [(reason,) for reason in report.skipped])
        sections.append(_page.section("Not examined", "", body, wide=True))
    return _page.page("relive doctor", report.verdict, tiles, sections)
