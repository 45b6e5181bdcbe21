"""The doctor is silent about right buffers of every style, and names the cause of each mistake in them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from needs import needs
from styles import MISTAKES, STYLES, Loop, Tensors

from relive.doctor import examine


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_a_right_buffer_has_no_bug(style: type[Loop]) -> None:
    if style is Tensors:
        needs("torch")
    report = examine(style, name=style.__name__)
    assert report.right, report.bugs
    assert {check.table for check in report.checks} >= {"A", "B", "F"}


@pytest.mark.parametrize(("style", "mistake", "cause"), MISTAKES, ids=lambda value: getattr(value, "__name__", value))
def test_a_mistake_is_named_within_thirty_seconds(style: Callable[[str], Loop], mistake: str, cause: str) -> None:
    if style is Tensors:
        needs("torch")
    begin = time.process_time()
    report = examine(lambda: style(mistake), name="mine")
    assert time.process_time() - begin < 30
    named = [bug for bug in report.bugs if cause in ", ".join([bug.probe, *bug.also])]
    assert named, report.bugs
    assert named[0].example
    assert len(report.bugs) <= 4, report.bugs
