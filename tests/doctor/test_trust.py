"""The doctor is silent about right buffers of every style, and names the cause of each mistake in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from depth import LONG, pairs, some_of_each
from gymnasium.vector import AutoresetMode
from needs import needs
from styles import MISTAKES, STYLES, Loop, Tensors

from relive.doctor import examine
from relive.doctor._catalogue import CATALOGUE


@pytest.mark.parametrize(("style", "mode"), pairs(STYLES, [*AutoresetMode]))
def test_a_right_buffer_has_no_bug(style: type[Loop], mode: AutoresetMode) -> None:
    if style is Tensors:
        needs("torch")
    report = examine(style, name=style.__name__, modes=mode)
    assert report.right, report.bugs
    assert {check.table for check in report.checks} >= {"A", "B", "F"}


# Of several mistakes that have one name, by default the first.
@pytest.mark.parametrize(
    ("style", "mistake", "cause"),
    some_of_each(MISTAKES, lambda row: row[2], 1),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_mistake_is_named_within_thirty_seconds(style: Callable[[str], Loop], mistake: str, cause: str) -> None:
    if style is Tensors:
        needs("torch")
    table = next(check.table for probe, check in CATALOGUE.items() if cause in probe)
    least: dict[str, Any] = {"n_steps": 1, "modes": "disabled"} if table in "CDF" else {"n_steps": 3}
    choices = {} if LONG else least
    begin = time.process_time()
    report = examine(lambda: style(mistake), name="mine", **choices)
    assert time.process_time() - begin < 30
    named = [bug for bug in report.bugs if cause in ", ".join([bug.probe, *bug.also])]
    assert named, report.bugs
    assert named[0].example
    assert len(report.bugs) <= 4, report.bugs
    for finding in report.findings:
        assert finding.wrong > 0
        assert "obs" in finding.example or "items" in finding.example
        assert finding.remedy
    if cause == "changes what is stored":
        assert ("puts it back" in named[0].example) == ("back" in mistake)


def test_each_probe_of_one_thread_has_a_mistake() -> None:
    causes = {cause for *_, cause in MISTAKES}
    alone = [probe for probe, check in CATALOGUE.items() if check.table != "E"]
    assert not [probe for probe in alone if not any(cause in probe for cause in causes)]
