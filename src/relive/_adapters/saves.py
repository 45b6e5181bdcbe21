"""A buffer as named arrays, for file formats of other libraries that hold arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from .._base.types import Array
from .._opening import load
from ..buffer import ReplayBuffer
from ..errors import CorruptionError, message

_FILES, _FILE = "saved/", re.compile(r"[a-z]+-\d+\.(json|safetensors)")


def packed(buffer: ReplayBuffer) -> dict[str, Array]:
    """Pack the files of a save as named arrays of bytes."""
    with TemporaryDirectory() as folder:
        buffer.save(folder)
        files = [path for path in sorted(Path(folder).iterdir()) if _FILE.fullmatch(path.name)]
        return {_FILES + path.name: np.fromfile(path, np.uint8) for path in files}


def opened(packed: Mapping[str, Any], **choices: Any) -> ReplayBuffer:
    """Build the buffer that `packed` was called on.

    Args:
        packed: What it returned, among other arrays.
        **choices: Other choices, as `relive.load` takes them.

    Raises:
        CorruptionError: A file is missing or damaged.
    """
    names = [name for name in packed if name.startswith(_FILES)]
    if not names:
        raise CorruptionError(message("the arrays of a saved buffer", f"`{sorted(packed)}`", "$.state"))
    table = packed.get("ids")
    if table is not None:  # older files: lanes had two rows a step, and a table `[L, S]` named the steps
        choices = {"capacity": np.size(table), "boundaries": 1.0, **choices}
    with TemporaryDirectory() as folder:
        for name in names:
            if not _FILE.fullmatch(name.removeprefix(_FILES)):
                raise CorruptionError(message("a file of a saved buffer", f"`{name}`", "$.state"))
            np.asarray(packed[name], np.uint8).tofile(Path(folder) / name.removeprefix(_FILES))
        loaded: ReplayBuffer = load(folder, **choices)
        return loaded
