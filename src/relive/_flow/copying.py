"""Copies of what an environment is given and returns, for recorders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._ring import kernels


def copying(lanes: int) -> Callable[[Any], Any]:
    """Return a call that copies bytes; see `copying` in `_ring/kernels_numpy/calls.py`."""
    return kernels.active().copying(lanes)
