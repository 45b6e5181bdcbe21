"""Settings every test shares: which kernels run, how many examples Hypothesis tries.

``RELIVE_KERNELS=numpy|native`` runs the whole suite on one back end. ``RELIVE_EXAMPLES=20000`` is the long mode of
`tests/property`: that many examples a test, in place of the few hundred of a normal run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

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
    from relive import _kernels

    name = _kernels.active().__name__.removeprefix("relive._")
    return f"relive: kernels {name}, {EXAMPLES} examples a property"
