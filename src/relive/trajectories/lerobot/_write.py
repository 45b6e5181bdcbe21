"""Write LeRobot's data sets: each episode of each environment of a trajectory is an episode."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path as Folder
from typing import Any

import numpy as np

from ..._base import check, narrow
from ..._base.extras import needs
from ..._base.nests import Path
from ..._base.types import Array
from ..._base.warned import warn
from ...errors import SchemaError, StorageError, event, message
from .._drawing import task_of
from ..trajectory import Trajectory, as_trajectory
from ._names import COUNTED, INFO, STATS, TASKS, VERSION, feature_of

_FILE_BYTES, _FILES = 100 << 20, 1000  # of a Parquet file; in a directory
_ENDS = (("dones",), ("terminations",), ("truncations",))
_STATISTICS = ("min", "max", "mean", "std", "count")


def to_lerobot(
    trajectories: Iterable[Any],
    path: str | os.PathLike[str],
    *,
    fps: int = 10,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write trajectories as a data set in LeRobot's format v3, without videos.

    Every environment's steps become episodes, cut after a step whose `dones`, `terminations` or `truncations` is set.
    `curr_obs["X"]` becomes `observation.X`, `next_obs["X"]` `next.observation.X`, `actions` `action`, `rewards`
    `next.reward`, `dones` `next.done`, `success` `next.success`. Fields uint8 `[T, B, H, W, 1 or 3]` become images
    (PNG). bfloat16 and float8, which Parquet lacks, become float32. `task` is written; other texts are left out, with a
    warning.

    Args:
        trajectories: Those of `Trajectory`, mappings, or RLinf's own, all with the same fields.
        path: A directory, new or empty.
        fps: Frames per second, which LeRobot needs for its time stamps.
        progress: Called with the number of trajectories written so far.

    Returns:
        How many episodes were written.

    Raises:
        SchemaError: A trajectory has other fields than the first one, or more than five axes after `[T, B]`.
        StorageError: The directory is not empty, or cannot be written. Nothing is left in it.
        MissingExtra: PyArrow is not installed; or Pillow, for images.

    >>> import tempfile
    >>> from relive.trajectories import Trajectory, from_lerobot
    >>> home = tempfile.mkdtemp()
    >>> episode = Trajectory(actions=np.zeros((5, 1, 2), np.float32), task="pick up the cup")
    >>> to_lerobot([episode], f"{home}/cups")  # doctest: +SKIP
    1
    >>> [trajectory.task for trajectory in from_lerobot(f"{home}/cups")]  # doctest: +SKIP
    ['pick up the cup']
    """
    fps = check.integer(fps, "to_lerobot(fps)", minimum=1)
    folder = Folder(check.path(path, "to_lerobot(path)"))
    with needs("lerobot", "to_lerobot"):
        import pyarrow
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            remedy = "choose another, or remove it first"
            raise StorageError(message("a new or an empty directory", "one with files", str(folder), remedy))
        try:
            writer = _Writer(folder, fps)
            for number, trajectory in enumerate(trajectories, 1):
                writer.add(as_trajectory(trajectory, f"$.trajectories[{number - 1}]"))
                if progress is not None:
                    progress(number)
            return writer.finish()
        except BaseException:
            for name in ("data", "meta"):
                shutil.rmtree(folder / name, ignore_errors=True)
            raise
    except StorageError:
        raise
    except (OSError, UnicodeEncodeError, pyarrow.ArrowException) as error:
        raise StorageError(event(f"Could not write the data set ({str(error)[:80]})", str(folder))) from error


