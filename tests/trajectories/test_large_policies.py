"""What engineers of large policies need: narrow numbers, texts, rules for draws, whole trajectories, RLinf's names."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relive import _narrow
from relive.errors import ArgumentError, NotEnoughData, ReliveError, SchemaError
from relive.mixture import Mixture
from relive.trajectories import Selection, Trajectory, TrajectoryReplayBuffer, merge, verify

NARROW = sorted(_narrow.BITS)
STEPS, WIDTH = 4, 2


def rollout(number: int, steps: int = STEPS, tokens: int = 3, **more: Any) -> dict[str, Any]:
    full = {"rewards": np.float32, "versions": np.float32}
    return {
        **{name: np.full((steps, WIDTH, 1), number, dtype) for name, dtype in full.items()},
        "forward_inputs": {
            "ids": np.full((steps, WIDTH, tokens), number),
            "texts": [f"{number}, {env}" for env in range(WIDTH)],
            "length": np.arange(number + 1),
        },
        "task": "ab"[number % 2],
        "success": number % 3 == 0,
        **more,
    }


def buffers(path: Path, count: int = 6, **choices: Any) -> Any:
    """The same trajectories in memory, on disk with a cache, and on disk without."""
    for place, cache in ((None, 5), (path / "cached", 9), (path / "bare", 0)):
        with TrajectoryReplayBuffer(place, cache_size=cache, **{"seed": 1, **choices}) as buffer:
            buffer.add_trajectories([rollout(number) for number in range(count)])
            buffer.sync()
            yield buffer


# Narrow numbers


@pytest.mark.parametrize("without", [False, True], ids=["ml_dtypes", "raw bits"])
@pytest.mark.parametrize("name", NARROW)
def test_narrow_numbers_are_kept_bit_by_bit(
    name: str, without: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _narrow._dtype.cache_clear()
    if without:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    else:
        pytest.importorskip("ml_dtypes")
    dtype = getattr(torch, name)
    bits = torch.randint(0, 256, (STEPS, WIDTH, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    numbers = bits.view(dtype)
    with TrajectoryReplayBuffer(tmp_path / "a", seed=0, cache_size=0) as buffer:
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
    assert not verify(tmp_path / "a")
    with TrajectoryReplayBuffer(seed=0, output="torch", trajectory_format="pt") as buffer:
        buffer.load_checkpoint(tmp_path / "a")
        assert buffer.sample(3)["curr_obs"]["x"].dtype == dtype
        buffer.save_checkpoint(tmp_path / "pt")
    with TrajectoryReplayBuffer(seed=0, output="torch", cache_size=0) as buffer:
        buffer.load_checkpoint(tmp_path / "pt")
        rows = buffer.sample(20)
        wanted = numbers.reshape(8, -1)[rows["rewards"][:, 0].long()]
        assert torch.equal(rows["curr_obs"]["x"].view(torch.uint8), wanted.view(torch.uint8))
    _narrow._dtype.cache_clear()


def test_safetensors_reads_narrow_fields(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    fields = {name: torch.ones(2, 1, 3).to(getattr(torch, name)) for name in NARROW}
    with TrajectoryReplayBuffer(tmp_path) as buffer:
        buffer.add_trajectories([fields])
    (file,) = tmp_path.glob("*.safetensors")
    found = safetensors.load_file(file)
    assert {name: found[name].dtype for name in NARROW} == {name: getattr(torch, name) for name in NARROW}


# Texts, tokens, fields that come later


def test_what_a_trajectory_has_once(tmp_path: Path) -> None:
    for buffer in buffers(tmp_path):
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
    with pytest.raises(SchemaError, match=r"at most 262,144 bytes.*\$\.long"):
        Trajectory(rewards=np.zeros((2, 1, 1)), long="x" * 300_000)
    with pytest.raises(SchemaError, match=r"shape `\(T, B, ...\)`, got `str` - at `\$.rewards`"):
        Trajectory(rewards="x")


@pytest.mark.parametrize("cache", [0, 9])
@pytest.mark.parametrize("place", ["memory", "disk"])
def test_fields_that_are_missing_or_shorter(place: str, cache: int, tmp_path: Path) -> None:
    path = tmp_path if place == "disk" else None
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
        with pytest.raises(SchemaError, match=r"no such field.*\$.trajectories\[0\].other"):
            buffer.add_trajectories([rollout(1, other=np.zeros((STEPS, WIDTH)))])
        with pytest.raises(SchemaError, match=r"`int16` of shape `\(T, B\)`, got `int32`"):
            buffer.add_trajectories([rollout(1, value=np.zeros((STEPS, WIDTH), np.int32))])
    if place == "disk":
        with (
            TrajectoryReplayBuffer(tmp_path, seed=0) as buffer,
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
def test_rules_leave_trajectories_out(rules: dict[str, Any], allowed: set[int], tmp_path: Path) -> None:
    for buffer in buffers(tmp_path):
        assert set(buffer.sample(200, **rules).rewards[:, 0].astype(int).tolist()) == allowed
        buffer.select = Selection(**rules)
        assert set(buffer.sample(200).rewards[:, 0].astype(int).tolist()) == allowed


def shares(buffer: TrajectoryReplayBuffer, draws: int = 200, **rules: Any) -> np.ndarray:
    numbers = np.concatenate([buffer.sample(100, **rules).rewards[:, 0] for _ in range(draws)]).astype(int)
    return np.bincount(numbers, minlength=4) / len(numbers)


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
    spread = np.sqrt(expected * (1 - expected) / 20_000)
    assert (abs(shares(buffer, **rules) - expected) <= 5 * spread).all()


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
    for _ in range(2000):
        drawn = buffer.sample(4, replacement=False, weights={1: 2}).row.astype(int)
        assert len(set(drawn)) == 4
        first[drawn[0]] += 1
    wanted = np.array([1.0] * 6 + [2.0] * 4) / 14
    assert (abs(first / 2000 - wanted) < 5 * np.sqrt(wanted / 2000)).all()
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
    for wrong in ({"max_staleness": -1}, {"per": "row"}, {"weights": {1.5: 1}}, {"weights": {1: -1}}, {"where": 3}):
        with pytest.raises(ArgumentError, match=r"Selection\("):
            buffer.sample(3, **wrong)


def test_rules_follow_what_is_added_and_removed(tmp_path: Path) -> None:
    with TrajectoryReplayBuffer(tmp_path, seed=0, max_trajectories=3, select=Selection(max_staleness=1)) as buffer:
        for number in range(8):
            buffer.add_trajectories([rollout(number)])
            found = set(buffer.sample(50).rewards[:, 0].astype(int).tolist())
            assert found == {number, max(number - 1, 0)}


def test_rules_look_at_what_was_loaded(tmp_path: Path) -> None:
    for number in range(2):
        buffer = TrajectoryReplayBuffer(seed=0)
        buffer.add_trajectories([rollout(6 * number + k) for k in range(6)])
        buffer.save_checkpoint(tmp_path / str(number))
    buffer.load_checkpoint(tmp_path / "0")
    for number in range(2):
        buffer.load_checkpoint(tmp_path / str(number))
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


# Whole trajectories and RLinf's names


def test_whole_trajectories_by_id(tmp_path: Path) -> None:
    for buffer in buffers(tmp_path, max_trajectories=4):
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


def test_rlinfs_documented_example(tmp_path: Path) -> None:
    buffer = TrajectoryReplayBuffer(
        seed=1234,
        enable_cache=True,
        cache_size=5,
        sample_window_size=100,
        auto_save=True,
        auto_save_path=str(tmp_path / "buffer"),
        trajectory_format="pt",
    )
    buffer.add_trajectories([rollout(number) for number in range(8)])
    assert buffer.sample(num_chunks=256).rewards.shape == (256, 1)
    assert buffer.sample_chunks(3).rewards.shape == (3, 1)
    buffer.save_checkpoint(save_path=str(tmp_path / "ckpt"))
    buffer.load_checkpoint(load_path=str(tmp_path / "ckpt"), is_distributed=True, local_rank=0, world_size=4)
    assert buffer.size == 2
    assert asyncio.run(buffer.is_ready_async(2))
    buffer.close()
    buffer.clear()
    buffer.clear_cache()
    assert (len(buffer), buffer.total_samples) == (0, 0)
    with TrajectoryReplayBuffer(tmp_path / "buffer") as again:
        assert len(again) == 2, "a closed buffer forgets; its files stay"


def test_positional_arguments_are_rlinfs() -> None:
    first = TrajectoryReplayBuffer(7, False, 3, 50, False, "", "pt")
    assert (first.sample_window_size, first.trajectory_format, first.path) == (50, "pt", None)
    second = TrajectoryReplayBuffer(seed=7)
    for buffer in (first, second):
        buffer.add_trajectories([rollout(number) for number in range(5)])
    np.testing.assert_array_equal(first.sample(30).rewards, second.sample(30).rewards)


def test_clear_cache_reads_again(tmp_path: Path) -> None:
    with TrajectoryReplayBuffer(tmp_path, seed=0, cache_size=9) as buffer:
        buffer.add_trajectories([rollout(number) for number in range(3)])
        buffer.sync()
        assert buffer.get_stats()["cache_size"] == 3
        buffer.clear_cache()
        assert (buffer.get_stats()["cache_size"], buffer.get_stats()["memory_bytes"]) == (0, 0)
        assert set(buffer.sample(50).rewards[:, 0]) == {0, 1, 2}


def test_close_without_waiting_still_writes_all(tmp_path: Path) -> None:
    buffer = TrajectoryReplayBuffer(tmp_path)
    buffer.add_trajectories([rollout(number) for number in range(20)])
    buffer.close(wait=False)
    assert not any(thread.daemon for thread in threading.enumerate() if thread.name == "relive-closing")
    with pytest.raises(ArgumentError, match="a closed one"):
        buffer.sample(1)
    buffer.close()  # waits
    with TrajectoryReplayBuffer(tmp_path) as again:
        assert len(again) == 20


def test_tensors_out_by_choice() -> None:
    made = [TrajectoryReplayBuffer(seed=2, output=output) for output in ("numpy", "torch")]
    for buffer in made:
        buffer.add_trajectories([rollout(number) for number in range(3)])
    arrays, tensors = (buffer.sample(9) for buffer in made)
    assert type(tensors) is dict
    assert type(tensors["forward_inputs"]) is dict
    np.testing.assert_array_equal(arrays.forward_inputs.ids, tensors["forward_inputs"]["ids"].numpy())
    mixed = Mixture(made[1], made[1]).sample(5)
    assert type(mixed) is dict
    assert mixed["rewards"].shape == (5, 1)


def test_fields_are_attributes() -> None:
    trajectory = Trajectory(max_episode_length=5)
    assert (trajectory.actions, trajectory.forward_inputs, len(trajectory)) == (None, {}, 0)
    trajectory.curr_obs["states"] = torch.ones(3, 2, 4)
    trajectory.dones = np.zeros((4, 2, 1), bool)
    trajectory.rewards = np.ones((3, 2, 1))
    assert trajectory.dones.shape == (3, 2, 1), "the reset's row is dropped"
    assert trajectory.num_samples == 6
    buffer = TrajectoryReplayBuffer(seed=0)
    buffer.add_trajectories([trajectory])
    assert buffer.sample(5).curr_obs.states.shape == (5, 4)
    trajectory.rewards = None
    trajectory.rewards = np.ones((5, 2, 1))
    with pytest.raises(SchemaError, match=r"the shape `\(5, 2, ...\)` of the other fields"):
        buffer.add_trajectories([trajectory])
    assert len(buffer) == 1
    with pytest.raises(SchemaError, match="at least one field"):
        buffer.add_trajectories([Trajectory(max_episode_length=3)])
    with pytest.raises(AttributeError, match="without a field `reward`"):
        _ = trajectory.reward
    assert copy.deepcopy(trajectory).rewards.shape == (5, 2, 1)


ONES = np.ones((3, 2, 1))
RECURSIVE: dict[str, Any] = {}
RECURSIVE["a"] = RECURSIVE


@pytest.mark.parametrize(
    "call",
    [
        lambda buffer: buffer.add_trajectories([{1: ONES}]),
        lambda buffer: buffer.add_trajectories(None),
        lambda buffer: buffer.add_trajectories(Trajectory(rewards=ONES)),
        lambda buffer: buffer.add_trajectories([{"rewards": ONES, "obs": RECURSIVE}]),
        lambda buffer: buffer.add_trajectories([{"rewards": torch.empty(3, 2, 1, device="meta")}]),
        lambda buffer: buffer.add_trajectories([{"rewards": ONES, "x": object()}]),
        lambda buffer: buffer.add_trajectories([{"rewards": ONES, "x": [{"y": 1}]}]),
        lambda buffer: pickle.dumps(buffer),
        lambda buffer: copy.deepcopy(buffer),
        lambda buffer: TrajectoryReplayBuffer(True),
        lambda buffer: TrajectoryReplayBuffer(1.5),
        lambda buffer: TrajectoryReplayBuffer(3, seed=4),
        lambda buffer: TrajectoryReplayBuffer(trajectory_format="pkl"),
        lambda buffer: TrajectoryReplayBuffer(output="jax"),
        lambda buffer: TrajectoryReplayBuffer(fill="x"),
        lambda buffer: TrajectoryReplayBuffer(select={"success": True}),
        lambda buffer: buffer.save_checkpoint(),
        lambda buffer: buffer.save_checkpoint(3),
        lambda buffer: buffer.load_checkpoint("a", load_path="b"),
        lambda buffer: buffer.close(wait=1),
    ],
)
def test_wrong_arguments_are_relives_errors(call: Any) -> None:
    buffer = TrajectoryReplayBuffer(seed=0)
    with pytest.raises(ReliveError):
        call(buffer)
    assert len(buffer) == 0


def test_any_field_name_can_be_used() -> None:
    buffer = TrajectoryReplayBuffer(seed=0)
    names = ("self", "keys", "length", "arrays", "metadata", "num_samples")
    buffer.add_trajectories([dict.fromkeys(names, ONES)])
    assert set(buffer.sample(2)) == set(names)
    assert buffer.load_trajectory(0)["length"].shape == ONES.shape


def test_merging_keeps_texts(tmp_path: Path) -> None:
    for rank in range(2):
        with TrajectoryReplayBuffer(tmp_path / f"rank_{rank}") as buffer:
            buffer.add_trajectories([rollout(rank)])
    for layout in ("safetensors", "pt"):
        merge([tmp_path / "rank_0", tmp_path / "rank_1"], tmp_path / layout, layout)
        merged = TrajectoryReplayBuffer()
        merged.load_checkpoint(tmp_path / layout)
        assert [merged.load_trajectory(k).forward_inputs["texts"][1] for k in range(2)] == ["0, 1", "1, 1"]
        assert merged.get_trajectory_info(1)["task"] == "b"
