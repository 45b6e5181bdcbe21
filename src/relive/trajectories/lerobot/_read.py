"""Read LeRobot's data sets: each episode is a trajectory of one environment."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path as Folder
from typing import Any

import numpy as np

from ..._base import check
from ..._base.extras import needs
from ..._base.nests import nested
from ...errors import ReliveWarning, SchemaError, StorageError, event, message
from ..trajectory import Trajectory
from ._names import COUNTED, INFO, TASKS, VERSION, path_of
from ._videos import Videos, is_video

_MOST_JSON = 64 << 20
_ROWS = 1024  # frames that are read at once
_OVER = ("dones", "terminations")


def is_lerobot(path: str | os.PathLike[str]) -> bool:
    """Return whether a directory is one of LeRobot's data sets."""
    return os.path.isfile(Folder(check.path(path, "$.path")) / INFO)


def count(path: str | os.PathLike[str]) -> int:
    """Return the number of episodes of a data set.

    Raises:
        StorageError: It is not of format v3, or damaged.
    """
    return int(_info(Folder(path))["total_episodes"])


def frames(path: str | os.PathLike[str]) -> int:
    """Return the number of frames of a data set.

    Raises:
        StorageError: It is not of format v3, or damaged.
    """
    return int(_info(Folder(path))["total_frames"])


def from_lerobot(path: str | os.PathLike[str], *, next_obs: bool = False, videos: bool = False) -> Iterator[Trajectory]:
    """Read a data set of LeRobot's, one episode at a time: a trajectory `[T, 1, ...]` each.

    `observation.X` becomes `curr_obs["X"]`, `action` `actions`, `next.reward` `rewards`, `next.done` `dones`,
    `next.success` `success`; other features keep their names. The task is kept as the text `task`. Images `[H, W, C]`
    are decoded to uint8, and so are frames of videos.

    Args:
        path: The data set's directory, which has `meta/info.json`.
        next_obs: Make `next_obs` of the following frame's observation, where the data set has none of its own. An
            episode's last frame has its own observation there if it is `next.done` or `next.terminated`; otherwise it
            is left out.
        videos: Decode videos, through PyAV, frame by frame; each must be within 1e-4 s of its time stamp. All frames
            of an episode are in memory at once.

    Raises:
        SchemaError: The data set has videos, and `videos` is not set; or a video of depths.
        StorageError: It is not of format v3, or damaged, or a video lacks a frame.
        MissingExtra: PyArrow is not installed; or Pillow, for images; or PyAV, for videos.

    >>> for episode in from_lerobot("data/cups", next_obs=True):  # doctest: +SKIP
    ...     demonstrations.add_trajectories([episode])
    """
    folder = Folder(check.path(path, "from_lerobot(path)"))
    info = _info(folder)
    features = info["features"]
    filmed = [name for name, feature in features.items() if is_video(feature)]
    if filmed and not videos:
        remedy = "`videos=True` decodes them"
        raise SchemaError(message("images or numbers", "a video", f"$.{filmed[0]}", remedy))
    with needs("lerobot", "from_lerobot"):
        import pyarrow.parquet as parquet
    left_out = [name for name, feature in features.items() if feature["dtype"] == "language"]
    if left_out:
        names = ", ".join(f"`{name}`" for name in left_out)
        warnings.warn(
            event(f"Left out {names}", str(folder), "relive has no such columns"), ReliveWarning, stacklevel=2
        )
    return _read(parquet, folder, features, next_obs, Videos(folder, features) if filmed else None)


def _read(
    parquet: Any, folder: Folder, features: Mapping[str, Any], next_obs: bool, videos: Videos | None
) -> Iterator[Trajectory]:
    try:
        tasks = _tasks(parquet, folder)
        for table in _episodes(parquet, folder):
            yield _trajectory(table, features, tasks, next_obs, videos)
    except (ValueError, KeyError, TypeError, OSError, NotImplementedError) as error:  # Arrow's are ValueErrors
        raise StorageError(event(f"Invalid LeRobot data set ({str(error)[:80]})", str(folder))) from None
    finally:
        if videos is not None:
            videos.close()


def _info(folder: Folder) -> Any:
    at = str(folder / INFO)
    try:
        if (folder / INFO).stat().st_size > _MOST_JSON:
            raise ValueError("too large")
        info = json.loads((folder / INFO).read_text())
        version = str(info["codebase_version"])
        if not version.startswith("v3."):
            remedy = "convert it with LeRobot's `convert_dataset_v21_to_v30`"
            raise StorageError(message(f"a LeRobot data set of format {VERSION}", f"`{version[:20]}`", at, remedy))
        for feature in info["features"].values():
            shape = feature["shape"]
            if not all(type(axis) is int and 0 < axis < 2**31 for axis in shape):
                raise ValueError(f"invalid shape {str(shape)[:40]}")
            if not isinstance(feature["dtype"], str):
                raise ValueError("invalid dtype")
        int(info["total_episodes"])
    except StorageError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(event(f"Invalid LeRobot data set ({str(error)[:80]})", at)) from None
    return info


