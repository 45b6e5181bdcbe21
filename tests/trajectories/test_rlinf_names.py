"""RLinf's names: its documented example, positional arguments, fields as attributes; and what is refused."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made import rollout

from relive.errors import ReliveError, SchemaError
from relive.mixture import Mixture
from relive.trajectories import Trajectory, TrajectoryReplayBuffer, merge


def test_rlinfs_documented_example(folder: Path) -> None:
    buffer = TrajectoryReplayBuffer(
        seed=1234,
        enable_cache=True,
        cache_size=5,
        sample_window_size=100,
        auto_save=True,
        auto_save_path=str(folder / "buffer"),
        trajectory_format="pt",
    )
    buffer.add_trajectories([rollout(number) for number in range(8)])
    assert buffer.sample(num_chunks=256).rewards.shape == (256, 1)
    assert buffer.sample_chunks(3).rewards.shape == (3, 1)
    buffer.save_checkpoint(save_path=str(folder / "ckpt"))
    buffer.load_checkpoint(load_path=str(folder / "ckpt"), is_distributed=True, local_rank=0, world_size=4)
    assert buffer.size == 2
    assert asyncio.run(buffer.is_ready_async(2))
    buffer.close()
    buffer.clear()
    buffer.clear_cache()
    assert (len(buffer), buffer.total_samples) == (0, 0)
    with TrajectoryReplayBuffer(folder / "buffer") as again:
        assert len(again) == 2, "a closed buffer forgets; its files stay"


def test_positional_arguments_are_rlinfs() -> None:
    first = TrajectoryReplayBuffer(7, False, 3, 50, False, "", "pt")
    assert (first.sample_window_size, first.trajectory_format, first.path) == (50, "pt", None)
    second = TrajectoryReplayBuffer(seed=7)
    for buffer in (first, second):
        buffer.add_trajectories([rollout(number) for number in range(5)])
    np.testing.assert_array_equal(first.sample(30).rewards, second.sample(30).rewards)


def test_clear_cache_reads_again(folder: Path) -> None:
    with TrajectoryReplayBuffer(folder, seed=0, cache_size=9) as buffer:
        buffer.add_trajectories([rollout(number) for number in range(3)])
        buffer.sync()
        assert buffer.get_stats()["cache_size"] == 3
        buffer.clear_cache()
        assert (buffer.get_stats()["cache_size"], buffer.get_stats()["memory_bytes"]) == (0, 0)
        assert set(buffer.sample(50).rewards[:, 0]) == {0, 1, 2}


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


ADDED: list[Any] = [
    None, Trajectory(rewards=ONES), [{1: ONES}], [{"rewards": ONES, "obs": RECURSIVE}],
    [{"rewards": torch.empty(3, 2, 1, device="meta")}], [{"rewards": ONES, "x": object()}],
    [{"rewards": ONES, "x": [{"y": 1}]}], [{"rewards": ONES, "\ud800": ONES}],
    [{"rewards": ONES, "obs": {"a\udc80": ONES}}], [{"rewards": ONES, "obs": {"\ud800": "text"}}],
]  # fmt: skip
MADE: list[dict[str, Any]] = [{"path": True}, {"path": 1.5}, {"trajectory_format": "pkl"}, {"output": "jax"}]
MADE += [{"fill": "x"}, {"select": {"success": True}}]
CALLS = [
    *(lambda buffer, given=given: buffer.add_trajectories(given) for given in ADDED),
    *(lambda buffer, given=given: TrajectoryReplayBuffer(**given) for given in MADE),
    lambda buffer: TrajectoryReplayBuffer(3, seed=4),
    lambda buffer: buffer.save_checkpoint(),
    lambda buffer: buffer.save_checkpoint(3),
    lambda buffer: buffer.load_checkpoint("a", load_path="b"),
    lambda buffer: buffer.close(wait=1),
]


@pytest.mark.parametrize("call", CALLS)
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


def test_a_task_in_lists_is_found_by_no_rule() -> None:
    buffer = TrajectoryReplayBuffer(seed=0)
    buffer.add_trajectories([{"rewards": ONES, "task": [["push"], ["pull"]]}])
    assert buffer.sample(2, metadata=True)["task"] == [[["push"], ["pull"]]] * 2


def test_merging_keeps_texts(folder: Path) -> None:
    for rank in range(2):
        with TrajectoryReplayBuffer(folder / f"rank_{rank}") as buffer:
            buffer.add_trajectories([rollout(rank)])
    for layout in ("safetensors", "pt"):
        merge([folder / "rank_0", folder / "rank_1"], folder / layout, layout)
        merged = TrajectoryReplayBuffer()
        merged.load_checkpoint(folder / layout)
        assert [merged.load_trajectory(k).forward_inputs["texts"][1] for k in range(2)] == ["0, 1", "1, 1"]
        assert merged.get_trajectory_info(1)["task"] == "b"


@pytest.mark.parametrize("epochs", [0, 2])
def test_private_names_that_rlinf_0_4_0_reads(epochs: int, folder: Path) -> None:
    """Check `_flatten_trajectory` for its RLT worker; the index and `_load_trajectory` for its visualizer."""
    steps, width = 6, 2
    rng = np.random.default_rng(0)
    flags = torch.from_numpy(rng.random((steps + epochs, width, 1)) < 0.5)
    numbers = torch.from_numpy(rng.random((steps, width, 3), np.float32))
    fields = {"actions": numbers, "rewards": numbers[..., :1], "dones": flags}
    fields["curr_obs"] = {"states": numbers.to(torch.bfloat16)}
    with TrajectoryReplayBuffer(auto_save=True, auto_save_path=str(folder / "own")) as buffer:
        for number in range(3):
            buffer.add_trajectories([Trajectory(model_weights_id=f"{number}", max_episode_length=9, **fields)])
        flat = buffer._flatten_trajectory(Trajectory(**fields))
        assert len(buffer) == 3
        each = flags if not epochs else flags.reshape(epochs, -1, width, 1)[:, 1:].reshape(steps, width, 1)
        assert set(flat) == {"actions", "rewards", "dones", "curr_obs"}
        assert torch.equal(flat["actions"], numbers.reshape(-1, 3))
        assert torch.equal(flat["dones"], each.reshape(-1, 1))
        assert torch.equal(flat["curr_obs"]["states"], fields["curr_obs"]["states"].reshape(-1, 3))
        assert buffer._trajectory_id_list == list(buffer._trajectory_index) == [0, 1, 2]
        info = buffer._trajectory_index[1]
        assert (info["model_weights_id"], tuple(info["shape"][:2]), info["num_samples"]) == ("1", (steps, width), 12)
        assert 7 not in buffer._trajectory_index
        loaded = buffer._load_trajectory(1, info["model_weights_id"])
        assert torch.equal(loaded.rewards[2, 1], numbers[2, 1, :1])
        assert loaded.rewards[2, 1].item() == pytest.approx(float(numbers[2, 1, 0]))
        assert torch.equal(loaded.dones, each)
        assert (loaded.prev_logprobs, loaded.next_obs, loaded.max_episode_length) == (None, {}, 9)
        assert loaded.curr_obs["states"].dtype == torch.bfloat16
