"""Recorded draws are those of every storage."""

from __future__ import annotations

from typing import Any

import pytest
import storages


@pytest.fixture(params=storages.NAMES)
def storage(request: pytest.FixtureRequest) -> Any:
    """Return a class of storages, to be made anew for each buffer."""
    return storages.MAKERS[request.param]
