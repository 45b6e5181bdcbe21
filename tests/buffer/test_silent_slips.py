"""Slips that store what looks right: each is said once, and legal programs hear nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from scalars import lived, step

import relive
from relive._ring import kernels
from relive.errors import ReliveWarning


@pytest.fixture(params=["native", "numpy"], autouse=True)
def both_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    with kernels.use(request.param):
        yield


def streams(buffer: relive.ReplayBuffer, count: int, *, ends: bool = False, cut: bool = False) -> None:
    for episode in range(count):
        for t in range(11):
            last = ends and t == 10
            buffer.add(**step(1000.0 * episode + t, terminated=last))
        if cut:
            buffer.cut()


def test_streams_that_never_end_are_said_once() -> None:
    buffer = lived(0, 2000)
    with pytest.warns(ReliveWarning, match=r"No step of 2\d streams is `terminated` or `truncated`") as said:
        streams(buffer, 26)
    assert len(said) == 1


@pytest.mark.parametrize("how", ["ends", "cut"])
def test_streams_that_end_are_no_news(how: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        streams(lived(0, 2000), 26, **{how: True})


def test_one_end_among_many_streams_is_enough() -> None:
    buffer = lived(0, 2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer.add(**step(0.5, terminated=True, next_obs=None))
        streams(buffer, 26)


@pytest.mark.parametrize(("stored", "given", "told"), [("zero", "first", "first"), ("first", "zero", "zero")])
def test_stacks_that_are_padded_in_another_way_are_said(stored: str, given: str, told: str) -> None:
    schema = relive.Schema(obs=relive.Field((2,), stack=3, pad=stored), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 1000, seed=0)
    with pytest.warns(ReliveWarning, match=f'`pad="{told}"` in the schema') as said:
        episodes(buffer, given)
    assert len(said) == 1
    same = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((2,), stack=3, pad=given), action=relive.Field()), 1000, seed=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        episodes(same, given)
        episodes(buffer, given)  # said already


def episodes(buffer: relive.ReplayBuffer, pad: str, count: int = 6) -> None:
    for episode in range(count):
        frames = np.zeros((9, 2), np.float32) + np.arange(9)[:, None] + 100 * episode + 1
        older = np.zeros((2, 2), np.float32) if pad == "zero" else np.repeat(frames[:1], 2, 0)
        frames = np.concatenate([older, frames])
        for t in range(8):
            buffer.add(
                obs=frames[t : t + 3], action=0, reward=0, next_obs=frames[t + 1 : t + 4], terminated=t == 7,
                truncated=False,
            )  # fmt: skip
