"""LeRobot's data sets, format v3: Parquet files of frames, and JSON and Parquet files about them."""

from ..formats import Episodes, Format
from ._read import count, is_lerobot
from ._read import frames as frames
from ._read import from_lerobot as from_lerobot
from ._write import to_lerobot as to_lerobot

FORMAT = Format(
    name="lerobot",
    title="LeRobot's",
    holds=is_lerobot,
    read=lambda path: Episodes(count(path), from_lerobot(path, videos=True)),
    write=lambda trajectories, path, fps, written: to_lerobot(trajectories, path, fps=fps, progress=written),
)
