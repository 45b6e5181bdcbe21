"""A Ray cluster of this machine, as a fixture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from needs import needs


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Yield one Ray cluster for all tests that need one: it takes seconds to start, more on a busy machine."""
    ray = needs("ray")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
    given = os.environ.get("RELIVE_RAY_ADDRESS", "local")  # another one saves its start
    own: dict[str, Any] = {"num_cpus": 4, "include_dashboard": False, "object_store_memory": 200 << 20}
    ray.init(address=given, log_to_driver=False, **(own if given == "local" else {}))
    yield ray
    ray.shutdown()
