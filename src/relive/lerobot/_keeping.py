"""The directory in which a buffer is saved by itself, and from which the next one goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np

from .._base import check
from .._opening import load
from ..buffer import ReplayBuffer
from ..checkpoints.inspection import is_saved


class Keeping:
    """Saves of a buffer, every few seconds.

    A buffer that had to be built anew, with another schema, is saved beside first; `PATH.float32` then takes the place
    of the directory. Wherever a kill comes in between, one of the two is whole, and the one beside is the later one.

    Args:
        path: The directory.
        every: Seconds from one save to the next.
    """

    def __init__(self, path: str | os.PathLike[str], every: float) -> None:
        self._path = Path(check.path(path, "ReplayBuffer(path)")).absolute()
        self._beside = self._path.with_name(self._path.name + ".float32")
        self._every = every
        self._buffer: ReplayBuffer | None = None

    def load(self, capacity: int, boundaries: float, seed: int | np.random.Generator | None) -> ReplayBuffer | None:
        """Load the buffer that was saved last; return None if there is none.

        Raises:
            CorruptionError: The save is damaged.
        """
        if self._beside.is_dir() and is_saved(self._beside):
            self._move()
        if not (self._path.is_dir() and is_saved(self._path)):
            return None
        return load(self._path, capacity=capacity, boundaries=boundaries, seed=seed)

    def begin(self, buffer: ReplayBuffer) -> None:
        """Save this buffer from now on."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        buffer.autosave(self._path, every=self._every)
        self._buffer = buffer

    def replace(self, buffer: ReplayBuffer) -> None:
        """Save this one, which has all steps of the one before, in its place; that one is closed."""
        self.close()
        shutil.rmtree(self._beside, ignore_errors=True)
        buffer.save(self._beside)
        self._move()
        self.begin(buffer)

    def _move(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        self._beside.rename(self._path)

    def close(self) -> None:
        """Write a last save, and close the buffer. May be called twice."""
        if self._buffer is not None:
            self._buffer.close()
