"""Every storage that relive ships, for suites that have to come out the same on each of them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any

import relive
from relive._ring import kernels


class Unnamed(relive.Mapped):
    """A mapped file that is gone from its directory once it is open."""

    def __init__(self) -> None:
        super().__init__(os.path.join(tempfile.gettempdir(), f"relive-{os.urandom(8).hex()}"))

    def open(self, spec: Any, identity: bytes) -> Any:
        try:
            return super().open(spec, identity)
        finally:
            with contextlib.suppress(FileNotFoundError):  # it could not be made
                os.unlink(self.path)


MAKERS = {"ram": relive.Ram, "shared": relive.Shared, "mapped": Unnamed}
# The NumPy kernels cannot share.
NAMES = list(MAKERS) if kernels.is_native() else ["ram"]


def new(name: str) -> Any:
    """Make a new storage; `Ram` for NumPy's kernels."""
    return MAKERS[name if kernels.is_native() else "ram"]()
