"""Items drawn while environments run, each decoded and compared in every field with what happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
from depth import LONG, pairs
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from ledger import CUT, FAR, TERMINATED, TRUNCATED, Ledger, frames_of, reward_of, stacking

import relive
from relive.gymnasium import Recorder

STACKS = [(1, "zero", 0), (4, "zero", 0), (3, "first", -1)]
WORLDS = list(product(AutoresetMode, (1, 3)))
STEPS, GAMMA, BATCH = 120, 0.9, 260
ITEMS_IN_ALL, EVERY = (1_000_000, 10) if LONG else (500_000, 20)  # draws, at every so many steps


@dataclass
class Case:
    """One buffer with its choices."""

    n: int
    rows: int
    burn_in: int | None  # None: Transitions
    across: bool
    serial: int
    stack: tuple[int, str, int]
    lanes: int
    buffer: Any = None
    drawn: int = 0
    ends: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        k, pad, axis = self.stack
        self.back = 0 if self.across else self.burn_in or 0  # steps in front of an anchor
        self.starts = 1 if self.burn_in is None else (1, 2, 4 if self.back else 3)[self.serial % 3]
        self.time_major = bool(self.serial % 2)
        obs = relive.Field((3,), "float32", stack=k, pad=pad, stack_axis=axis)
        state = relive.Field((2,), "float32", every=self.starts)
        sampler: Any = relive.Uniform() if self.serial % 4 < 2 else relive.Prioritized(alpha=0.5)
        item: Any = relive.Transitions(n_step=self.n, gamma=GAMMA)
        if self.burn_in is not None:
            item = relive.Sequences(
                length=3, burn_in=self.burn_in, n_step=self.n, gamma=GAMMA, starts=self.starts,
                across_episodes=self.across, time_major=self.time_major,
            )  # fmt: skip
        self.buffer = relive.ReplayBuffer(
            relive.Schema(obs=obs, action=relive.Field((1,)), state=state),
            capacity=self.rows * self.lanes, num_envs=self.lanes, item=item, sampler=sampler, seed=self.serial,
        )  # fmt: skip


class Tee:
    """One experience into many buffers."""

    def __init__(self, cases: list[Case]) -> None:
        self.buffers = [case.buffer for case in cases]
        self.num_envs = cases[0].lanes

    def add(self, **step: Any) -> Any:
        ids = [buffer.add(**step) for buffer in self.buffers]
        return ids[0]

    def cut(self, env_ids: Any) -> None:
        for buffer in self.buffers:
            buffer.cut(env_ids)


def cases_of(lanes: int, stack: tuple[int, str, int]) -> list[Case]:
    shapes = [(None, False), *product((0, 4), (False, True))]
    every = product((1, 3), (24, 90), shapes)
    return [Case(n, rows, *shape, serial, stack, lanes) for serial, (n, rows, shape) in enumerate(every)]


@pytest.mark.parametrize(("mode", "lanes", "stack"), [(*world, stack) for world, stack in pairs(WORLDS, STACKS)])
def test_every_drawn_item_happened(mode: AutoresetMode, lanes: int, stack: tuple[int, str, int]) -> None:
    """Draw `ITEMS_IN_ALL` items over all parameters; none may differ in a single number."""
    cases = cases_of(lanes, stack)
    envs = SyncVectorEnv([lambda i=i: stacking(i, *stack) for i in range(lanes)], autoreset_mode=mode)
    inside = RecordEpisodeStatistics(envs) if lanes > 1 else envs
    recorder, ledger = Recorder(inside, Tee(cases)), Ledger(lanes, STEPS + 40)
    rng = np.random.default_rng(lanes * 100 + stack[0])
    obs, _ = recorder.reset(seed=0)
    for t in range(STEPS):
        now, action = newest(obs, stack), np.zeros((lanes, 1), np.float32)
        action[:, 0] = action_of(*(now.T - 1))
        lane, episode, step = now.astype(int).T - 1
        state, live = np.stack([now[:, 0], ledger.begin[lane, episode] + step], axis=1), ledger.live(now)
        obs, _, terminated, truncated, _ = recorder.step(action, state=state)
        assert np.array_equal(np.isin(np.arange(lanes), recorder.ids % lanes), live)
        if mode is AutoresetMode.DISABLED:
            obs = resets(recorder, ledger, obs, terminated | truncated, rng, stack)
        if t % EVERY == EVERY - 1 or t > STEPS - 2:
            for case in cases:
                draw_and_check(case, ledger)
    envs.close()
    combinations = len(STACKS) * len(WORLDS)
    assert sum(case.drawn for case in cases) * combinations >= ITEMS_IN_ALL
    wanted = {TERMINATED, TRUNCATED, CUT} if mode is AutoresetMode.DISABLED else {TERMINATED, TRUNCATED}
    assert set().union(*(case.ends for case in cases)) >= wanted


def newest(obs: np.ndarray, stack: tuple[int, str, int]) -> np.ndarray:
    return obs[..., -1] if stack[2] == -1 else obs[..., -1, :]


def action_of(lane: Any, episode: Any, t: Any) -> Any:
    return lane * 1000.0 + episode * 20.0 + t


def resets(
    recorder: Recorder, ledger: Ledger, obs: np.ndarray, over: np.ndarray, rng: Any, stack: tuple[int, str, int]
) -> np.ndarray:
    """Reset the lanes that ended, and now and then one that did not."""
    mask = over | (rng.random(len(over)) < 0.1)
    if not mask.any():
        return obs
    ledger.cut(newest(obs, stack)[mask])
    return recorder.reset(options={"reset_mask": mask})[0]


def draw_and_check(case: Case, ledger: Ledger) -> None:
    if not case.buffer.can_sample(1):
        return
    batch = case.buffer.sample(BATCH)
    case.drawn += BATCH
    if case.burn_in is None:
        anchors = newest(batch.obs, case.stack)
    else:
        if case.time_major:
            batch = batch_major(batch)
        anchors = newest(batch.obs[:, case.back], case.stack)
    lane, episode, t = anchors.astype(int).T - 1
    at = ledger.begin[lane, episode] + t
    back = np.minimum(case.back, t)
    kept = (at - back) % case.starts == 0
    equal("state", batch.state, np.where(kept[:, None], np.stack([lane + 1, at - back], axis=1), 0))
    assert (at % case.starts == 0).all()
    assert (batch.ids % case.lanes == lane).all()
    if case.burn_in is None:
        want = window(case, ledger, lane, episode, t)
        case.ends |= set(np.unique(want.pop("how")))
        want |= {"obs": frames_of(lane, episode, t, *case.stack), "action": action_of(lane, episode, t)[:, None]}
    else:
        want = sequence(case, ledger, lane, episode, t)
        case.ends |= set(np.unique(want.pop("how")[want["mask"]]))
    assert set(batch) == {*want, "state", "ids", "weights"}
    for name, value in want.items():
        equal(name, batch[name], value)
    if case.serial % 4 >= 2:
        case.buffer.update_priorities(batch.ids, np.abs(np.sin(batch.ids)))


def batch_major(batch: Any) -> Any:
    whole = ("state", "first", "ids", "weights")
    return relive.Batch({name: value if name in whole else np.swapaxes(value, 0, 1) for name, value in batch.items()})


def equal(name: str, got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape, (name, got.shape, want.shape)
    if name in ("reward", "discount"):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=name)
    else:
        assert (got == want).all(), name


def window(case: Case, ledger: Ledger, lane: np.ndarray, episode: np.ndarray, t: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the n-step window from each of these steps."""
    length = ledger.length[lane, episode]
    steps = np.minimum(case.n, length - t)
    reward = sum(np.where(k < steps, GAMMA**k * reward_of(lane, episode, t + k), 0) for k in range(case.n))
    how = np.where(t + steps == length, ledger.how[lane, episode], 0)
    return {
        "reward": reward,
        "next_obs": frames_of(lane, episode, t + steps, *case.stack),
        "discount": np.where(how == TERMINATED, 0.0, GAMMA**steps),
        "terminated": how == TERMINATED,
        "truncated": how == TRUNCATED,
        "steps": steps,
        "how": how,
    }


