"""Values that the creator writes to lanes which writers of other processes go round meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from depth import eventually
from forking import forked
from whole_rows import native

import relive
from relive._ring.lanes import HEAD
from relive.errors import ReliveError
from relive.processes.joint import JointAccess

pytestmark = [native, pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")]
WIDTH, CALLS, MARGIN = 32, 10**9, 64
ROWS = 415  # and one more fill whole blocks of memory: no row is spare
SCHEMA = relive.Schema(
    obs=relive.Field(),
    action=relive.Field((), "int64"),
    number=relive.Field((), "int64"),
    value=relive.Field((WIDTH,), "int64", writable=True),
)


def made(rows: int, lanes: int, **more: Any) -> relive.ReplayBuffer:
    """Make a shared buffer whose steps have a number, and values that follow from that number and the call."""
    choices: dict[str, Any] = {"storage": relive.Shared(), "boundaries": 0.0, "seed": 0} | more
    return relive.ReplayBuffer(SCHEMA, rows * lanes, num_envs=lanes, **choices)


def steps(first: int, count: int, lane: int) -> dict[str, Any]:
    number = np.arange(first, first + count)[None]
    flags = np.zeros((1, count), bool)
    return {
        "obs": number % 1000, "action": number, "reward": number % 10, "number": number,
        "value": np.repeat(number[..., None] * CALLS, WIDTH, -1), "next_obs": (number + 1) % 1000,
        "terminated": flags, "truncated": flags, "env_ids": [lane],
    }  # fmt: skip


def values(numbers: np.ndarray, call: int) -> np.ndarray:
    return np.repeat(numbers[:, None] * CALLS + call, WIDTH, 1)


def everything(buffer: relive.ReplayBuffer) -> relive.Batch:
    """Return all steps that can be drawn, each whole."""
    return next(buffer.batches(buffer.capacity, shuffle=False))


class Elsewhere:
    """A writer that adds as many steps as it is told to, and says when they are there."""

    def __init__(self, work: int, done: int) -> None:
        self._work, self._done = work, done

    def add(self, count: int) -> None:
        os.write(self._work, count.to_bytes(8, "little"))
        assert os.read(self._done, 1) == b"x"


@contextmanager
def writer_of_another_process(buffer: relive.ReplayBuffer, lane: int) -> Iterator[Elsewhere]:
    (asked, ask), (told, tell) = os.pipe(), os.pipe()

    def work() -> None:
        added = 0
        with relive.Writer(buffer.storage.name, env_ids=[lane]) as writer:
            while count := int.from_bytes(os.read(asked, 8), "little"):
                writer.extend(**steps(added, count, lane))
                added += count
                os.write(tell, b"x")

    with forked(work, endless=True):
        yield Elsewhere(ask, told)
    for end in (asked, ask, told, tell):
        os.close(end)


@contextmanager
def writer_of_this_process(buffer: relive.ReplayBuffer, lane: int) -> Iterator[Any]:
    class Here:
        added = 0

        def add(self, count: int) -> None:
            writer.extend(**steps(self.added, count, lane))
            self.added += count

    with buffer.writer([lane]) as writer:
        yield Here()


WRITERS = [writer_of_another_process, writer_of_this_process]


@pytest.mark.parametrize("rows", [ROWS, 103])
@pytest.mark.parametrize("writer", WRITERS)
def test_values_for_the_oldest_rows_are_dropped(writer: Any, rows: int) -> None:
    """Check that sixty-four are dropped, or a quarter of a small lane; in the creator's own lanes none."""
    margin = min(MARGIN, rows // 4)
    with made(rows, 2) as buffer, writer(buffer, 1) as other:
        buffer.extend(**steps(0, rows + 50, 0))
        other.add(rows + 50)
        batch = everything(buffer)
        written = buffer.write(batch.ids, value=values(batch.number, 7))
        assert written == 2 * rows - margin
        after = everything(buffer)
        new = (after.value % CALLS == 7).all(1)
        assert (after.value // CALLS == after.number[:, None]).all()
        assert (new == ((after.ids % 2 == 0) | (after.ids // 2 >= 50 + margin))).all()


@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("meanwhile", [1, MARGIN, MARGIN + 1, ROWS])
@pytest.mark.parametrize("writer", WRITERS)
def test_steps_that_are_overwritten_in_mid_call(
    writer: Any, meanwhile: int, look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that after the first look they are dropped; after the last one, more than the margin raise."""
    rows, shared, late = ROWS, JointAccess.shared, {look: meanwhile}
    with made(rows, 2) as buffer, writer(buffer, 1) as other:
        other.add(rows + 50)

        def stopped_for_long(self: JointAccess, lanes: np.ndarray) -> np.ndarray:
            found = shared(self, lanes)
            late.update({number - 1: count for number, count in {**late}.items()})
            if count := late.pop(0, 0):
                late.clear()
                other.add(count)
            return found

        monkeypatch.setattr(JointAccess, "shared", stopped_for_long)
        batch = everything(buffer)
        if look == 2 and meanwhile > MARGIN:
            with pytest.raises(ReliveError, match=rf"overwritten by a writer \({meanwhile - MARGIN} of"):
                buffer.write(batch.ids, value=values(batch.number, 7))
            return
        written = buffer.write(batch.ids, value=values(batch.number, 7))
        dropped = MARGIN + (meanwhile if look == 1 else 0)
        assert written == max(rows - dropped, 0)
        after = everything(buffer)
        assert (after.value // CALLS == after.number[:, None]).all()
        new = (after.number < rows + 50) & (after.number >= 50 + dropped)
        assert ((after.value % CALLS == 7).all(1) == new).all()


def for_ever(name: str, lane: int, count: int = 1, ended: bool = False) -> None:
    flags = {"terminated": np.full((1, count), ended)}
    with relive.Writer(name, env_ids=[lane]) as writer:
        for number in range(0, 2**40, count):
            writer.extend(**steps(number, count, lane) | flags)


def misplaced(batch: relive.Batch) -> set[int]:
    """Return the calls whose values are on other steps."""
    wrong = batch.value // CALLS != batch.number[:, None]
    return {*(batch.value[wrong] % CALLS).tolist()}


def read_for_ever(name: str, tell: int) -> None:
    """Read in another process, and tell the calls that are at fault."""
    with relive.open(name, seed=0) as reader:
        while True:
            os.write(tell, np.array([*misplaced(everything(reader))], np.int64).tobytes())


@pytest.mark.parametrize("seconds", [0.7, pytest.param(60.0, marks=pytest.mark.slow)])
def test_no_value_lands_on_another_step(seconds: float, record_property: Any) -> None:
    """Fill two lanes as fast as possible, one by the creator, who writes to the oldest rows, and to the newest."""
    rows, lanes, call, counted, told = 2000, 3, 0, 0, set[int]()
    rng = np.random.default_rng(0)
    seen, see = os.pipe()
    with made(rows, lanes) as buffer, ExitStack() as children:
        name = buffer.storage.name
        for lane in (1, 2):
            children.enter_context(forked(lambda lane=lane: for_ever(name, lane), endless=True))
        buffer.extend(**steps(0, rows, 0))
        eventually(lambda: len(buffer) == rows * lanes)
        children.enter_context(forked(lambda: read_for_ever(name, see), endless=True))
        counters, until = buffer._core.ring.counters, time.monotonic() + seconds
        while time.monotonic() < until or (counted <= 1000 and time.monotonic() < until + 60):
            call += 1
            count, lane = int(rng.integers(1, 300)), rng.integers(lanes, size=300)
            ages = rng.integers(1, 200, 300) if call % 2 else rows - rng.integers(-100, 200, 300)
            numbers = np.maximum(counters[lane, HEAD] - ages, 0)[:count]  # rows are numbered as steps are
            ids = numbers * lanes + lane[:count]
            try:
                written = buffer.write(ids, value=values(numbers, call))
            except ReliveError:
                told.add(call)
                continue
            counted += written
            if call % 8 > 1:
                continue
            after = everything(buffer)
            assert misplaced(after) <= told
            new = (after.value % CALLS == call).all(1)
            assert np.isin(after.ids[new], ids).all()
            found = np.isin(ids, after.ids[new]).sum()  # an id may be there twice
            assert found <= written <= found + (~np.isin(ids, after.ids)).sum()
    # Writers are gone. What the other reader saw is what calls told of.
    os.close(see)
    with os.fdopen(seen, "rb") as pipe:
        assert {*np.frombuffer(pipe.read(), np.int64).tolist()} <= told
    record_property("cases", counted)
    print(f"{counted} values in {call} calls, of which {len(told)} told of overwritten steps")
    assert counted > 1000


@pytest.mark.parametrize("lanes", [1, 2])
def test_what_is_overwritten_during_an_update_was_issued(lanes: int) -> None:
    """Set priorities of steps that writers replace by final observations meanwhile, which have no id."""
    dropped, until = 0, time.monotonic() + 0.7
    with made(64, lanes, sampler=relive.Prioritized(), boundaries=1.0) as buffer, ExitStack() as children:
        name = buffer.storage.name
        for lane in range(lanes):
            children.enter_context(forked(lambda lane=lane: for_ever(name, lane, 64, ended=True), endless=True))
        eventually(lambda: buffer.can_sample(1))
        while time.monotonic() < until or (not dropped and time.monotonic() < until + 60):
            ids = np.repeat(buffer.ids(), 64)  # a longer call
            dropped += len(ids) - buffer.update_priorities(ids, np.ones(len(ids)))
    assert dropped
