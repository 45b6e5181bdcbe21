"""Where the figures were made: facts that belong above every table."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import os
import platform
from pathlib import Path
from typing import Any

SIMD = ("avx512f", "avx2", "avx", "sse4_2", "asimd")


def facts() -> dict[str, str]:
    """Return the facts as label -> text, in the order of the report."""
    cpu = _cpuinfo()
    found = {
        "Date": datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{cpu.get('model name', platform.processor() or platform.machine())}, {os.cpu_count()} cores",
        "SIMD": ", ".join(s for s in SIMD if s in f"{cpu.get('flags', '')} {cpu.get('Features', '')}".split()) or "?",
        "Caches": _caches(),
        "Memory": _memory(),
        "Huge pages": _chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "System": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "Load before the run": f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "?",
        "relive's kernels": kernels(),
    }
    return {label: text for label, text in found.items() if text and text != "?"}


def kernels() -> str:
    """Say which build of relive's kernels runs here."""
    try:
        chosen: Any = importlib.import_module("relive._ring.kernels").active()
    except ImportError:
        return "?"
    simd = getattr(chosen, "simd", None)
    return f"native, {simd()}" if simd is not None else "NumPy"


def _cpuinfo() -> dict[str, str]:
    with contextlib.suppress(OSError):
        lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines())
        return {key.strip(): value.strip() for key, _, value in lines}
    return {}


def _caches() -> str:
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError):
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                found.append(f"L{level} {size}")
    return ", ".join(found)


def _memory() -> str:
    with contextlib.suppress(OSError, IndexError):
        return f"{int(Path('/proc/meminfo').read_text().split()[1]) / 2**20:.0f} GiB"
    return ""


def _chosen(path: str) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(path).read_text().split("[")[1].split("]")[0]
    return ""
