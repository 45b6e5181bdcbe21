"""Many runs on a few processes: what fails, what dies, and what is shown."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import signal
from collections.abc import Sequence

import pytest
from rich.console import Console

from relive_lab.studies import runner
from relive_lab.studies.runner import Display, Outcome, Report, run_all


@dataclasses.dataclass(frozen=True)
class Half:
    """A number to be halved."""

    number: int

    @property
    def label(self) -> str:
        return f"half of {self.number}"

    @property
    def cost(self) -> float:
        return 1.0


def half(task: Half, report: Report) -> tuple[float, bool]:
    """Divide an even number by two; 7 kills its process."""
    if task.number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    if task.number % 2:
        raise ValueError(f"{task.number} is odd")
    going = report(1.0, f"{task.number / 2}")
    return task.number / 2, going


def halved(numbers: Sequence[int], workers: int) -> tuple[dict[int, Outcome[Half]], str]:
    tasks, shown = [Half(number) for number in numbers], io.StringIO()
    outcomes = run_all(tasks, half, Display(tasks, Console(file=shown)), workers)
    return {outcome.task.number: outcome for outcome in outcomes}, shown.getvalue()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_task_that_fails_and_a_process_that_dies_are_reported_and_the_others_done() -> None:
    outcomes, shown = halved([7, 2, 3, 4], workers=2)
    assert {number: (each.result, each.complete) for number, each in outcomes.items()} == {
        2: (1.0, True), 3: (None, False), 4: (2.0, True), 7: (None, False),
    }  # fmt: skip
    assert outcomes[7].error == "its process ended with status -9"
    assert "ValueError: 3 is odd" in outcomes[3].error
    assert "half of 3, failed:" in shown
    assert re.search(r"\[[34]/4\] half of 4: 2.0", shown)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_what_no_process_is_left_for_is_not_started() -> None:
    outcomes, _ = halved([2, 7, 4], workers=1)
    assert sorted(outcomes) == [2, 7]
    assert runner.exit_status([2, 7, 4], list(outcomes.values())) == 1


@pytest.mark.parametrize(("runs", "lines"), [(20, 20), (runner.MANY_RUNS + 100, 10)])
def test_many_runs_get_a_line_for_each_tenth(runs: int, lines: int) -> None:
    shown = io.StringIO()
    display = Display([Half(0)] * runs, Console(file=shown))
    for index in range(runs):
        display.ended(index, "")
    assert shown.getvalue().count("] half of 0") == lines
