"""LeRobot's checkpoints of a run: which are complete, and the link `last`, which a kill can take away."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

_FOLDER, _LAST = "checkpoints", "last"


def last_checkpoint(run: Path) -> Path | None:
    """The last complete checkpoint of a run, to which `checkpoints/last` leads then; None if there is none.

    LeRobot removes the link and makes it anew. A kill in between leaves a run that it does not resume; here the link
    is made again.
    """
    link = run / _FOLDER / _LAST
    if link.is_dir():
        return link.resolve()
    try:
        steps = sorted((path for path in link.parent.iterdir() if path.name.isdigit()), reverse=True, key=_step)
    except FileNotFoundError:
        return None
    for folder in steps:
        if _complete(folder / "training_state"):
            fresh = link.with_name(f"{_LAST}.unfinished")
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(folder.name)
            os.replace(fresh, link)
            return folder
    return None


def run_of(config_path: str) -> Path | None:
    """The run whose link `last` a path goes through, None if it goes through none."""
    parts = Path(config_path).parts
    for place in range(1, len(parts)):
        if parts[place - 1 : place + 1] == (_FOLDER, _LAST):
            return Path(*parts[: place - 1])
    return None


def _step(folder: Path) -> int:
    return int(folder.name)


def _complete(state: Path) -> bool:
    """Whether the file is whole that is written last: a ZIP archive in LeRobot 0.4, and a JSON file since."""
    if zipfile.is_zipfile(state / "training_state.pt"):
        return True
    try:
        return "interaction_step" in json.loads((state / "training_step.json").read_text())
    except (OSError, ValueError, TypeError):
        return False
