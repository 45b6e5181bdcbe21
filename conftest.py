"""Settings every test shares: which kernels run, how many examples Hypothesis tries.

``RELIVE_KERNELS=numpy|native`` runs the whole suite on one back end. ``RELIVE_EXAMPLES=20000`` is the long mode of
`tests/property`: that many examples a test, in place of the few hundred of a normal run.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from ray_cluster import cluster as cluster

# Each test process computes on one core: threads of PyTorch that wait for each other while others use the cores take
# fifteen times as long. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
EXAMPLES = int(os.environ.get("RELIVE_EXAMPLES", "200"))
settings.register_profile(
    "relive",
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    derandomize=EXAMPLES <= 200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("relive")


def pytest_report_header() -> str:
    from relive._ring import kernels

    name = kernels.active().__name__.removeprefix("relive._")
    return f"relive: kernels {name}, {EXAMPLES} examples a property"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory, in memory where the system has such a place."""
    from rollouts import MEMORY

    made = Path(tempfile.mkdtemp(dir=MEMORY))
    yield made
    shutil.rmtree(made)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A property notes how many examples it has tried."""
    told: str = getattr(item, "hypothesis_statistics", "")
    if tried := sum(map(int, re.findall(r"(\d+) passing", told))):
        item.user_properties.append(("cases", tried))
