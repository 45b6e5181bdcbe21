"""The trajectories of these tests are those of `tests/trajectories`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trajectories"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory in memory, where the system has such a place."""
    from rollouts import MEMORY

    made = Path(tempfile.mkdtemp(dir=MEMORY))
    yield made
    shutil.rmtree(made)
