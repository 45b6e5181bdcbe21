"""LeRobot's data sets, format v3: written, read back, and read by what LeRobot reads them with, pandas and Arrow."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

needs("pyarrow")
needs("PIL")
import pyarrow
from PIL import Image
from pyarrow import parquet

from relive._base import narrow
from relive.cli import main
from relive.errors import ReliveWarning, SchemaError, StorageError
from relive.trajectories import Trajectory, TrajectoryReplayBuffer, convert, from_lerobot, to_lerobot

SHAPES = {"actions": (7,), "rewards": (1,), "gripper": (), "matrix": (2, 3), "deep": (2, 2, 2)}


def rollout(number: int, steps: int = 6, width: int = 2, **more: Any) -> Trajectory:
    rng = np.random.default_rng(number)
    fields = {n: rng.normal(size=(steps, width, *shape)).astype(np.float32) for n, shape in SHAPES.items()}
    fields["dones"] = np.zeros((steps, width, 1), bool)
    fields["dones"][2, 0] = True
    images = rng.integers(0, 256, (steps + 1, width, 9, 8, 3)).astype(np.uint8)
    states = rng.integers(-9, 9, (steps + 1, width, 3))
    obs = {"images.front": images, "state": states}
    return Trajectory(
        **fields,
        curr_obs={name: array[:-1] for name, array in obs.items()},
        next_obs={name: array[1:] for name, array in obs.items()},
        task=f"task {number % 2}",
        **more,
    )


def episodes_of(trajectory: Trajectory) -> list[dict[Any, Any]]:
    """Return the episodes in a trajectory, by the letter: one environment after the other, cut after `dones`."""
    found = []
    for env, bounds in ((0, [(0, 3), (3, 6)]), (1, [(0, 6)])):
        for first, last in bounds:
            found.append({path: a[first:last, env : env + 1] for path, a in trajectory.arrays.items()})
    return found


def test_there_and_back(folder: Path) -> None:
    rollouts = [rollout(number) for number in range(3)]
    assert to_lerobot(rollouts, folder / "set", fps=20) == 9
    wanted = [episode for one in rollouts for episode in episodes_of(one)]
    found = list(from_lerobot(folder / "set"))
    assert [one.task for one in found] == [f"task {number % 2}" for number in (0, 0, 0, 1, 1, 1, 2, 2, 2)]
    for one, arrays in zip(found, wanted, strict=True):
        assert one.arrays.keys() == arrays.keys()
        for path, array in arrays.items():
            kept = array if array.ndim > 2 else array[..., None]  # LeRobot's scalars have the shape (1,)
            assert one.arrays[path].dtype == array.dtype, path
            np.testing.assert_array_equal(one.arrays[path], kept, err_msg=str(path))


def test_it_is_what_lerobot_writes(folder: Path) -> None:
    pandas = needs("pandas")
    to_lerobot([rollout(number) for number in range(2)], folder, fps=5)
    info = json.loads((folder / "meta/info.json").read_text())
    assert (info["codebase_version"], info["fps"], info["total_episodes"], info["total_frames"]) == ("v3.0", 5, 6, 24)
    assert info["features"]["observation.images.front"]["dtype"] == "image"
    assert info["features"]["action"] == {"dtype": "float32", "shape": [7], "names": None}
    assert info["splits"] == {"train": "0:6"}
    tasks = pandas.read_parquet(folder / "meta/tasks.parquet")
    assert tasks.loc["task 1"].task_index == 1
    assert tasks.index.name == "task"
    episodes = parquet.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pydict()
    assert episodes["length"] == [3, 3, 6, 3, 3, 6]
    assert episodes["dataset_from_index"] == [0, 3, 6, 12, 15, 18]
    assert episodes["tasks"][3] == ["task 1"]
    file = parquet.ParquetFile(folder / info["data_path"].format(chunk_index=0, file_index=0))
    assert file.num_row_groups == 6
    table = file.read()
    assert table.schema.field("action").type == pyarrow.list_(pyarrow.float32(), 7)
    assert table.schema.field("next.reward").type == pyarrow.float32()
    assert table.column("index").to_pylist() == list(range(24))
    np.testing.assert_allclose(table.column("timestamp").to_pylist()[:3], [0, 0.2, 0.4], rtol=1e-6)
    stats = json.loads((folder / "meta/stats.json").read_text())
    actions = np.array(table.column("action").to_pylist())
    np.testing.assert_allclose(stats["action"]["std"], actions.std(0), rtol=1e-6)
    np.testing.assert_allclose(stats["action"]["max"], actions.max(0), rtol=1e-6)
    assert np.shape(stats["observation.images.front"]["mean"]) == (3, 1, 1)


def test_next_observations_from_the_following_frame(folder: Path) -> None:
    one = rollout(1)
    plain = Trajectory(**{name: one[name] for name in ("actions", "dones", "curr_obs")}, task="x")
    to_lerobot([plain], folder)
    *_, last = from_lerobot(folder, next_obs=True)
    assert last.length == 5
    np.testing.assert_array_equal(last.next_obs["state"], last.curr_obs["state"] + np.diff(
        one.curr_obs["state"][:, 1:], axis=0))  # fmt: skip
    np.testing.assert_array_equal(last.actions, one.actions[:5, 1:])


def test_next_observations_leave_out_no_end(folder: Path) -> None:
    one = rollout(1)
    plain = {name: one[name] for name in ("actions", "dones", "rewards", "curr_obs")}
    to_lerobot([Trajectory(**plain)], folder / "ended")
    first, second, third = from_lerobot(folder / "ended", next_obs=True)
    assert [one.length for one in (first, second, third)] == [3, 2, 5]
    assert first.dones[:, 0, 0].tolist() == [False, False, True]
    np.testing.assert_array_equal(first.rewards, one.rewards[:3, :1])
    np.testing.assert_array_equal(first.next_obs["state"][:, 0], one.curr_obs["state"][[1, 2, 2], 0])
    to_lerobot([Trajectory(**plain, truncations=one.dones)], folder / "truncated")
    assert [one.length for one in from_lerobot(folder / "truncated", next_obs=True)] == [2, 2, 5]
    to_lerobot([one], folder / "own")
    for with_next, without in zip(
        from_lerobot(folder / "own", next_obs=True), from_lerobot(folder / "own"), strict=True
    ):
        assert with_next.length == without.length
        np.testing.assert_array_equal(with_next.next_obs["state"], without.next_obs["state"])


@pytest.mark.parametrize("layout", ["safetensors", "pt"])
def test_relive_convert_knows_it(layout: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with TrajectoryReplayBuffer(folder / "a") as buffer:
        buffer.add_trajectories([rollout(number, width=1) for number in range(2)])
    there, back, again = folder / "there", folder / "back", folder / "again"
    assert main(["convert", str(folder / "a"), str(there), "--format", "lerobot", "--fps", "30"]) == 0
    assert "4 episodes written" in capsys.readouterr().out
    assert json.loads((there / "meta/info.json").read_text())["fps"] == 30
    assert main(["convert", str(there), str(back), "--format", layout]) == 0
    assert convert(there, again, "lerobot") == 4
    loaded = TrajectoryReplayBuffer()
    loaded.load_checkpoint(back)
    assert [loaded.get_trajectory_info(k)["task"] for k in loaded.list_trajectory_ids()] == ["task 0"] * 2 + [
        "task 1"
    ] * 2
    first = loaded.load_trajectory(1)
    np.testing.assert_array_equal(first.actions, rollout(0, width=1).actions[3:])


@pytest.mark.parametrize("without", [False, True], ids=["ml_dtypes", "raw bits"])
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_narrow_numbers_become_float32(name: str, without: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    narrow._dtype.cache_clear()
    if without:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    values = torch.randn(3, 1, 4).to(getattr(torch, name))
    to_lerobot([{"actions": values}], folder)
    (found,) = from_lerobot(folder)
    np.testing.assert_array_equal(found.actions, values.float().numpy())
    narrow._dtype.cache_clear()


def test_what_cannot_be_is_refused_and_leaves_nothing(folder: Path) -> None:
    with pytest.raises(SchemaError, match=r"no such feature.*`extra`"):
        to_lerobot([rollout(0), rollout(1, extra=np.zeros((6, 2, 1)))], folder)
    assert not list(folder.iterdir())
    with pytest.raises(SchemaError, match="at least one trajectory"):
        to_lerobot([], folder)
    with pytest.warns(ReliveWarning, match="Left out `note`"):
        to_lerobot([rollout(0, note="hello")], folder)
    with pytest.raises(StorageError, match="a new or an empty directory"):
        to_lerobot([rollout(0)], folder)


def change(path: Path, **facts: Any) -> None:
    info = json.loads((path / "meta/info.json").read_text())
    (path / "meta/info.json").write_text(json.dumps({**info, **facts}))


def test_other_data_sets_are_refused_with_the_reason(folder: Path) -> None:
    to_lerobot([rollout(0)], folder)
    info = json.loads((folder / "meta/info.json").read_text())
    video = {"observation.images.front": {"dtype": "video", "shape": [9, 8, 3], "names": None}}
    change(folder, features={**info["features"], **video})
    with pytest.raises(StorageError, match=r"a checkpoint of relive's or RLinf's, got LeRobot's.*relive convert"):
        TrajectoryReplayBuffer().load_checkpoint(folder)
    with pytest.raises(SchemaError, match="got a video"):
        from_lerobot(folder)
    change(folder, features=info["features"], codebase_version="v2.1")
    with pytest.raises(StorageError, match=r"`v2.1`.*convert_dataset_v21_to_v30"):
        from_lerobot(folder)
    wrong = {"action": {"dtype": "float32", "shape": [6], "names": None}}
    change(folder, features={**info["features"], **wrong}, codebase_version="v3.0")
    with pytest.raises(StorageError, match="Invalid LeRobot data set"):
        list(from_lerobot(folder))
    (folder / "meta/info.json").write_text("{")
    with pytest.raises(StorageError, match="Invalid LeRobot data set"):
        from_lerobot(folder)


def test_paths_of_images_are_not_followed(folder: Path) -> None:
    images(folder, None, path="/etc/hostname")
    with pytest.raises(StorageError, match="not inside the Parquet file"):
        list(from_lerobot(folder))


def images(folder: Path, data: bytes | None, dtype: str = "image", path: str | None = None) -> None:
    """Make a data set whose images are `data`, or elsewhere."""
    to_lerobot([rollout(0)], folder)
    (file,) = folder.glob("data/*/*.parquet")
    table = parquet.read_table(file)
    name = next(name for name in table.column_names if name.startswith("observation.images"))
    column = pyarrow.array([{"bytes": data, "path": path}] * len(table), table.schema.field(name).type)
    parquet.write_table(table.set_column(table.column_names.index(name), name, column), file)
    features = json.loads((folder / "meta/info.json").read_text())["features"]
    change(folder, features={**features, name: {**features[name], "dtype": dtype}})


def test_an_image_that_fills_the_memory_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check images larger than Pillow takes, or large enough for its warning."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS // 100**2)
    for number, side in enumerate((140, 100)):
        bomb = io.BytesIO()
        Image.new("1", (side, side)).save(bomb, "PNG")
        images(folder / str(number), bomb.getvalue())
        with pytest.raises(StorageError, match="Invalid LeRobot data set"):
            list(from_lerobot(folder / str(number)))


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool", "string", "no dtype"])
def test_images_that_are_called_numbers_are_refused(dtype: str, folder: Path) -> None:
    images(folder, b"x", dtype)
    with pytest.raises(StorageError, match="Invalid LeRobot data set"):
        list(from_lerobot(folder))


def test_half_a_character_is_no_task(folder: Path) -> None:
    with pytest.raises(StorageError, match="Could not write the data set"):
        to_lerobot([Trajectory(actions=np.zeros((5, 1, 2), np.float32), task="\ud800")], folder)
    assert not list(folder.iterdir())
