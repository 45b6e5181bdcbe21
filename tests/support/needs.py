"""Tests of other libraries say which one they need, and skip where it is not installed."""

from __future__ import annotations

from typing import Any

import pytest


def needs(*modules: str) -> Any:
    """The first of these modules; without any of them the test, or the file, is skipped."""
    found = [
        pytest.importorskip(
            name,
            reason=f"{name.partition('.')[0]} is not installed: pip install '.[test-all]'",
            exc_type=ImportError,
        )
        for name in modules
    ]
    return found[0]
