"""`benchmarks.learning`: every arm runs, a run goes on where it was stopped, and the tables say what the file says."""

from __future__ import annotations

import importlib
import json
from itertools import product
from pathlib import Path

import pytest
from depth import pairs
from needs import needs

pytest.importorskip("torch")
needs("stable_baselines3")
from benchmarks.learning import evaluation
from benchmarks.learning.__main__ import ARMS, ENVS, MODULES, known, table


@pytest.mark.parametrize(("loop", "replay"), pairs(product(MODULES, ENVS), list(ARMS)))
def test_every_arm_runs(loop: tuple[str, str], replay: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library, task = loop
    monkeypatch.setattr(evaluation, "EPISODES", 1)
    course = evaluation.Course(ENVS[task], seed=0, steps=20)
    importlib.import_module(MODULES[library]).run(task, replay, course)
    assert len(course.returns) == evaluation.EVALUATIONS
    assert course.cpu > 0


def test_a_line_that_was_cut_off_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    assert known(file) == []
    file.write_text('{"seed": 0}\n{"se')
    assert known(file) == [{"seed": 0}]
    assert file.read_text() == '{"seed": 0}\n'


def test_the_table_has_seeds_that_every_arm_has() -> None:
    runs = [
        {"replay": arm, "seed": seed, "returns": [10.0 * number + seed] * 5, "cost": 2.0 + number}
        for number, arm in enumerate(ARMS)
        for seed in (3, 1, 2)
        if (arm, seed) != ("own", 3)
    ]
    lines = table(json.loads(json.dumps(runs))).splitlines()
    assert lines[0].startswith("| 2 seeds |")
    own, ours, prioritized = (line.split(" | ") for line in lines[2:5])
    assert own[1] == "1.5 [1.0, 2.0]"
    assert ours[2:] == ["+10.0 [+10.0, +10.0]", "3.000", "1.50 [1.50, 1.50] |"]
    assert prioritized[2] == "+20.0 [+20.0, +20.0]"
    assert lines[-1].endswith("relive's: 11, 12; relive's, prioritized: 21, 22.")
