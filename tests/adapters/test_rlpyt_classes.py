"""rlpyt's replay buffers as argument lists: its classes, and those with time limits that it never wrote.

The names are rlpyt's. Each is built, filled with random episodes, and compared with the oracle: what can be drawn,
every field of every item, and priorities that follow updates. rlpyt's `Async...` classes let one process write while
others draw; here processes do so over shared memory, and threads, with the same argument lists.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import pairs, some
from forking import forked
from wild_envs import MIDWAY, WildEnvs

import relive
from relive._base.nests import mapped
from relive._ring import kernels
from relive._ring.lanes import BOUNDARIES, rows_of
from relive.testing import (
    BOTH,
    GO,
    JUMP,
    STAY,
    TERMINATED,
    TRUNCATED,
    OracleBuffer,
    Script,
    SequencesModel,
    TransitionsModel,
    assert_items,
    assert_same_buffer,
)
from relive.testing.streams import stacks_of

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
LANES, STEPS, N, GAMMA, ALPHA = 3, 40, 3, 0.95, 0.6
LENGTH, BURN_IN, INTERVAL = 5, 4, 4

CHOICES = Path(__file__).parents[2] / "docs" / "choices.md"


@dataclass(frozen=True)
class Cell:
    """One class, by what distinguishes it from the others."""

    time_limits: bool
    prioritized: bool
    sequences: bool
    frames: bool

    @property
    def name(self) -> str:
        """rlpyt's name, or what it would be."""
        drawn = "Prioritized" if self.prioritized else "Uniform"
        kind = ("Sequence" if self.sequences else "") + "Replay" + ("Frame" if self.frames else "")
        return ("Tl" if self.time_limits else "") + drawn + kind + "Buffer"

    @property
    def asynchronous(self) -> bool:
        """True if rlpyt has an `Async...` class of it."""
        return not (self.time_limits and (self.sequences or self.frames))

    @property
    def schema(self) -> relive.Schema:
        """Frames are stacked fields, recurrent state is kept at every start; time limits need nothing."""
        obs = relive.Field((4, 5), "uint8", stack=4) if self.frames else relive.Field((3,), "float32")
        state = {"state": relive.Field((6,), every=INTERVAL)} if self.sequences else {}
        return relive.Schema(obs=obs, action=relive.Field((), "int64"), **state)

    @property
    def item(self) -> Any:
        if not self.sequences:
            return relive.Transitions(n_step=N, gamma=GAMMA)
        return relive.Sequences(
            length=LENGTH, burn_in=BURN_IN, n_step=N, gamma=GAMMA, starts=INTERVAL, across_episodes=True
        )

    @property
    def sampler(self) -> Any:
        return relive.Prioritized(alpha=ALPHA, eps=0.0) if self.prioritized else relive.Uniform()

    def build(self, storage: Any = None) -> relive.ReplayBuffer:
        choices = {"item": self.item, "sampler": self.sampler, "storage": storage, "seed": 7}
        return relive.ReplayBuffer(self.schema, LANES * STEPS, num_envs=LANES, **choices)

    def model(self) -> OracleBuffer:
        item: Any = TransitionsModel(N, GAMMA)
        if self.sequences:
            item = SequencesModel(LENGTH + BURN_IN, N, GAMMA, INTERVAL, True, ("state",))
        rows = rows_of(STEPS, BOUNDARIES)
        return OracleBuffer(LANES, rows, item, stacks=stacks_of(self.schema.tree["obs"]), steps_per_lane=STEPS)


CELLS = {cell.name: cell for cell in (Cell(*choice) for choice in product((False, True), repeat=4))}


def test_the_documentation_gives_rlpyts_names_these_argument_lists() -> None:
    """Check that the table has every class of rlpyt, with the stack, state, item and sampler that are tested here."""
    named = {}
    for row in re.findall(r"^\| (`\w+Buffer`.*) \|$", CHOICES.read_text(encoding="utf-8"), re.MULTILINE):
        classes, schema, item, samplers = (cell.strip() for cell in row.split("|"))
        for name in re.findall(r"`(\w+)`", classes):
            named[name] = ("stack" in schema, "every" in schema, item == "`Q`", "`P`" in samplers)
    for name, (frames, every, sequences, prioritized) in named.items():
        cell = CELLS[name]
        assert (cell.frames, cell.sequences, cell.sequences) == (frames, every, sequences), name
        assert prioritized or not cell.prioritized, name
    assert len(named) == 10
    # What rlpyt lacks: time limits with frames or sequences.
    assert {CELLS[name].time_limits and (CELLS[name].frames or CELLS[name].sequences) for name in named} == {False}


