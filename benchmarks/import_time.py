"""How long does the import take?"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from benchmarks.peers import Peer
from benchmarks.question import Question, Run, Scale, Setting, Target, own_figure

# The buffer's class is fetched too: a package that puts off its work until then has gained nothing.
CODE = """
import time{numpy}
cpu, wall = time.process_time(), time.perf_counter()
from {module} import {name}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def settings(scale: Scale) -> list[Setting]:
    return [
        Setting("after", "NumPy already imported", {"numpy": True}),
        Setting("alone", "nothing imported", {"numpy": False}),
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    code = CODE.format(numpy=", numpy" * values["numpy"], module=peer.module, name=peer.object_)
    # Bytecode is kept by the first import, which is not timed, as it is for an installed package; a source checkout, or
    # a shell that forbids writing it, would otherwise be timed with the compiler.
    kept = tempfile.TemporaryDirectory()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run(calls: int) -> tuple[float, float]:
        wall = cpu = 0.0
        for _ in range(calls):
            found = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=True,
                env={**environment, "PYTHONPYCACHEPREFIX": kept.name},
            )
            one_wall, one_cpu = found.stdout.split()[-2:]
            wall, cpu = wall + float(one_wall), cpu + float(one_cpu)
        return wall, cpu

    return run


QUESTION = Question(
    name="import_time",
    title="Import",
    text="A fresh process each time, its files in the page cache; the clock stops when the buffer's class is there.",
    peers=("relive", "numpy", "cpprb", "tianshou", "flashbax", "sb3"),
    settings=settings,
    prepare=prepare,
    targets=(Target("relive beyond NumPy, ms", own_figure("after", 1e-3), at_most=6),),
    max_rounds=10,
    max_calls=1,
    unit="ms",
    unit_scale=1e-3,
)
