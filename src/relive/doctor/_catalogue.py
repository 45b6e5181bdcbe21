"""The checks of an examination, in order: each one's table, and what a pipeline needs for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ._chances import STATED
from ._consumption import ALIAS, KEPT, LANDS, LATE, NEVER, OTHER, RESUMED, SAVED
from ._draws import CHANGES, MASSES
from ._items import IGNORED, PROBES
from ._priorities import PROBES_OF_PRIORITIES
from ._report import Report
from ._streams import RESETS, WRAPS
from ._threads import IN_ADD, IN_DRAW


class Wanted(NamedTuple):
    """One check: its table, and what to do to have it made."""

    table: str
    wants: str


_PRIORITIES = "give the class `sample` and `update` methods to check priorities, too"
_WRITES = "give the class `sample`, `write` and `values` methods to check what is written back, too"
_SAVES = "give the class `save` and `load` methods, besides `write`, to check written values after a load, too"
_DRAWN = "give the class a `sample` method to check what is never drawn, too"
_ALIAS = (
    "give the class `sample`, and `run` an argument `capacity=None`, to check whether drawn items change later, too"
)
_THREADS = "give the class a `sample` method and `threads = True` to check one thread that adds beside one that draws"
_STATED = "give the class `sample` and `probability` methods to compare draws with the chances that it states, too"
CATALOGUE = {
    **dict.fromkeys(PROBES, Wanted("A", "")),
    IGNORED: Wanted("A", "ask for an n above 1 to check whether it is ignored"),
    WRAPS: Wanted("B", "give `run` an argument `capacity=None` to check a ring that wraps, too"),
    RESETS: Wanted("B", "give `run` an argument `reset_at=()` to check resets in mid-episode, too"),
    **dict.fromkeys(PROBES_OF_PRIORITIES, Wanted("C", _PRIORITIES)),
    CHANGES: Wanted("D", "give the class `sample` and `arrays` methods to check that a draw changes nothing, too"),
    MASSES: Wanted("D", "give the class a `choose` method to check draws by mass at 42 million rows, too"),
    STATED: Wanted("D", _STATED),
    **dict.fromkeys((IN_ADD, IN_DRAW), Wanted("E", _THREADS)),
    **dict.fromkeys((NEVER, OTHER), Wanted("F", _DRAWN)),
    ALIAS: Wanted("F", _ALIAS),
    KEPT: Wanted("F", _PRIORITIES),
    **dict.fromkeys((LANDS, LATE), Wanted("F", _WRITES)),
    **dict.fromkeys((SAVED, RESUMED), Wanted("F", _SAVES)),
}


def why_not(report: Report, probe: str) -> str:
    """Say what a check that a report does not have needs."""
    return wants(probe, {check.probe for check in report.checks})


def wants(probe: str, made: Collection[str]) -> str:
    """Say what a check that was not made needs, beside those that were."""
    wanted = CATALOGUE[probe].wants
    if any(CATALOGUE[other].wants == wanted for other in made):
        return f"give a function that makes the pipeline to check {probe}, too, or mend what was found"
    return wanted
