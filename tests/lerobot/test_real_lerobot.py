"""Beside LeRobot itself, where it is installed: the same arguments, shapes and dtypes; its learner is recognised."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest
from needs import needs

theirs = needs("lerobot.rl.buffer")
import numpy as np
import torch

import relive.lerobot as ours
from relive.doctor import examine
from relive.doctor.pipelines._lerobot import NextStates, OptimizeMemory, StandIn

METHODS = ("__init__", "add", "sample", "get_iterator", "from_lerobot_dataset", "to_lerobot_dataset")


@pytest.mark.parametrize("name", METHODS)
def test_arguments(name: str) -> None:
    """Check that theirs come first, with their names and defaults."""
    known, here = (inspect.signature(getattr(each.ReplayBuffer, name)).parameters for each in (theirs, ours))
    for given, taken in zip(known.values(), here.values(), strict=False):
        assert (given.name, given.default) == (taken.name, taken.default)
    assert len(here) >= len(known)


def shapes(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: shapes(value) for key, value in batch.items()}
    return None if batch is None else (tuple(batch.shape), batch.dtype)


@pytest.mark.parametrize("lead", [(), (1,)])
@pytest.mark.parametrize("info", [None, {"penalty": torch.zeros(1), "is_intervention": 1.0}])
def test_batches(lead: tuple[int, ...], info: Any) -> None:
    found = []
    for each in (theirs, ours):
        buffer = each.ReplayBuffer(20, "cpu", use_drq=False)
        for number in range(9):
            state = {"observation.state": torch.ones(*lead, 3), "observation.image": torch.rand(*lead, 3, 8, 8)}
            buffer.add(state, torch.zeros(*lead, 4), 1.0, state, number == 8, False, info)
        both = each.concatenate_batch_transitions(buffer.sample(5), buffer.sample(2))
        found.append((shapes(buffer.sample(5)), shapes(both)))
    assert found[0] == found[1]


class StoodIn(OptimizeMemory):
    def __init__(self) -> None:
        super().__init__()
        self._buffer, self._gamma = StandIn(20, True), 1.0


def test_the_stand_in_of_the_doctor_is_as_its_buffer() -> None:
    """Check the items that `optimize_memory=True` may draw; step 4 was truncated."""
    buffer = theirs.ReplayBuffer(20, "cpu", optimize_memory=True, use_drq=False)
    stand_in = StoodIn()
    for number in range(12):
        truncated = number == 4
        obs, after = np.array([float(number)]), np.array([number + (50.0 if truncated else 1.0)])
        stand_in._add(obs, None, number, after, False, truncated)
        states = ({"observation.state": torch.from_numpy(value)[None].float()} for value in (obs, after))
        buffer.add(next(states), torch.zeros(1, 1), number, next(states), False, truncated)
    drawn = [buffer.sample(12) for _ in range(100)]
    columns = [torch.cat([b[name]["observation.state"][:, 0] for b in drawn]) for name in ("state", "next_state")]
    found = {*zip(*(column.tolist() for column in columns), strict=True)}
    assert found == {(item.obs, item.next_obs) for item in stand_in.items()}
    assert (4.0, 5.0) in found, "and not 54"


@pytest.mark.parametrize("setting", [OptimizeMemory, NextStates])
def test_what_the_doctor_says_of_its_threads(setting: type[OptimizeMemory], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that version 0.4.4, which has no lock, equals the stand-in; later ones have one, and are clean."""
    report, again = examine(setting, n_steps=1), examine(setting, n_steps=1)
    assert report.checks == again.checks
    locked = hasattr(theirs.ReplayBuffer(1), "_lock")
    monkeypatch.setitem(sys.modules, "lerobot.rl.buffer", None)
    stand_in = examine(setting, n_steps=1)
    found, expected = ({each.probe for each in its.findings if each.table == "E"} for its in (report, stand_in))
    assert len(expected) == 2
    assert found == (set() if locked else expected)
    example = next((each.example for each in report.findings if each.table == "E"), "of buffer.py")
    assert "of buffer.py" in example


def test_the_learner_has_the_functions_that_the_page_replaces() -> None:
    learner = needs("lerobot.rl.learner")
    assert all(hasattr(learner, f"initialize_{name}replay_buffer") for name in ("", "offline_"))
    assert callable(learner.make_dataset)
