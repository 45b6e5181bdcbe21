"""A buffer called in the middle of its own calls, as by a signal's handler or a warning's hook: looks, or refuses.

Nothing here may hang: whatever takes too long ends the process, with a traceback.
"""

from __future__ import annotations

import faulthandler
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from interrupted_lives import SAMPLERS, State, Streams, calls, lived, prioritizes, run

import relive
from relive._ring import kernels as _kernels
from relive.errors import ReliveError

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


@pytest.fixture(autouse=True)
def _watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def without_python(name: str) -> bool:
    """Return True for calls that the native kernels may make from their first to their last step."""
    return _kernels.is_native() and name.startswith(("add", "extend", "update")) and "Python" not in name


def look(buffer: relive.ReplayBuffer) -> None:
    """Make the calls that a handler may make at any time."""
    stats = buffer.stats()
    assert 0 <= stats.size <= buffer.capacity
    assert buffer.can_sample(1) in (True, False)
    assert 0 <= len(buffer) <= buffer.capacity
    assert repr(buffer).startswith("ReplayBuffer(")


def each_call(sampler: str) -> Iterator[tuple[relive.ReplayBuffer, str, Any, State]]:
    """Yield a buffer as it is before each of its calls, the call, and the state after it."""
    buffer, streams = lived(SAMPLERS[sampler], 11)
    for name, call in calls(buffer, streams).items():
        buffer.stats()  # what came before is looked at in both cases
        before = State(buffer)
        call()
        after = State(buffer)
        before.restore()
        yield buffer, name, call, after
        before.restore()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_looking_at_any_line_changes_nothing(sampler: str) -> None:
    for buffer, name, call, after in each_call(sampler):
        lines = run(call, lambda number, buffer=buffer: look(buffer) if number % 5 == 0 else None)
        assert len(lines) > 3 or without_python(name)
        if name not in ("stats", "can_sample"):
            buffer.stats()
            now = State(buffer)
            after.restore()
            buffer.stats()
            assert now.holds() or name == "sample", name


@pytest.mark.parametrize("sampler", ["episodes", "prioritized"])
def test_changing_calls_are_refused_inside_a_call(sampler: str) -> None:
    step, ids = Streams().step(), [20]
    for buffer, name, call, after in each_call(sampler):
        inner: list[Callable[[], Any]] = [
            partial(buffer.add, **step),
            partial(buffer.sample, 3),
            buffer.cut,
            buffer.clear,
        ]
        inner += [partial(buffer.extend, **{key: value[:, None] for key, value in step.items()})]
        inner += [partial(buffer.read, ids), partial(buffer.follow, ids, 1), partial(buffer.column, "reward")]
        if prioritizes(buffer):
            inner.append(partial(buffer.update_priorities, ids, [1.0]))
        refused = []

        def meddle(number: int, buffer: Any = buffer, inner: Any = inner, refused: Any = refused) -> None:
            if buffer._core.lock.taken():
                refused.append(number)
                text = r"one inside another call of the same thread - .*set a flag in the sig"
                with pytest.raises(ReliveError, match=text):
                    inner[number % len(inner)]()

        if name not in ("stats", "can_sample"):
            run(call, meddle)
            assert refused or without_python(name), name
            assert after.holds(), name


@pytest.mark.parametrize("sampler", [relive.Uniform(), relive.Prioritized()], ids=repr)
def test_a_hook_of_warnings_looks_at_the_buffer_that_warns(sampler: relive.Uniform) -> None:
    schema, told = relive.Schema(obs=relive.Field((3,)), action=relive.Field()), []
    buffer = relive.ReplayBuffer(schema, 64, num_envs=2, sampler=sampler, seed=0)

    def step(t: int, jump: float = 0.0, **more: Any) -> dict[str, Any]:
        number, no = np.full(2, t), np.zeros(2, bool)
        obs = np.full((2, 3), t)
        return {"obs": obs, "next_obs": obs + 1 + jump, "action": number, "reward": number,
                "terminated": no, "truncated": no, **more}  # fmt: skip

    def hook(text: Any, *_: object) -> None:
        told.append((str(text), buffer.stats().added, len(buffer), buffer.can_sample(1)))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = hook  # type: ignore[assignment]
        for t in range(200):
            buffer.add(**step(t, jump=0.5))
        buffer.add(**step(0, next_obs=None, truncated=np.ones(2, bool)))
    assert len(told) == 2
    assert "`next_obs`" in told[1][0]
    assert told[1][1:] == (400, len(buffer), True)
