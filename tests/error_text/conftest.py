"""A place that several tables of refused calls name."""

from __future__ import annotations

from pathlib import Path

import pytest
from refused_calls import prioritized, uniform


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A save in `saved`, another schema's in `other`, an empty directory, a file."""
    path = tmp_path_factory.mktemp("places")
    prioritized().save(path / "saved")
    uniform().save(path / "other")
    (path / "empty").mkdir()
    (path / "file").touch()
    return path
