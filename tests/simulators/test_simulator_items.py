"""Every item that a recorder of a simulator has stored, decoded and compared in every field with what happened."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from depth import LONG
from gymnasium.vector import AutoresetMode
from kept_buffer import GAMMA, KeptBuffer
from no_wait import NoWait
from tensor_worlds import (
    BOTH,
    CUT,
    JAX,
    LANES,
    TERMINATED,
    TRUNCATED,
    BraxAutoResetWrapper,
    BraxCounters,
    IsaacLike,
    ManiSkillVectorEnv,
    MjLike,
    TensorEnvs,
    how_of,
    length_of,
    reward_of,
)

import relive
from relive.errors import ReliveWarning
from relive.simulators import Recorder, Simulator, schema_of

STEPS, EPISODES = 80, 400


@dataclass
class Form:
    """One form of simulator: how it is made, where observations have the frames, how some lanes are reset."""

    make: Callable[[bool], Any]
    groups: tuple[str, str] | None
    some: Callable[[Any], dict[str, Any]] | None
    own: type[Simulator] | None = None
    wait: int = 0  # the caller resets lanes that ended, at every step or at every third one
    first: tuple[Any, ...] = ()


def by_ids(mask: Any) -> dict[str, Any]:
    return {"env_ids": mask.nonzero().squeeze(-1)}


def by_mask(mask: Any) -> dict[str, Any]:
    return {"options": {"reset_mask": mask}}


def by_index(mask: Any) -> dict[str, Any]:
    return {"options": {"env_idx": mask.nonzero().squeeze(-1)}}


def playground(**release: bool) -> Form:
    keys = [3] * LANES  # the stand-in's first episode
    make = lambda _: BraxAutoResetWrapper(BraxCounters(), **release)  # noqa: E731
    return Form(make, ("state", "privileged_state"), None, first=(keys,))


class Mine(Simulator):
    """A simulator of one's own."""

    def mode_of_env(self) -> object:
        return AutoresetMode.SAME_STEP

    def finals_of(self, infos: Any, obs: Any) -> Any:
        return (infos["last"], None) if "last" in infos else None


class Own(TensorEnvs):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, infos = super().step(action)
        return obs, reward, terminated, truncated, {"last": infos["final_obs"]} if infos else {}


MODES = AutoresetMode
FORMS = {
    "Isaac Lab": Form(IsaacLike, ("policy", "critic"), by_ids),
    "Isaac Lab, the caller resets": Form(
        lambda _: IsaacLike(autoreset_mode=MODES.DISABLED), ("policy", "critic"), by_ids, wait=3
    ),
    "mjlab": Form(MjLike, ("actor", "critic"), by_ids),
    "mjlab, the caller resets": Form(lambda _: MjLike(auto_reset=False), ("actor", "critic"), by_ids, wait=1),
    "ManiSkill": Form(ManiSkillVectorEnv, None, by_index),
    "ManiSkill, the caller resets": Form(lambda _: ManiSkillVectorEnv(auto_reset=False), None, by_index, wait=3),
    "Gymnasium, SAME_STEP": Form(lambda finals: TensorEnvs(MODES.SAME_STEP, finals), None, by_mask),
    "Gymnasium, NEXT_STEP": Form(lambda _: TensorEnvs(MODES.NEXT_STEP), None, by_mask),
    "Gymnasium, DISABLED": Form(lambda _: TensorEnvs(MODES.DISABLED), None, by_mask, wait=3),
    "of one's own": Form(lambda _: Own(MODES.SAME_STEP), None, by_mask, Mine),
    "Playground, kept": playground(keeps=True),
    "Playground": playground(),
    "Playground, full_reset": playground(full=True),
}
WITHOUT = ["Isaac Lab", "mjlab", "Gymnasium, SAME_STEP"]
CASES = [(name, True) for name in FORMS] + [(name, False) for name in WITHOUT]


@dataclass
class Happened:
    """The course of every episode, `[lane, episode]`: by the counters' own rules, or cut by a reset."""

    finals: bool
    length: np.ndarray = field(init=False)
    how: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        lane, episode = np.ogrid[:LANES, :EPISODES]
        self.length = np.broadcast_to(length_of(lane, episode), (LANES, EPISODES)).copy()
        self.how = np.broadcast_to(how_of(lane, episode), (LANES, EPISODES)).copy()

    def one_flag(self) -> None:
        """Drop the truncation of terminated steps, as Brax does."""
        self.how[self.how == BOTH] = TERMINATED

    def cut(self, frames: np.ndarray, mask: np.ndarray) -> None:
        """Note a reset of these lanes at these frames: in mid-episode, unless they are over or have only begun."""
        lane, episode, t = frames[mask].T - 1
        within = (t > 0) & (t < self.length[lane, episode])
        self.length[lane[within], episode[within]] = t[within]
        self.how[lane[within], episode[within]] = CUT

    def window(self, n: int, lane: np.ndarray, episode: np.ndarray, t: np.ndarray) -> dict[str, np.ndarray]:
        length = self.length[lane, episode]
        steps = np.minimum(n, length - t)
        how = np.where(t + steps == length, self.how[lane, episode], 0)
        ended = np.isin(how, (TERMINATED, TRUNCATED, BOTH))
        known = self.finals | ~ended
        zero = np.isin(how, (TERMINATED, BOTH)) | ~known
        return {
            "reward": sum(np.where(k < steps, GAMMA**k * reward_of(lane, episode, t + k), 0) for k in range(n)),
            "next_obs": np.stack([lane, episode, t + steps - ~known], 1) + 1,
            "discount": np.where(zero, 0, GAMMA**steps),
            "terminated": np.isin(how, (TERMINATED, BOTH)),
            "truncated": np.isin(how, (TRUNCATED, BOTH)),
            "steps": steps,
        }