def _tasks(parquet: Any, folder: Folder) -> dict[int, str]:
    """Read the texts of tasks by number. pandas, which writes the file, may give the column of texts any name."""
    columns = parquet.read_table(folder / TASKS).to_pydict()
    numbers = columns.pop("task_index")
    (texts,) = columns.values()
    return dict(zip(numbers, map(str, texts), strict=True))


def _episodes(parquet: Any, folder: Folder) -> Iterator[Any]:
    """Yield the frames of each episode, as a table."""
    import pyarrow

    parts: list[Any] = []
    current = None
    for path in sorted(folder.glob("data/*/*.parquet")):
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                numbers = batch.column("episode_index").to_numpy(zero_copy_only=False)
                if not len(numbers):
                    continue
                starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
                for first, last in pairwise(starts):
                    if parts and numbers[first] != current:
                        yield pyarrow.Table.from_batches(parts)
                        parts = []
                    current = numbers[first]
                    parts.append(batch.slice(first, last - first))
    if parts:
        yield pyarrow.Table.from_batches(parts)


def _trajectory(
    table: Any, features: Mapping[str, Any], tasks: Mapping[int, str], next_obs: bool, videos: Videos | None
) -> Trajectory:
    length = table.num_rows
    fields: dict[tuple[str, ...], Any] = {}
    if videos is not None:
        times = _numbers(table.column("timestamp"), "float64")
        found = videos.frames(table.column("episode_index")[0].as_py(), times)
        fields |= {path_of(name): frames for name, frames in found.items()}
    for name, feature in features.items():
        if name in COUNTED or feature["dtype"] in ("language", "video"):
            continue
        column = table.column(name)
        if column.null_count:
            raise ValueError(f"`{name}` has missing values")
        if feature["dtype"] == "string":
            texts = column.to_pylist()
            fields[path_of(name)] = texts[0] if len(set(texts)) == 1 else texts
        elif feature["dtype"] == "image":
            fields[path_of(name)] = _images(column)
        else:
            fields[path_of(name)] = _numbers(column, feature["dtype"]).reshape(length, 1, *feature["shape"])
    texts = [tasks[number] for number in table.column("task_index").to_pylist()]
    fields["task",] = texts[0] if len(set(texts)) == 1 else texts
    if next_obs and not any(path[0] == "next_obs" for path in fields):
        fields = _with_next(fields, length)
    return Trajectory(**nested(fields.items()))


def _with_next(fields: Mapping[tuple[str, ...], Any], length: int) -> dict[tuple[str, ...], Any]:
    """Add the observations of the following frames; the last frame stays if nothing bootstraps from it."""
    flags = {name: bool(fields[name,][-1].any()) for name in (*_OVER, "truncations") if (name,) in fields}
    kept = length - (flags.get("truncations", False) or not any(flags.get(name) for name in _OVER))
    if not kept:
        raise ValueError("an episode of one frame has no next observation")
    following = np.minimum(np.arange(kept) + 1, length - 1)
    after = {("next_obs", *path[1:]): array[following] for path, array in fields.items() if path[0] == "curr_obs"}
    return {path: value[:kept] if _steps(value, length) else value for path, value in fields.items()} | after


def _steps(value: Any, length: int) -> bool:
    return isinstance(value, np.ndarray) and len(value) == length


def _numbers(column: Any, dtype: str) -> Any:
    import pyarrow

    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pyarrow.ChunkedArray) else array
    while isinstance(array, pyarrow.ExtensionArray) or pyarrow.types.is_nested(array.type):
        if pyarrow.types.is_struct(array.type) or pyarrow.types.is_union(array.type):
            raise ValueError(f"`{array.type}` instead of numbers")
        array = array.storage if isinstance(array, pyarrow.ExtensionArray) else array.flatten()
    return array.to_numpy(zero_copy_only=False).astype(np.dtype(dtype), copy=False)


def _images(column: Any) -> Any:
    """Decode images to uint8 `[T, 1, H, W, C]`. Only those inside the Parquet file are read: no path is followed."""
    with needs("lerobot", "from_lerobot"):
        from PIL import Image
    images = []
    for value in column.to_pylist():
        if not isinstance(value, dict) or not value.get("bytes"):
            raise ValueError("an image is not inside the Parquet file")
        try:
            with Image.open(io.BytesIO(value["bytes"]), formats=("PNG", "JPEG")) as image:
                images.append(np.asarray(image))
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:  # warnings may be errors
            raise ValueError(str(error)) from None
    stack = np.stack(images)
    return stack[:, None] if stack.ndim == 4 else stack[:, None, ..., None]
