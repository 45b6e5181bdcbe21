"""What engineers of large policies need: narrow numbers, texts, rules for draws and whole trajectories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made import STEPS, WIDTH, buffers, rollout
from needs import needs

from relive._base import narrow
from relive.errors import ArgumentError, NotEnoughData, SchemaError
from relive.trajectories import Selection, Trajectory, TrajectoryReplayBuffer, verify

NARROW = sorted(narrow.BITS)


# Narrow numbers


@pytest.mark.parametrize("without", [False, True], ids=["ml_dtypes", "raw bits"])
@pytest.mark.parametrize("name", NARROW)
def test_narrow_numbers_are_kept_bit_by_bit(
    name: str, without: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow._dtype.cache_clear()
    if without:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    else:
        needs("ml_dtypes")
    dtype = getattr(torch, name)
    bits = torch.randint(0, 256, (STEPS, WIDTH, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    numbers = bits.view(dtype)
    with TrajectoryReplayBuffer(folder / "a", seed=0, cache_size=0) as buffer:
        buffer.add_trajectories([{"curr_obs": {"x": numbers}, "rewards": torch.arange(8.0).reshape(4, 2, 1)}])
        buffer.sync()
        batch = buffer.sample(20)
        assert batch.curr_obs.x.dtype.itemsize == dtype.itemsize
        assert (batch.curr_obs.x.dtype.isbuiltin == 2) is not without
        drawn = batch.torch()
        assert drawn.curr_obs.x.dtype == dtype
        rows = numbers.reshape(8, -1)[drawn.rewards[:, 0].long()]
        assert torch.equal(drawn.curr_obs.x.view(torch.uint8), rows.view(torch.uint8))
        buffer.add_trajectories([buffer.load_trajectory(0)])  # what comes out can go in again
        assert buffer.load_trajectory(1).arrays["curr_obs", "x"].tobytes() == bits.numpy().tobytes()
    assert not verify(folder / "a")
    with TrajectoryReplayBuffer(seed=0, output="torch", trajectory_format="pt") as buffer:
        buffer.load_checkpoint(folder / "a")
        assert buffer.sample(3)["curr_obs"]["x"].dtype == dtype
        buffer.save_checkpoint(folder / "pt")
    with TrajectoryReplayBuffer(seed=0, output="torch", cache_size=0) as buffer:
        buffer.load_checkpoint(folder / "pt")
        rows = buffer.sample(20)
        wanted = numbers.reshape(8, -1)[rows["rewards"][:, 0].long()]
        assert torch.equal(rows["curr_obs"]["x"].view(torch.uint8), wanted.view(torch.uint8))
    narrow._dtype.cache_clear()


def test_safetensors_reads_narrow_fields(folder: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    fields = {name: torch.ones(2, 1, 3).to(getattr(torch, name)) for name in NARROW}
    with TrajectoryReplayBuffer(folder) as buffer:
        buffer.add_trajectories([fields])
    (file,) = folder.glob("*.safetensors")
    found = safetensors.load_file(file)
    assert {name: found[name].dtype for name in NARROW} == {name: getattr(torch, name) for name in NARROW}


# Texts, tokens, fields that come later


def test_what_a_trajectory_has_once(folder: Path) -> None:
    for buffer in buffers(folder):
        assert set(buffer.sample(3)) == {"forward_inputs", "rewards", "versions"}
        batch = buffer.sample(40, metadata=True)
        numbers = batch.rewards[:, 0].astype(int).tolist()
        assert batch.trajectory_ids.tolist() == numbers
        assert batch.task == ["ab"[number % 2] for number in numbers]
        texts = batch.forward_inputs["texts"]
        assert all(text.startswith(f"{number}, ") for text, number in zip(texts, numbers, strict=True))
        assert {text[-1] for text in texts} == {"0", "1"}
        whole = buffer.load_trajectory(4)
        assert (whole.task, whole.success, whole.forward_inputs["texts"]) == ("a", False, ["4, 0", "4, 1"])
        assert whole.forward_inputs["length"].tolist() == list(range(5))
        assert batch.torch().task == batch.task


def test_each_environment_has_its_own_text() -> None:
    buffer = TrajectoryReplayBuffer(seed=0)
    env = np.broadcast_to(np.arange(WIDTH)[:, None], (STEPS, WIDTH, 1))
    buffer.add_trajectories([{"env": env, "task_descriptions": ["left", "right"]}])
    batch = buffer.sample(30, metadata=True)
    assert batch.task_descriptions == [["left", "right"][env] for env in batch.env[:, 0]]


def test_too_much_text_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"at most 262,144 bytes.*`long`"):
        Trajectory(rewards=np.zeros((2, 1, 1)), long="x" * 300_000)
    with pytest.raises(SchemaError, match=r"shape `\(T, B, ...\)`, got `str` - at `rewards`"):
        Trajectory(rewards="x")


@pytest.mark.parametrize("cache", [0, 9])
@pytest.mark.parametrize("place", ["memory", "disk"])
def test_fields_that_are_missing_or_shorter(place: str, cache: int, folder: Path) -> None:
    path = folder if place == "disk" else None
    with TrajectoryReplayBuffer(path, seed=0, fill={"value": -1, "forward_inputs.ids": 9}, cache_size=cache) as buffer:
        buffer.add_trajectories([rollout(k, tokens=k + 1) for k in range(3)])
        later = rollout(3, tokens=2, value=np.full((STEPS, WIDTH), 7, np.int16))
        buffer.add_trajectories([later])
        buffer.sync()
        for _ in range(5):
            batch = buffer.sample(20)
            number = batch.rewards[:, 0].astype(int)
            assert batch.value.dtype == np.int16
            np.testing.assert_array_equal(batch.value, np.where(number == 3, 7, -1))
            lengths = np.array([1, 2, 3, 2])[number]
            assert batch.forward_inputs.ids.shape[1] == lengths.max()
            inside = np.arange(lengths.max()) < lengths[:, None]
            np.testing.assert_array_equal(batch.forward_inputs.ids, np.where(inside, number[:, None], 9))
        with pytest.raises(SchemaError, match=r"no such field.*`trajectories\[0\].other"):
            buffer.add_trajectories([rollout(1, other=np.zeros((STEPS, WIDTH)))])
        with pytest.raises(SchemaError, match=r"`int16` of shape `\(T, B\)`, got `int32`"):
            buffer.add_trajectories([rollout(1, value=np.zeros((STEPS, WIDTH), np.int32))])
    if place == "disk":
        with (
            TrajectoryReplayBuffer(folder, seed=0) as buffer,
            pytest.raises(SchemaError, match=r"shape `\(T, B, 1\)`, got .* - at `trajectory 1, "),
        ):
            buffer.sample(100)


def test_a_fill_that_the_dtype_lacks() -> None:
    buffer = TrajectoryReplayBuffer(seed=0, fill=-1)
    buffer.add_trajectories([{"a": np.zeros((2, 1))}, {"a": np.zeros((2, 1)), "b": np.zeros((2, 1), np.uint8)}])
    with pytest.raises(SchemaError, match=r"a value that `uint8` has, got `-1\.0`"):
        buffer.sample(20)


# Rules for draws


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ({"max_staleness": 2}, {3, 4, 5}),
        ({"max_staleness": 1, "policy_version": 4}, {3, 4, 5}),
        ({"success": True}, {0, 3}),
        ({"success": False}, {1, 2, 4, 5}),
        ({"min_length": 4, "max_length": 4}, set(range(6))),
        ({"where": lambda info: info["returns"][0] > 8}, {3, 4, 5}),
        ({"weights": {"a": 0, 5: 0}}, {1, 3}),
        ({"max_staleness": 3, "success": True, "per": "task"}, {3}),
    ],
)
def test_rules_leave_trajectories_out(rules: dict[str, Any], allowed: set[int], folder: Path) -> None:
    for buffer in buffers(folder):
        assert set(buffer.sample(200, **rules).rewards[:, 0].astype(int).tolist()) == allowed
        buffer.select = Selection(**rules)
        assert set(buffer.sample(200).rewards[:, 0].astype(int).tolist()) == allowed


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ({}, [1, 2, 3, 4]),
        ({"min_length": 2}, [0, 2, 3, 4]),
        ({"weights": {1: 3}}, [1, 6, 3, 4]),
        ({"per": "trajectory"}, [1, 1, 1, 1]),
        ({"per": "trajectory", "weights": {"a": 2}}, [2, 1, 2, 1]),
        ({"per": "task"}, [1 / 4, 2 / 6, 3 / 4, 4 / 6]),
        ({"per": "task", "weights": {"a": 3}}, [3 / 4, 2 / 6, 9 / 4, 4 / 6]),
    ],
)
def test_how_often_a_trajectory_is_drawn(rules: dict[str, Any], wanted: list[float]) -> None:
    buffer = TrajectoryReplayBuffer(seed=3)
    buffer.add_trajectories([rollout(number, steps=number + 1) for number in range(4)])
    expected = np.array(wanted) / sum(wanted)
    spread = np.sqrt(expected * (1 - expected) / 6_000)
    numbers = np.concatenate([buffer.sample(100, **rules).rewards[:, 0] for _ in range(60)]).astype(int)
    assert (abs(np.bincount(numbers, minlength=4) / 6_000 - expected) <= 5 * spread).all()


def test_rows_of_a_trajectory_are_equally_likely_under_rules() -> None:
    buffer = TrajectoryReplayBuffer(seed=3)
    buffer.add_trajectories([{"row": np.arange(10.0).reshape(5, 2)}])
    for rules in ({"per": "trajectory"}, {"weights": {0: 2}}, {"min_length": 1}):
        counts = np.bincount(buffer.sample(10_000, **rules).row.astype(int), minlength=10)
        assert abs(counts - 1000).max() < 5 * np.sqrt(900)


def test_without_replacement() -> None:
    buffer = TrajectoryReplayBuffer(seed=3)
    buffer.add_trajectories([{"row": np.arange(6.0).reshape(3, 2)}, {"row": np.arange(6.0, 10).reshape(2, 2)}])
    first = np.zeros(10)
    for _ in range(500):
        drawn = buffer.sample(4, replacement=False, weights={1: 2}).row.astype(int)
        assert len(set(drawn)) == 4
        first[drawn[0]] += 1
    wanted = np.array([1.0] * 6 + [2.0] * 4) / 14
    assert (abs(first / 500 - wanted) < 5 * np.sqrt(wanted / 500)).all()
    assert sorted(buffer.sample(10, replacement=False).row) == list(range(10))
    with pytest.raises(NotEnoughData, match="at least 11 different chunk-steps, got 10"):
        buffer.sample(11, replacement=False)


def test_rules_that_fit_nothing_say_so() -> None:
    buffer = TrajectoryReplayBuffer(seed=0)
    buffer.add_trajectories([rollout(number) for number in range(3)])
    with pytest.raises(NotEnoughData, match=r"left out: 1 by `max_staleness=1`, 2 by `success=True`"):
        buffer.sample(3, success=True, max_staleness=1)
    buffer.add_trajectories([{key: value for key, value in rollout(3).items() if key not in ("success", "task")}])
    for rules, text in (({"success": True}, "`success`, once or per step"), ({"per": "task"}, "one `task`")):
        with pytest.raises(SchemaError, match=f"{text}.*trajectory 3"):
            buffer.sample(3, **rules)


def test_rules_follow_what_is_added_and_removed(folder: Path) -> None:
    with TrajectoryReplayBuffer(folder, seed=0, max_trajectories=3, select=Selection(max_staleness=1)) as buffer:
        for number in range(8):
            buffer.add_trajectories([rollout(number)])
            found = set(buffer.sample(50).rewards[:, 0].astype(int).tolist())
            assert found == {number, max(number - 1, 0)}


def test_rules_look_at_what_was_loaded(folder: Path) -> None:
    for number in range(2):
        buffer = TrajectoryReplayBuffer(seed=0)
        buffer.add_trajectories([rollout(6 * number + k) for k in range(6)])
        buffer.save_checkpoint(folder / str(number))
    buffer.load_checkpoint(folder / "0")
    for number in range(2):
        buffer.load_checkpoint(folder / str(number))
        drawn = buffer.sample(60, where=lambda info: info["version"] % 6 > 3).rewards[:, 0]
        assert set(drawn.tolist()) == {6 * number + 4, 6 * number + 5}
        assert buffer.get_trajectory_info(3)["version"] == 6 * number + 3


def test_draws_without_rules_are_as_before() -> None:
    drawn = []
    for rules in ({}, {"min_length": 1}):
        buffer = TrajectoryReplayBuffer(seed=8)
        buffer.add_trajectories([rollout(number, steps=number + 1) for number in range(5)])
        drawn.append(buffer.sample(50, **rules).rewards)
    np.testing.assert_array_equal(*drawn)


# Wrong rules: each is named, whatever its type


WRONG: list[Any] = ["rewards", "", b"x", [1.0, 2.0], (1,), {1}, np.ones(3), np.ones(()), 5, 0, 1.5, True, object()]


@pytest.fixture
def buffer() -> TrajectoryReplayBuffer:
    made = TrajectoryReplayBuffer(seed=0)
    made.add_trajectories([rollout(number) for number in range(2)])
    return made


@pytest.mark.parametrize("weights", WRONG, ids=lambda value: type(value).__name__)
def test_weights_of_another_type(weights: Any, buffer: TrajectoryReplayBuffer) -> None:
    for call in (lambda: Selection(weights=weights), lambda: buffer.sample(4, weights=weights)):
        with pytest.raises(ArgumentError) as caught:
            call()
        wanted = f"Expected a mapping of ids or tasks to weights, got `{type(weights).__name__}`"
        assert str(caught.value) == f"{wanted} - at `Selection(weights)`"


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ({None: 1}, "ids and tasks, got `None`"),
        ({1.0: 1}, "ids and tasks, got `1.0`"),
        ({True: 1}, "ids and tasks, got `True`"),
        ({1: "x"}, "a finite number >= 0, got `'x'`"),
        ({1: np.ones(2)}, "a finite number >= 0, got `array([1., 1.])`"),
        ({"a": -1}, "a finite number >= 0, got `-1`"),
        ({"a": np.nan}, "a finite number >= 0, got `nan`"),
    ],
)
def test_weights_that_are_none(weights: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Selection(weights=weights)
    assert f"Expected {text} - at `Selection(weights" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["max_staleness", "success", "min_length", "max_length", "where", "per", "replacement"]
)
@pytest.mark.parametrize("value", ["x", np.ones(2), [1], {"a": 1}, -1.5], ids=repr)
def test_other_rules_of_another_type(name: str, value: Any, buffer: TrajectoryReplayBuffer) -> None:
    with pytest.raises(ArgumentError, match=rf"at `Selection\({name}\)`"):
        buffer.sample(4, **{name: value})
    assert len(buffer.sample(4).rewards) == 4


def test_ids_as_a_batch_has_them(buffer: TrajectoryReplayBuffer) -> None:
    """Check that NumPy's integers name trajectories, too."""
    ids = buffer.sample(20, metadata=True).trajectory_ids
    assert (buffer.sample(50, weights={ids.max(): 1, ids.min(): 0}).rewards == 1).all()


# Whole trajectories


def test_whole_trajectories_by_id(folder: Path) -> None:
    for buffer in buffers(folder, max_trajectories=4):
        assert buffer.list_trajectory_ids() == [2, 3, 4, 5]
        assert list(buffer.iter_trajectory_metadata()) == [(k, "", STEPS * WIDTH) for k in (2, 3, 4, 5)]
        info = buffer.get_trajectory_info(3)
        assert (info["shape"], info["num_samples"], info["version"], info["task"]) == ((4, 2, 1), 8, 3.0, "b")
        assert info["returns"] == [12.0, 12.0]
        whole = buffer.load_trajectory(3, "")
        np.testing.assert_array_equal(whole.rewards, np.full((STEPS, WIDTH, 1), 3))
        whole.rewards[:] = 0
        assert buffer.load_trajectory(3).rewards.min() == 3, "a copy"
        assert (buffer.size, buffer.total_samples, buffer.trajectory_counter) == (4, 32, 6)
        for wrong in (1, 6, -1, 2**70, "a"):
            with pytest.raises(ArgumentError, match="load_trajectory"):
                buffer.load_trajectory(wrong)
        with pytest.raises(ArgumentError, match="model_weights_id"):
            buffer.load_trajectory(3, "other")
