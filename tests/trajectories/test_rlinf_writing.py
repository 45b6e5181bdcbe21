"""Checkpoints in RLinf's layout: whole, in small steps, and never half."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relive._disk.files import Folder
from relive.errors import SchemaError, StorageError
from relive.trajectories import Trajectory, TrajectoryReplayBuffer, convert
from relive.trajectories._store import StoreSnapshot


def trajectory(number: int = 0, **fields: Any) -> Trajectory:
    rng = np.random.default_rng(number)
    steps = 3 + number % 3
    rewards = rng.normal(size=(steps, 2, 1)).astype(np.float32)
    states = rng.normal(size=(steps + 1, 2, 3))
    obs = {"curr_obs": {"states": states[:-1]}, "next_obs": {"states": states[1:]}}
    return Trajectory(**{"max_episode_length": number, "rewards": rewards, **obs, **fields})


def buffer_of(count: int, **choices: Any) -> TrajectoryReplayBuffer:
    buffer = TrajectoryReplayBuffer(**{"seed": 3, "trajectory_format": "pt", "sample_window_size": 0, **choices})
    buffer.add_trajectories([trajectory(number) for number in range(count)])
    return buffer


def contents(path: Path, shown: str = "rewards") -> dict[int, Any]:
    """Read a directory as RLinf does, by id; every file that is named must exist.

    The index has the shape of `prev_logprobs`, where there are any.
    """
    metadata = json.loads((path / "metadata.json").read_text())
    index = json.loads((path / "trajectory_index.json").read_text())
    assert metadata["trajectory_format"] == "pt"
    assert metadata["size"] == len(index["trajectory_index"]) == len(index["trajectory_id_list"])
    found = {}
    for id_ in index["trajectory_id_list"]:
        entry = index["trajectory_index"][str(id_)]
        name = f"trajectory_{id_}_{entry['model_weights_id']}.pt"
        found[id_] = torch.load(path / name, map_location="cpu", weights_only=True)
        assert list(found[id_][shown].shape) == entry["shape"]
    return found


def same_rows(path: Path, numbers: list[int]) -> None:
    found = contents(path)
    assert list(found) == numbers
    for number, content in found.items():
        wanted = trajectory(number)
        np.testing.assert_array_equal(content["rewards"].numpy(), wanted["rewards"])
        np.testing.assert_array_equal(content["next_obs"]["states"].numpy(), wanted["next_obs"]["states"])


def test_all_fields_come_back(folder: Path) -> None:
    numbers = np.arange(12).reshape(3, 2, 2)
    extra = {"mine": numbers.astype(np.uint32), "forward_inputs": {"deep": {"deeper": numbers}, "flat": numbers > 3}}
    whole = trajectory(0, prev_logprobs=numbers.astype(np.float16), model_weights_id="after 1200 steps", **extra)
    buffer = TrajectoryReplayBuffer(trajectory_format="pt")
    buffer.add_trajectories([whole])
    buffer.save_checkpoint(folder / "pt")
    (content,) = contents(folder / "pt", "prev_logprobs").values()
    assert content["model_weights_id"] == "after 1200 steps"
    assert content["max_episode_length"] == 0
    assert list(content["next_obs"]) == ["states"]
    convert(folder / "pt", folder / "back")
    with TrajectoryReplayBuffer(folder / "back") as again:
        block = StoreSnapshot(again._store)[0].block()
        assert block.entry.model_weights_id == "after 1200 steps"
        assert block.fields().keys() == whole.arrays.keys()
        for path, array in block.fields().items():
            assert array.dtype == whole.arrays[path].dtype
            np.testing.assert_array_equal(array, whole.arrays[path])


def test_weights_get_rlinfs_uuid(folder: Path) -> None:
    versions = np.full((3, 2, 1), 7, np.float32)
    given = str(uuid.UUID(int=5))
    buffer = TrajectoryReplayBuffer(trajectory_format="pt")
    buffer.add_trajectories([trajectory(0, versions=versions, **more) for more in ({}, {"model_weights_id": given})])
    buffer.save_checkpoint(folder)
    buffer_of(1).save_checkpoint(folder / "without")
    wanted = [str(uuid.uuid5(uuid.NAMESPACE_DNS, versions.tobytes().hex())), given]
    for path, ids in ((folder, wanted), (folder / "without", [str(uuid.uuid5(uuid.NAMESPACE_DNS, "00000000"))])):
        index = json.loads((path / "trajectory_index.json").read_text())["trajectory_index"]
        assert [entry["model_weights_id"] for entry in index.values()] == ids


@pytest.mark.parametrize("own", [False, True])
def test_a_second_save_writes_what_is_new(own: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with buffer_of(20, path=folder / "own" if own else None) as buffer:
        buffer.save_checkpoint(folder / "pt")
        written: list[str] = []
        write = Folder.write
        monkeypatch.setattr(Folder, "write", lambda self, name, parts: (written.append(name), write(self, name, parts)))
        buffer.add_trajectories([trajectory(20)])
        buffer.sync()
        written.clear()
        buffer.save_checkpoint(folder / "pt")
    assert [name.partition("_20_")[0] for name in written] == ["trajectory", "metadata.json", "trajectory_index.json"]
    same_rows(folder / "pt", list(range(21)))


def test_a_save_over_what_was_loaded(folder: Path) -> None:
    buffer_of(3).save_checkpoint(folder)
    second = TrajectoryReplayBuffer(trajectory_format="pt")
    second.load_checkpoint(folder)
    second.add_trajectories([trajectory(3)])
    second.save_checkpoint(folder)
    same_rows(folder, [0, 1, 2, 3])
    assert json.loads((folder / "metadata.json").read_text())["seed"] == 3


@pytest.mark.parametrize("at", range(6))
def test_an_interrupted_save_leaves_the_one_before(at: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = buffer_of(3, max_trajectories=4)
    buffer.save_checkpoint(folder)
    buffer.add_trajectories([trajectory(number) for number in (3, 4, 5)])
    calls = 0
    write = Folder.write

    def failing(self: Folder, name: str, parts: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == at + 1:
            raise OSError(28, "No space left on device")
        write(self, name, parts)

    monkeypatch.setattr(Folder, "write", failing)
    if at < 5:  # three files, the metadata, the index; nothing has been drawn yet
        with pytest.raises(OSError, match="No space left"):
            buffer.save_checkpoint(folder)
        index = json.loads((folder / "trajectory_index.json").read_text())
        assert index["trajectory_id_list"] == [0, 1, 2]
        again = TrajectoryReplayBuffer(sample_window_size=0)
        again.load_checkpoint(folder)
        again.sample(32)
        assert len(again) == 3
    buffer.save_checkpoint(folder)
    same_rows(folder, [2, 3, 4, 5])
    assert len(list(folder.glob("trajectory_*.pt"))) == 4
    assert json.loads((folder / "metadata.json").read_text())["trajectory_counter"] == 6


def test_a_generator_of_other_metadata_is_none(folder: Path) -> None:
    """Check that the seed counts if RLinf wrote its two files again, without this one."""
    run = buffer_of(5)
    run.sample(7)
    run.save_checkpoint(folder)
    text = (folder / "metadata.json").read_text()
    (folder / "metadata.json").write_text(text.replace('"trajectory_counter": 5', '"trajectory_counter": 6'))
    batches = []
    for name in ("relive_generator.json", "none"):
        buffer = TrajectoryReplayBuffer(sample_window_size=0)
        buffer.load_checkpoint(folder)
        batches.append(buffer.sample(50).rewards.tobytes())
        (folder / name).unlink(missing_ok=True)
    assert batches[0] == batches[1]


def test_the_two_layouts_do_not_mix(folder: Path) -> None:
    buffer = buffer_of(2)
    buffer.save_checkpoint(folder / "pt")
    relive = buffer_of(2, trajectory_format="safetensors")
    relive.save_checkpoint(folder / "relive")
    with pytest.raises(StorageError, match="got relive's"):
        buffer.save_checkpoint(folder / "relive")
    with pytest.raises(StorageError, match="got RLinf's"):
        relive.save_checkpoint(folder / "pt")
    with pytest.raises(StorageError, match="got RLinf's"):
        TrajectoryReplayBuffer(folder / "pt")
    told = json.loads((folder / "pt" / "metadata.json").read_text())
    (folder / "pt" / "metadata.json").write_text(json.dumps({**told, "trajectory_format": "pkl"}))
    with pytest.raises(StorageError, match="got `pkl`"):
        buffer.save_checkpoint(folder / "pt")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"rewards": None}, "Expected rewards, which RLinf requires"),
        ({"curr_obs": np.zeros((3, 2, 3)), "next_obs": None}, "Expected a mapping, which RLinf requires"),
    ],
)
def test_what_rlinf_could_not_load(fields: dict[str, Any], text: str, folder: Path) -> None:
    buffer = TrajectoryReplayBuffer(trajectory_format="pt")
    buffer.add_trajectories([trajectory(0, **fields)])
    with pytest.raises(SchemaError, match=text):
        buffer.save_checkpoint(folder)


@pytest.mark.parametrize("seed", [0, 1234, 2**32 - 1, 2**32, 2**100, None])
def test_the_seed_is_one_that_rlinf_takes(seed: int | None, folder: Path) -> None:
    buffer_of(1, seed=seed).save_checkpoint(folder)
    told = json.loads((folder / "metadata.json").read_text())["seed"]
    assert 0 <= told < 2**32
    assert seed is None or seed >= 2**32 or told == seed
