"""Steps that are held until their episode is over, so that it can be discarded."""

from __future__ import annotations

from itertools import product
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import KINDS, Counting, length
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from ledger import stacking
from test_recorder import buffer_of, check, drawable, plain

import relive
from relive.errors import ArgumentError, ReliveError
from relive.gymnasium import Recorder
from relive.testing.agreement import assert_same_batch

LANES = 3
MODES = [*AutoresetMode, None]  # None: a single environment


def environment(mode: AutoresetMode | None, kind: Any = "array") -> Any:
    """Make environments; `kind` may be a stack of frames: how many, how they are padded, and their axis."""
    made = [lambda i=i: stacking(i, *kind) if isinstance(kind, tuple) else Counting(i, kind) for i in range(LANES)]
    return made[0]() if mode is None else SyncVectorEnv(made, autoreset_mode=mode)


def buffer_for(env: Any, kind: Any = "array", **choices: Any) -> relive.ReplayBuffer:
    """Make a buffer with room for all, and items of three steps."""
    single = getattr(env, "single_observation_space", None) or env.observation_space
    acts = getattr(env, "single_action_space", None) or env.action_space
    lanes = getattr(env, "num_envs", None) or 1
    choices = {"item": relive.Transitions(n_step=3, gamma=0.5), **choices}
    schema = relive.Schema.from_spaces(single, acts)
    if isinstance(kind, tuple):
        schema = relive.Schema(
            obs=relive.Field(3, stack=kind[0], pad=kind[1], stack_axis=kind[2]), action=relive.Field(1)
        )
    return relive.ReplayBuffer(schema, 500 * lanes, num_envs=lanes, seed=0, **choices)


class Driver:
    """Steps a recorder, resets what has to be reset, and knows which episodes are under way."""

    def __init__(self, recorder: Any, mode: AutoresetMode | None) -> None:
        self.recorder, self.mode, self.lanes = recorder, mode, recorder.buffer.num_envs
        self.over = np.zeros(self.lanes, bool)
        obs, _ = recorder.reset(seed=0)
        self.where = located(obs, self.lanes)

    def step(self) -> None:
        if self.mode in (None, AutoresetMode.DISABLED) and self.over.any():
            self.reset(self.over)
        shape = self.recorder.action_space.shape
        obs, _, terminated, truncated, _ = self.recorder.step(np.zeros(shape, np.float32))
        self.over = np.atleast_1d(np.logical_or(terminated, truncated))
        self.where = located(obs, self.lanes)

    def reset(self, mask: np.ndarray | None = None) -> None:
        options = None if mask is None or self.mode is not AutoresetMode.DISABLED else {"reset_mask": mask}
        obs, _ = self.recorder.reset(options=options)
        self.over[:] = False if options is None else self.over & ~mask
        self.where = located(obs, self.lanes)

    def episodes(self) -> list[tuple[int, int]]:
        """Return lane and episode of the last step."""
        episode = self.where[:, 1] - (self.over if self.mode is AutoresetMode.SAME_STEP else 0)
        return list(zip(self.where[:, 0].tolist(), episode.tolist(), strict=True))


def assert_same_contents(ours: relive.ReplayBuffer, theirs: relive.ReplayBuffer) -> None:
    assert (ours.column("ids") == theirs.column("ids")).all()
    batches = [next(buffer.batches(10**5, shuffle=False)) for buffer in (ours, theirs)]
    assert len(batches[0].ids) > 0
    assert_same_batch(*batches)
    assert (ours.stats().cuts, ours.stats().ends) == (theirs.stats().cuts, theirs.stats().ends)


def located(obs: Any, lanes: int) -> np.ndarray:
    """Return each lane's observation; of a stack, three numbers."""
    return np.asarray(obs[0] if isinstance(obs, tuple) else plain(obs)).reshape(lanes, -1)[:, -3:].astype(int)


STACKS = [(4, "zero", 0), (3, "first", -1), (1, "zero", 0)]
PROGRAMS = st.lists(st.sampled_from(["step"] * 12 + ["reset", "some", "fault"]), min_size=12, max_size=60)


