"""The real RLinf beside relive: the same draws from the same directories, and its loaders on relive's buffer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
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


def rollout(rng: np.random.Generator, shape: dict[str, Any], number: int) -> RLinfTrajectory:
    """Make one of RLinf's trajectories, of random length; the fields are those of all in its directory."""
    epochs = int(rng.integers(1, 3))
    steps, width = epochs * int(rng.integers(1, 5)), int(rng.integers(1, 4))

    def numbers(*more: int, rows: int = steps) -> Any:
        return torch.from_numpy(rng.normal(size=(rows, width, *more)).astype(np.float32)).to(shape["dtype"])

    trajectory = RLinfTrajectory(
        max_episode_length=steps, model_weights_id=f"{number:08d}-0000-5000-8000-{number:012d}"
    )
    trajectory.rewards, trajectory.actions = numbers(1), numbers(shape["actions"])
    extra = epochs if shape["extra"] else 0
    for name in FLAGS:
        setattr(trajectory, name, torch.from_numpy(rng.random((steps + extra, width, 1)) < 0.3))
    trajectory.prev_values = numbers(1)  # RLinf shifts and flattens values with an extra row
    if shape["logprobs"]:
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


def both(number: int, rng: np.random.Generator, path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield RLinf's buffer and relive's, with one random directory, which one of them has written."""
    shape = {
        "dtype": [torch.float32, torch.float32, torch.bfloat16][int(rng.integers(3))],
        "actions": int(rng.integers(1, 8)),
        "extra": number % 2 == 0,
        "logprobs": bool(rng.integers(2)),
    }
    seed, window, count = int(rng.integers(2**31)), int(rng.integers(1, 8)), int(rng.integers(1, 8))
    rollouts = [rollout(rng, shape, number) for number in range(count)]
    auto = number % 3 == 0  # files with the rows of resets
    theirs = RLinfBuffer(seed, True, 9, 9, auto, str(path / "theirs"))
    theirs.add_trajectories(rollouts)
    mine = TrajectoryReplayBuffer(seed=seed, trajectory_format="pt", sample_window_size=window)
    mine.add_trajectories(rollouts)
    theirs.close()
    if not auto:
        fresh = RLinfBuffer(seed, True, 9, 9)
        fresh.add_trajectories(rollouts)
        fresh.save_checkpoint(str(path / "theirs"))
        fresh.close()
    mine.save_checkpoint(save_path=path / "mine")
    for source in (path / "theirs", path / "mine"):
        other = RLinfBuffer(0, sample_window_size=window)
        ours = TrajectoryReplayBuffer(
            seed=0, sample_window_size=window, output="torch", cache_size=int(rng.integers(9))
        )
        other.load_checkpoint(str(source))
        ours.load_checkpoint(load_path=source)
        yield ours, other
        other.close()


def compare(first: int, last: int, path: Path) -> None:
    for number in range(first, last):
        rng = np.random.default_rng(number)
        for direction, (ours, theirs) in enumerate(both(number, rng, path / str(number))):
            assert (ours.size, ours.total_samples, ours.trajectory_counter) == (
                theirs.size,
                theirs.total_samples,
                theirs._trajectory_counter,
            )
            size = min(sum(info[2] for info in list(ours.iter_trajectory_metadata())[-ours.sample_window_size :]), 50)
            for _ in range(5):
                same(ours.sample(size), theirs.sample(size), f"directory {number}, direction {direction}")


def test_draws_are_rlinfs_from_random_directories(folder: Path) -> None:
    compare(0, 3, folder)


@pytest.mark.slow
def test_draws_are_rlinfs_from_sixty_directories(folder: Path) -> None:
    compare(6, 66, folder)


@pytest.fixture
def buffers() -> list[TrajectoryReplayBuffer]:
    rng = np.random.default_rng(0)
    shape = {"dtype": torch.bfloat16, "actions": 7, "extra": True, "logprobs": True}
    found = []
    for number in range(2):
        buffer = TrajectoryReplayBuffer(number, output="torch")
        buffer.add_trajectories([rollout(rng, shape, 10 * number + k) for k in range(3)])
        found.append(buffer)
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
    rng = np.random.default_rng(1)
    theirs = rollout(rng, {"dtype": torch.float32, "actions": 2, "extra": True, "logprobs": True}, 3)
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
    shape = {"dtype": torch.bfloat16, "actions": 7, "extra": True, "logprobs": True}
    theirs = RLinfBuffer(0)
    for number in range(20):
        whole = rollout(np.random.default_rng(number), shape, number)
        same(buffers[0]._flatten_trajectory(whole), theirs._flatten_trajectory(whole))
    theirs.close()
