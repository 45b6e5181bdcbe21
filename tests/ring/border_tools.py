"""What the right calls of `border_calls.py` are made of: arrays with margins, and a ring that has lived."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from spoilers import Spoilers

from relive._ring import _native
from relive._ring.plans import ColumnLayout, Window

native: ModuleType = _native  # type: ignore[assignment]
LANES, ROWS, KEPT = 3, 8, 6
STORAGE = LANES * (ROWS + 1)
ENTRIES = ["columns", "num_obs", "rows", "steps", "marks", "counters", "clock", "window"]
ENTRIES += ["given", "touched", "notify", "busy"]
READ_ONLY = ("asked", "ready", "taken", "came", "outrun")
# A sanitizer sees what is read and written behind an array, if nothing lies there.
MARGIN = 0 if "libasan" in os.environ.get("LD_PRELOAD", "") else 256


def signatures() -> dict[str, dict[str, str]]:
    """The types of the arguments of each function of the stub, and of what may be set."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(_native.__file__).with_name("_native.pyi").read_text()).body:
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef) and each.name not in ("__enter__", "__exit__"):
                said = {a.arg: ast.unparse(a.annotation) for a in each.args.args if a.annotation}
                found[prefix + each.name] = said
            elif isinstance(each, ast.AnnAssign):
                said = {} if each.target.id in (*READ_ONLY, "ids") else {"value": ast.unparse(each.annotation)}
                found[prefix + ast.unparse(each.target)] = said
    return found


SIGNATURES = signatures()
guarded: list[np.ndarray] = []


def guard(values: Any, dtype: Any = np.int64) -> np.ndarray:
    """A copy of `values` between two margins that are looked at after every call."""
    array = np.ascontiguousarray(values, dtype)
    memory = np.full(array.nbytes + 2 * MARGIN, 0xA5, np.uint8)
    guarded.append(memory)
    inner = memory[MARGIN : MARGIN + array.nbytes].view(array.dtype).reshape(array.shape)
    inner[...] = array
    return inner


def margins_are_whole() -> bool:
    sound = MARGIN * b"\xa5"
    return all(memory[:MARGIN].tobytes() == memory[len(memory) - MARGIN :].tobytes() == sound for memory in guarded)


@dataclass
class Call:
    """A function, its right arguments, what to do with its result, and how arguments can be spoilt."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    then: Callable[[Any], None] = lambda result: None
    spoilt: dict[str, Spoilers] = field(default_factory=dict)


def window(across: bool = False) -> Window:
    return Window(span=2, lookback=1, starts=1, across=across)


def ring_arguments(across: bool = False) -> dict[str, Any]:
    """Stacked observations, a field of state, one array each: all that a ring can have."""
    columns = [
        ColumnLayout(guard(np.zeros((STORAGE + 1, 4)), np.float32), ("obs",), (2, 4), 2, True, 0, True),
        ColumnLayout(guard(np.zeros(STORAGE + 1)), ("action",), (), 1, False, 0, True),
        ColumnLayout(guard(np.zeros(STORAGE + 1), np.float32), ("reward",), (), 1, False, 0, True),
        ColumnLayout(guard(np.zeros((LANES * 5, 2)), np.float32), ("state",), (2,), 1, False, 2, True),
    ]
    marks, counters = guard(np.zeros((ROWS + 1, LANES, 1)), np.uint8), guard(np.zeros((LANES, 16)))
    kept = [guard(np.zeros(marks.shape), np.float64), guard(np.zeros((2, 1)))]
    entries = [columns, 1, ROWS, KEPT, marks, counters, guard([0, 0]), window(across), *kept, print, None]
    return dict(zip(ENTRIES, entries, strict=True))


def steps_of(n: int, length: int, first: int, make: Callable[..., np.ndarray] = guard) -> dict[str, Any]:
    """Arguments of `write`."""
    numbers = first + np.arange(n * length).reshape(n, length)
    obs = make(np.stack([numbers, numbers + 1], axis=-1)[..., None].repeat(4, axis=-1), np.float32)
    return {
        "values": [obs, make(numbers), make(numbers, np.float32), make(np.zeros((n, length, 2)), np.float32)],
        "next_values": [make(obs + 1, np.float32)],
        "terminated": make(numbers % 5 == 4, bool),
        "truncated": make(np.zeros((n, length)), bool),
        "lanes": make(np.arange(n)),
        "priority": make(np.full((n, length), 0.5), np.float64),
    }


def lived(across: bool = False) -> tuple[Any, dict[str, Any]]:
    """A ring whose lanes have wrapped, and its arrays."""
    arguments = ring_arguments(across)
    ring = native.Ring(**arguments)
    for steps in four_calls():
        ring.write(**steps)
    return ring, arguments


@cache
def four_calls() -> list[dict[str, Any]]:
    return [steps_of(3, 4, 4 * t, np.ascontiguousarray) for t in range(4)]


def drawable(ring: Any) -> np.ndarray:
    return guard(ring.changes(np.zeros((LANES, 3), np.int64)).added[:6])


def unroll(ring: Any, slots: np.ndarray) -> None:
    gather = native.Gather([np.zeros(STORAGE + 1), np.zeros(STORAGE + 1, np.float32)], [0, 1], True)
    gather.unroll(ring, slots, 5, np.ones(3, np.float32), False, True, None, 0)


def use(ring: Any) -> None:
    """Call whatever reads or writes a ring; what it answers does not matter."""
    slots = np.arange(LANES * ROWS)
    for _ in range(3):
        ring.write(**steps_of(3, 3, 7, np.ascontiguousarray))
        ring.cut(np.array([1]))
        ring.windows(slots, np.ones(4, np.float32))
        unroll(ring, slots)
        ring.stacks(np.arange(STORAGE), 5, True)
        ring.locate(np.arange(-5, 200))
        ring.ids(slots)
        ring.fold(np.zeros(STORAGE + 1), np.arange(STORAGE), np.full(STORAGE, 3, np.int32), np.ones(4))
        ring.chunks(np.zeros((STORAGE + 1, 2)), np.arange(STORAGE), np.full(STORAGE, 3, np.int32), 4)
        ring.changes(np.zeros((LANES, 3), np.int64))