@pytest.mark.parametrize("mode", MODES, ids=str)
@given(program=PROGRAMS, kind=st.sampled_from([*KINDS, *STACKS]))
def test_without_a_discard_all_is_as_without_hold(mode: AutoresetMode | None, program: list[str], kind: Any) -> None:
    """Check after `close`, for any program: steps, resets of all and of some, refused steps."""
    buffers = []
    for hold in (False, True):
        env = environment(mode, kind)
        buffer = buffer_for(env, kind)
        driver = Driver(Recorder(env, buffer, hold=hold), mode)
        for number, what in enumerate(program):
            if what == "step":
                driver.step()
            elif what == "reset":
                driver.reset()
            elif what == "some" and mode is AutoresetMode.DISABLED:
                mask = (np.arange(LANES) + number) % 2 == 0
                driver.reset(mask | driver.over)
            elif what == "fault" and not driver.over.any():
                with pytest.raises(relive.SchemaError):
                    driver.recorder.step(np.zeros(driver.recorder.action_space.shape), nothing=1)
                driver.reset()  # what the step ended is not known to the driver
        driver.step()
        driver.step()
        driver.recorder.close()
        buffers.append(buffer)
    assert_same_contents(*buffers)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_steps_come_once_their_episode_is_over(mode: AutoresetMode | None) -> None:
    """Check that they come with the next call, so that the last step may decide."""
    env = environment(mode)
    buffer = buffer_for(env)
    driver = Driver(Recorder(env, buffer, hold=True), mode)
    stored, ended, running = 0, 0, np.zeros(driver.lanes, int)
    for _ in range(30):
        driver.step()
        stored += ended
        assert len(buffer) == stored
        running += driver.over | (running < [length(*each) for each in driver.episodes()])
        ended = 0
        for lane, over in enumerate(driver.over):
            if over:
                ended += length(lane, driver.episodes()[lane][1])
        assert len(driver.recorder.ids) in (0, *range(2, 50))


WHEN = ["in mid-episode", "at its end", "at any time"]


@pytest.mark.parametrize(
    ("mode", "when"), [*product(MODES, WHEN), (AutoresetMode.DISABLED, "a crash"), (None, "a crash")], ids=str
)
def test_discarded_episodes_never_were(mode: AutoresetMode | None, when: str) -> None:
    """Check that all others are whole, and nothing counts as cut; after a crash its lanes are reset at once."""
    env, rng = environment(mode), np.random.default_rng(0)
    buffer = buffer_for(env)
    driver, spoilt = Driver(Recorder(env, buffer, hold=True), mode), set()
    for _ in range(150):
        driver.step()
        lanes = rng.random(driver.lanes) < 0.2
        if when != "at any time":
            lanes &= driver.over == (when == "at its end")
        # A lane that was only reset holds nothing.
        lanes &= driver.over | (driver.where[:, 2] > 0)
        if lanes.any():
            chosen = {lane: driver.episodes()[lane] for lane in np.flatnonzero(lanes).tolist()}
            held = [lane for lane, episode in chosen.items() if episode not in spoilt]
            steps = sum(length(*chosen[lane]) if driver.over[lane] else driver.where[lane, 2] for lane in held)
            spoilt |= {*chosen.values()}
            assert [driver.recorder.discard([*chosen]) for _ in range(2)] == [steps, 0]
            if when == "a crash":
                driver.reset(lanes | driver.over)
    driver.recorder.close()
    last = dict(driver.episodes())
    seen = {(lane, episode) for lane, episode, _ in check_all(buffer, spoilt | set(last.items()))}
    every = {(lane, episode) for lane, end in last.items() for episode in range(end)}
    assert len(spoilt) > 5
    assert not seen & spoilt
    assert every - spoilt <= seen
    assert buffer.stats().cuts == 0


def check_all(buffer: relive.ReplayBuffer, without: set[tuple[int, int]]) -> set[tuple[int, int, int]]:
    """Return every stored step, as lane, episode and step; check that episodes not in `without` are whole and right."""
    batch = drawable(buffer)
    where = plain(batch.obs).astype(int)
    whole = np.array([(lane, episode) not in without for lane, episode, _ in where.tolist()])
    found = check(relive.Batch({name: batch[name][whole] for name in batch}), 3, 0.5)
    for lane, episode, _ in found:
        assert all((lane, episode, t) in found for t in range(length(lane, episode)))
    return {tuple(each) for each in where.tolist()}


def test_what_is_dropped_of_a_resumed_stream_joins_nothing() -> None:
    """Check with equal observations, by which the buffer could not tell."""

    class Blind(Counting):
        def _obs(self) -> Any:
            return np.zeros(3, np.float32)

    env = Blind()
    recorder = Recorder(env, buffer := buffer_for(env))
    recorder.reset(seed=0)
    recorder.step(np.zeros(1))
    again = Recorder(env, buffer, hold=True)
    again.resume(np.zeros(3, np.float32))
    env.t = 0
    again.step(np.zeros(1))  # would be the second step of the stream
    again.discard()
    again.reset()
    again.step(np.zeros(1))
    again.close()
    assert buffer.stats().cuts == 1
    assert len(buffer) == 1 or buffer.read([0]).steps[0] == 1


