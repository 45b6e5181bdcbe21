"""Native draws and updates next to other processes: the results of the same calls in Python, also where rows go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from bursts import Bursts
from forking import forked
from whole_rows import native

import relive
from relive._buffer import drawing
from relive._buffer.core import Core
from relive._buffer.tally import Tally
from relive.errors import ReliveError
from relive.processes._description import REDRAWN

pytestmark = native
STEPS = 200  # a lane


ITEMS = [relive.Transitions(n_step=2), relive.Sequences(4)]
SAMPLERS = [
    relive.Uniform(),
    relive.Uniform(replacement=False),
    relive.Uniform(over="episodes"),
    relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=100)),
    relive.Prioritized(weights="none", replacement=False),
    relive.Recent(mean_age=50.0),
    relive.Blend((relive.Uniform(), 0.5), (relive.Prioritized(), 0.5)),
]


class Bursting(Tally):
    """A tally of whose generator a look makes a writer add steps: after a draw's refresh, before it chooses."""

    __slots__ = ("at_look", "own")

    @property
    def rng(self) -> np.random.Generator:
        at_look, self.at_look = self.at_look, None
        if at_look is not None:
            at_look()
        return self.own

    @rng.setter
    def rng(self, generator: np.random.Generator) -> None:
        self.own: np.random.Generator = generator
        self.at_look: Callable[[], None] | None = None


class Run(Bursts):
    """A shared buffer, its writer, and its calls: native ones, or those in Python."""

    def __init__(self, item: Any, sampler: Any, by_frame: bool) -> None:
        super().__init__(STEPS, 3, 23, item=item, sampler=sampler, seed=3)
        core = self.buffer._core
        self.tally = Bursting(np.random.default_rng(3))
        self.core: Core = core.__replace__(tally=self.tally)
        found = drawing.calls(self.core)
        assert "sample" in found
        self.sample = partial(drawing.sample, self.core) if by_frame else found["sample"]
        self.update = partial(drawing.update_priorities, self.core) if by_frame else found.get("update_priorities")


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("item", ITEMS, ids=repr)
@pytest.mark.parametrize("overtaking", [0, 30, 3 * STEPS])
def test_native_draws_are_those_of_python(item: Any, sampler: Any, overtaking: int) -> None:
    """Check bits, counts and priorities while all or some rows are overtaken between choice and copy."""
    with Run(item, sampler, False) as native_run, Run(item, sampler, True) as other:
        earlier = np.zeros(0, np.int64)
        for turn in range(12):
            batches = []
            for run in (native_run, other):
                run.burst((STEPS, 7, 0)[min(turn, 1 + turn % 2)])
                if turn % 3 == 2 and overtaking:
                    run.tally.at_look = lambda run=run: run.burst(overtaking)  # type: ignore[misc]
                given = {"beta": 0.7} if turn in (4, 5) and sampler.prioritizes else {}
                batches.append(run.sample(40, **given))
            ours, theirs = batches
            for name in theirs:
                np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
            if native_run.update is not None and sampler.prioritizes:
                ids = np.concatenate([ours.ids, earlier[:3]])  # of these some are gone
                earlier = ours.ids if turn % 4 == 0 else earlier
                errors = np.abs(np.sin(np.arange(len(ids)) + turn))
                kept = [run.update(ids, errors) for run in (native_run, other)]
                assert kept[0] == kept[1]
            assert native_run.core.tally.numbers.tolist() == other.core.tally.numbers.tolist()
            shared = [run.core.access._counted[:5].tolist() for run in (native_run, other)]  # type: ignore[attr-defined]
            assert shared[0] == shared[1]
            assert native_run.core.tally.last == other.core.tally.last
            states = [run.tally.own.bit_generator.state for run in (native_run, other)]
            assert states[0] == states[1]
        assert bool(shared[0][REDRAWN]) == bool(overtaking)


def test_a_row_that_was_replaced_since_the_refresh_gets_no_priority() -> None:
    with Run(relive.Transitions(), relive.Prioritized(), False) as run:
        run.burst(STEPS)
        batch = run.sample(64)
        run.burst(STEPS)
        assert run.update(batch.ids, np.ones(64)) == 0
        assert run.core.tally.numbers.tolist() == [64, 64, 64]


def test_a_call_that_a_forked_child_kept_does_not_draw() -> None:
    def child() -> None:
        with pytest.raises(ReliveError):
            sample(4)
        with forked(grandchild):
            grandchild()

    def grandchild() -> None:
        with pytest.raises(ReliveError):
            buffer.sample(4)

    with Run(relive.Transitions(), relive.Uniform(), False) as run:
        run.burst(STEPS)
        buffer, sample = run.buffer, run.buffer.sample
        before = run.core.access._counted.tolist()  # type: ignore[attr-defined]
        with forked(child):
            pass
        assert run.core.access._counted.tolist() == before  # type: ignore[attr-defined]
