"""Directories in memory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(folder: Path) -> Path:
    """Make a directory in memory, where files are synced at once."""
    path = folder / "made"
    path.mkdir()
    return path
