"""Stable-Baselines3's own loops on relive: every item is compared with what the environments lived through."""

from __future__ import annotations

import pickle
import runpy
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import relive
from relive.errors import ArgumentError, NotEnoughData, ReliveWarning
from relive.sb3 import HerReplayBuffer, PrioritizedDQN, PrioritizedSAC, PrioritizedTD3, ReplayBuffer

pytestmark = [
    pytest.mark.filterwarnings("ignore:The last trajectory in the replay buffer:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*steps do not continue their stream:relive.errors.ReliveWarning"),
]
GAMMA = 0.5


def small() -> dict[str, Any]:
    return {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}  # a new one: SB3 writes into it


class Counting(gymnasium.Env[Any, Any]):
    """Observations and goals say lane, episode and step; `lived` says how long episodes were, and how they ended."""

    lived: dict[tuple[int, int], tuple[int, str]]

    def __init__(self, lane: int, kind: str = "box", continuous: bool = False, shortest: int = 2) -> None:
        self.lane, self.kind, self.shortest, self.episode, self.t = lane, kind, shortest, -1, 0
        self.lived = {}
        box = spaces.Box(-1e6, 1e6, (3,), np.float32)
        many = {"code": box, "achieved_goal": box, "desired_goal": box, "step": spaces.Discrete(100)}
        self.observation_space = box if kind == "box" else spaces.Dict(many)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32) if continuous else spaces.Discrete(2)

    def _obs(self) -> Any:
        code = np.array([self.lane, self.episode, self.t], np.float32)
        far = np.full(3, -1, np.float32)
        return (
            {"code": code, "achieved_goal": code, "desired_goal": far, "step": self.t} if self.kind != "box" else code
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = reward_of(self.lane, self.episode, self.t)
        self.t += 1
        over = self.t == self.shortest + (3 * self.lane + 5 * self.episode) % 7
        how = ("terminated" if self.episode % 2 else "truncated") if over else "goes on"
        self.lived[self.lane, self.episode] = self.t, how
        info = {"place": (self.lane, self.episode, self.t - 1)}
        return self._obs(), reward, how == "terminated", how == "truncated", info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, infos: Any) -> np.ndarray:
        """How many steps the goal is away; infos have to be those of the steps."""
        for info, achieved in zip(infos, achieved_goal, strict=True):
            assert info.get("place", (*achieved[:2], achieved[2] - 1)) == (*achieved[:2], achieved[2] - 1)
        return (desired_goal - achieved_goal)[:, 2] + 1000 * np.abs(desired_goal - achieved_goal)[:, :2].sum(axis=1)


def reward_of(lane: Any, episode: Any, t: Any) -> Any:
    return (lane * 7.0 + episode * 11 + t * 3) % 31 - 15


def envs_of(lanes: int = 2, **choices: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda lane=lane: Counting(lane, **choices) for lane in range(lanes)])


def ledger(envs: Any) -> dict[tuple[int, int], tuple[int, str]]:
    """Every episode: its steps, and how it ended; one that was left has "cut"."""
    found: dict[tuple[int, int], tuple[int, str]] = {}
    for env in envs:
        inner = env.unwrapped
        for key, (steps, how) in inner.lived.items():
            found[key] = steps, "cut" if how == "goes on" and key[1] < inner.episode else how
    return found


def drawable(lived: dict[tuple[int, int], tuple[int, str]], n: int) -> set[tuple[int, int, int]]:
    """Every step whose window is complete."""
    return {
        (*key, t) for key, (steps, how) in lived.items() for t in range(steps if how != "goes on" else steps - n + 1)
    }


def judge(samples: Any, lived: dict[tuple[int, int], tuple[int, str]], n: int) -> set[tuple[int, int, int]]:
    """Compare every item with what happened; return which they are."""
    code = samples.observations if torch.is_tensor(samples.observations) else samples.observations["code"]
    following = samples.next_observations
    following = following if torch.is_tensor(following) else following["code"]
    items = [tuple(row) for row in code.int().tolist()]
    for i, (lane, episode, t) in enumerate(items):
        steps, how = lived[lane, episode]
        m = min(n, steps - t)
        assert following[i].tolist() == [lane, episode, t + m]
        expected = sum(GAMMA**k * reward_of(lane, episode, t + k) for k in range(m))
        assert samples.rewards[i].item() == pytest.approx(expected, abs=1e-4)
        assert samples.dones[i].item() == (t + m == steps and how == "terminated")
        if n > 1:
            assert samples.discounts[i].item() == pytest.approx(GAMMA**m)
    return set(items)


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("kind", ["box", "dict"])
def test_every_item_of_sb3s_loop(kind: str, n: int, memory: bool) -> None:
    """Time limits, ends, and resets in mid-episode as `learn` is called again; then the ring goes round."""
    policy = "MlpPolicy" if kind == "box" else "MultiInputPolicy"
    for size, steps in ((600, (150, 101, 64)), (60, (150, 101))):
        envs = envs_of(kind=kind)
        kwargs = {"n_steps": n, "gamma": GAMMA}
        model = DQN(
            policy, envs, replay_buffer_class=ReplayBuffer, replay_buffer_kwargs=kwargs, buffer_size=size,
            learning_starts=10**6, optimize_memory_usage=memory, seed=1, **small(),
        )  # fmt: skip
        for calls in steps:
            model.learn(calls)
        buffer, lived = model.replay_buffer, ledger(envs.envs)
        found = judge(buffer.sample(6000), lived, n)
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