def sequence(case: Case, ledger: Ledger, lane: np.ndarray, episode: np.ndarray, t: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the sequences of these anchors."""
    length = 3 + case.burn_in
    total = length + case.n
    begin = (ledger.begin[lane, episode] + t - np.minimum(case.back, t))[:, None]
    at = (ledger.begin[lane, episode] + t)[:, None] + np.arange(total) - case.back
    end = end_of(case, ledger, lane, episode)[:, None]
    wide = np.broadcast_to(lane[:, None], at.shape)
    last = np.clip(at, begin, end - 1)  # the first and the last step stand for what comes before and after them
    over = at >= end
    e, s = ledger.at(wide, last)
    all_obs = frames_of(wide, e, s + over, *case.stack)
    before = s - 1 + over
    prev = (before >= 0) & (at <= end)
    mask = ((at >= begin) & ~over)[:, :length]
    cut = (slice(None), slice(0, length))
    want = window(case, ledger, wide[cut], e[cut], s[cut])
    for name in want:
        off = ~mask.reshape(*mask.shape, *(1,) * (want[name].ndim - 2))
        after = all_obs[:, case.n : case.n + length] if name == "next_obs" else 0
        want[name] = np.where(off, after, want[name])
    prev_action = np.where(prev, action_of(wide, e, before), 0)[..., None]
    prev_reward = np.where(prev, reward_of(wide, e, before), 0)
    return {
        **want,
        "mask": mask,
        "first": t - np.minimum(case.back, t) == 0,
        "action": np.where(mask, action_of(wide, e, s)[cut], 0)[..., None],
        "all_obs": all_obs,
        "obs": all_obs[cut],
        "all_prev_action": prev_action,
        "prev_action": prev_action[cut],
        "all_prev_reward": prev_reward,
        "prev_reward": prev_reward[cut],
    }


def end_of(case: Case, ledger: Ledger, lane: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """Return the absolute step number at which these episodes' sequences end: their end, or the next cut."""
    if not case.across:
        return np.minimum(ledger.begin[lane, episode] + ledger.length[lane, episode], FAR)
    ends = np.full(ledger.how.shape, FAR)
    for number in range(ends.shape[1] - 2, -1, -1):
        own = ledger.begin[:, number] + ledger.length[:, number]
        ends[:, number] = np.where(ledger.how[:, number] == CUT, own, ends[:, number + 1])
    return ends[lane, episode]
