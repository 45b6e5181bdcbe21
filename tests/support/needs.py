"""Tests of other libraries say which one they need, and skip where it is not installed."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def needs(name: str, *others: str) -> Any:
    """Import the first of these modules; without any of them, skip the test, or the file that calls this at its top."""
    found = []
    for module in (name, *others):
        try:
            found.append(importlib.import_module(module))
        except ImportError as error:
            missing = (error.name or module).partition(".")[0]
            reason = f"{missing} is not installed: pip install '.[test-all]'"
            pytest.skip(reason, allow_module_level=True)
    return found[0]