class _Writer:
    """One data set that is being written: a row group for each episode, a new file after 100 MB."""

    def __init__(self, folder: Folder, fps: int) -> None:
        self.folder, self.fps = folder, fps
        self.features: dict[str, dict[str, Any]] = {}
        self.tasks: dict[str, int] = {}
        self.episodes: list[dict[str, Any]] = []
        self.frames = self._file = 0
        self._parquet: Any = None
        self._left_out: set[str] = set()

    def add(self, trajectory: Trajectory) -> None:
        """Write the episodes of a trajectory."""
        columns = {feature_of(path): narrow.widened(array) for path, array in trajectory.arrays.items()}
        columns = {name: array for name, array in columns.items() if name not in COUNTED}
        success = trajectory.metadata.get(("success",))
        if isinstance(success, bool) and "next.success" not in columns:
            columns["next.success"] = np.full((trajectory.length, trajectory.width), success)
        features = {name: _feature(name, array) for name, array in columns.items()}
        self.features = self.features or features
        if features != self.features:
            other = sorted({*features} ^ {*self.features}) or [n for n in features if features[n] != self.features[n]]
            wanted, got = (str(known.get(other[0], "no such feature")) for known in (self.features, features))
            raise SchemaError(message(wanted, got, f"$.{other[0]}", "as in the trajectories before it"))
        for path in trajectory.metadata:
            if path[-1] not in ("task", "success") and ".".join(path) not in self._left_out:
                self._left_out.add(".".join(path))
                text = event(f"Left out `{'.'.join(path)}`", str(self.folder), "LeRobot has no text but the task")
                warn(text)
        task = task_of(trajectory.metadata)
        for env, first, last in _bounds(trajectory.arrays, trajectory.length, trajectory.width):
            self._episode({name: array[first:last, env] for name, array in columns.items()}, task or "")

    def _episode(self, columns: dict[str, Array], task: str) -> None:
        import pyarrow
        from pyarrow import parquet

        length, number = len(next(iter(columns.values()))), len(self.episodes)
        index = self.tasks.setdefault(task, len(self.tasks))
        frames = np.arange(length)
        counted: dict[str, Array] = {
            "timestamp": (frames / self.fps).astype(np.float32),
            "frame_index": frames,
            "episode_index": np.full(length, number),
            "index": self.frames + frames,
            "task_index": np.full(length, index),
        }
        table = pyarrow.table({n: _column(a, self.features.get(n)) for n, a in {**columns, **counted}.items()})
        target = self.folder / "data" / _numbered(self._file)
        if self._parquet is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._parquet = parquet.ParquetWriter(target, table.schema, compression="snappy")
        self._parquet.write_table(table, row_group_size=max(length, 1))
        chunk, file = divmod(self._file, _FILES)
        self.episodes.append({
            "episode_index": number,
            "tasks": [task],
            "length": length,
            "data/chunk_index": chunk,
            "data/file_index": file,
            "dataset_from_index": self.frames,
            "dataset_to_index": self.frames + length,
            "meta/episodes/chunk_index": 0,
            "meta/episodes/file_index": 0,
            **{f"stats/{name}/{key}": value for name, array in {**columns, **counted}.items()
               for key, value in _statistics(array, self.features.get(name)).items()},
        })  # fmt: skip
        self.frames += length
        if target.stat().st_size >= _FILE_BYTES:
            self._close()
            self._file += 1

    def _close(self) -> None:
        if self._parquet is not None:
            self._parquet.close()
            self._parquet = None

    def finish(self) -> int:
        """Write what is said about the episodes; `info.json`, by which a data set is known, comes last."""
        import pyarrow
        from pyarrow import parquet

        self._close()
        if not self.episodes:
            raise SchemaError(message("at least one trajectory", "none", "to_lerobot(trajectories)"))
        meta = self.folder / "meta" / "episodes" / _numbered(0)
        meta.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(self.episodes), meta)
        parquet.write_table(_task_table(list(self.tasks)), self.folder / TASKS)
        counted = {name: {"dtype": "int64", "shape": [1], "names": None} for name in COUNTED}
        counted["timestamp"]["dtype"] = "float32"
        info = {
            "codebase_version": VERSION,
            "robot_type": None,
            "total_episodes": len(self.episodes),
            "total_frames": self.frames,
            "total_tasks": len(self.tasks),
            "chunks_size": _FILES,
            "data_files_size_in_mb": _FILE_BYTES >> 20,
            "video_files_size_in_mb": 500,
            "fps": self.fps,
            "splits": {"train": f"0:{len(self.episodes)}"},
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": None,
            "features": {**self.features, **counted},
        }
        names = [*self.features, *COUNTED]
        (self.folder / STATS).write_text(json.dumps({name: self._all(name) for name in names}))
        (self.folder / INFO).write_text(json.dumps(info, indent=4))
        return len(self.episodes)

    def _all(self, name: str) -> dict[str, Any]:
        """Compute the statistics of all episodes together."""
        each = {key: np.array([episode[f"stats/{name}/{key}"] for episode in self.episodes]) for key in _STATISTICS}
        counts = each["count"].reshape(-1, *[1] * (each["mean"].ndim - 1))
        mean = (each["mean"] * counts).sum(0) / counts.sum()
        spread = ((each["std"] ** 2 + (each["mean"] - mean) ** 2) * counts).sum(0) / counts.sum()
        found = {"min": each["min"].min(0), "max": each["max"].max(0), "mean": mean, "std": np.sqrt(spread)}
        return {**{key: value.tolist() for key, value in found.items()}, "count": [int(counts.sum())]}