def test_a_limiter_counts_step_by_step() -> None:
    """Check with an episode longer than its band."""
    env = gymnasium.wrappers.TimeLimit(Endless(), 50)
    limiter = relive.RateLimiter(samples_per_insert=1.0, min_size=60, error_buffer=2.0, timeout=5.0)
    buffer = buffer_for(env, limiter=limiter)
    recorder = Recorder(env, buffer, hold=True)
    for _ in range(2):
        recorder.reset()
        for _ in range(50):
            recorder.step(np.zeros(1))
        if len(buffer) == 0:
            recorder.reset()
            assert len(buffer) == 50
    limited = buffer.stats().limiter
    assert limited is not None
    assert limited.inserts == 50


class Endless(Counting):
    def step(self, action: Any) -> Any:
        self.t += 1
        return self._obs(), 1.0, False, False, {}


def test_memory_is_that_of_the_longest_episode() -> None:
    env = gymnasium.wrappers.TimeLimit(Endless(), 70)
    recorder: Any = Recorder(env, buffer_for(env), hold=True)
    recorder.reset()
    sizes = set()
    for t in range(1, 1000):
        recorder.step(np.zeros(1))
        if t % 70 == 0:
            recorder.reset()
        sizes.add(len(recorder._held._room[0]))
    assert sizes == {64, 128}


def test_an_error_keeps_what_is_held() -> None:
    """Check that it is raised before the environment moves, and that the next call tries again."""

    class Full(relive.ReplayBuffer):
        full = False

        def extend(self, **steps: Any) -> Any:
            if self.full:
                raise ReliveError("no room")
            return super().extend(**steps)

    env = environment(AutoresetMode.NEXT_STEP)
    like = buffer_for(env)
    buffer = Full(like.schema, 1500, num_envs=LANES, item=like.item, seed=0)
    driver = Driver(Recorder(env, buffer, hold=True), AutoresetMode.NEXT_STEP)
    alone = Driver(Recorder(environment(AutoresetMode.NEXT_STEP), like), AutoresetMode.NEXT_STEP)
    for t in range(40):
        if t % 3 == 0:
            buffer.full = True
            before = driver.where
            try:
                driver.step()
                alone.step()
            except ReliveError:
                assert (driver.where == before).all()
            buffer.full = False
        driver.step()
        alone.step()
    driver.recorder.close()
    assert_same_contents(buffer, like)


@pytest.mark.parametrize("hold", [False, True])
def test_priorities_and_extras_go_through(hold: bool) -> None:
    """Check that, if only some of the steps have a priority, the others get the largest so far."""
    env = environment(None)
    like = buffer_for(env)
    schema = relive.Schema(**like.schema.tree, log_prob=relive.Field())
    sampler = relive.Prioritized(alpha=1.0, eps=0.0)
    buffer = relive.ReplayBuffer(schema, 100, item=like.item, sampler=sampler, seed=0)
    recorder = Recorder(env, buffer, hold=hold)
    recorder.reset(seed=0)
    with pytest.raises(relive.PriorityError):
        recorder.step(np.zeros(1), log_prob=0.5, priority=-1.0)
    recorder.reset()
    for t, priority in enumerate((3.0, None, 7.0)):
        recorder.step(np.zeros(1), log_prob=t / 4, **({} if priority is None else {"priority": priority}))
    recorder.close()
    ids = buffer.ids()
    assert buffer.read(ids).log_prob.tolist() == [0.0, 0.25, 0.5]
    assert buffer.priorities(ids).tolist()[0::2] == [3.0, 7.0]


def test_what_makes_no_sense_is_refused() -> None:
    env = environment(AutoresetMode.DISABLED)
    with pytest.raises(ArgumentError, match="Expected a recorder that holds steps, got one that adds them at once"):
        Recorder(env, buffer_of(env)).discard()
    with pytest.raises(ArgumentError, match=r"Recorder\(hold\)"):
        Recorder(env, buffer_of(env), hold="yes")
    held = Recorder(env, buffer_of(env), hold=True)
    assert held.discard() == 0
    for wrong in ([3], [-1], [0, 0], 0.5, [True]):
        with pytest.raises(ArgumentError, match="at `env_ids`"):
            held.discard(wrong)
