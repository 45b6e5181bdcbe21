"""LeRobot's names of features, and what relive calls them."""

from __future__ import annotations

from ..._base.nests import Path

VERSION = "v3.0"
INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
# Written for every frame by LeRobot itself.
COUNTED = ("timestamp", "frame_index", "episode_index", "index", "task_index")

_NAMES = {
    "actions": "action",
    "rewards": "next.reward",
    "dones": "next.done",
    "terminations": "next.terminated",
    "truncations": "next.truncated",
    "success": "next.success",
}
_PATHS = {name: (field,) for field, name in _NAMES.items()}
_PREFIXES = {"curr_obs": "observation.", "next_obs": "next.observation."}


def feature_of(path: Path) -> str:
    """Return the name of the feature that a field becomes."""
    if len(path) == 1:
        return _NAMES.get(path[0], path[0])
    return _PREFIXES.get(path[0], f"{path[0]}.") + ".".join(path[1:])


def path_of(feature: str) -> Path:
    """Return the field that a feature becomes."""
    for field, prefix in _PREFIXES.items():
        if feature.startswith(prefix) and len(feature) > len(prefix):
            return field, feature.removeprefix(prefix)
    return _PATHS.get(feature, (feature,))
