"""Settings every test shares: which kernels run, how many examples Hypothesis tries.

``RELIVE_KERNELS=numpy|native`` runs the whole suite on one back end. ``RELIVE_LONG=1`` is the long mode: every point of
every sweep, 200 examples a property, and the tests that are marked `slow`. ``RELIVE_EXAMPLES=20000`` is that many
examples in either mode.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from depth import LONG, MEMORY
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from ray_cluster import cluster as cluster

# Each test process computes on one core: threads of PyTorch that wait for each other while others use the cores take
# fifteen times as long. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tianshou's loops are compiled by Numba anew in every process, for ten seconds; as Python they do the same.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
# The README installs without compiling, which takes a minute for PyTorch. What is imported is compiled once here, and
# not anew in every process, whatever the environment says.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Files of tests lie in memory where it has room: they are synced some 30,000 times, which takes a minute on a disk.
ROOM = 4 << 30  # bytes
OWN = pytest.StashKey[str]()
frozen = blocks = 0  # modules, and blocks of memory, when the collector was told to pass over what was there
tests = count(1)
EXAMPLES = int(os.environ.get("RELIVE_EXAMPLES", "200" if LONG else "15"))
if EXAMPLES < 200:  # few examples need no numbers of the source, for which all modules would be read, again and again
    providers._get_local_constants = lambda: providers._local_constants
settings.register_profile(
    "relive",
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    derandomize=EXAMPLES <= 200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("relive")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked `slow` or `site` belongs to the long mode, or to those who ask for it by its mark."""
    marks = [mark for mark in ("slow", "site") if not LONG and mark not in config.option.markexpr]
    slow = [item for item in items if any(map(item.get_closest_marker, marks))]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in {*slow}]


def pytest_configure(config: pytest.Config) -> None:
    """`RELIVE_SKIPPED=FILE` notes what is skipped because a library is not installed: `pytest @FILE` runs that.

    Files go to processes in the order of folders, not by their number of tests: those with one test take long.
    """
    config.option.loadscopereorder = False
    gc.disable()  # until the tests are collected
    if MEMORY and not LONG and "TMPDIR" not in os.environ and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="tests-of-relive-", dir=MEMORY)
        os.chmod(os.environ["TMPDIR"], 0o1777)  # as a place for all users
        tempfile.tempdir = None  # which was worked out before
        config.stash[OWN] = os.environ["TMPDIR"]
    if (file := os.environ.get("RELIVE_SKIPPED")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skipped(Path(file)))


class Skipped:
    """Files and tests that want another library, one a line."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_text("")

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and re.search("is not installed|could not import", str(report.longrepr)):
            with self.file.open("a") as file:
                file.write(f"{report.nodeid}\n")

    pytest_collectreport = pytest_runtest_logreport = note


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """What failed tests wrote to memory can be looked at; nothing else stays there."""
    if OWN in session.config.stash and exitstatus != pytest.ExitCode.TESTS_FAILED:
        session.config.add_cleanup(lambda: shutil.rmtree(session.config.stash[OWN], ignore_errors=True))


def pytest_collection_finish() -> None:
    """What is there for good, some million objects, is not looked at again whenever a test collects its garbage."""
    freeze()
    gc.set_threshold(10_000)  # syntax trees of all modules would be looked through again and again while they are made
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Nor is what libraries bring that a test was the first to import, nor what many tests use: all syntax trees."""
    # Blocks are counted seldom: that walks through all memory.
    if len(sys.modules) > frozen + 100 or (next(tests) % 16 == 0 and sys.getallocatedblocks() > blocks + 500_000):
        freeze()


def freeze() -> None:
    global frozen, blocks
    gc.collect()
    gc.freeze()
    frozen, blocks = len(sys.modules), sys.getallocatedblocks()


def pytest_report_header() -> str:
    from relive._ring import kernels

    name = kernels.active().__name__.removeprefix("relive._")
    return f"relive: kernels {name}, {EXAMPLES} examples a property, {'long' if LONG else 'default'} mode"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory, in memory where the system has such a place."""
    made = Path(tempfile.mkdtemp(dir=MEMORY))
    yield made
    shutil.rmtree(made)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Be an ordinary process afterwards: SVT-AV1, which encodes videos, makes root's thread a real-time one.

    Processes that later tests start would inherit that, and keep all others from running.
    """
    try:
        yield
    finally:
        if sys.platform == "linux" and os.sched_getscheduler(0) != os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A property notes how many examples it has tried."""
    told: str = getattr(item, "hypothesis_statistics", "")
    if tried := sum(map(int, re.findall(r"(\d+) passing", told))):
        item.user_properties.append(("cases", tried))
