"""Sizes of relive's portions, made small: the one file of the tests that changes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

PLACES = {
    "checksum": "_disk.tensors.CHUNK",  # bytes that have one checksum
    "read": "_disk.tensors._STAGE",  # bytes read at once
    "written": "_disk.tensor_writer._STAGE",  # bytes written at once
    "block": "_disk.blocks._BYTES",  # bytes compressed together
    "rows": "checkpoints._steps._PIECE",  # bytes of a field that a save copies at once
    "copied": "checkpoints._copying._PIECE",  # bytes of a copy that are made together
    "dlpack": "batch._WORTH_DLPACK",  # bytes of an array that JAX takes without a copy
    "late": "samplers.once._LATE",  # ids that wait beside the others
    "guarded": "checkpoints._copy_on_overwrite._PIECE",
    "narrow": "trajectories._layout._NARROW",  # the share of a file that a field kept in memory may have
    "narrow_bytes": "trajectories._source._MOST_NARROW",
    "often": "trajectories._source._OFTEN",  # draws after which narrow fields are kept
    "compressed": "trajectories._layout.LEAST_COMPRESSED",  # bytes of a row
    "frames": "trajectories._frames.AT_ONCE",  # bytes unpacked at once
    "apart": "trajectories._writer._APART",  # bytes from which on two threads write
    "lines": "doctor._threads._MOST_LINES",  # lines between which another thread runs
    "patience": "doctor._interleave._PATIENCE",  # seconds
    "closing": "ray._sending.CLOSING",  # seconds
}


@contextlib.contextmanager
def with_sizes(**changed: Any) -> Iterator[None]:
    """Change sizes by name, in a block or, as a decorator, in a test."""
    with contextlib.ExitStack() as small:
        for name, value in changed.items():
            small.enter_context(mock.patch(f"relive.{PLACES[name]}", value))
        yield
