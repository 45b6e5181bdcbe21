"""The videos of a data set, decoded by PyAV in the order of their frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as Folder
from typing import Any

import numpy as np

from ..._base.extras import needs
from ..._base.types import Array
from ...errors import SchemaError, message

TOLERANCE = 1e-4  # seconds, as LeRobot has it
_EPISODES = "meta/episodes/*/*.parquet"
_PLACES = ("chunk_index", "file_index", "from_timestamp")


class Videos:
    """The videos of all cameras. Episodes in the order of their numbers are decoded without a seek.

    Args:
        folder: The data set.
        features: Its features.

    Raises:
        SchemaError: A video of depths, or one whose frames are not RGB.
        MissingExtra: PyAV is not installed.
    """

    def __init__(self, folder: Folder, features: Mapping[str, Any]) -> None:
        with needs("lerobot", "from_lerobot"):
            import av

        self._av, self._folder = av, folder
        self._shapes = {name: _shape(name, feature) for name, feature in features.items() if is_video(feature)}
        self._streams: dict[str, _VideoStream] = {}
        self._places: dict[int, dict[str, list[Any]]] | None = None

    def frames(self, episode: int, times: Array) -> dict[str, Array]:
        """Decode the frames of an episode, for each camera uint8 `[T, 1, H, W, 3]`.

        Args:
            episode: Its number.
            times: The time stamps of its frames, `[T]`.

        Raises:
            ValueError: There is no frame at one of these times.
            OSError: A video cannot be read.
        """
        if self._places is None:
            self._places = self._located()
        found = {}
        for name, shape in self._shapes.items():
            chunk, file, begin = self._places[episode][name]
            path = self._folder / "videos" / name / f"chunk-{chunk:03d}" / f"file-{file:03d}.mp4"
            stream = self._streams.get(name)
            if stream is None or stream.path != path or stream.time > begin + TOLERANCE:
                if stream is not None:
                    stream.close()
                stream = self._streams[name] = _VideoStream(self._av, path)
            frames = np.empty((len(times), 1, *shape), np.uint8)
            stream.read(begin + times.astype(np.float64), frames[:, 0])
            found[name] = frames
        return found

    def _located(self) -> dict[int, dict[str, list[Any]]]:
        """Find the video of each camera of each episode, and the time in it at which the episode begins."""
        from pyarrow import parquet

        found: dict[int, dict[str, list[Any]]] = {}
        wanted = [f"videos/{name}/{place}" for name in self._shapes for place in _PLACES]
        for path in sorted(self._folder.glob(_EPISODES)):
            rows = parquet.read_table(path, columns=["episode_index", *wanted]).to_pylist()
            for row in rows:
                found[int(row["episode_index"])] = {
                    name: [row[f"videos/{name}/{place}"] for place in _PLACES] for name in self._shapes
                }
        return found

    def close(self) -> None:
        """Close all files."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()


class _VideoStream:
    """One video file, read from its beginning to its end.

    Attributes:
        path: The file.
        time: The time of the frame that was read last.
    """

    def __init__(self, av: Any, path: Folder) -> None:
        self.path, self.time = path, -np.inf
        # By its format: others name further files, which nobody asked for.
        self._container = av.open(str(path), format="mp4")
        stream = self._container.streams.video[0]
        stream.thread_type = "AUTO"
        self._frames: Iterator[Any] = self._container.decode(stream)
        self._frame: Any = None

    def read(self, times: Array, out: Array) -> None:
        """Decode the frames at these times, ascending, uint8 `[T, H, W, 3]`."""
        for time, target in zip(times.tolist(), out, strict=True):
            while self.time < time - TOLERANCE:
                self._frame = next(self._frames, None)
                if self._frame is None:
                    raise ValueError(f"`{self.path.name}` ends before {time:.4f} s")
                self.time = self._frame.time
            if self.time > time + TOLERANCE:
                raise ValueError(f"`{self.path.name}` has no frame at {time:.4f} s, but one at {self.time:.4f} s")
            frame = self._frame.to_ndarray(format="rgb24")
            if frame.shape != target.shape:
                raise ValueError(f"frames of {frame.shape} in `{self.path.name}`")
            target[...] = frame

    def close(self) -> None:
        """Close the file."""
        self._container.close()


def is_video(feature: Mapping[str, Any]) -> bool:
    """Return whether a feature's values are in videos."""
    return bool(feature["dtype"] == "video")


def _shape(name: str, feature: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return height, width and channels of a video's frames."""
    about = {**feature.get("video_info", {}), **(feature.get("info") or {}), **feature}
    if about.get("is_depth_map") or about.get("video.is_depth_map"):
        raise SchemaError(message("videos of colours", "one of depths", f"$.{name}", "leave the feature out"))
    if "/" in name or name in (".", ".."):
        raise SchemaError(message("a name that is no path", f"`{name}`", "$.features"))
    shape = tuple(feature["shape"])
    if len(shape) != 3 or 3 not in (shape[0], shape[-1]):
        raise SchemaError(message("frames of three colours", f"shape `{shape}`", f"$.{name}"))
    return shape if shape[-1] == 3 else (*shape[1:], 3)
