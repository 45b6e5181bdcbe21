"""Kinds of directories that relive writes; each has files of its own names, so that no two of them mix."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import StorageError, message
from .files import Folder

SAVES, TRAJECTORIES, SHARDS = "a `ReplayBuffer`'s saves", "trajectories", "saves of `Shards`"
_NAMES = {
    SAVES: re.compile(r"save-\d{10}\.json|(state|steps)-\d{10}\.safetensors"),
    TRAJECTORIES: re.compile(r"index\.sqlite.*|trajectory_\d{12,}\.safetensors"),
    SHARDS: re.compile(r"shards\.json|shard-\d{4}\.json"),
}
LOADED_BY = {
    SAVES: "`relive.load(path)` loads them, `relive inspect` shows them; they are not converted",
    TRAJECTORIES: "`TrajectoryReplayBuffer.load_checkpoint(path)` loads them, `relive convert` converts them",
    SHARDS: "`relive.ray.Shards.load(path)` loads them, `relive inspect` shows them; they are not converted",
}


def kind_of(names: Iterable[str]) -> str | None:
    """Return the kind of a directory with files of these names, or None if relive wrote none of them."""
    known = set(names)
    return next((kind for kind, pattern in _NAMES.items() if any(map(pattern.fullmatch, known))), None)


def check_kind(folder: Folder, wanted: str, remedy: str = "choose another directory") -> None:
    """Refuse a directory of another kind.

    Raises:
        StorageError: It has files of another kind.
    """
    found = kind_of(folder.sizes())
    if found not in (None, wanted):
        raise StorageError(message(f"an empty directory, or one of {wanted}", f"{found}", folder.path, remedy))
