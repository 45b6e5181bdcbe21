"""RLinf's directories: rows, windows, draws, shards, merging, the cache, interventions, and the files themselves."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from depth import pairs
from recorded import DATA
from rlinf_files import rows_in_order

from relive import trajectories
from relive._base.nests import paths
from relive.trajectories import Trajectory, TrajectoryReplayBuffer
from relive.trajectories._store import Cache

CASES = ["rlinf_a", "rlinf_b"]
FOLDERS = ["ckpt", "autosave"]
FLAGS = ("terminations", "truncations", "dones")


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    return Case(request.param)


class Case:
    """One recorded buffer: what came of it, and how its trajectories are made."""

    def __init__(self, name: str) -> None:
        self.path = DATA / name
        self.told = json.loads((self.path / "expected.json").read_text())
        with np.load(self.path / "expected.npz", allow_pickle=False) as file:
            self.arrays = {key: file[key] for key in file.files}
        self.rows = {key[4:]: array for key, array in self.arrays.items() if key.startswith("row_")}
        self.count = len(self.told["shapes_T_B_extra"])

    def loaded(self, folder: str, **choices: Any) -> TrajectoryReplayBuffer:
        buffer = TrajectoryReplayBuffer(**{"sample_window_size": 0, **choices})
        buffer.load_checkpoint(self.path / folder, allow_pickle=True)
        return buffer

    def trajectory(self, number: int) -> dict[str, Any]:
        """Make the fields of a trajectory as they were given to RLinf."""
        steps, width, extra = self.told["shapes_T_B_extra"][number]
        rng = np.random.default_rng([self.told["seed"], number])

        def normal(*shape: int) -> np.ndarray:
            return rng.normal(size=(steps, width, *shape)).astype(np.float32)

        fields: dict[str, Any] = {"actions": normal(4), "rewards": normal(1)}
        terminations, truncations = (rng.random((steps, width, 1)) < share for share in (0.15, 0.1))
        for name, flags in zip(FLAGS, (terminations, truncations, terminations | truncations), strict=True):
            epochs = flags.reshape(extra, steps // extra, width, 1)
            raw = np.concatenate([np.zeros_like(epochs[:, :1]), epochs], axis=1)
            fields[name] = raw.reshape(steps + extra, width, 1)
        fields["prev_logprobs"] = normal(1)
        fields["versions"] = np.full((steps, width, 1), number // 2, np.float32)
        fields["intervene_flags"] = np.repeat(rng.random((steps, width, 1)) < 0.4, 4, axis=-1)
        for name in ("curr_obs", "next_obs"):
            states = normal(3)
            images = rng.integers(0, 256, (steps, width, 2, 2, 3)).astype(np.uint8)
            fields[name] = {"states": states, "main_images": images}
        fields["forward_inputs"] = {"action": normal(4)}
        return {**fields, "max_episode_length": steps}


def everything(buffer: TrajectoryReplayBuffer) -> dict[str, np.ndarray]:
    """Return all rows of a buffer in their order, by dotted name."""
    return flat(rows_in_order(buffer, buffer.get_stats()["total_samples"]))


def flat(tree: Any) -> dict[str, Any]:
    return {".".join(path): value for path, value in paths(tree)}


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for key, array in wanted.items():
        assert found[key].dtype == array.dtype, key
        np.testing.assert_array_equal(found[key], array, err_msg=key)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]:
    """Read RLinf's directory by the letter of its format: metadata, index, and files' contents by name."""
    metadata = json.loads((path / "metadata.json").read_text())
    index = json.loads((path / "trajectory_index.json").read_text())
    contents = {}
    for id_ in index["trajectory_id_list"]:
        entry = index["trajectory_index"][str(id_)]
        name = f"trajectory_{entry['trajectory_id']}_{entry['model_weights_id']}.{metadata['trajectory_format']}"
        if metadata["trajectory_format"] == "pt":
            contents[name] = torch.load(path / name, map_location="cpu", weights_only=True)
        else:
            contents[name] = pickle.loads((path / name).read_bytes())
    return metadata, index, contents


def as_arrays(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value.numpy() if isinstance(value, torch.Tensor) else value for key, value in flat(content).items()}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_row_of_a_directory(case: Case, folder: str) -> None:
    same(everything(case.loaded(folder)), case.rows)
    same(everything(case.loaded(folder, cache_size=100)), case.rows)


def test_the_recipe_gives_the_recorded_trajectories(case: Case, tmp_path: Path) -> None:
    buffer = TrajectoryReplayBuffer(tmp_path, sample_window_size=0)
    buffer.add_trajectories([case.trajectory(number) for number in range(case.count)])
    same(everything(buffer), case.rows)


@pytest.mark.parametrize("folder", FOLDERS)
def test_draws_are_rlinfs(case: Case, folder: str) -> None:
    buffer = case.loaded(folder)
    for number, size in enumerate(case.told["draw_sizes"]):
        batch = flat(buffer.sample(size))
        ids = case.arrays[f"draw{number}_ids"]
        same(batch, {key: rows[ids] for key, rows in case.rows.items()})
        np.testing.assert_array_equal(batch["rewards"], case.arrays[f"draw{number}_rewards"])


def test_draws_go_on_after_a_checkpoint_of_relives(case: Case, tmp_path: Path) -> None:
    first = case.loaded("ckpt")
    first.sample(case.told["draw_sizes"][0])
    first.save_checkpoint(tmp_path)
    second = TrajectoryReplayBuffer(sample_window_size=0)
    second.load_checkpoint(tmp_path)
    for number, size in enumerate(case.told["draw_sizes"][1:], 1):
        np.testing.assert_array_equal(second.sample(size).rewards, case.arrays[f"draw{number}_rewards"])


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_window(case: Case, folder: str) -> None:
    buffer = case.loaded(folder, sample_window_size=case.told["window"])
    first = int(case.arrays["window_first_global"])
    same(flat(rows_in_order(buffer, case.told["total_samples"] - first)), {k: v[first:] for k, v in case.rows.items()})


@pytest.mark.parametrize(("folder", "own"), pairs([*FOLDERS, "relive"], [True, False]))
def test_shards_of_every_world(case: Case, folder: str, own: bool, tmp_path: Path) -> None:
    source = case.path / folder
    if folder == "relive":
        source = tmp_path / "converted"
        trajectories.convert(case.path / "ckpt", source, allow_pickle=True)
    for world, ranks in case.told["shards"].items():
        for told in ranks:
            path = tmp_path / f"{world}_{told['rank']}" if own else None
            with TrajectoryReplayBuffer(path, sample_window_size=0) as buffer:
                buffer.load_checkpoint(source, True, told["rank"], int(world), allow_pickle=True)
                assert buffer._store.index.records["id"].tolist() == told["trajectory_ids"]
                stats = buffer.get_stats()
                assert (len(buffer), stats["total_samples"]) == (told["size"], told["total_samples"])
                assert stats["trajectory_counter"] == told["trajectory_counter"]
                if len(buffer):
                    chosen = np.isin(case.arrays["g_trajectory_id"], told["trajectory_ids"])
                    same(everything(buffer), {key: rows[chosen] for key, rows in case.rows.items()})


def test_a_buffer_with_a_directory_converts_what_it_loads(case: Case, tmp_path: Path) -> None:
    with TrajectoryReplayBuffer(tmp_path, sample_window_size=0) as buffer:
        buffer.add_trajectories([case.trajectory(0)] * 8)
        buffer.load_checkpoint(case.path / "autosave", allow_pickle=True)
        same(everything(buffer), case.rows)
        assert sorted(path.name for path in tmp_path.glob("trajectory_*")) == [
            f"trajectory_{number:012d}.safetensors" for number in range(case.count)
        ]
        assert buffer.get_stats()["durable"] == case.count
        buffer.add_trajectories([case.trajectory(0)])
    with TrajectoryReplayBuffer(tmp_path, sample_window_size=0) as buffer:
        assert buffer.get_stats()["trajectory_counter"] >= case.count + 1
        rows = everything(buffer)
        same({key: array[: len(case.rows[key])] for key, array in rows.items()}, case.rows)


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_is_written_is_what_rlinf_would_write(case: Case, on_disk: bool, tmp_path: Path) -> None:
    path = tmp_path / "own" if on_disk else None
    with TrajectoryReplayBuffer(
        path, seed=case.told["buffer_seed"], trajectory_format="pt", sample_window_size=1, cache_size=1
    ) as buffer:
        buffer.add_trajectories([case.trajectory(number) for number in range(case.count)])
        buffer.save_checkpoint(tmp_path / "pt")
    found, wanted = read(tmp_path / "pt"), read(case.path / "ckpt")
    assert found[0] == {**wanted[0], "trajectory_format": "pt"}
    assert list(found[0]) == list(wanted[0])
    recorded = (case.path / "ckpt" / "trajectory_index.json").read_bytes()
    assert (tmp_path / "pt" / "trajectory_index.json").read_bytes() == recorded
    for (name, content), (other, original) in zip(found[2].items(), wanted[2].items(), strict=True):
        assert Path(name).stem == Path(other).stem
        assert list(content) == list(original)
        assert (content["max_episode_length"], content["model_weights_id"]) == (
            original["max_episode_length"],
            original["model_weights_id"],
        )
        tensors = {key: value for key, value in as_arrays(content).items() if isinstance(value, np.ndarray)}
        same(tensors, {key: value for key, value in as_arrays(original).items() if isinstance(value, np.ndarray)})
    names = {"metadata.json", "trajectory_index.json", *found[2]}
    assert {path.name for path in (tmp_path / "pt").iterdir()} == names


def test_a_written_directory_is_read_back(case: Case, tmp_path: Path) -> None:
    trajectories.convert(case.path / "autosave", tmp_path / "pt", "pt", allow_pickle=True)
    buffer = TrajectoryReplayBuffer(sample_window_size=0)
    buffer.load_checkpoint(tmp_path / "pt")
    same(everything(buffer), case.rows)
    for part in ("metadata.json", "trajectory_index.json"):
        written, recorded = ((path / part).read_bytes() for path in (tmp_path / "pt", case.path / "autosave"))
        assert written == recorded.replace(b'"pkl"', b'"pt"')


@pytest.fixture
def ranks(case: Case, tmp_path: Path) -> list[Path]:
    """Make directories of two ranks, RLinf's and relive's, that hold the recorded trajectories."""
    found = []
    for rank, kind in enumerate(("pt", "safetensors")):
        found.append(tmp_path / f"rank_{rank}")
        buffer = TrajectoryReplayBuffer(seed=1234 + rank, trajectory_format=kind)
        buffer.add_trajectories([case.trajectory(number) for number in case.told["merge"][f"rank_{rank}"]])
        buffer.save_checkpoint(found[-1])
    return found


def in_order(case: Case, order: list[int]) -> dict[str, np.ndarray]:
    """Return the rows of trajectories, one after the other."""
    places = np.concatenate([np.flatnonzero(case.arrays["g_trajectory_id"] == id_) for id_ in order])
    return {key: rows[places] for key, rows in case.rows.items()}


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_merging(case: Case, ranks: list[Path], kind: str, tmp_path: Path) -> None:
    told = case.told["merge"]
    steps = []
    count = trajectories.merge(ranks[::-1], tmp_path / "all", kind, progress=lambda *done: steps.append(done))
    assert count == told["metadata"]["size"]
    assert steps == [(number, count) for number in range(1, count + 1)]
    buffer = TrajectoryReplayBuffer(sample_window_size=0)
    buffer.load_checkpoint(tmp_path / "all")
    same(everything(buffer), in_order(case, told["merged_order"]))
    assert buffer.get_stats()["trajectory_counter"] == told["metadata"]["trajectory_counter"]
    if kind == "pt":
        assert json.loads((tmp_path / "all" / "metadata.json").read_text()) == told["metadata"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_splitting(case: Case, folder: str, tmp_path: Path) -> None:
    told = case.told["split4_metadata"]
    for kind in ("pt", "safetensors"):
        assert trajectories.split(case.path / folder, 4, tmp_path / kind, kind, allow_pickle=True) == 4
        buffer = TrajectoryReplayBuffer(sample_window_size=0)
        buffer.load_checkpoint(tmp_path / kind)
        same(everything(buffer), in_order(case, [0, 1, 2, 3]))
    metadata = json.loads((tmp_path / "pt" / "metadata.json").read_text())
    assert metadata == {**told, "trajectory_format": "pt"}


def test_the_cache_keeps_what_rlinfs_keeps(case: Case) -> None:
    cache = Cache(case.told["cache_capacity"], 1 << 30)
    for step in case.told["cache_script"]:
        gone = cache.put(step["put"], 1)
        assert set(cache.ids) == {int(id_) for id_ in step["resident_slots"]}
        assert not set(gone) & set(cache.ids)


@pytest.mark.parametrize("mode", ["any", "all"])
def test_interventions(case: Case, mode: str) -> None:
    found = trajectories.extract_interventions(case.trajectory(0), mode)
    assert len(found) == case.told["intervene_counts"][mode]
    for number, trajectory in enumerate(found):
        prefix = f"intervene_{mode}_{number}_"
        wanted = {key.removeprefix(prefix): v for key, v in case.arrays.items() if key.startswith(prefix)}
        wanted["dones"] = wanted["dones"][1:]  # the row of the reset, which a `Trajectory` does not have
        assert wanted.keys() <= flat(trajectory).keys()
        same({key: flat(trajectory)[key] for key in wanted}, wanted)


def test_interventions_in_part_of_an_action() -> None:
    flags = np.zeros((3, 2, 4), bool)
    flags[1, 0], flags[2, 0, :2] = True, True
    whole = Trajectory(actions=np.arange(24.0).reshape(3, 2, 4), intervene_flags=flags, model_weights_id="mine")
    for mode, steps in (("any", [1, 2]), ("all", [1])):
        (found,) = trajectories.extract_interventions(whole, mode)
        np.testing.assert_array_equal(found["actions"], whole["actions"][steps, :1])
        assert found.model_weights_id == "mine"
    assert trajectories.extract_interventions({"actions": np.zeros((2, 1, 1))}) == []
