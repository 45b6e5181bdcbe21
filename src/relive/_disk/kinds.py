"""Kinds of directories that relive writes; each has files of its own names, so that no two of them mix.

A further kind is one `Kind` here; `cli/directories.py` has what the commands do with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import StorageError, message
from .files import Folder


class Kind(NamedTuple):
    """A kind of directory.

    Attributes:
        title: Its name in a sentence.
        names: A pattern of the names that its files alone have.
        load: The call that loads it.
    """

    title: str
    names: str
    load: str


SAVES = Kind("a `ReplayBuffer`'s saves", r"save-\d{10}\.json|(state|steps)-\d{10}\.safetensors", "relive.load(path)")
SHARDS = Kind("saves of `Shards`", r"shards\.json|shard-\d{4}\.json", "relive.ray.Shards.load(path)")
_TRAJECTORY = r"index\.sqlite.*|trajectory_\d{12,}\.safetensors"
TRAJECTORIES = Kind("trajectories", _TRAJECTORY, "TrajectoryReplayBuffer.load_checkpoint(path)")


def kind_of(names: Iterable[str]) -> Kind | None:
    """Return the kind of a directory with files of these names, or None if relive wrote none of them."""
    known = set(names)
    found = (kind for kind in (SAVES, TRAJECTORIES, SHARDS) if any(re.fullmatch(kind.names, name) for name in known))
    return next(found, None)


def check_kind(folder: Folder, wanted: Kind) -> None:
    """Refuse a directory of another kind.

    Raises:
        StorageError: It has files of another kind.
    """
    found = kind_of(folder.sizes())
    if found not in (None, wanted):
        remedy = f"name another directory; `{found.load}` loads this one, `relive inspect` shows it"
        text = f"an empty directory, or a directory of {wanted.title}"
        raise StorageError(message(text, found.title, folder.path, remedy))
