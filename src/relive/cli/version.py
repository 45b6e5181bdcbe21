"""`relive --version --json`: what to put into a report of a bug."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

# Packages whose versions decide what relive meets: what it runs on, and what its adapters are for.
PACKAGES = (
    "numpy",
    "relive-lab",
    "gymnasium",
    "torch",
    "jax",
    "ray",
    "stable-baselines3",
    "tianshou",
    "torchrl",
    "tensordict",
    "cpprb",
    "lerobot",
    "minari",
    "safetensors",
    "ml-dtypes",
)


def report() -> str:
    """Return versions, kernels and processor as JSON, an object of strings, numbers and one object `packages`.

    >>> import json
    >>> sorted(json.loads(report()))
    ['cores', 'kernels', 'packages', 'processor', 'python', 'relive', 'system']
    """
    import relive
    from relive._ring import kernels

    module = kernels.active()
    back_end = "numpy" if module.__name__.endswith("numpy") else "native"
    found = {
        "relive": relive.__version__,
        "kernels": f"{back_end}, {module.simd()}",
        "python": platform.python_version() + ("" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", no GIL"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "packages": _versions(),
    }
    return json.dumps(found, indent=2)


def _versions() -> dict[str, str]:
    """List the installed packages; a version is read off their metadata, and none of them is imported."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """Return the processor's name, from Linux or else from Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
