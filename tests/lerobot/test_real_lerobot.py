"""Beside LeRobot itself, where it is installed: the same arguments, shapes and dtypes; its learner is recognised."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from needs import needs

theirs = needs("lerobot.rl.buffer")
import torch

import relive.lerobot as ours
from relive.lerobot._learner import Options, Safe

METHODS = ("__init__", "add", "sample", "get_iterator", "from_lerobot_dataset", "to_lerobot_dataset")


@pytest.mark.parametrize("name", METHODS)
def test_arguments(name: str) -> None:
    """Theirs come first, with their names and defaults."""
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


def test_the_learner_is_recognised() -> None:
    Safe(needs("lerobot.rl.learner"), Options())
