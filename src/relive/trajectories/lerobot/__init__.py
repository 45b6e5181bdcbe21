"""LeRobot's data sets, format v3: Parquet files of frames, and JSON and Parquet files about them."""

from ._read import count as count
from ._read import frames as frames
from ._read import from_lerobot as from_lerobot
from ._read import is_lerobot as is_lerobot
from ._write import to_lerobot as to_lerobot
