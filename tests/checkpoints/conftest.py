"""Fields that saves compress have a row or a few in a block here."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from relive._disk import blocks


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    with mock.patch.object(blocks, "_BYTES", 40):
        yield
