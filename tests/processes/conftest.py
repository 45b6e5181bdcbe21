"""The storages that processes share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relive


@pytest.fixture(params=["shared", "mapped"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return relive.Shared() if request.param == "shared" else relive.Mapped(tmp_path / "ring")
