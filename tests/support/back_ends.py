"""What the tests of the kernels share: the back ends there are, and how to compare them to the last bit."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from itertools import product
from types import ModuleType

import numpy as np
import pytest

import relive
from relive._ring import kernels_numpy
from relive.sum_tree import allocate

HAS_NATIVE = importlib.util.find_spec("relive._ring._native") is not None
BACKENDS: list[ModuleType] = [kernels_numpy]
if HAS_NATIVE:
    BACKENDS.append(importlib.import_module("relive._ring._native"))
CAPACITIES = [1, 7, 8, 9, 64, 65, 1000, 4097]

both = pytest.mark.parametrize("kernels", BACKENDS, ids=[module.simd() for module in BACKENDS])


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter with this folder and the package on its path."""
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    settings = {**os.environ, "PYTHONPATH": path, **environment}
    for name in ("RELIVE_KERNELS", "RELIVE_SIMD"):
        if name not in environment:
            settings.pop(name, None)
    without_site = ["-S"] if sys.flags.no_site else []
    return subprocess.run(
        [sys.executable, *without_site, "-c", code], env=settings, capture_output=True, text=True, timeout=300
    )


def instruction_sets() -> list[str]:
    """List those of the extension that this processor can run, from its message for an unknown one."""
    if not HAS_NATIVE:
        return []
    said = run_python("import relive._ring.kernels as k; k.active()", RELIVE_SIMD="abacus").stderr.splitlines()[-1]
    return re.findall(r"`(\w+)`", said.partition(", got")[0])


def digest(value: object) -> str:
    """Hash the bytes of arrays, numbers and nests of them."""
    if isinstance(value, (tuple, list)):
        return hashlib.sha256("".join(map(digest, value)).encode()).hexdigest()
    array = np.asarray(value)
    return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()


@cache
def transcript(kernels: ModuleType) -> str:
    """Hash all that the kernels return over a fixed program with sizes around every block and switch."""
    rng, seen = np.random.default_rng(7), []
    for capacity in (*CAPACITIES, 70_001):
        arrays = allocate(capacity)
        tree = kernels.Tree(*arrays)
        for size in (1, 2, 3, 4, 9, 64, 65, 700, 5000):
            where = rng.integers(0, capacity, size)
            values = np.where(rng.random(size) < 0.3, 0.0, 10.0 ** rng.uniform(-9, 9, size))
            tree.set(where, values)
            some, others = where[::3].copy(), where[::2].copy()
            tree.fill_zero_and_set(some, others, 1.25)
            tree.set(others, np.zeros(len(others)))
            tree.set(where, values[::-1].copy())
            tree.fill_zero_and_set(where[:0], where[:1], 1.5)
            u = rng.random(min(size, 500))
            several = u[: min(int(arrays[2][2]), 40)]
            seen += [tree.draw(u, True), tree.draw(u, False), tree.draw_distinct(several), tree.get(where), arrays]
            arrays[0][0][where[:9]] *= -1  # hidden, and everything above it is of no use
            arrays[2][:3] = [5.0, 5.0, 5.0]
            arrays[0][-1][-1:] = 0.0
            tree.restore()
            seen += [arrays, tree.draw(u, True)]
    x = np.concatenate([10.0 ** rng.uniform(-300, 300, 4001), rng.random(999), [0.0, 1.0, 5e-324]])
    for exponent in (0.0, 0.4, 0.6, 1.0, 1.7):
        seen += [kernels.power(x, exponent), kernels.mass(x - 0.5, 1e-6, exponent)]
        seen += [kernels.weights(x[:-3], 0.3, min(exponent, 0.1))]
    return digest(seen)


def stacks_behind() -> str:
    """Hash drawn stacks with frames on the last axis, of several counts, lengths and sizes of elements."""
    rng, seen = np.random.default_rng(8), []
    for frames in (2, 3, 4, 5, 7, 8, 13, 17):
        kinds = product((1, 205), ("uint8", "int16", "float32", "float64", "complex128"))
        fields = {str(kind): relive.Field(kind[:1], kind[1], stack=frames, stack_axis=-1) for kind in kinds}
        steps = [
            {name: rng.integers(1, 100, (1, *field.full_shape)).astype(field.dtype) for name, field in fields.items()}
            for _ in range(2)
        ]
        buffer = relive.ReplayBuffer(relive.Schema(obs=fields, action=relive.Field()), 100, boundaries=1)
        ids = buffer.add(obs=steps[0], action=[0], reward=[0], next_obs=steps[1], terminated=[True], truncated=[False])
        batch = buffer.read(ids)
        seen += [part[name] for part in (batch.obs, batch.next_obs) for name in fields]
    return digest(seen)
