"""A process that writes to a directory again and again, beside which others look at it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import relive

SOURCE = str(Path(relive.__file__).resolve().parents[1])


@contextmanager
def written_by(program: str, path: Path, *arguments: object) -> Iterator[None]:
    """Run a program that prints "up" once there is something at `path`, and ends where `path.stop` exists."""
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", program, str(path), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "up\n"
        try:
            yield
        finally:
            Path(f"{path}.stop").touch()
        assert writer.wait(60) == 0
