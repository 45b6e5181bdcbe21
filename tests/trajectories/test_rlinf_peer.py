"""The real RLinf beside relive: its trajectories and loaders on relive's buffer. `tests/golden` has its draws."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rlinf")
torch = pytest.importorskip("torch")
from rlinf.utils.nested_dict_process import concat_batch, put_tensor_device

try:  # 0.4.0
    from rlinf.data.schema.embodied_types import Trajectory as RLinfTrajectory
    from rlinf.data.storage.replay import PreloadReplayBufferDataset, ReplayBufferDataset, replay_buffer_collate_fn
    from rlinf.data.storage.replay import TrajectoryReplayBuffer as RLinfBuffer
except ImportError:  # 0.3.0
    from rlinf.data.embodied_buffer_dataset import (
        PreloadReplayBufferDataset,
        ReplayBufferDataset,
        replay_buffer_collate_fn,
    )
    from rlinf.data.embodied_io_struct import Trajectory as RLinfTrajectory
    from rlinf.data.replay_buffer import TrajectoryReplayBuffer as RLinfBuffer

from relive.trajectories import Trajectory, TrajectoryReplayBuffer

FLAGS = ("terminations", "truncations", "dones")


def rollout(rng: np.random.Generator, number: int) -> RLinfTrajectory:
    """Make one of RLinf's trajectories, of random length."""
    epochs = int(rng.integers(1, 3))
    steps, width = epochs * int(rng.integers(1, 5)), int(rng.integers(1, 4))

    def numbers(*more: int, rows: int = steps) -> Any:
        return torch.from_numpy(rng.normal(size=(rows, width, *more)).astype(np.float32)).to(torch.bfloat16)

    trajectory = RLinfTrajectory(
        max_episode_length=steps, model_weights_id=f"{number:08d}-0000-5000-8000-{number:012d}"
    )
    trajectory.rewards, trajectory.actions = numbers(1), numbers(7)
    for name in FLAGS:
        setattr(trajectory, name, torch.from_numpy(rng.random((steps + epochs, width, 1)) < 0.3))
    trajectory.prev_values = numbers(1)  # RLinf shifts and flattens values with an extra row
    trajectory.prev_logprobs = numbers(3)
    trajectory.versions = torch.full((steps, width, 1), float(number))
    images = torch.from_numpy(rng.integers(0, 256, (steps, width, 2, 2, 3)).astype(np.uint8))
    trajectory.curr_obs = {"states": numbers(2), "main_images": images}
    trajectory.next_obs = {"states": numbers(2), "main_images": images.flip(0)}
    trajectory.forward_inputs = {"action": numbers(4)}
    return trajectory


def same(mine: Any, theirs: Any, at: str = "") -> None:
    assert set(mine) == set(theirs), at
    for key, value in theirs.items():
        if isinstance(value, dict):
            same(mine[key], value, f"{at}.{key}")
        else:
            assert mine[key].dtype == value.dtype, key
            assert torch.equal(mine[key], value), f"{at}.{key}"


@pytest.fixture
def buffers() -> list[TrajectoryReplayBuffer]:
    rng = np.random.default_rng(0)
    found = [TrajectoryReplayBuffer(number, output="torch") for number in range(2)]
    for number, buffer in enumerate(found):
        buffer.add_trajectories([rollout(rng, 10 * number + k) for k in range(3)])
    return found


@pytest.mark.parametrize("demonstrations", [False, True])
@pytest.mark.parametrize("kind", [ReplayBufferDataset, PreloadReplayBufferDataset])
def test_rlinfs_loaders_run_on_it(kind: Any, demonstrations: bool, buffers: list[TrajectoryReplayBuffer]) -> None:
    replay, demos = buffers
    dataset = kind(replay, demos if demonstrations else None, 8, 1, 1, prefetch_size=2)
    loader = torch.utils.data.DataLoader(dataset, batch_size=1, num_workers=0, collate_fn=replay_buffer_collate_fn)
    for batch in itertools.islice(loader, 3):
        assert batch["rewards"].shape == (8, 1)
        assert batch["curr_obs"]["states"].dtype == torch.bfloat16
        assert (batch["versions"] >= 10).flatten().tolist() == [False] * 4 + [demonstrations] * 4
        moved = put_tensor_device(batch, "cpu")
        assert moved["next_obs"]["main_images"].shape == (8, 2, 2, 3)
    if kind is PreloadReplayBufferDataset:
        dataset.close()


def test_concat_batch_joins_batches(buffers: list[TrajectoryReplayBuffer]) -> None:
    joined = concat_batch(buffers[0].sample(3), buffers[1].sample(5))
    assert joined["actions"].shape == (8, 7)
    assert joined["forward_inputs"]["action"].dtype == torch.bfloat16


def test_a_trajectory_is_filled_as_rlinfs_is() -> None:
    theirs = rollout(np.random.default_rng(1), 3)
    mine = Trajectory(max_episode_length=theirs.max_episode_length)
    assert (mine.actions, mine.curr_obs) == (None, {})
    for name in theirs.__dataclass_fields__:
        setattr(mine, name, getattr(theirs, name))
    batches = []
    for one in (mine, theirs):
        buffer = TrajectoryReplayBuffer(seed=5, output="torch")
        buffer.add_trajectories([one])
        batches.append(buffer.sample(20))
    same(*batches)


def test_a_trajectory_is_flattened_as_by_rlinf(buffers: list[TrajectoryReplayBuffer]) -> None:
    """Check all except the values' extra rows, which no draw of RLinf's reaches."""
    theirs = RLinfBuffer(0)
    for number in range(20):
        whole = rollout(np.random.default_rng(number), number)
        same(buffers[0]._flatten_trajectory(whole), theirs._flatten_trajectory(whole))
    theirs.close()
