"""Whichever allocation of a call fails, the call has happened or it has not, and the buffer goes on."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from depth import LONG
from interrupted_lives import SAMPLERS

HERE = Path(__file__).parent
COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(
    COMPILER is None
    or not sys.platform.startswith("linux")
    or importlib.util.find_spec("relive._ring._native") is None,
    reason="a C compiler, the GNU C library, the native kernels",
)
CASES: list[Any] = [("prioritized", 1501 if LONG else 12_007)]
CASES += [pytest.param(sampler, 97, marks=pytest.mark.slow) for sampler in SAMPLERS]


@pytest.fixture(scope="session")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("allocations") / "allocations.so"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-O1", "-o", path, HERE / "allocations.c"], check=True)
    return path


@pytest.mark.parametrize(("sampler", "every"), CASES)
def test_a_failing_allocation_changes_nothing(sampler: str, every: int, preloaded: Path, record_property: Any) -> None:
    """Run every call, a save, and a load, in a process of their own."""
    path = os.pathsep.join([*filter(None, sys.path), str(HERE), str(HERE.parent)])
    environment = {**os.environ, "LD_PRELOAD": str(preloaded), "PYTHONMALLOC": "malloc", "PYTHONPATH": path}
    command = [sys.executable, "-X", "faulthandler", str(HERE / "allocations.py"), sampler, str(every)]
    found = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-3000:]
    assert int(found.stdout) > 500, found.stdout
    record_property("cases", int(found.stdout))
