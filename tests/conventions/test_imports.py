"""`import relive` loads NumPy and little else, and so do the lab and the commands until they need more."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest
from children import run_program

import relive

HEAVY = {"torch", "jax", "ray", "gymnasium", "minari", "safetensors", "matplotlib", "tyro", "rich"}
HEAVY |= {"skfolio", "pandas", "sklearn"}
# Each takes a noticeable part of the 6 ms that an import may take.
SLOW = {"dataclasses", "numpy.typing", "hashlib", "threading", "mmap", "sqlite3"}
SLOW |= {"relive._ring._native", "relive._ring.kernels_numpy", "relive._ring.kernel_types", "relive._schema.spaces"}
SLOW |= {"relive.items.sequences", "relive.samplers.prioritized"}
MOST = 51  # of relive's own modules
USE = """
import relive, numpy as np
buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(3), action=relive.Field()), 8, seed=0)
buffer.add(obs=np.zeros(3), action=0, reward=0, next_obs=np.ones(3), terminated=False, truncated=False)
buffer.sample(2)
"""
PARSE = """
import contextlib, io, relive.cli, relive_lab.cli
for main, *words in ((relive.cli.main, "inspect"), (relive_lab.cli.main,), (relive_lab.cli.main, "train")):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main([*words, "--help"])
"""
LAB = "import relive_lab\nfrom relive_lab import TrainResult, statistics"
ENVS = "import gymnasium, relive_lab.envs\ngymnasium.make('relive/PairsTrading-v0').reset(seed=0)"
# What each stage loads of optional packages; that `rich` is seen shows that a package would be.
LOADED = {
    USE: set(),
    "import rich": {"rich"},
    PARSE: {"tyro"},
    LAB: set(),
    "import relive.doctor": {"gymnasium"},
    ENVS: set(),
}
STAR = "buffer = batch = 1\nfrom relive import *"
MODULES = "import relive.gymnasium, relive.mixture, relive.testing"
ALL = "import relive, warnings\nwarnings.simplefilter('ignore')\n"
ALL += "print([name for name in dir(relive) if not hasattr(relive, name)])"
STAGES = ["import relive", *LOADED, STAR, MODULES, STAR]
PROGRAM = """
import json, sys, numpy
for statement in json.loads(sys.argv[1]):
    before, scope = set(sys.modules), {}
    exec(statement, scope)
    modules = [name for name, value in scope.items() if type(value) is type(sys) and statement.endswith("*")]
    print(json.dumps([sorted(set(sys.modules) - before), modules]))
"""


@pytest.fixture(scope="module")
def seen() -> list[tuple[set[str], list[str]]]:
    """Return, for each of the stages of one fresh process that has NumPy, what it loaded and brought."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(STAGES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [({*loaded}, *rest) for loaded, *rest in map(json.loads, done.stdout.splitlines())]


def test_an_import_loads_what_a_first_buffer_needs(seen: list[tuple[set[str], ...]]) -> None:
    """Check the loaded modules, and not the time, which would depend on the machine's other work."""
    loaded = seen[0][0]
    assert not (SLOW | HEAVY) & loaded
    assert "relive.buffer" in loaded
    assert sum(name.startswith("relive") for name in loaded) <= MOST


@pytest.mark.parametrize("statement", LOADED)
def test_no_optional_package_is_loaded_before_it_is_needed(statement: str, seen: list[tuple[set[str], ...]]) -> None:
    assert seen[STAGES.index(statement)][0] & HEAVY == LOADED[statement]


def test_every_public_name_is_there_and_listed() -> None:
    assert run_program(ALL, loaded=["torch", "torch._dynamo", "gymnasium", "hypothesis.strategies"]).stdout == "[]\n"
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


def test_a_star_import_brings_no_module(seen: list[tuple[set[str], list[str]]]) -> None:
    """Check after any earlier imports: a caller's `buffer` or `batch` stays."""
    assert [each[1] for each, stage in zip(seen, STAGES, strict=True) if stage is STAR] == [[], []]
    modules = {name for name, value in vars(relive).items() if isinstance(value, type(relive))}
    assert {"buffer", "batch", "items", "errors", "samplers", "schema", "storage"} <= modules
    assert not modules & set(relive.__all__)
