"""How deep the tests go: spread samples of long sweeps by default, every point of them with ``RELIVE_LONG=1``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import product
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")
LONG = os.environ.get("RELIVE_LONG", "") not in ("", "0")
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A directory in memory, where the system has one: it syncs at once, and small lives wait for the disk otherwise."""


def some(values: Iterable[T], at_most: int) -> list[T]:
    """Return all values in the long mode, else `at_most` of them, spread evenly; the first and the last always."""
    every = list(values)
    if LONG or len(every) <= at_most:
        return every
    steps = max(at_most - 1, 1)
    return [every[round(k * (len(every) - 1) / steps)] for k in range(at_most)]


def some_of_each(values: Iterable[T], kind: Callable[[T], Hashable], at_most: int) -> list[T]:
    """Return the same of each kind of value, in their original order."""
    every = list(values)
    places: dict[Hashable, list[int]] = {}
    for place, value in enumerate(every):
        places.setdefault(kind(value), []).append(place)
    return [every[place] for place in sorted(place for each in places.values() for place in some(each, at_most))]


def pairs(values: Iterable[T], others: Sequence[U]) -> list[tuple[T, U]]:
    """Pair every value with every other in the long mode, else with one of them, in turns."""
    every = list(values)
    if LONG:
        return [*product(every, others)]
    return [(value, others[place % len(others)]) for place, value in enumerate(every)]


def soon(times: Callable[[], float], seconds: float) -> None:
    """Check that one of five tries takes no longer: others may keep the cores."""
    took: list[float] = []
    while not took or min(took) >= seconds:
        assert len(took) < 5, took
        took.append(times())


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until it holds, and no longer."""
    until, pause = time.monotonic() + seconds, 1e-4
    while not condition():
        assert time.monotonic() < until, f"not so after {seconds} s"
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
