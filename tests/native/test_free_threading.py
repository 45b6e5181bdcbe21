"""An interpreter without a lock of its own stays one with relive in it, and what threads share there is whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path.name for path in (ROOT / "native").glob("bind*.cpp"))

PROGRAM = """
import sys, threading
locked = getattr(sys, "_is_gil_enabled", lambda: True)
before = locked()
import numpy as np, relive
from relive._ring import kernels
assert kernels.is_native()
assert locked() == before, "the interpreter's lock was switched on"

schema = relive.Schema(obs=relive.Field((4,)), action=relive.Field())
buffer = relive.ReplayBuffer(schema, 1000, sampler=relive.Prioritized(), seed=0)

def step(serial):
    obs = np.full((1, 4), serial)
    return dict(obs=obs, action=[serial], reward=[0.0], next_obs=obs + 1, terminated=[False], truncated=[False])

for serial in range(100):
    buffer.add(**step(serial))
shared, seen, failures = buffer.sample(64), [], []

def job(work):
    gate.wait()
    try:
        work()
    except BaseException as error:
        failures.append(error)

def add():
    for serial in range(100, 3000):
        buffer.add(**step(serial))

def learn(n):
    for _ in range(500 if n < 1000 else 100):
        batch = buffer.sample(n)
        assert (batch.obs + 1 == batch.next_obs).all()
        buffer.update_priorities(batch.ids, np.ones(n))

def look():
    seen.append([shared[name] for name in shared])

jobs = [add, lambda: learn(64), lambda: learn(2000), look, look, look]
gate = threading.Barrier(len(jobs))
threads = [threading.Thread(target=job, args=(work,)) for work in jobs]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
assert buffer.stats().added == 3000 and buffer.stats().drawn == 64 + 500 * 64 + 100 * 2000
assert all(one is other for looked in seen for one, other in zip(looked, seen[0]))
assert locked() == before
"""


def free_threaded() -> str:
    """Find an interpreter without a lock that has the packages of a build."""
    here = sys.executable if sysconfig.get_config_var("Py_GIL_DISABLED") else None
    found = here or shutil.which("python3.14t") or shutil.which("python3.13t")
    if found is None:
        pytest.skip("there is no free-threaded interpreter")
    if subprocess.run([found, "-c", "import numpy, nanobind"], check=False, capture_output=True).returncode:
        pytest.skip(f"{found} has no NumPy or no nanobind")
    return found


def run(python: str, source: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(source), "RELIVE_KERNELS": "native"}
    done = subprocess.run([python, "-c", PROGRAM], check=False, capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr


@pytest.mark.skipif(not list((ROOT / "src/relive/_ring").glob("_native*")), reason="the native kernels")
def test_an_import_leaves_the_interpreters_lock_as_it_is() -> None:
    """Check also that threads that share a buffer, or a batch, find all that they expect."""
    run(sys.executable, ROOT / "src")


def test_a_free_threaded_interpreter_stays_one(tmp_path: Path) -> None:
    """Build the extension for such an interpreter, if there is one."""
    python = free_threaded()
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("_native*.so"))
    for name in ("CMakeLists.txt", "native"):
        os.symlink(ROOT / name, tmp_path / name)
    for command in (
        ["cmake", "-S", ".", "-B", "build", f"-DPython_EXECUTABLE={python}"],
        ["cmake", "--build", "build"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    run(python, tmp_path / "src")


@pytest.mark.skipif(sys.version_info < (3, 13), reason="headers that know of interpreters without a lock")
@pytest.mark.parametrize("source", SOURCES)
def test_the_sources_compile_for_an_interpreter_without_a_lock(source: str) -> None:
    """Compile with the headers of any interpreter."""
    assert_compiles(ROOT / "native" / source, "-DPy_GIL_DISABLED=1", "-DNB_FREE_THREADED")


@pytest.mark.parametrize("program", ["races", "lock"])
def test_the_sanitizers_programs_compile(program: str) -> None:
    assert_compiles(ROOT / "tests" / "native" / f"{program}.cpp")


def assert_compiles(source: Path, *flags: str) -> None:
    nanobind, numpy = pytest.importorskip("nanobind"), pytest.importorskip("numpy")
    compiler = shutil.which(os.environ.get("CXX", "c++")) or pytest.skip("there is no compiler")
    folders = [sysconfig.get_paths()["include"], nanobind.include_dir(), numpy.get_include()]
    command = [compiler, "-std=c++20", "-fsyntax-only", *flags, *(f"-I{folder}" for folder in folders), source]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr
