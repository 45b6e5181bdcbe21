"""The question about GPUs: its short form runs without one, its goals find their figures, its clock is the GPU's."""

from __future__ import annotations

import dataclasses
import os
from contextlib import contextmanager, nullcontext
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from answers import answer, cell
from benchmarks import device, report, worker
from benchmarks.harness import run_question
from benchmarks.peers import Spec, Unsupported, adapter
from benchmarks.peers.device import TURNS, ReliveOnDevice, TensorsByHand, TorchrlOnDevice, gpu
from benchmarks.question import TINY, Answer
from needs import needs

torch = needs("torch")


@pytest.mark.slow
def test_the_short_form_runs_and_says_where() -> None:
    found = run_question(device.QUESTION, TINY, ["relive"])
    assert set(found.rows["relive"].cells) == {setting.key for setting in found.settings}
    text, name = report.markdown([found], {}), gpu()
    assert (f"On one {name}" if name else "**No GPU was there.**") in text
    assert "asked of relive | asked | measured" in text


@pytest.mark.parametrize("name", ["relive", "tensors", "limit"])
def test_what_stands_beside_relive_runs(name: str) -> None:
    peer, refused, memory = adapter(name, "device")(), [], None
    for setting in device.columns(device.SMALL, on_gpu=False):
        try:
            device.prepare(peer, setting.values)(2)
        except Unsupported:
            refused.append(setting.key)
        if setting.key == device.QUESTION.memory:
            memory = peer.memory
    copies = {"draw-17", "draw-235"}
    assert refused == [] if name != "limit" else copies.isdisjoint(refused)
    if name != "relive":
        assert memory == (4 * (2 * 235 + 6 + 1) + 2 * 8 if name == "tensors" else None)


@pytest.mark.parametrize(("capacity", "lanes"), [(100_000, 64), (97 * 1024, 1024)])
def test_bytes_of_a_step(capacity: int, lanes: int) -> None:
    """Observations of 48, with priorities."""
    spec, (ours, theirs) = Spec(capacity, lanes, prioritized=True, obs_size=48), (ReliveOnDevice(), TensorsByHand())
    for peer in (ours, theirs):
        peer.make(spec)
    assert ours.nbytes() < 0.62 * theirs.nbytes()


def on_a_gpu(torchrl: str) -> Answer:
    """Make an answer as if measured there: relive 10 us, by hand 20, a copy 8, TorchRL 300; 500, 1,000 and no bytes."""
    settings = device.columns(device.ON_GPU, on_gpu=True)
    figures = {"relive": (10.0, 500), "tensors": (20.0, 1000), "limit": (8.0, None), "torchrl-plain": (300.0, 1000)}
    cells = {name: {each.key: cell(figure) for each in settings} for name, (figure, _) in figures.items()}
    more = {name: {"version": torchrl, "output": "torch", "memory": memory} for name, (_, memory) in figures.items()}
    made = answer(device.QUESTION, cells, **more)
    return dataclasses.replace(made, settings=settings)


def test_goals_are_those_of_the_medians_of_captured_calls() -> None:
    made = on_a_gpu("0.14.1, CUDA tree")
    assert len({setting.key for setting in made.settings}) == len(made.settings)
    asked = {(v["at_least"], v["at_most"]): v["figure"] for v in report.target_figures(made)}
    assert asked == {
        (None, 260): 10.0, (None, 320): 10.0, (1, None): 30.0, (None, 4): 1.25, (None, 100): 10.0, (None, 0.62): 0.5,
    }  # fmt: skip
    for row in made.rows.values():
        row.cells = {key: cell for key, cell in row.cells.items() if not key.endswith("captured")}
    assert [v["at_most"] for v in report.target_figures(made) if v["figure"] is not None] == [0.62]


def test_a_tree_on_the_cpu_is_not_the_one_that_is_asked_about() -> None:
    verdicts = report.target_figures(on_a_gpu("0.14.1, CPU tree"))
    assert [v["figure"] for v in verdicts if "TorchRL" in v["text"]] == [None] * 3


class FakeCuda:
    """A clock that moves by a millisecond with every replay, or with what `work` says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.captured: list[str] = []

    def Event(self, enable_timing: bool) -> Any:
        event = SimpleNamespace(at=-1.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda later: later.at - event.at
        return event

    def Stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: None)

    current_stream = Stream

    def stream(self, stream: Any) -> Any:
        return nullcontext()

    def CUDAGraph(self) -> Any:
        return SimpleNamespace(replay=lambda: setattr(self, "now", self.now + 1.0))

    @contextmanager
    def graph(self, graph: Any) -> Any:
        self.captured.append("begin")
        yield
        self.captured.append("end")


def test_a_gpus_events_count_and_a_replay_is_so_many_turns() -> None:
    peer, cuda = ReliveOnDevice(), FakeCuda()
    peer.torch, peer.device = SimpleNamespace(cuda=cuda), "cuda"

    def work(turns: int) -> None:
        cuda.captured.append(str(turns))
        cuda.now += 2.0 * turns

    assert peer.on_clock(work, captured=False)(5) == pytest.approx((10e-3, 10e-3))
    del cuda.captured[:]
    run = peer.on_clock(work, captured=True)
    assert cuda.captured == [str(TURNS), "begin", str(TURNS), "end"]
    assert run(2 * TURNS + 1) == pytest.approx(((2 * TURNS + 1) / TURNS * 1e-3,) * 2)
    peer.no_graph = "it waits"
    with pytest.raises(Unsupported, match="it waits"):
        peer.on_clock(work, captured=True)


@pytest.mark.parametrize("captured", [False, True])
def test_the_class_by_hand_draws_what_it_stored(captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captured)
    peer = TensorsByHand()
    peer.ensure(Spec(4 * TURNS, num_envs=4, prioritized=True))
    device, peer.device = peer.device, "cuda"  # rows are numbered there in a graph
    peer.fill(4 * TURNS)
    peer.device = device
    index, fields, weights = peer.draw(500)
    steps = list(islice(peer.steps, TURNS))
    obs, after = (torch.cat([step[place] for step in steps]) for place in (0, 3))
    matches = (fields[0][:, None] == obs).all(2)
    assert matches.any(1).all()
    assert fields[3].equal(after[matches.int().argmax(1)])
    assert fields[0].equal(peer.columns[0].flatten(0, 1)[index])
    assert len(index.unique()) > 50
    assert weights.eq(1).all()
    everywhere = torch.arange(4 * TURNS, device=peer.device)
    peer.update((everywhere,), 1e9 * ((everywhere == 7) | (everywhere == 63)))
    assert set(peer.draw(100)[0].tolist()) == {7, 63}


def test_no_other_question_lets_its_peers_see_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for question, seen in (("device", "0"), ("n_step", "")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        worker.open_session(question, "relive")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


def test_torchrl_without_its_compiled_part_says_so() -> None:
    needs("torchrl", "tensordict")
    peer = TorchrlOnDevice()
    if "tree" in peer.version():
        pytest.skip("it is there")
    with pytest.raises(Unsupported, match="compiled part"):
        peer.ensure(Spec(64, num_envs=4, prioritized=True))
    peer.ensure(Spec(64, num_envs=4), fill=64)
    peer.sample(8, 2)
    assert peer.nbytes() == 64 * (4 * (17 + 17 + 6 + 1) + 3)
