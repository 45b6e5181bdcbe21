"""Calls in which one allocation fails, then the next one, and so on: `allocations.py SAMPLER EVERY`.

To be run with allocations.c preloaded. Saves have thousands of allocations, of which every EVERY-th fails; so do loads,
of which sixteen times as many fail.
Prints how many failed. The NumPy kernels are left out: NumPy's indexing crashes where it gets no memory for a buffer.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import interrupted_lives
from interrupted_lives import SAMPLERS, Twins, assert_one_of, calls, let_go, lived, seen

import relive
from relive._ring import kernels

LIBRARY: Any = ctypes.PyDLL(None)  # keeps the interpreter's lock: nothing else is allocated meanwhile
LIBRARY.arm.argtypes = [ctypes.c_long]


class Failing:
    """Makes calls, of which one allocation fails."""

    failed = 0

    def __call__(self, call: Callable[[], object], which: int) -> bool:
        """Make the call; its `which`-th allocation fails. Whether it has so many."""
        arm, disarm = LIBRARY.arm, LIBRARY.disarm
        try:
            arm(which)
            call()
        except Exception:  # NumPy, OpenSSL and `threading` do not always say what they lack
            pass
        finally:
            count = disarm()
        self.failed += count >= which
        return bool(count >= which)

    def each(self, call: Callable[[], object], every: int, check: Callable[[], object]) -> None:
        """Let every `every`-th allocation of a call fail, and check after each."""
        numbers, failed = itertools.count(1, every), True
        while failed:
            failed = self(call, next(numbers))
            check()


def calls_of(failing: Failing, sampler: str) -> None:
    """Fail all calls of a buffer: each has happened or not."""
    buffer, streams = lived(SAMPLERS[sampler], 11)
    for name in calls(buffer, streams):
        twins = Twins(buffer, streams, name)
        with contextlib.suppress(MemoryError):
            twins.call()  # what is imported and cached at the first call
        twins.before.restore()
        failing.each(twins.call, 1, twins.settle)


def saves(failing: Failing, sampler: str, every: int) -> None:
    """Check that a save is complete or absent; a load gives the buffer or an error, and can be repeated."""
    buffer, streams = lived(SAMPLERS[sampler], 23)
    with tempfile.TemporaryDirectory() as path:
        buffer.save(path)
        states = [relive.load(path), buffer]
        buffer.add(**streams.step())
        _, new = views = [seen(pickle.loads(pickle.dumps(state)), streams) for state in states]

        def check() -> None:
            let_go(buffer)
            assert_one_of(views, seen(relive.load(path), streams))
            if len(os.listdir(path)) > 20:  # saves that could not be removed; else there would be ever more to do
                buffer.save(path)

        failing.each(lambda: buffer.save(path), every, check)
        buffer.save(path)
        np.testing.assert_equal(seen(buffer, streams), new)
        failing.each(lambda: relive.load(path), max(every // 16, 1), gc.collect)  # a load is short
        np.testing.assert_equal(seen(relive.load(path), streams), new)


def main(sampler: str, every: int) -> int:
    warnings.simplefilter("ignore")
    failing, held = Failing(), list[Any]()
    with kernels.use("native"):
        for which in 300 * [1, 2, 3]:  # more objects than programs have
            Failing()(lambda: held.append(kernels.active().Lock()), which)  # no call of a buffer: not counted
        calls_of(failing, sampler)
        saves(failing, sampler, every)
    return failing.failed


if __name__ == "__main__":
    interrupted_lives.run = lambda call: call()  # lines are of no interest here
    sys.stdout.write(f"{main(sys.argv[1], int(sys.argv[2]))}\n")