def code_of(frames: Any) -> Any:
    return frames[:, 0] * 1000 + frames[:, 1] * 20 + frames[:, 2]


def plain(obs: Any, form: Form) -> np.ndarray:
    """Return the frames of an observation, which every part of it has."""
    if form.groups is None:
        return np.asarray(obs).astype(int)
    first, second = (np.asarray(obs[name]) for name in form.groups)
    if second.ndim == 3:
        assert (second == np.stack([first, -first], 1)).all()
    else:
        assert (second == -first).all()
    return first.astype(int)


@pytest.mark.parametrize(("name", "finals"), CASES)
def test_every_stored_item_happened(name: str, finals: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", JAX)
    form = FORMS[name]
    env, happened, rng = form.make(finals), Happened(finals), np.random.default_rng(1)
    if form.first:
        happened.one_flag()
    buffer = KeptBuffer(schema_of(env, log_prob=relive.Field()), LANES)
    recorder = Recorder(env, buffer, simulator=form.own)
    obs, _ = recorder.reset(*form.first)
    stored = 0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for t in range(STEPS):
            frames = plain(obs, form).copy()
            code = code_of(torch.from_numpy(frames)).float()
            live = frames[:, 2] - 1 < length_of(*(frames[:, :2].T - 1))
            with NoWait() if LONG or t % 8 == 0 or t > 72 else nullcontext():
                obs = recorder.step(code[:, None].clone(), log_prob=code)[0]
            assert ((recorder.ids >= 0).numpy() == live).all()
            stored += live.sum()
            obs = resets(form, recorder, happened, obs, rng, t)
            if t % 40 == 39 or t == STEPS - 1:
                compare(form, buffer, happened, stored)
    texts = [str(one.message) for one in said if one.category is ReliveWarning]
    told = [] if finals else [recorder.simulator.remedy]
    assert len(texts) == len(told)
    assert all(remedy in text for remedy, text in zip(told, texts, strict=True))


def resets(form: Form, recorder: Recorder, happened: Happened, obs: Any, rng: Any, t: int) -> Any:
    """Reset now and then: lanes that ended, if the caller has to, a few others, or all."""
    frames = plain(obs, form)
    over = frames[:, 2] - 1 >= length_of(*(frames[:, :2].T - 1))
    if t % 40 == 37:
        first = ([100 + t] * LANES,) if form.first else ()
        happened.cut(frames, np.ones(LANES, bool))
        return recorder.reset(*first)[0]
    mask = over & (form.wait > 0 and t % form.wait == 0)
    if form.some is None or not (mask.any() or t % 17 == 9):
        return obs
    if t % 17 == 9:
        mask |= (rng.random(LANES) < 0.4) & (~over | (form.wait > 0))
    if not mask.any():
        return obs
    happened.cut(frames, mask)
    return recorder.reset(**form.some(torch.from_numpy(mask)))[0]


def compare(form: Form, buffer: KeptBuffer, happened: Happened, stored: int) -> None:
    for n, one in ((1, buffer.twins[0]), (3, buffer.twins[1]), (3, buffer.real.host())):
        compare_one(form, n, one, happened, stored)
    counts = [(stats.cuts, stats.unbootstrapped) for stats in (buffer.twins[1].stats(), buffer.real.stats())]
    assert counts[0] == counts[1]


def compare_one(form: Form, n: int, twin: relive.ReplayBuffer, happened: Happened, stored: int) -> None:
    items = 0
    for batch in twin.batches(512, shuffle=False):
        frames = plain(batch.obs, form)
        want = happened.window(n, *(frames.T - 1))
        for key, value in want.items():
            got = plain(batch.next_obs, form) if key == "next_obs" else batch[key]
            np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-5, err_msg=key)
        assert (batch.ids % LANES == frames[:, 0] - 1).all()
        assert (batch.action[:, 0] == code_of(frames)).all()
        assert (batch.log_prob == code_of(frames)).all()
        items += len(frames)
    stats = twin.stats()
    assert stats.added == stored
    assert items == stats.drawable
    if n == 1:
        assert items == stored
    assert stats.unbootstrapped == 0 or not happened.finals


def test_actions_that_a_simulator_clips_in_place() -> None:
    class Clipping(TensorEnvs):
        def step(self, actions: Any) -> Any:
            actions.clamp_(-1, 1)
            return super().step(actions)

    env = Clipping(AutoresetMode.SAME_STEP)
    buffer = KeptBuffer(schema_of(env), LANES)
    recorder = Recorder(env, buffer)
    recorder.reset()
    action = 3 * torch.ones(LANES, 1)
    recorder.step(action)
    assert (action == 1).all(), "the environment has the caller's tensor, as without a recorder"
    assert (buffer.real.host().column("action")[buffer.real.host().column("ids") >= 0] == 3).all()
