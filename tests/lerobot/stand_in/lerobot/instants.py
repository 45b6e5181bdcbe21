"""The instants at which a test may kill the learner: before and after everything that it does to files."""

from __future__ import annotations

from collections.abc import Callable


def nothing() -> None:
    """Live on."""


reached: Callable[[], None] = nothing


def instant() -> None:
    """Something is about to be done to a file, or has just been done."""
    reached()
