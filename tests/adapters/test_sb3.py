"""Stable-Baselines3's own loops on relive: every item is compared with what the environments lived through."""

from __future__ import annotations

import pickle
import runpy
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from depth import pairs
from needs import needs

needs("stable_baselines3")

import torch
from gymnasium import spaces
from sb3_loops import GAMMA, built, drawable, envs_of, judge, ledger, reward_of, small
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.vec_env import VecNormalize

import relive
from relive.errors import ArgumentError, NotEnoughData, ReliveWarning
from relive.gymnasium import Recorder
from relive.sb3 import HerReplayBuffer, PrioritizedDQN, ReplayBuffer

pytestmark = [
    pytest.mark.filterwarnings("ignore:The last trajectory in the replay buffer:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*steps do not continue their stream:relive.errors.ReliveWarning"),
]


@pytest.mark.parametrize(
    "call",
    [
        lambda: DQN("MlpPolicy", envs_of(), replay_buffer_class=relive.ReplayBuffer),
        lambda: Recorder(envs_of(), relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 10)),
    ],
    ids=["the core's buffer in an algorithm", "its environments in a recorder"],
)
def test_what_does_not_fit_names_the_class_that_does(call: Callable[[], object]) -> None:
    with pytest.raises(ArgumentError, match=r"Stable-Baselines3.*`(replay_buffer_class=)?relive.sb3.ReplayBuffer`"):
        call()


@pytest.mark.parametrize(("way", "n"), pairs(product(("box", "dict"), (False, True)), [1, 3, 3, 1]))
def test_every_item_of_sb3s_loop(way: tuple[str, bool], n: int) -> None:
    """Time limits, ends, and resets in mid-episode as `learn` is called again; then the ring goes round."""
    kind, memory = way
    policy = "MlpPolicy" if kind == "box" else "MultiInputPolicy"
    for size, steps in ((600, (150, 101, 64)), (60, (90, 61))):
        envs = envs_of(kind=kind)
        kwargs = {"n_steps": n, "gamma": GAMMA}
        model = DQN(
            policy, envs, replay_buffer_class=ReplayBuffer, replay_buffer_kwargs=kwargs, buffer_size=size,
            learning_starts=10**6, optimize_memory_usage=memory, seed=1, **small(),
        )  # fmt: skip
        for calls in steps:
            model.learn(calls)
        buffer, lived = model.replay_buffer, ledger(envs.envs)
        found = judge(buffer.sample(3000), lived, n)
        everything = drawable(lived, n)
        if size == 600:
            assert found == everything
            assert len(found) > 240
            assert buffer.size() == sum(length for length, _ in lived.values()) // 2
        else:
            assert found < everything
            assert len(found) >= size - 2 * (n - 1)
            assert buffer.size() == 30
        assert any(how == "cut" for _, how in lived.values())


def test_infos_of_both_kinds_say_what_a_time_limit_ended() -> None:
    box, place, one = spaces.Box(-1, 1, (2,)), np.zeros((2, 2), np.float32), np.ones(2)
    for infos in ([{}, {"TimeLimit.truncated": True}], {"TimeLimit.truncated": np.array([False, True])}):
        for handled in (True, False):
            buffer = ReplayBuffer(10, box, box, n_envs=2, handle_timeout_termination=handled, device="cpu")
            buffer.add(place, place, place, one, one, infos)
            assert buffer.timeouts[0].tolist() == [0, handled]
            assert buffer.dones[0].tolist() == [1, 1]
            assert sorted(set(buffer.sample(64).dones[:, 0].tolist())) == ([0, 1] if handled else [1])


def test_places_show_what_is_stored() -> None:
    """Check SB3's arrays in SB3's order, while the ring goes round; writing into them changes nothing."""
    buffer = ReplayBuffer(6, spaces.Discrete(50), spaces.Discrete(3), n_steps=2, device="cpu", seed=0)
    for t in range(8):
        buffer.add(np.array([t]), np.array([t + 1]), np.array([t % 3]), np.array([t]), np.array([t == 3]), [{}])
    assert (buffer.pos, buffer.full, buffer.size()) == (2, True, 6)
    assert buffer.observations[:, 0, 0].tolist() == [6, 7, 2, 3, 4, 5]
    assert buffer.next_observations[:, 0, 0].tolist() == [7, 8, 3, 4, 5, 6]
    assert buffer.actions[:, 0, 0].tolist() == [0, 1, 2, 0, 1, 2]
    assert buffer.rewards[:, 0].tolist() == [6, 7, 2, 3, 4, 5]
    buffer.dones[1] = True
    assert buffer.dones[:, 0].tolist() == [0, 0, 0, 1, 0, 0]
    assert buffer._get_samples(np.array([2])).rewards.item() == pytest.approx(2 + 0.99 * 3)
    buffer.reset()
    assert (buffer.pos, buffer.full, buffer.size(), buffer.observations.sum()) == (0, False, 0, 0)
    with pytest.raises(NotEnoughData):
        buffer.sample(1)


def test_a_stack_of_frames_is_stored_once() -> None:
    space, action = spaces.Box(0, 255, (4, 8, 8), np.uint8), spaces.Discrete(2)
    whole, once = (ReplayBuffer(100, space, action, stack=k, seed=0, device="cpu") for k in (None, 4))
    assert once.relive.schema.nbytes < 0.3 * whole.relive.schema.nbytes
    frames = np.random.default_rng(0).integers(0, 255, (40, 8, 8), np.uint8)
    for t in range(30):
        for buffer in (whole, once):
            buffer.add(
                frames[None, t : t + 4], frames[None, t + 1 : t + 5], np.zeros(1, int), np.zeros(1), np.zeros(1), [{}]
            )  # fmt: skip
    for name in ("observations", "next_observations"):
        np.testing.assert_array_equal(getattr(once, name), getattr(whole, name))
        assert torch.equal(getattr(once.sample(20), name), getattr(whole.sample(20), name))


