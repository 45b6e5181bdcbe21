"""The number of Python frames of a call: on hot paths they take as long as the native code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from back_ends import HAS_NATIVE

import relive
from relive._ring import kernels

pytestmark = pytest.mark.skipif(not HAS_NATIVE, reason="there is no extension")

STEP = {"obs": np.zeros(3), "action": 0.0, "reward": 1.0, "next_obs": np.zeros(3), "terminated": False}
STEP |= {"truncated": False}


def frames(call: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """The Python functions that a call runs, in order."""
    ran: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            ran.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        call(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return ran


@pytest.mark.parametrize(("method", "most"), [("add", 0), ("sample", 9), ("update_priorities", 3)])
def test_a_call_runs_few_python_frames(method: str, most: int) -> None:
    schema = relive.Schema(obs=relive.Field(3), action=relive.Field())
    with kernels.use("native"):
        buffer = relive.ReplayBuffer(schema, 1000, sampler=relive.Prioritized(), seed=0)
    for _ in range(50):
        buffer.add(**STEP)
    ids, errors = buffer.sample(32).ids, np.ones(32)
    buffer.update_priorities(ids, errors)  # the first call of each kind may import, and warn
    arguments: dict[str, tuple[Any, ...]] = {"add": (), "sample": (32,), "update_priorities": (ids, errors)}
    ran = frames(getattr(buffer, method), *arguments[method], **(STEP if method == "add" else {}))
    assert len(ran) <= most, ran


def test_meta_frames_are_counted() -> None:
    assert [name.rpartition(":")[2] for name in frames(lambda: sorted([2, 1], key=lambda x: x))] == ["<lambda>"] * 3
