"""The question about trajectories in files: what stands in its cells, and that nothing is left behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from answers import answer, question
from benchmarks import harness, report, suite, trajectories
from benchmarks.harness import cell_of, run_question
from benchmarks.peers import Unsupported, adapter
from benchmarks.peers.trajectories import TrajectoryPeer
from benchmarks.question import TINY, Cell, Found, Setting, Target
from benchmarks.workload import rollouts

LENGTH, WIDTH = 5, 3


def numbered(number: int) -> dict[str, Any]:
    """Make a rollout whose states are `number * 100 + t * 10 + b`."""
    fields = rollouts(1, LENGTH, WIDTH, side=2, state=1)[0]
    t, b = np.divmod(np.arange((LENGTH + 1) * WIDTH), WIDTH)
    states = (number * 100 + t * 10 + b).astype(np.float32).reshape(LENGTH + 1, WIDTH, 1)
    fields["curr_obs"]["state"], fields["next_obs"]["state"] = states[:-1].copy(), states[1:].copy()
    fields["rewards"] = states[:-1].copy()
    return fields


@pytest.mark.parametrize("name", ["relive", "torchsave"])
def test_peers_draw_the_steps_that_were_added(name: str, tmp_path: Path) -> None:
    peer = adapter(name, "trajectories")()
    assert isinstance(peer, TrajectoryPeer)
    peer.open(tmp_path / "store", 2)
    peer.store([peer.rollout(numbered(number)) for number in range(8)])
    peer.wait()
    for window, wanted in ((0, range(8)), (3, range(5, 8))):
        peer.window(window)
        batch = peer.draw(1_000)
        state = batch["curr_obs"]["state"].numpy()
        np.testing.assert_array_equal(batch["next_obs"]["state"].numpy(), state + 10)
        np.testing.assert_array_equal(batch["rewards"].numpy(), state)
        every = {n * 100 + t * 10 + b for n in wanted for t in range(LENGTH) for b in range(WIDTH)}
        assert set(state.ravel().tolist()) == every
        assert batch["curr_obs"]["image"].shape == (1_000, 3, 2, 2)
        assert batch["dones"].shape == (1_000, 1)
    peer.close()


@pytest.mark.slow
def test_peers_run_one_after_the_other_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[harness.Worker] = []

    class Watched(harness.Worker):
        def __init__(self, question: str, peer: str, core: int) -> None:
            assert all(worker.process.returncode is not None for worker in started)
            super().__init__(question, peer, core)
            assert Path(self.scratch.name).is_dir()
            started.append(self)

    monkeypatch.setattr(harness, "Worker", Watched)
    answer = run_question(suite.question("trajectories"), TINY, ["relive", "torchsave"])
    assert len(started) == 2
    assert not any(Path(worker.scratch.name).exists() for worker in started)
    assert answer.rows["relive"].notes == {}
    reasons = {"read": "what is read through mappings is not counted"}
    reasons |= dict.fromkeys(("save-first", "save-next"), "no checkpoints")
    assert answer.rows["torchsave"].notes == reasons
    for row in answer.rows.values():
        assert row.cells["disk"].figure > 20 * 4 * 2 * (3 * 2 * 2 + 8)  # more than the observations, once
        assert row.cells["durable"].figure >= row.cells["written"].figure > row.cells["add"].figure
    assert 0.9 < answer.rows["relive"].cells["read"].figure < 5


def test_rlinf_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rlinf.py").write_text("raise ImportError('no RLinf here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = run_question(suite.question("trajectories"), TINY, ["rlinf"])
    assert answer.rows["rlinf"].missing == "no RLinf here"
    assert "* RLinf: skipped, it does not import (no RLinf here)" in report.markdown([answer], {})


def test_a_disk_that_is_too_small_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1_000))
    peer = adapter("torchsave", "trajectories")()
    first, second, *_ = trajectories.settings(TINY)
    with pytest.raises(Unsupported, match="GB of disk are needed"):
        trajectories.prepare(peer, first.values)
    with pytest.raises(Unsupported, match="its files could not be made"):
        trajectories.prepare(peer, second.values)


def test_what_was_found_once_becomes_a_cell() -> None:
    assert cell_of(Found((3.0,))) == Cell(p20=3.0, median=3.0, chunks=1, calls=1, cpu=1.0, p99=3.0)
    quiet, shared = [10.0] * 12, [50.0] * 20
    found = Found((*quiet, *shared), (*quiet, *[1.0] * 20))
    assert cell_of(found) == Cell(p20=10.0, median=10.0, chunks=1, calls=12, cpu=1.0, p99=10.0)
    assert cell_of(Found((*quiet[1:], *shared), (*quiet[1:], *[1.0] * 20))).calls == 31


def test_report_of_cells_with_units_of_their_own() -> None:
    target = Target("blocks, ms", trajectories.own_figure("a", 1e-3), at_most=2)
    asked = question(
        Setting("a", "blocks, ms", {}, table="T", scale=1e-3),
        Setting("b", "on disk, MB", {}, table="T", unit="bytes", scale=1e-6),
        targets=[target],
        single=True,
        unit="",
    )
    peers = {
        "relive": {"a": cell_of(Found((1e3, 2e3, 3e3))), "b": cell_of(Found((5e6,)))},
        "torchsave": {"b": cell_of(Found((4e6,)))},
        "rlinf": {"a": cell_of(Found((1e5, 2e5, 3e5))), "b": cell_of(Found((1e7,)))},
    }
    made = answer(asked, peers, **{peer: {"output": "torch"} for peer in peers})
    lines = report.section(made)
    assert "Figures as the columns say: the median of single calls (their 99th percentile)." in lines
    assert "| **relive 1** | torch | 2.00 (2.00) x0.0100 | 5.00 x0.50 |" in lines
    assert "| `torch.save` by hand 2 | torch | - | 4.00 x0.40 |" in lines
    assert "| RLinf 3 | torch | **200 (200) x1.00** | **10.0 x1.00** |" in lines
    assert lines[-1] == "| blocks, ms | ≤ 2 | 2.00 | pass |"
    found = report.as_json([made], {})["questions"][0]["settings"]
    assert [setting["unit"] for setting in found] == ["µs", "bytes"]
