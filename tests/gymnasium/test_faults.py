"""Something raises while a step is recorded: the step may be lost, but nothing that is stored joins what it separated.

Every step carries the lane, episode and time at which it began, so that items can be told apart even where all
observations are alike, which is where a buffer that compares observations would not notice.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from itertools import product
from types import FrameType
from typing import Any

import numpy as np
import pytest
from counting import Counting, length
from depth import pairs, some
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import relive
import relive.gymnasium
from relive._adapters import holding
from relive.errors import ArgumentError, ReliveError
from relive.gymnasium import Recorder

LANES, ROWS, N, GAMMA = 2, 60, 3, 0.5
MODES = [*AutoresetMode, None]  # None: a single environment
FILES = (relive.gymnasium.__file__, relive._base.nests.__file__, holding.__file__)


class Blind(Counting):
    """Every observation is the same; may raise once it has moved."""

    def __init__(self, number: int = 0, sees: bool = False) -> None:
        super().__init__(number)
        self.sees, self.fault = sees, False

    def _obs(self) -> Any:
        return super()._obs() if self.sees else np.zeros(3, np.float32)

    def reset(self, **choices: Any) -> Any:
        return self._unless_faulty(super().reset(**choices))

    def step(self, action: Any) -> Any:
        return self._unless_faulty(super().step(action))

    def _unless_faulty(self, result: Any) -> Any:
        if self.fault:
            raise KeyboardInterrupt
        return result


class Fragile(relive.ReplayBuffer):
    """Raises as it is asked to, before or after it has stored a step."""

    raises: tuple[str, type[BaseException]] | None = None

    def add(self, **step: Any) -> Any:
        if self.raises and self.raises[0] == "before":
            raise self.raises[1]
        ids = super().add(**step)
        if self.raises:
            raise self.raises[1]
        return ids


class World:
    """A recorder, and a driver that goes on after whatever was raised."""

    def __init__(self, mode: AutoresetMode | None, sees: bool, hold: bool = False) -> None:
        self.mode, self.lanes = mode, LANES if mode else 1
        self.envs = [Blind(i, sees) for i in range(self.lanes)]
        env: Any = SyncVectorEnv([lambda e=e: e for e in self.envs], autoreset_mode=mode) if mode else self.envs[0]
        where = relive.Field((3,), "int64")
        schema = relive.Schema(obs=relive.Field(3), action=relive.Field(1), where=where)
        item, sampler = relive.Transitions(n_step=N, gamma=GAMMA), relive.Prioritized()
        self.buffer = Fragile(schema, ROWS * self.lanes, num_envs=self.lanes, item=item, sampler=sampler, seed=0)
        self.recorder = Recorder(env, self.buffer, hold=hold)
        self.over = np.zeros(self.lanes, bool)
        self.recorder.reset(seed=0)

    def now(self) -> list[tuple[int, int, int]]:
        return [(env.number, env.episode, env.t) for env in self.envs]

    def step(self, **extras: Any) -> None:
        shape = (self.lanes, 1) if self.mode else (1,)
        action = extras.pop("action", np.zeros(shape, np.float32))
        where = extras.pop("where", np.array(self.now() if self.mode else self.now()[0]))
        self.over[:] = True  # not known, if something raises
        *_, terminated, truncated, _ = self.recorder.step(action, where=where, **extras)
        self.over = np.atleast_1d(np.logical_or(terminated, truncated))

    def play(self, steps: int) -> None:
        for _ in range(steps):
            if self.mode in (None, AutoresetMode.DISABLED) and self.over.any():
                self.reset_those_that_ended()
            try:
                self.step()
            except ArgumentError:  # a reset is required
                self.recorder.reset()
                self.step()

    def playing(self, steps: int) -> set[tuple[int, int, int]]:
        """Play, reset what has to be, and return where the lanes are."""
        self.play(steps)
        if self.over.any() and self.mode in (None, AutoresetMode.DISABLED):
            self.reset_those_that_ended()
        return set(self.now())

    def reset_those_that_ended(self) -> None:
        mask = np.array([env.t == length(env.number, env.episode) for env in self.envs])
        if self.recorder._obs is None or not self.mode:
            self.recorder.reset()
        elif mask.any():
            self.recorder.reset(options={"reset_mask": mask})

    def check(self, faulty: set[tuple[int, int, int]]) -> int:
        """Check that every item was lived, and that windows end early only at faulty steps; count the items."""
        self.recorder.close()  # adds what is held
        batch = self.buffer.read(self.buffer.ids())
        for row, (number, (lane, episode, t)) in enumerate(zip(batch.ids, batch["where"].tolist(), strict=True)):
            end, m = length(lane, episode), int(batch.steps[row])
            assert number % self.lanes == lane
            assert m <= min(N, end - t)
            if m < min(N, end - t):
                assert {(lane, episode, t + m - 1), (lane, episode, t + m)} & faulty
            assert batch.reward[row] == sum(GAMMA**k * (t + k + 1) for k in range(m))
            over = t + m == end
            assert bool(batch.terminated[row]) is (over and episode % 2 == 1)
            assert bool(batch.truncated[row]) is (over and episode % 2 == 0)
            assert batch.discount[row] == (0 if batch.terminated[row] else GAMMA**m)
            for name, at in (("obs", t), ("next_obs", t + m)):
                assert not self.envs[0].sees or batch[name][row].tolist() == [lane, episode, at]
        return len(batch.ids)


def raising_environment(world: World) -> None:
    world.envs[-1].fault = True
    try:
        world.step()
    finally:
        world.envs[-1].fault = False


def raising_buffer(when: str, error: type[BaseException]) -> Callable[[World], None]:
    def fault(world: World) -> None:
        world.buffer.raises = (when, error)
        try:
            world.step()
        finally:
            world.buffer.raises = None

    return fault


def bad(name: str, value: float) -> Callable[[World], None]:
    def fault(world: World) -> None:
        shape = {"action": (1,), "where": (3,), "priority": ()}[name]
        world.step(**{name: np.full((world.lanes, *shape) if world.mode else shape, value)})

    return fault


FAULTS: dict[str, Callable[[World], None]] = {
    "the environment": raising_environment,
    "interrupted before the step is stored": raising_buffer("before", KeyboardInterrupt),
    "interrupted after the step is stored": raising_buffer("after", KeyboardInterrupt),
    "a warning turned into an error": raising_buffer("after", relive.errors.ReliveWarning),
    "an action that float32 cannot hold": bad("action", 1e300),
    "a float for an integer extra": bad("where", 0.5),
    "a priority that is not a number": bad("priority", np.nan),
    "an extra that the schema does not have": lambda world: world.step(wher=np.zeros(world.lanes)),
}


HELD = {*FAULTS} - {name for name in FAULTS if "interrupted" in name or "warning" in name}


@pytest.mark.parametrize(("place", "sees"), pairs(product(FAULTS, MODES), [False, True, True]), ids=str)
def test_what_comes_after_a_fault_joins_nothing(place: tuple[str, AutoresetMode | None], sees: bool) -> None:
    """Held steps are cut there, too: all earlier ones reach the buffer, and both buffers have the same."""
    name, mode = place
    for before in some(range(12), 3):  # faults in mid-episode, at ends and at resets
        buffers = []
        for hold in (False, True) if name in HELD else (False,):
            world = World(mode, sees, hold)
            faulty, cuts = world.playing(before), world.buffer.stats().cuts
            open_lanes = sum(t > 0 and t < length(lane, episode) for lane, episode, t in faulty)
            with pytest.raises((ReliveError, KeyboardInterrupt, relive.errors.ReliveWarning)):
                FAULTS[name](world)
            if not hold:
                assert len(world.recorder.ids) == 0
            if not hold and name in ("an action that float32 cannot hold", "interrupted before the step is stored"):
                assert world.buffer.stats().cuts == cuts + open_lanes
            stored = world.buffer.stats().added
            world.play(8)
            assert world.check(faulty) > 0
            assert world.buffer.stats().added > stored
            buffers.append(world.buffer)
        assert len({buffer.stats().cuts for buffer in buffers}) == 1
        for path in ("ids", "obs", "action", "reward", "where", "terminated", "truncated"):
            for buffer in buffers:
                np.testing.assert_array_equal(buffer.column(path), buffers[0].column(path))


def test_a_missing_final_observation_cuts_the_streams() -> None:
    world = World(AutoresetMode.SAME_STEP, sees=True)
    step, lost = world.recorder.env.step, set()
    world.recorder.env.step = lambda action: (*step(action)[:4], {})
    for _ in range(10):
        before = world.now()
        if any(t + 1 == length(lane, episode) for lane, episode, t in before):
            lost |= set(before)
            with pytest.raises(ArgumentError, match="Expected `final_obs` where an episode ended"):
                world.step()
        else:
            world.step()
    assert len(lost) > 2
    assert world.check(lost) > 0
    assert world.buffer.stats().cuts > 0


class Interrupt:
    """Raises KeyboardInterrupt at the n-th instruction that the recorder itself executes."""

    def __init__(self, at: int) -> None:
        self.left, self.raised = at, False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.raised = True
                raise KeyboardInterrupt(dis.opname[frame.f_code.co_code[frame.f_lasti]])
        return self


@pytest.mark.parametrize(
    ("mode", "hold"), pairs(some(MODES, 3), [False, True, True]), ids=lambda mode: getattr(mode, "name", str(mode))
)
def test_an_interrupt_at_any_instruction_joins_nothing(mode: AutoresetMode | None, hold: bool) -> None:
    """Interrupt a step in mid-episode, and one that ends an episode."""
    for before, stride in ((2, 41), (3, 59)) if hold else ((1, 9), (2, 19)):
        at = 1
        while True:
            world, interrupt = World(mode, sees=False, hold=hold), Interrupt(at)
            faulty = world.playing(before)
            sys.settrace(interrupt)
            try:
                world.step()
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            world.play(5)
            world.check(faulty)
            if not interrupt.raised:
                break
            at += stride
        assert at > 100
