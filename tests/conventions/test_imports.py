"""`import relive` loads NumPy and little else."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

import relive

HEAVY = ["torch", "jax", "ray", "gymnasium", "minari", "safetensors", "matplotlib", "tyro", "rich", "skfolio"]


# Each takes a noticeable part of the 6 ms that an import may take.
SLOW = [
    "dataclasses",
    "numpy.typing",
    "hashlib",
    "threading",
    "mmap",
    "sqlite3",
    "relive._ring._native",
    "relive._schema.spaces",
]
SLOW += [
    "relive._ring.kernels_numpy",
    "relive._ring.kernel_types",
    "relive.items.sequences",
    "relive.samplers.prioritized",
]
MOST = 51  # of relive's own modules


def all_loaded_after(statement: str) -> list[str]:
    """List the modules that a statement has loaded in a fresh process that has NumPy."""
    code = f"import sys, numpy\nbefore = set(sys.modules)\n{statement}\nprint(*set(sys.modules) - before)"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()


def loaded_after(statement: str) -> list[str]:
    """List those of them that are optional packages."""
    return [name for name in all_loaded_after(statement) if name in HEAVY]


def test_importing_and_using_a_buffer_loads_no_optional_package() -> None:
    use = (
        "import relive, numpy as np\n"
        "buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(3), action=relive.Field()), 8, seed=0)\n"
        "buffer.add(obs=np.zeros(3), action=0, reward=0, next_obs=np.ones(3), terminated=False, truncated=False)\n"
        "buffer.sample(2)"
    )
    assert loaded_after(use) == []


def test_the_doctor_loads_no_library_of_tensors() -> None:
    assert loaded_after("import relive.doctor") == ["gymnasium"]


def test_meta_a_loaded_package_is_seen() -> None:
    assert loaded_after("import relive, rich") == ["rich"]


def test_an_import_loads_what_a_first_buffer_needs() -> None:
    """Check the loaded modules, and not the time, which would depend on the machine's other work."""
    loaded = all_loaded_after("import relive")
    assert not set(SLOW) & set(loaded)
    assert "relive.buffer" in loaded
    assert sum(name.startswith("relive") for name in loaded) <= MOST


def test_every_public_name_is_there_and_listed() -> None:
    code = "import relive; print(*[name for name in dir(relive) if name[0] != '_' and getattr(relive, name, 0) is 0])"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    names = {"Anneal", "Prioritized", "ReplayBuffer", "Sequences", "SumTree", "sequence_priority"}
    assert names <= set(dir(relive))
    assert names <= set(relive.__all__)  # for `from relive import *`
    with pytest.raises(AttributeError, match="no attribute `Nothing`"):
        relive.Nothing  # noqa: B018


GONE = [
    ("cpprb", "relive.ReplayBuffer"),
    ("Ranked", "`relive.Prioritized`, or .*examples/ranked_sampler.py"),
    ("samplers.Ranked", "`relive.Prioritized`, or .*examples/ranked_sampler.py"),
]


@pytest.mark.parametrize(("name", "instead"), GONE)
def test_a_name_that_is_gone_says_what_took_its_place(name: str, instead: str) -> None:
    *modules, last = name.split(".")
    with pytest.raises(AttributeError, match=f"relive.{name} is gone: use {instead}"):
        getattr(functools.reduce(getattr, modules, relive), last)


def test_a_star_import_brings_no_module() -> None:
    """Check after any earlier imports: a caller's `buffer` or `batch` stays."""
    look = "from relive import *; print(*(k for k, v in list(globals().items()) if type(v) is type(relive)))"
    for before in ("import relive", "import relive, relive.gymnasium, relive.mixture, relive.testing"):
        code = f"{before}; buffer = batch = 1; {look}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) <= {"__builtins__", "relive"}
    modules = {name for name, value in vars(relive).items() if isinstance(value, type(relive))}
    assert {"buffer", "batch", "items", "errors", "samplers", "schema", "storage"} <= modules
    assert not modules & set(relive.__all__)
