"""Warnings that name the line of the caller's, however deep in the package they are given."""

from __future__ import annotations

import sys
import warnings

from ..errors import ReliveWarning

_OWN = __name__.partition(".")[0], "contextlib"  # the second calls generators of ours


def warn(text: str) -> None:
    """Warn at the line that called the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in _OWN:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, ReliveWarning, stacklevel=level)