def _bounds(arrays: dict[Path, Array], length: int, width: int) -> Iterator[tuple[int, int, int]]:
    """Yield environment, first and last step of each episode; a rest without an end is an episode, too."""
    ends = np.zeros((length, width), bool)
    for path in _ENDS:
        if path in arrays:
            ends |= arrays[path].astype(bool).reshape(length, width, -1).any(-1)
    ends[-1] = True
    for env in range(width):
        first = 0
        for last in (np.flatnonzero(ends[:, env]) + 1).tolist():
            yield env, first, last
            first = last


def _feature(name: str, array: Array) -> dict[str, Any]:
    shape = list(array.shape[2:])
    if array.dtype == np.uint8 and len(shape) == 3 and shape[-1] in (1, 3):
        return {"dtype": "image", "shape": shape, "names": ["height", "width", "channels"]}
    if len(shape) > 5:
        raise SchemaError(message("at most 5 axes after `(T, B)`", f"{len(shape)}", f"$.{name}"))
    return {"dtype": array.dtype.name, "shape": shape or [1], "names": None}


def _column(array: Array, feature: dict[str, Any] | None) -> Any:
    """Return one column of frames: images as PNG, vectors as lists of fixed size, more axes as nested lists."""
    import pyarrow

    if feature is not None and feature["dtype"] == "image":
        rows = [{"bytes": _png(image), "path": None} for image in array]
        return pyarrow.array(rows, pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())]))
    flat = np.ascontiguousarray(array).reshape(-1)
    values, shape = pyarrow.array(flat), array.shape[1:]
    if int(np.prod(shape)) == 1:
        return values
    if len(shape) == 1:
        return pyarrow.FixedSizeListArray.from_arrays(values, shape[0])
    for axis in reversed(range(len(shape))):
        count = len(array) * int(np.prod(shape[:axis]))
        values = pyarrow.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * shape[axis], values)
    return values


def _png(image: Array) -> bytes:
    with needs("lerobot", "to_lerobot"):
        from PIL import Image
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, "PNG")
    return file.getvalue()


def _statistics(array: Array, feature: dict[str, Any] | None) -> dict[str, Any]:
    """Compute LeRobot's statistics of a feature of an episode; of images for each channel, in [0, 1]."""
    numbers = array.astype(np.float64).reshape(len(array), *(array.shape[1:] or (1,)))
    axes: tuple[int, ...] = (0,)
    if feature is not None and feature["dtype"] == "image":
        numbers, axes = np.moveaxis(numbers, -1, 1) / 255, (0, 2, 3)
    kept = len(axes) > 1
    found = {name: getattr(np, name)(numbers, axis=axes, keepdims=kept) for name in ("min", "max", "mean", "std")}
    return {**{name: (value[0] if kept else value).tolist() for name, value in found.items()}, "count": [len(array)]}


def _task_table(tasks: list[str]) -> Any:
    """Return tasks as pandas writes a frame with the texts as its index."""
    import pyarrow

    text = {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    number = {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"}
    about = {"index_columns": ["task"], "column_indexes": [], "columns": [{**number, "metadata": None}, text]}
    table = pyarrow.table({"task_index": np.arange(len(tasks)), "task": tasks})
    return table.replace_schema_metadata({"pandas": json.dumps({**about, "pandas_version": "2.0.0"})})


def _numbered(number: int) -> str:
    chunk, file = divmod(number, _FILES)
    return f"chunk-{chunk:03d}/file-{file:03d}.parquet"