@pytest.mark.parametrize("n", [1, 3])
def test_every_item_of_cleanrls_loop(n: int) -> None:
    """Infos are a dict of arrays, and nobody says which episodes were truncated."""
    envs = SyncVectorEnv(
        [lambda lane=lane: Counting(lane) for lane in range(2)], autoreset_mode=AutoresetMode.SAME_STEP
    )  # fmt: skip
    buffer = ReplayBuffer(
        500, envs.single_observation_space, envs.single_action_space, "cpu", n_envs=2,
        handle_timeout_termination=False, n_steps=n, gamma=GAMMA, seed=0,
    )  # fmt: skip
    obs, _ = envs.reset(seed=0)
    for _ in range(130):
        actions = envs.action_space.sample()
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        real_next_obs = next_obs.copy()
        for lane in np.flatnonzero(terminations | truncations):
            real_next_obs[lane] = infos["final_obs"][lane]
        buffer.add(obs, real_next_obs, actions, rewards, terminations, infos)
        obs = next_obs
    lived = ledger(envs.envs)
    # A truncated episode is known to have ended when the next one begins.
    open_ends = {key: (steps, "goes on") for key, (steps, how) in lived.items() if how == "truncated" and key[1] == max(
        episode for lane, episode in lived if lane == key[0]
    )}  # fmt: skip
    assert judge(buffer.sample(6000), lived, n) == drawable(lived | open_ends, n)


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
    """SB3's arrays, by its places, while the ring goes round; writing into them changes nothing."""
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
    buffer = ReplayBuffer(2000, spaces.Discrete(9), spaces.Discrete(2), device="cpu")
    zeros, ones, infos = np.zeros((2000, 1), int), np.ones((2000, 1)), [[{}]] * 2000
    with pytest.warns(
        ReliveWarning, match=r"Of `buffer_size=2000` steps 10\d\d are kept.*`buffer_size=3\d+` keeps 2000"
    ):
        buffer.extend(zeros, zeros, zeros, ones, ones, infos)
    with warnings.catch_warnings():  # nor is it said again, in words of rows
        warnings.simplefilter("error")
        pickle.loads(pickle.dumps(buffer)).extend(ones.astype(int), zeros, zeros, ones, ones, infos)


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


ALGORITHMS = {PrioritizedDQN: DQN, PrioritizedSAC: SAC, PrioritizedTD3: TD3}


def built(kind: Any, **choices: Any) -> Any:
    continuous = kind not in (DQN, PrioritizedDQN)
    choices = {"buffer_size": 400, "learning_starts": 20, "batch_size": 16, "seed": 3, **small(), **choices}
    return kind("MlpPolicy", envs_of(continuous=continuous), **choices)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_an_update_without_priorities_is_sb3s(kind: Any) -> None:
    """With weights of 1 both make the same nets of the same batches."""
    models = [
        built(ALGORITHMS[kind], replay_buffer_class=ReplayBuffer),
        built(kind, sampler=relive.Prioritized(beta=0.0)),
    ]
    models[0].learn(30)
    models[1]._setup_learn(0)
    # Small rewards, since DQN's loss only shows the sign of large errors.
    batches = [data._replace(rewards=data.rewards / 100) for data in map(models[0].replay_buffer.sample, [16] * 4)]
    for model in models:
        model.policy.load_state_dict(models[0].policy.state_dict())
        handed = iter(batches)
        model.replay_buffer.sample = lambda size, env=None, handed=handed: next(handed)
        model.replay_buffer.update_priorities = lambda ids, errors: len(ids)
    first = {name: tensor.clone() for name, tensor in models[0].policy.state_dict().items()}
    fresh = [
        built(ALGORITHMS[kind], replay_buffer_class=ReplayBuffer),
        built(kind, sampler=relive.Prioritized(beta=0.0)),
    ]
    for model, old in zip(fresh, models, strict=True):
        model.policy.load_state_dict(first)
        model.replay_buffer, model._n_updates = old.replay_buffer, 0
        model._setup_learn(0)
        torch.manual_seed(5)
        model.train(4, 16)
    mine, theirs = (model.policy.state_dict() for model in reversed(fresh))
    assert any(not torch.equal(theirs[name], first[name]) for name in first)
    for name in first:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("priority", ["td", "lap", "precision"])
