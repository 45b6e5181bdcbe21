"""Fields that saves compress have a row or a few in a block here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sizes import with_sizes


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    with with_sizes(block=40):
        yield
