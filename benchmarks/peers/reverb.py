"""Reverb, run by an interpreter of its own: it needs TensorFlow 2.15, and with it NumPy 1."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.peers.base import Peer, Spec

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "RELIVE_REVERB_PYTHON"
HOW = (
    "it needs an environment of its own: python3.11 -m venv ENV; ENV/bin/pip install 'dm-reverb[tensorflow]==0.14.0'; "
    f"{VARIABLE}=ENV/bin/python"
)
OURS = ("PYTHONPATH", "XLA_FLAGS")  # what the other libraries' processes are given


def interpreter() -> str:
    """Return the path of the interpreter that has Reverb."""
    python = os.environ.get(VARIABLE)
    if not python:
        raise ImportError(HOW)
    return python


def said(python: str, *arguments: str) -> str:
    """Run an interpreter at the root of the checkout, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in OURS and "THREADS" not in name}
    done = subprocess.run([python, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or "no error").splitlines()[-1])
    return done.stdout


def ask(what: str, **values: Any) -> Any:
    """Let `benchmarks.reverb_side` measure something."""
    return json.loads(said(interpreter(), "-m", "benchmarks.reverb_side", what, json.dumps(values)))


class ReverbShared(Peer):
    """A server in the learner's process, the quicker way for who draws; writers reach it over gRPC."""

    name = "reverb"

    def __init__(self) -> None:
        super().__init__()
        self.found = said(interpreter(), "-c", "import importlib.metadata as m; print(m.version('dm-reverb'))").strip()

    def version(self) -> str:
        return self.found

    def make(self, spec: Spec) -> None:
        """Leave that to the other interpreter."""

    def rounds(self, several: int, seconds: float, rounds: int, batch: int) -> list[tuple[float, list[float]]]:
        capacity = self.spec.capacity if self.spec else 0
        values = {"capacity": capacity, "seconds": seconds, "times": rounds, "several": several, "batch": batch}
        return [(step, cycles) for step, cycles in ask("rounds", **values)]

    def openings(self, times: int) -> list[float]:
        return [float(value) for value in ask("openings", times=times)]