@pytest.mark.parametrize(("name", "given"), pairs(some(CELLS, 4), ["next_obs given", "next_obs left out"]))
def test_every_class(name: str, given: str) -> None:
    """Run three laps of random episodes; a cell without time limits knows only terminations, as rlpyt's do."""
    cell, rng = CELLS[name], np.random.default_rng(len(name))
    buffer, oracle, envs = cell.build(), cell.model(), WildEnvs(cell.schema, LANES)
    ends = [TERMINATED, TRUNCATED, BOTH] if cell.time_limits else [TERMINATED]
    seen: set[tuple[bool, bool]] = set()
    for call in range(3 * STEPS // 6):
        script = Script(
            flags=rng.choice([GO] * 18 + ends, 29).tolist(),
            moves=rng.choice([STAY] * 30 + [JUMP, MIDWAY], 31).tolist(),
            give_next=given == "next_obs given",
            priorities=rng.uniform(0, 3, 13).tolist() if cell.prioritized and call % 2 else None,
        )
        arguments = envs.rollout(list(range(LANES)), 6, script)
        np.testing.assert_array_equal(buffer.extend(**arguments), oracle.extend(list(range(LANES)), arguments))
        assert_same_buffer(buffer, oracle, probe=call)
        if buffer.can_sample(8):
            seen |= draw(buffer, oracle, cell, rng)
    assert len(oracle.priority) > 10
    assert (True, False) in seen
    assert ((False, True) in seen) is cell.time_limits


def draw(buffer: relive.ReplayBuffer, oracle: OracleBuffer, cell: Cell, rng: Any) -> set[tuple[bool, bool]]:
    """Draw one batch: check its items, and, given priorities, its weights and an update of them."""
    batch = buffer.sample(8)
    items = oracle.items()
    assert_items(batch, [items[key] for key in batch.ids.tolist()])
    if cell.prioritized:
        raw = np.array([oracle.priority[key] for key in batch.ids.tolist()])
        weights = raw ** (-ALPHA * cell.sampler.beta)
        np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-5)
        td = rng.normal(size=8)
        assert buffer.update_priorities(batch.ids, td) == oracle.update(batch.ids.tolist(), np.abs(td).tolist())
        want = [oracle.priority[key] for key in oracle.by_slot()]
        np.testing.assert_allclose(buffer.priorities(oracle.by_slot()), want, rtol=1e-9)
    else:
        assert (batch.weights == 1).all()
    flags = zip(batch.terminated.ravel().tolist(), batch.truncated.ravel().tolist(), strict=True)
    return set(flags)


ASYNCHRONOUS = [name for name, cell in CELLS.items() if not (cell.time_limits and (cell.sequences or cell.frames))]


@pytest.mark.parametrize(
    ("name", "by"),
    [*((name, "processes") for name in some(ASYNCHRONOUS, 2)),
     *((name, "a thread") for name in some([name for name in CELLS if CELLS[name].time_limits], 2))],
)  # fmt: skip
def test_draws_beside_writers(name: str, by: str) -> None:
    """Check rlpyt's ten `Async...` classes, a process a lane or a thread writing: nothing is lost or mixed up."""
    if by == "processes" and not kernels.is_native():
        pytest.skip("only native kernels share")
    cell = CELLS[name]
    oracle, envs = cell.model(), WildEnvs(cell.schema, LANES)
    script = Script([GO] * 9 + [TERMINATED] + [GO] * 7 + ([TRUNCATED] if cell.time_limits else []), [STAY], True)
    calls = [envs.rollout(list(range(LANES)), 1, script) for _ in range(120)]
    expected = [oracle.extend(list(range(LANES)), arguments)[:, 0].tolist() for arguments in calls]

    def write(target: Any, lanes: list[int]) -> None:
        part = slice(lanes[0], lanes[-1] + 1)
        for arguments, ids in zip(calls, expected, strict=True):
            step = mapped(lambda value: value[part, 0], arguments)
            assert target.add(**{**step, "env_ids": lanes}).tolist() == ids[part]

    def write_apart(lane: int) -> None:
        with buffer.writer([lane]) as writer:
            write(writer, [lane])

    with cell.build(relive.Shared() if by == "processes" else None) as buffer, ExitStack() as writers:
        if by == "processes":
            for lane in range(LANES):
                writers.enter_context(forked(lambda lane=lane: write_apart(lane)))
        else:
            pool = writers.enter_context(ThreadPoolExecutor())
            writing = pool.submit(write, buffer, list(range(LANES)))
        while buffer.stats().added < LANES * len(calls) and (by == "processes" or not writing.done()):
            if buffer.can_sample(8):
                batch = buffer.sample(8)
                if cell.prioritized:
                    buffer.update_priorities(batch.ids, np.ones(8))
            time.sleep(1e-4)  # or the interpreter stays here for 5 ms whenever the model lets go of it
        assert by == "processes" or writing.result() is None
        oracle.stale = buffer.stats().stale_updates  # depends on who was faster
        assert_same_buffer(buffer, oracle)
