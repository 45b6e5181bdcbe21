"""Every benchmark file runs, at a size of seconds, and says what it measured and what it could not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from answers import answer, cell, question
from benchmarks import harness, report, suite
from benchmarks.harness import Chunk, run_question, summarize, undisturbed
from benchmarks.peers import ADAPTERS, Peer, Spec, adapter
from benchmarks.question import (
    TINY,
    Cell,
    Setting,
    Target,
    count,
    own_memory,
    own_ratio,
    ratio_to,
    times_faster,
    times_smaller,
)
from benchmarks.workload import SEQUENCE_OBS_SIZE, frame_steps, single_steps
from depth import LONG, some

from relive.cli import bench
from relive.errors import ArgumentError

ROOT = Path(__file__).resolve().parents[2]
PEERS = ("relive", "numpy", "limit", "tensors")


def peers_of() -> dict[str, tuple[str, ...]]:
    """Choose peers: each adapter for the first question that has it; in the long mode for all of them."""
    seen: set[tuple[str, str]] = set()
    chosen = {}
    for name in suite.NAMES:
        question = suite.question(name)
        new = [peer for peer in PEERS[1:] if peer in question.peers and (LONG or (peer, question.kind) not in seen)]
        seen |= {(peer, question.kind) for peer in new}
        chosen[name] = (PEERS[0], *new)
    return chosen


PEERS_OF = peers_of()
LONGER = {"behind_learner", "cliffs", "import_time", "trajectories"}  # a learner, processes, files of some size


@pytest.mark.parametrize("name", suite.NAMES if LONG else some((name for name in suite.NAMES if name not in LONGER), 2))
def test_question_runs(name: str) -> None:
    answer = run_question(suite.question(name), TINY, PEERS_OF[name])
    row = answer.rows["relive"]
    assert not row.missing
    assert row.notes == {}
    assert set(row.cells) == {setting.key for setting in answer.settings}
    assert all(0 < cell.p20 <= cell.median for cell in row.cells.values())
    tails = [cell.p99 for cell in row.cells.values()]
    assert all(tail is not None for tail in tails) if answer.question.single else tails == [None] * len(tails)
    text = report.markdown([answer], {})
    assert all(setting.label in text for setting in answer.settings)
    asked = "| odd form |" if any(setting.base for setting in answer.settings) else "| asked of relive | asked |"
    assert asked in text


def test_questions_are_those_that_the_command_offers() -> None:
    assert bench.QUESTIONS == suite.NAMES
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "QUESTION = Question(" in path.read_text()}
    assert files == set(suite.NAMES)


def test_a_peer_that_dies_or_does_not_import_costs_its_own_cells_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stable_baselines3.py").write_text("raise ImportError('no such peer here')\n")
    (tmp_path / "cpprb.py").write_text(
        "import os\n__version__ = '0'\nclass ReplayBuffer:\n    def __init__(self, *a, **k): os._exit(9)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = run_question(suite.question("n_step"), TINY, ["cpprb", "sb3", "relive"])
    assert answer.rows["sb3"].missing == "no such peer here"
    text = report.markdown([answer], {})
    assert "* Stable-Baselines3: skipped, it does not import (no such peer here)" in text
    assert "| Stable-Baselines3" not in text
    assert answer.rows["cpprb"].notes == {"add-n1": "its process ended (exit status 9)"}
    assert len(answer.rows["relive"].cells) == 6


A, B = Setting("a", "A", {}), Setting("b", "B", {})


def test_report_holds_relive_against_its_targets() -> None:
    targets = (
        Target("library", times_faster("a"), at_least=4),
        Target("prioritized", times_faster("a", than="prioritized"), at_least=4),
        Target("growth", own_ratio("b", "a"), at_most=1.5),
        Target("absent", times_faster("b", than="numpy"), at_least=1),
    )
    peers = {"relive": {"a": cell(2.0), "b": cell(3.0)}, "cpprb": {"a": cell(10.0)}, "sb3": {"a": cell(6.0)}}
    more: dict[str, Any] = {"cpprb": {"notes": {"b": "no such thing"}}, "sb3": {"output": "torch"}}
    lines = report.section(answer(question(A, B, targets=targets), peers, **more))
    assert "| **relive 1** | numpy | 2.00 (2.00) x0.33 | 3.00 (3.00) |" in lines
    assert "| cpprb 2 | numpy | 10.0 (10.0) x1.67 | - |" in lines
    assert "| Stable-Baselines3 3 | torch | **6.00 (6.00) x1.00** | - |" in lines
    assert "* cpprb: no such thing (B)" in lines
    assert lines[-4:] == [
        "| library | ≥ 4 | 3.00 | **LOSE** |",
        "| prioritized | ≥ 4 | 5.00 | pass |",
        "| growth | ≤ 1.5 | 1.50 | pass |",
        "| absent | ≥ 1 | not measured |  |",
    ]


def test_chunks_that_shared_their_core_are_left_out() -> None:
    quiet, shared = Chunk(1e-3, 1e-3), Chunk(5e-3, 1e-3)
    measured = [quiet] * 12 + [shared] * 30
    assert undisturbed(measured) == [quiet] * 12
    assert summarize(measured, calls=10) == Cell(p20=100.0, median=100.0, chunks=12, calls=10, cpu=1.0)
    assert summarize([quiet] + [shared] * 30, calls=10).chunks == 31


def test_single_calls_have_a_median_and_a_tail_of_their_own() -> None:
    quiet = Chunk(101e-6, 101e-6, tuple(i * 1e-6 for i in range(101)))
    shared = Chunk(1.0, 1e-3, (1.0,))
    cell = summarize([quiet, shared], calls=101, enough=1)
    assert cell.p99 == pytest.approx(99.0)
    assert cell.figure == cell.median == pytest.approx(50.0)
    assert cell.p20 == pytest.approx(20.0)
    assert Cell(p20=1.0, median=2.0, chunks=1, calls=1, cpu=1.0).figure == 1.0


def test_report_of_single_calls_and_of_memory() -> None:
    targets = (
        Target("growth", own_ratio("b", "a"), at_most=2),
        Target("tail", own_ratio("b", "a", tail=True), at_most=2),
        Target("over cpprb", ratio_to("cpprb", "a"), at_most=1),
        Target("bytes", own_memory, at_most=100),
        Target("smaller", times_smaller("cpprb"), at_least=3),
        Target("no such peer", times_smaller("flashbax"), at_least=3),
    )
    asked = question(A, B, targets=targets, single=True, memory="b", growth=True)
    peers = {"relive": {"a": cell(2.0, 4.0), "b": cell(3.0, 12.0)}, "cpprb": {"a": cell(4.0, 8.0)}}
    lines = report.section(answer(asked, peers, relive={"memory": 90.0}, cpprb={"memory": 180.0}))
    assert "Figures in µs: the median of single calls (their 99th percentile)." in lines
    assert "| | output | A | B | last / first | bytes a step |" in lines
    assert "| **relive 1** | numpy | 2.00 (4.00) x0.50 | 3.00 (12.0) | 1.50 | 90 |" in lines
    assert "| cpprb 2 | numpy | **4.00 (8.00) x1.00** | - | - | 180 |" in lines
    assert lines[-6:] == [
        "| growth | ≤ 2 | 1.50 | pass |",
        "| tail | ≤ 2 | 3.00 | **LOSE** |",
        "| over cpprb | ≤ 1 | 0.50 | pass |",
        "| bytes | ≤ 100 | 90.00 | pass |",
        "| smaller | ≥ 3 | 2.00 | **LOSE** |",
        "| no such peer | ≥ 3 | not measured |  |",
    ]


def test_fresh_settings_get_new_processes_and_buffers_are_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[harness.Worker] = []

    class Counted(harness.Worker):
        def __init__(self, question: str, peer: str, core: int) -> None:
            super().__init__(question, peer, core)
            started.append(self)

    monkeypatch.setattr(harness, "Worker", Counted)
    answer = run_question(suite.question("atari"), TINY, ["relive"])
    fresh = [setting.key for setting in answer.settings if setting.fresh]
    assert fresh == ["fresh-32", "fresh-512", "add"]
    assert len({worker.process.pid for worker in started}) == 1 + len(fresh)
    assert all(worker.process.returncode == 0 for worker in started)
    memory = answer.rows["relive"].memory
    assert memory is None or 7_056 <= memory < 7_700  # None: the system does not say


@pytest.mark.parametrize("name", suite.NAMES)
def test_every_peer_of_a_question_has_its_adapter(name: str) -> None:
    asked = suite.question(name)
    assert all(issubclass(adapter(peer, asked.kind), Peer) for peer in asked.peers)


def test_every_adapter_belongs_to_a_question() -> None:
    asked = {(peer, q.kind) for q in map(suite.question, suite.NAMES) for peer in q.peers}
    assert asked == {(name, kind) for name, kinds in ADAPTERS.items() for kind in kinds}


def test_cpprb_is_given_the_last_steps_as_one_item(monkeypatch: pytest.MonkeyPatch) -> None:
    items: list[dict[str, np.ndarray]] = []

    class Buffer:
        def __init__(self, size: int, fields: object) -> None: ...

        def add(self, **fields: np.ndarray) -> None:
            items.append({name: values.copy() for name, values in fields.items()})

        def sample(self, n: int) -> None: ...

    stub = ModuleType("cpprb")
    stub.ReplayBuffer = Buffer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cpprb", stub)
    peer = adapter("cpprb", "sequences")()
    peer.ensure(Spec(4_000, length=120))
    steps = single_steps(300, SEQUENCE_OBS_SIZE)
    peer.add_and_draw(2, steps)
    assert len(items) == 5  # after 120, 160, 200, 240 and 280 steps
    for first, item in zip(range(0, 200, 40), items, strict=True):
        np.testing.assert_array_equal(item["obs"], [step.obs for step in steps[first : first + 120]])
        np.testing.assert_array_equal(item["rew"], [np.float32(step.reward) for step in steps[first : first + 120]])


def test_frames_follow_each_other() -> None:
    steps = frame_steps()
    ends = [i for i, step in enumerate(steps) if step.terminated or step.truncated]
    assert ends == [999, 1999]
    assert [(steps[i].terminated, steps[i].truncated) for i in ends] == [(True, False), (False, True)]
    for i in (0, 1, 998, 1000, 1998):
        np.testing.assert_array_equal(steps[i].next_obs, steps[i + 1].obs)
        np.testing.assert_array_equal(steps[i].next_obs[:3], steps[i].obs[1:])
    for i in (0, 1000):
        assert all(np.array_equal(frame, steps[i].obs[0]) for frame in steps[i].obs)


def test_counts_read_like_a_table_head() -> None:
    assert [count(n) for n in (1_000_000, 10_000, 1000, 4096)] == ["10^6", "10^4", "1,000", "4,096"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"questions": ("add_two",)}, "got `add_two` - at `relive bench --questions`"),
        ({"peers": ("cprb",)}, "got `cprb` - at `relive bench --peers`"),
        (
            {"out": Path("report.txt")},
            "Expected a name that ends in one of `.md`, `.json`, `.svg`, `.png`, got `report.txt`",
        ),
    ],
)
def test_command_refuses(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        bench.main(**arguments)  # type: ignore[arg-type]
    assert text in str(caught.value)


def test_command_needs_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match="Expected a source checkout with `benchmarks/`, got"):
        bench.checkout()


def test_command_prints_and_writes_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(suite, "QUICK", TINY)
    out = tmp_path / "report.json"
    bench.main(("n_step",), quick=True, peers=("relive",), out=out)
    shown = capsys.readouterr().out
    assert "## Three-step returns against one step" in shown
    assert "relive's kernels" in shown
    found = json.loads(out.read_text())
    assert found["questions"][0]["peers"]["relive"]["cells"]["add-n3"]["p20"] > 0
    assert {target["verdict"] for target in found["questions"][0]["targets"]} <= {"pass", "**LOSE**"}