@pytest.mark.parametrize("kind", ALGORITHMS)
def test_prioritized_algorithms_run_save_and_go_on(kind: Any, priority: str, tmp_path: Path) -> None:
    model = built(kind, priority=priority, n_steps=2, gamma=GAMMA).learn(80)
    buffer = model.replay_buffer
    raw = buffer.relive.priorities(buffer.sample(200).ids)
    assert (buffer.n_steps, buffer.gamma, model.n_steps) == (2, GAMMA, 2)
    assert len(np.unique(raw)) > 3
    if priority == "lap":
        assert raw.min() >= 1.0
    weights = buffer.sample(100).weights
    assert weights.shape == (100, 1)
    assert (len(weights.unique()) > 3) == (priority == "td")
    judge(buffer.sample(300), ledger(model.get_env().envs), 2)
    model.save(tmp_path / "model")
    loaded = kind.load(tmp_path / "model", env=model.get_env())
    assert (loaded.priority, loaded.sampler, loaded.critic_loss) == (priority, model.sampler, model.critic_loss)
    if priority == "precision":
        torch.testing.assert_close(loaded._noise.net.state_dict(), model._noise.net.state_dict())
        assert loaded._noise.sums.tolist() == model._noise.sums.tolist() != [0, 0, 0]
    loaded.learn(30)


@pytest.mark.parametrize("priority", ["td", "lap", "precision"])
def test_weights_and_priorities_of_a_batch(priority: str) -> None:
    """The loss by hand; and what the buffer is told, which for noisy rewards is less."""
    model = built(PrioritizedSAC, priority=priority, huber_threshold=0.5).learn(60)
    data = model.replay_buffer.sample(400)
    data = data._replace(ids=np.unique(data.ids), weights=torch.rand(400, 1))
    count = len(data.ids)
    data = type(data)(*(each[:count] if each is not None else None for each in data))
    one, two = torch.randn(2, count, 1)
    loss = model._loss(data, [one, two])
    each = torch.stack([one, two])
    huber = torch.where(each.abs() < 0.5, each**2, each.abs() - 0.25)
    wanted = 0.5 * (data.weights * (huber if priority == "lap" else each**2)).mean(dim=1).sum()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    told = model.replay_buffer.relive.priorities(data.ids)
    sizes = each[..., 0].abs().numpy()
    if priority == "precision":
        _, log_variance = model._noise.net(model._inputs(data)).detach().unbind(-1)
        assert np.corrcoef(np.log(told), log_variance.numpy())[0, 1] < -0.9
    else:
        wanted = sizes.mean(axis=0) if priority == "td" else np.maximum(sizes.max(axis=0), 0.5)
        np.testing.assert_allclose(told, wanted + 1e-6, rtol=1e-5)


def test_rules_and_buffers_that_do_not_fit_are_refused() -> None:
    for choices, text in (
        ({"priority": "rank"}, "one of `'td'`, `'lap'`, `'precision'`"),
        ({"priority": "lap", "critic_loss": "mse"}, "`'huber'` with `priority='lap'`"),
        ({"sampler": relive.Uniform()}, "a sampler with priorities, got `Uniform"),
        ({"replay_buffer_class": DQN}, "`relive.sb3.ReplayBuffer` or"),
    ):
        with pytest.raises(ArgumentError, match=text):
            built(PrioritizedDQN, **choices)


def test_buffers_are_saved_and_loaded(tmp_path: Path) -> None:
    """By the callback, by pickle, and by relive itself."""
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


@pytest.mark.parametrize("infos", [False, True])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_in_hindsight(strategy: str, n: int, infos: bool) -> None:
    """Another goal is of the same episode, and every reward of the window is what the environment computes for it."""
    envs = envs_of(kind="dict")
    kwargs = {"goal_selection_strategy": strategy, "copy_info_dict": infos}
    model = PrioritizedDQN(
        "MultiInputPolicy", envs, replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=kwargs, n_steps=n,
        gamma=GAMMA, buffer_size=80, learning_starts=50, seed=0, **small(),
    )  # fmt: skip
    buffer = model.learn(40).replay_buffer
    assert not buffer.ep_length[buffer.pos :].any()
    model.learn(200).learn(101)
    samples, lived = buffer.sample(3000), ledger(envs.envs)
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
    """`examples/reaching_sb3.py` as it stands: minutes."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "reaching_sb3.py"))
    assert low <= example["train"](5_000, hindsight, 0) <= high
