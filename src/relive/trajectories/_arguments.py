"""Arguments of `TrajectoryReplayBuffer`: RLinf's and relive's own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._base import check
from .._base.extras import needs
from ..errors import ArgumentError, message
from ._frames import package
from ._layout import Fill
from .formats import Format, format_named
from .selection import Selection
from .trajectory import Trajectory, as_trajectory

_NAME = "TrajectoryReplayBuffer"


def path_and_seed(first: Any, seed: Any) -> tuple[Any, Any]:
    """Return path and seed; the first positional argument may be either: in RLinf it is the seed."""
    if first is None or isinstance(first, str | os.PathLike):
        return first, seed
    if isinstance(first, bool) or not isinstance(first, int | np.integer) or seed is not None:
        raise ArgumentError(message("a path, or an integer as the seed", f"`{first!r}`", f"{_NAME}(path)"))
    return None, first


def layout(value: Any) -> Format:
    """Check the layout of checkpoints."""
    at = f"{_NAME}(trajectory_format)"
    if value == "pkl":
        remedy = "`pkl` files run code when they are loaded; `load_checkpoint(..., allow_pickle=True)` reads old ones"
        raise ArgumentError(message("`'safetensors'` or `'pt'`", "`'pkl'`", at, remedy))
    return format_named(value, at, saved=True)


def output(value: Any) -> str:
    """Check the library whose arrays a draw returns: `"numpy"` or `"torch"`."""
    name = check.one_of(value, ("numpy", "torch"), f"{_NAME}(output)")
    if name == "torch":
        with needs("torch", f"{_NAME}(output)"):
            import torch  # noqa: F401
    return name


def selection(value: Any) -> Selection | None:
    """Check rules for draws."""
    if value is not None and not isinstance(value, Selection):
        raise ArgumentError(message("a `Selection`", f"`{value!r}`", f"{_NAME}(select)"))
    return value


def fill(value: Any) -> Fill:
    """Check values for missing fields."""
    at = f"{_NAME}(fill)"
    if isinstance(value, Mapping):
        return {str(name): check.real(number, f"{at}[{name!r}]") for name, number in value.items()}
    return None if value is None else check.real(value, at)


def compression(value: Any) -> bool:
    """Return whether files are compressed."""
    at = f"{_NAME}(compress)"
    if value is not None:
        check.one_of(value, ("zstd",), at)
        package(at)
    return value is not None


def directory_from(path: Any, auto_save: bool | None, auto_save_path: Any) -> str | None:
    """Return the directory to write to, None for none."""
    if auto_save is not None:
        check.flag(auto_save, "TrajectoryReplayBuffer(auto_save)")
    if path is not None and (auto_save_path or auto_save is False):
        got = "`auto_save_path` or `auto_save=False` as well"
        raise ArgumentError(message("only `path`", got, "TrajectoryReplayBuffer(path)"))
    chosen = path if path is not None else (auto_save_path or None) if auto_save else None
    if auto_save and chosen is None:
        raise ArgumentError(message("a `path` to write to", "none", "TrajectoryReplayBuffer(auto_save)"))
    return None if chosen is None else os.path.abspath(check.path(chosen, f"{_NAME}(path)"))


def checkpoint(path: Any, rlinfs: Any, name: str, method: str) -> str:
    """Return the directory of a checkpoint: `path`, or RLinf's name for it."""
    if (path is None) == (rlinfs is None) or not isinstance(path if rlinfs is None else rlinfs, str | os.PathLike):
        got = "neither" if path is rlinfs is None else "both" if None not in (path, rlinfs) else f"`{rlinfs or path!r}`"
        raise ArgumentError(message(f"a directory, as `path` or as `{name}`", got, f"{_NAME}.{method}"))
    return check.path(path if rlinfs is None else rlinfs, f"{_NAME}.{method}(path)")


def share_of(is_distributed: bool, local_rank: int, world_size: int) -> tuple[int, int]:
    """Return the rank and the number of shares."""
    at = "TrajectoryReplayBuffer.load_checkpoint"
    if not check.flag(is_distributed, f"{at}(is_distributed)"):
        return 0, 1
    world = check.integer(world_size, f"{at}(world_size)", minimum=1)
    rank = check.integer(local_rank, f"{at}(local_rank)", minimum=0)
    if rank >= world:
        raise ArgumentError(message(f"a rank below {world}", f"`{rank}`", f"{at}(local_rank)"))
    return rank, world


def trajectories(given: Any) -> list[Trajectory]:
    """Return a list of trajectories, each with fields that fit."""
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        got = "one" if isinstance(given, Trajectory) else f"`{type(given).__name__}`"
        raise ArgumentError(message("a list of trajectories", got, "$.trajectories"))
    return [as_trajectory(one, f"$.trajectories[{number}]") for number, one in enumerate(given)]
