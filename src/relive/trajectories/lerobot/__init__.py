"""LeRobot's data sets, format v3: Parquet files of frames, and JSON and Parquet files about them."""

from collections.abc import Iterable

from ..formats import Episodes, Format, Written
from ..trajectory import Trajectory
from ._read import count, is_lerobot
from ._read import frames as frames
from ._read import from_lerobot as from_lerobot
from ._write import to_lerobot as to_lerobot


def _read(path: str) -> Episodes:
    return Episodes(count(path), from_lerobot(path, videos=True))


def _write(trajectories: Iterable[Trajectory], path: str, fps: int, written: Written) -> int:
    return to_lerobot(trajectories, path, fps=fps, progress=written)


FORMAT = Format(name="lerobot", title="LeRobot's", holds=is_lerobot, read=_read, write=_write)
