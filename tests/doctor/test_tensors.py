"""Buffers of tensors under examination: each mistake of FastTD3's is found by itself, and none in a repaired one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from depth import some
from needs import needs
from styles import Given

import relive
from relive.doctor import Item, Report, TensorEnvs, examine, pipelines
from relive.doctor._world import Place, World
from relive.errors import ArgumentError

torch: Any = needs("torch")

from relive.doctor.pipelines._device import Device
from relive.doctor.pipelines._fasttd3 import REPAIRS, FastTD3, PrioritizedFastTD3

NEXT_OBS, WRAPS, RESETS = "wrong next_obs bootstrapped", "ring wraps in mid-episode", "reset in mid-episode"
CHANGES, MASSES = "a draw changes what is stored", "draws by mass at 42 million rows"
LATE = {"late priorities", "late priorities, another draw in between"}
# What the doctor says where one mistake is left: its probes for n = 3, and those for one step.
FOUND: dict[str, tuple[set[str], set[str]]] = {
    "final observation": ({NEXT_OBS}, {NEXT_OBS}),
    "write head": ({WRAPS}, set()),
    "reset": ({RESETS}, set()),
    "write while drawing": ({CHANGES}, set()),
    "late priorities": (set(), LATE),
    "float32 sums": (set(), {MASSES}),
}


def found(report: Report, n_step: int) -> set[str]:
    return {finding.probe for finding in report.findings if finding.n_step == n_step}


def test_all_lanes_step_in_one_call_and_end_at_different_times() -> None:
    lanes, calls = 6, 40
    envs = TensorEnvs(World().make_env, lanes, torch.device("cpu"))
    obs, world = envs.reset(), World()
    singles = [world.make_env() for _ in range(lanes)]
    assert obs.tolist() == [[float(env.reset()[0][0])] for env in singles]
    patterns = set()
    for _ in range(calls):
        obs, reward, terminated, truncated, extras = envs.step()
        kinds = [values.dtype for values in (obs, reward, terminated, truncated, extras["final_obs"])]
        assert kinds == [torch.float32, torch.float32, torch.bool, torch.bool, torch.float32]
        assert (obs.shape, reward.shape, extras["final_obs"].shape) == ((lanes, 1), (lanes,), (lanes, 1))
        for lane, env in enumerate(singles):
            final, got, *ends, _ = env.step(0)
            assert (extras["final_obs"][lane].item(), reward[lane].item()) == (final[0], got)
            assert [terminated[lane].item(), truncated[lane].item()] == ends
            assert obs[lane].item() == (env.reset()[0][0] if any(ends) else final[0])
        patterns.add(tuple((terminated | truncated).tolist()))
    assert {(True,) * 3 + (False,) * 3, (False,) * 3 + (True,) * 3} <= patterns
    # Every step of eight successive episodes has another reward.
    steps = [Place(lane, episode, t) for lane in range(lanes) for episode in range(8) for t in range(7)]
    assert len({place.reward for place in steps}) == len(steps)


def test_tensors_are_made_on_the_device() -> None:
    envs = TensorEnvs(World().make_env, 2, "meta")
    obs, reward, terminated, truncated, extras = envs.reset(), *envs.step()[1:]
    assert {value.device.type for value in (obs, reward, terminated, truncated, extras["final_obs"])} == {"meta"}


def test_nothing_is_wrong_with_a_repaired_stand_in() -> None:
    for kind, tables in some([(PrioritizedFastTD3, "ABCDF"), (FastTD3, "ABDF")], 1):
        report = examine(lambda kind=kind: kind("cpu", REPAIRS))
        assert report.right, report.findings
        assert {check.table for check in report.checks} == set(tables)
        of = {check.of for check in report.checks if check.probe == "phantom step" and check.n_step == 1}
        assert of == {4 * 120}


@pytest.mark.parametrize("mistake", REPAIRS)
def test_each_mistake_is_found_by_itself_with_its_remedy(mistake: str) -> None:
    several, one = FOUND[mistake]
    kind = FastTD3 if several else PrioritizedFastTD3
    report = examine(lambda: kind("cpu", {*REPAIRS} - {mistake}), n_steps=(1, 3) if several else 1)
    assert (found(report, 3), found(report, 1)) == (several, one)
    for finding in report.findings:
        assert "obs" in finding.example or "items" in finding.example
        assert finding.remedy


def test_the_stand_in_makes_them_all() -> None:
    report = examine(pipelines.named("fasttd3"))
    wrong = [(finding.probe, finding.n_step, finding.wrong, finding.of) for finding in report.findings]
    assert wrong[:2] == [(NEXT_OBS, 1, 52, 480), (NEXT_OBS, 3, 153, 472)]
    assert wrong[2:] == [(WRAPS, 3, 32, 120), (RESETS, 3, 13, 112), (CHANGES, 3, 8, 8)]
    text = next(finding.example for finding in report.findings if finding.probe == CHANGES)
    assert "`truncated` (_fasttd3.py, line " in text
    assert "puts it back" in text
    report = examine(pipelines.named("fasttd3-prioritized"), n_steps=1)
    assert found(report, 1) == {NEXT_OBS, *LATE, MASSES}


@pytest.mark.parametrize("repaired", [False, True])
def test_a_truncated_newest_step_is_taken_for_an_end_in_a_full_ring(repaired: bool) -> None:
    """Check that the newest step's mark reads "not done" during a draw, and a truncated step is done."""
    world, buffer = World(), FastTD3("cpu", {"final observation", *(["write head"] if repaired else [])})
    # One lane of four is truncated at call 41, after three steps.
    buffer.run(world.make_env, 4, 41, 3, 0.5, autoreset_mode=None, capacity=28)
    item = buffer.items()
    places = [world.place(obs) for obs in item.obs[:, 0].tolist()]
    newest = torch.tensor([place.episode == 8 and place.lane == 3 for place in places])
    assert item.bootstrap[newest].tolist() == ([0.125, 0.25, 0.5] if repaired else [0.0] * 3)