def test_so_short_episodes_that_steps_are_lost_are_named() -> None:
    size, spaces_ = 2000, (spaces.Discrete(9), spaces.Discrete(2))
    zeros, ones, infos = np.zeros((size, 1), int), np.ones((size, 1)), [[{}]] * size
    buffer = ReplayBuffer(size, *spaces_, device="cpu")
    with pytest.warns(ReliveWarning, match=r"keeps 10\d\d of 2000 steps.*`boundaries=1` reserves enough"):
        buffer.extend(zeros, zeros, zeros, ones, ones, infos)
    enough = ReplayBuffer(size, *spaces_, device="cpu", boundaries=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            enough.extend(zeros, zeros, zeros, ones, ones, infos)
    assert len(enough.relive) == size


def test_normalized_samples() -> None:
    envs = VecNormalize(envs_of(continuous=True))
    model = SAC(
        "MlpPolicy", envs, replay_buffer_class=ReplayBuffer, learning_starts=20, buffer_size=500, seed=0, **small()
    )  # fmt: skip
    model.learn(60)
    plain, ours = model.replay_buffer.sample(400), model.replay_buffer.sample(400, envs)
    assert plain.observations.abs().max() > 5
    assert ours.observations.std() < 2
    assert ours.rewards.std() < plain.rewards.std()
    assert model.replay_buffer.relive.stats().cuts == 0


def test_buffers_are_saved_and_loaded(tmp_path: Path) -> None:
    """Save and load by the callback, by pickle, and by relive itself."""
    model = built(PrioritizedDQN)
    model.learn(90, callback=CheckpointCallback(45, str(tmp_path), save_replay_buffer=True))
    assert len(list(tmp_path.glob("*replay_buffer*"))) >= 1
    buffer = model.replay_buffer
    model.save_replay_buffer(tmp_path / "buffer")
    model.load_replay_buffer(tmp_path / "buffer")
    buffer.relive.save(tmp_path / "relive")
    expected, loaded = buffer.sample(50), model.replay_buffer
    assert loaded is not buffer
    for other in (loaded.sample(50).ids, relive.load(tmp_path / "relive").sample(50).ids):
        np.testing.assert_array_equal(other, expected.ids)
    np.testing.assert_array_equal(loaded.observations, buffer.observations)
    model.learn(40)
    assert loaded.size() > buffer.size()


@pytest.mark.parametrize(("strategy", "way"), pairs(["future", "final", "episode"], [*product((1, 3), (False, True))]))
def test_goals_in_hindsight(strategy: str, way: tuple[int, bool]) -> None:
    """Check that other goals are of the same episode, and that rewards are those that the environment computes."""
    n, infos = way
    envs = envs_of(kind="dict")
    kwargs = {"goal_selection_strategy": strategy, "copy_info_dict": infos}
    model = PrioritizedDQN(
        "MultiInputPolicy", envs, replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=kwargs, n_steps=n,
        gamma=GAMMA, buffer_size=80, learning_starts=50, seed=0, **small(),
    )  # fmt: skip
    buffer = model.learn(40).replay_buffer
    assert not buffer.ep_length[buffer.pos :].any()
    model.learn(200).learn(101)
    samples, lived = buffer.sample(1000), ledger(envs.envs)
    codes, goals = samples.observations["code"].int().numpy(), samples.observations["desired_goal"].int().numpy()
    rewards = samples.rewards[:, 0].tolist()
    assert 0.6 < (goals[:, 0] >= 0).mean() < 0.9  # weighted by priority
    for code, goal, reward in zip(codes, goals, rewards, strict=True):
        lane, episode, t = code
        m = min(n, lived[lane, episode][0] - t)
        if goal[0] < 0:
            expected = sum(GAMMA**k * reward_of(*code[:2], t + k) for k in range(m))
        else:
            assert (goal[:2] == code[:2]).all()
            expected = sum(GAMMA**k * (goal[2] - (t + k + 1)) for k in range(m))
        assert reward == pytest.approx(expected, abs=1e-4)
    copy = pickle.loads(pickle.dumps(buffer))
    with pytest.raises(ArgumentError, match="call `set_env"):
        copy.sample(100)
    copy.set_env(envs)
    np.testing.assert_array_equal(copy.ep_length, buffer.ep_length)
    assert set(np.unique(buffer.ep_length)) <= set(range(9))


@pytest.mark.slow
@pytest.mark.parametrize(("hindsight", "low", "high"), [(True, 0.8, 1.0), (False, 0.0, 0.4)])
def test_a_hand_learns_to_reach_with_hindsight_and_not_without(hindsight: bool, low: float, high: float) -> None:
    """Run `examples/reaching_sb3.py` unchanged: minutes."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "reaching_sb3.py"))
    assert low <= example["train"](5_000, hindsight, 0) <= high


def test_the_last_batches_are_kept(tmp_path: Path) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=ReplayBuffer, learning_starts=50, seed=0)
    model.replay_buffer.keep_batches(tmp_path / "batches", 3)
    model.learn(100)
    kept = relive.kept_batches(tmp_path / "batches")
    assert [len(batch.ids) for batch in kept] == [32, 32, 32]
    assert kept[-1].obs.shape == (32, 4)
