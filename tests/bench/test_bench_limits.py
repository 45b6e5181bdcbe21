"""The measurements of what limits relive: each runs, and what it shows is what it timed."""

from __future__ import annotations

import pytest
from benchmarks import limits
from benchmarks.harness import Chunk
from benchmarks.limit_cases import Fact, Runs
from benchmarks.limit_writes import Scattered
from benchmarks.question import TINY, Run, Scale
from benchmarks.workload import lane_steps
from depth import some


@pytest.mark.parametrize("name", some(limits.CASES, 2))
def test_case_runs(name: str) -> None:
    found = list(limits.lines(limits.CASES[name], TINY))
    assert len({line.label for line in found}) == len(found) > 1
    assert all(float(line.figure.split()[0].replace(",", "")) >= 0 for line in found)
    assert name in ("threads", "load-new", "size") or found[0].over == "1.00"


def taking(microseconds: float, share: float = 1.0) -> Run:
    return lambda calls: (calls * microseconds * 1e-6, calls * microseconds * 1e-6 * share)


def test_what_stands_beside_relive_is_over_its_time() -> None:
    def case(scale: Scale) -> Runs:
        return {"own": taking(20), "half": taking(10), "while others had the core": taking(400, share=0.1)}

    text: list[str] = []
    limits.CASES["fake"] = case
    try:
        limits.show(["fake"], TINY, text.append)
    finally:
        del limits.CASES["fake"]
    assert text[1:] == [
        "| fake | own | 20.0 (20.0) | 1.00 |",
        "|  | half | 10.0 (10.0) | 0.50 |",
        "|  | while others had the core | 40.0 (40.0) | 2.00 |",
    ]


def test_facts_are_shown_as_they_are() -> None:
    assert list(limits.lines(lambda scale: [Fact("so many, MB", "1.98")], TINY)) == [("so many, MB", "1.98", "")]


def test_cpu_time_counts_where_too_few_chunks_were_undisturbed() -> None:
    quiet, shared = Chunk(2.0, 2.0), Chunk(9.0, 3.0)
    assert limits.alone([quiet, quiet, shared], 2) == [quiet, quiet, shared]
    assert limits.alone([quiet, shared, shared], 2) == [quiet, Chunk(3.0, 3.0), Chunk(3.0, 3.0)]


def test_scattered_rows_are_where_relive_has_them() -> None:
    lanes, rows = 4, 64
    store, steps = Scattered(lanes * rows, lanes), lane_steps(lanes, 3)
    store(steps)
    for t, step in enumerate(steps):
        block, row = divmod(t, store.block)
        assert (store.values[block, :, row, 17:23] == step.action).all()
        assert (store.values[block, :, row, :17] == step.obs).all()
        assert (store.values[block, :, row, 23] == step.reward).all()


def test_unknown_cases_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        limits.main(["add-two"])
    assert "no such case: add-two" in capsys.readouterr().err