def test_a_write_that_is_put_back_within_a_line_is_seen_in_a_tensor() -> None:
    class Quick(FastTD3):
        def sample(self, n: int) -> Any:
            self._buffer["reward"].add_(1.0).sub_(1.0)
            return super().sample(n)

    report = examine(lambda: Quick("cpu", REPAIRS), n_steps=1)
    assert [finding.example for finding in report.findings] == [
        "while `sample` draws items it writes to `reward`, and puts it back"
    ]


@pytest.mark.slow
def test_nothing_is_wrong_with_a_device_buffer() -> None:
    report = examine(lambda: Device("cpu"), n_steps=3)
    assert report.right, report.findings
    assert all("write" in reason for reason in report.skipped)
    assert {check.table for check in report.checks} == {"A", "B", "C", "D", "F"}


def test_a_reset_observation_given_to_a_device_buffer_is_found() -> None:
    class Wrong(relive.DeviceBuffer):
        def add(self, **step: Any) -> Any:
            return super().add(**{**step, "final_obs": step["next_obs"]})

    class Planted(Device):
        update = arrays = choose = probability = None

        def __init__(self) -> None:
            super().__init__("cpu")
            self._kind = Wrong

    assert found(examine(Planted, n_steps=1), 1) == {NEXT_OBS}


@pytest.mark.parametrize(
    "item",
    [
        Item(torch.tensor([[0.0]]), torch.tensor([1.0]), torch.tensor([0.5], dtype=torch.float64), torch.tensor([[1]])),
        Item(np.array([[9, 0.0]]), np.array([1]), np.array([0.5]), np.array([[9, 1]]), [(0, 0)], np.ones(1)),
        [Item(torch.tensor(0), torch.tensor(1.0), torch.tensor([0.5]), torch.tensor([7, 1], dtype=torch.bfloat16))],
    ],
)
def test_items_of_tensors_and_columns(item: Any) -> None:
    report = examine(Given(item), n_steps=1, modes="same_step")
    assert report.right, report.findings


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (Item(torch.zeros(2), torch.zeros(1), torch.zeros(2), torch.zeros(2)), "an `Item` of columns"),
        (Item(1.0, 1.0, 1.0, 1.0), "an `Item` of columns"),
    ],
)
def test_what_are_no_columns_is_refused(item: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=r"Expected an `Item` of columns, .* - at `Given.items`"):
        examine(Given(item), n_steps=1)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("lanes", 2.5), ("lanes", "two"), ("batch", None), ("batch", 0), ("threads", 1), ("modes", 5), ("modes", "warp")],
)
def test_an_attribute_that_means_something_else_is_named(name: str, wrong: Any) -> None:
    """Check an innocent method of that name, too."""
    for value in (wrong, lambda: 5):
        pipeline = Given(Item(np.zeros((1, 1)), np.ones(1), np.full(1, 0.5), np.ones((1, 1))))
        setattr(pipeline, name, value)
        with pytest.raises(ArgumentError, match=rf"Expected .*, got .* - at `Given.{name}`"):
            examine(pipeline)


def test_lanes_and_positions_outside_their_limits_are_refused() -> None:
    pipeline = Given(Item(np.zeros((1, 1)), np.ones(1), np.full(1, 0.5), np.ones((1, 1))))
    pipeline.lanes = 0
    with pytest.raises(ArgumentError, match=r"Expected 1 to 1000 environments, got `0` - at `Given.lanes`"):
        examine(pipeline)

    class Few(PrioritizedFastTD3):
        update = None

        def choose(self, masses: Any, n: int) -> Any:
            return super().choose(masses, n)[1:]

    with pytest.raises(ArgumentError, match=r"Expected 524288 positions below 1114113, got .* - at `Few.choose`"):
        examine(Few("cpu"), n_steps=1)
