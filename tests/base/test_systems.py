"""Buffers, saves and trajectories work on systems that lack what Linux has; what processes share asks for Linux."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import other_systems
import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="Linux can look like the others")
@pytest.mark.parametrize("system", other_systems.LACKS)
def test_buffers_work_on_other_systems(system: str, folder: Path) -> None:
    kernels = {} if system == "darwin" else {"RELIVE_KERNELS": "numpy"}
    command = [sys.executable, other_systems.__file__, system, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=os.environ | kernels, timeout=300)
    assert not done.returncode, done.stderr
