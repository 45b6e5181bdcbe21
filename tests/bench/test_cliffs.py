"""Odd forms and plain ones take turns, and every cliff has both."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from benchmarks import cliffs, turns
from benchmarks.peers import Spec, adapter
from benchmarks.turns import Form, Pair, Size
from benchmarks.workload import SMALL, single_steps, td_errors
from depth import LONG, some

import relive

SLOW = {
    "tianshou",
    "jax",
    "late",
    "files",
    "reads",
    "device",
}  # libraries that take seconds to import, files, processes
QUICK = [
    name for name, cliff in cliffs.CLIFFS.items() if name not in SLOW and (not cliff.needs or find_spec(cliff.needs))
]


@pytest.mark.parametrize("name", QUICK if LONG else some(QUICK, 4))
def test_a_cliff_is_measured(name: str) -> None:
    cliff = cliffs.CLIFFS[name]
    found = cliff.build(relive, Size(8_192, 2, 0.0005))
    assert found.odd
    assert all(value > 0 for value in found.odd + found.plain)
    assert bool(found.plain) == bool(cliff.plain)


def test_forms_take_turns_and_what_comes_before_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = count()
    monkeypatch.setattr("time.process_time", lambda: next(now) * 1.0)  # a second between two looks at the clock
    order: list[str] = []
    odd = Form(lambda: order.append("odd"), lambda: order.append("before"))
    found = turns.turns(Size(0, 2, 1.0), odd, lambda: order.append("plain"))
    assert found == Pair((1e6, 1e6), (1e6, 1e6))
    assert order[-6:] == ["before", "odd"] * 2 + ["plain"] * 2


def test_every_cliff_without_a_goal_of_its_own_has_a_plain_form() -> None:
    assert all(cliff.goal or cliff.plain for cliff in cliffs.CLIFFS.values())
    assert {target.key for target in cliffs.QUESTION.targets} == {n for n, c in cliffs.CLIFFS.items() if c.goal}


def test_rlox_is_given_the_steps_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[tuple[Any, ...]] = []
    batches: list[tuple[np.ndarray, ...]] = []

    class Plain:
        def __init__(self, *sizes: int) -> None:
            assert sizes == (64, *SMALL)

        def push(self, *step: Any) -> None:
            pushed.append(step)

        def push_batch(self, *columns: np.ndarray) -> None:
            batches.append(columns)

        def sample(self, n: int, seed: int) -> dict[str, np.ndarray]:
            return {"indices": np.arange(n), "seed": np.array(seed)}

    class Prioritized(Plain):
        push_batch = property()  # it has none

        def __init__(self, *arguments: float) -> None:
            assert arguments == (64, *SMALL, 0.6, 0.4)

        def update_priorities(self, indices: np.ndarray, priorities: np.ndarray) -> None:
            assert indices.tolist() == [0, 1, 2]
            assert priorities.dtype == np.float64

    stub = ModuleType("rlox")
    stub.ReplayBuffer, stub.PrioritizedReplayBuffer = Plain, Prioritized  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rlox", stub)
    peer, sizes = adapter("rlox")(), dict(zip(("obs_size", "action_size"), SMALL, strict=True))
    peer.ensure(Spec(64, **sizes), fill=64)
    obs, next_obs, action, _, terminated, _ = batches[0]
    assert [len(obs), len(next_obs), len(action)] == [256, 256, 64]
    assert terminated.dtype == np.uint8
    step = single_steps(1, *SMALL)
    peer.add(step)
    peer.add_without_next(step)
    assert [len(each) for each in pushed] == [6, 5]
    assert pushed[0][5] is step[0].next_obs
    peer.ensure(Spec(64, prioritized=True, **sizes), fill=64)
    assert len(pushed) == 66
    peer.cycle(3, peer.prepare_errors(td_errors(3)))
