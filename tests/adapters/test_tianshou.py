"""relive.tianshou through Tianshou's own collector, n-step code and algorithms."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from needs import needs
from own_sampler import Balanced

needs("tianshou")
torch = pytest.importorskip("torch")
from counter import GAMMA, Counting, coded, wrong
from tianshou.algorithm.algorithm_base import Algorithm, RandomActionPolicy
from tianshou.data import Batch, Collector
from tianshou.data import VectorReplayBuffer as Theirs
from tianshou.env import DummyVectorEnv

import relive
from relive.tianshou import PrioritizedVectorReplayBuffer, VectorReplayBuffer

SPACE = Counting().action_space
PER = {"alpha": 0.6, "beta": 0.4}


class Ranks(Balanced):
    prioritizes = True


def collector_of(buffer: Any, lanes: int = 2, kind: str = "array") -> Collector:
    envs = DummyVectorEnv([lambda i=i: Counting(i, kind) for i in range(lanes)])
    return Collector(RandomActionPolicy(Counting().action_space), envs, buffer)


def collected(buffer: Any, steps: int = 240, reset_every: int | None = None) -> dict[tuple[int, int], int]:
    """Fill a buffer, with resets in mid-episode; the steps of the episodes that these ended."""
    collector, cuts = collector_of(buffer), {}
    collector.reset_env()
    for done in range(2, steps + 1, 2):
        collector.collect(n_step=2)
        if reset_every and done % reset_every == 0:
            for env in collector.env.workers:
                if env.env.t:
                    cuts[env.env.number, env.env.episode] = env.env.t
            collector.reset_env()
    return cuts


def returns(buffer: Any, indices: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute rewards, discounts and codes of bootstrapped observations, by Tianshou's own n-step returns."""

    def of(value: Any) -> np.ndarray:
        def target(buffer: Any, after: np.ndarray) -> Any:
            return torch.as_tensor(value(np.asarray(buffer[after].obs_next)), dtype=torch.float64)

        batch = Algorithm.compute_nstep_return(buffer[indices], buffer, indices, target, GAMMA, n)
        return batch.returns.numpy()[:, 0]

    reward = of(lambda obs: np.zeros(len(obs)))
    discount = of(lambda obs: np.ones(len(obs))) - reward
    code = of(coded) - reward
    return reward, discount, np.divide(code, discount, out=np.zeros_like(code), where=discount > 0)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(("size", "reset_every"), [(1000, None), (1000, 14), (26, None), (26, 14)])
@pytest.mark.parametrize("kind", [VectorReplayBuffer, PrioritizedVectorReplayBuffer])
def test_every_item_is_what_happened(kind: Any, size: int, reset_every: int | None, n: int) -> None:
    buffer = kind(size, 2, **(PER if kind is PrioritizedVectorReplayBuffer else {}))
    cuts = collected(buffer, 240, reset_every)
    batch, indices = buffer.sample(0)
    assert len(buffer) == len(indices) == min(240, size)
    newest = np.isin(indices, buffer.unfinished_index())
    obs, (reward, discount, code) = np.asarray(batch.obs), returns(buffer, indices, n)
    # The newest windows are shortened, as Tianshou's own are.
    shortened = {(int(o[0]), int(o[1])): int(o[2]) + 1 for o in obs[newest]}
    after = np.stack([code // 10_000, code // 100 % 100, code % 100], axis=1)
    assert wrong(obs, reward, discount, after, n, {**shortened, **cuts}) == 0
    assert not reset_every or cuts
    drawn, slots = buffer.sample(64)
    assert (drawn.obs == buffer[np.asarray(slots)].obs).all()


def test_meta_the_judge_finds_what_tianshou_does_at_a_reset() -> None:
    buffer = Theirs(1000, 2)
    cuts = collected(buffer, 240, 14)
    indices = buffer.sample_indices(0)
    reward, discount, code = returns(buffer, indices, 3)
    after = np.stack([code // 10_000, code // 100 % 100, code % 100], axis=1)
    assert wrong(buffer[indices].obs, reward, discount, after, 3, cuts) > 10


def test_slots_and_results_are_tianshous_own() -> None:
    ours, theirs = VectorReplayBuffer(26, 2), Theirs(26, 2)
    for t in range(40):
        lanes = [0, 1] if t % 3 else [1]
        obs = np.full((len(lanes), 3), t, np.float32)
        ends = np.array([(t + lane) % 7 == 6 for lane in lanes])
        step = Batch(
            obs=obs, act=np.zeros((len(lanes), 1)), rew=np.arange(len(lanes)) + t, obs_next=obs + 1,
            terminated=ends, truncated=np.zeros(len(lanes), bool), info=Batch(number=np.full(len(lanes), t)),
        )  # fmt: skip
        for one, two in zip(ours.add(step, lanes), theirs.add(step, lanes), strict=True):
            assert np.array_equal(one, two)
    assert np.array_equal(ours.sample_indices(0), theirs.sample_indices(0))
    for name in ("obs", "act", "rew", "terminated", "done", "obs_next"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    assert np.array_equal(ours.info.number, theirs.info.number)
    assert ours[:].rew.dtype == theirs[:].rew.dtype == float
    assert ours[3].obs.tolist() == theirs[3].obs.tolist()
    with pytest.raises(IndexError):
        ours[26]


@pytest.mark.parametrize("kind", ["dict", "array"])
def test_spaces_give_the_schema_before_the_first_step_which_stays(kind: str) -> None:
    env = Counting(0, kind)
    buffer = VectorReplayBuffer(100, 2, observation_space=env.observation_space, action_space=env.action_space)
    behind = buffer.relive
    assert behind is not None
    collector = collector_of(buffer, kind=kind)
    for _ in range(2):
        collector.collect(n_step=30, random=True, reset_before_collect=True)
        obs = buffer.sample(8)[0].obs
        assert np.asarray(obs.code if kind == "dict" else obs).shape == (8, 3)
        collector.reset_buffer()
        assert buffer.relive is behind
        assert (len(buffer), len(buffer.relive), len(buffer.unfinished_index())) == (0, 0, 0)


def test_a_cut_between_two_adds_is_seen() -> None:
    buffer = VectorReplayBuffer(100, 2)
    flags = {"terminated": np.zeros(2, bool), "truncated": np.zeros(2, bool)}
    for t in range(6):
        obs = np.full((2, 3), t, np.float32)
        if t == 4:
            buffer.relive.cut(env_ids=[1])
        buffer.add(Batch(obs=obs, act=np.zeros(2), rew=np.ones(2), obs_next=obs + 1, **flags))
    assert sorted(buffer.unfinished_index().tolist()) == [5, 53, 55]


def test_stacks_end_at_the_first_observation() -> None:
    buffer = VectorReplayBuffer(200, 2, stack_num=3)
    collected(buffer, 100)
    batch = buffer[:]
    t = np.maximum(batch.obs[:, -1:, 2] + np.arange(-2, 1), 0)
    assert np.array_equal(batch.obs[:, :, 2], t)
    assert np.array_equal(batch.obs_next[:, :, 2], np.concatenate([t[:, 1:], t[:, 2:] + 1], axis=1))
    assert np.array_equal(buffer.get(np.array([0, 5]), "obs"), buffer[[0, 5]].obs)


def test_priorities_weights_and_late_updates() -> None:
    buffer = PrioritizedVectorReplayBuffer(20, 2, **PER)
    collected(buffer, 16)
    batch, indices = buffer.sample(16)
    assert batch.weight.tolist() == [1.0] * 16
    buffer.update_weight(indices, torch.full((16, 1), 0.25, requires_grad=True))
    before = buffer.relive.priorities(indices.ids)
    for bad in (np.nan, np.inf):
        with pytest.raises(relive.PriorityError, match=r"Expected a finite TD error"):
            buffer.update_weight(indices, np.where(np.arange(16) == 3, bad, 1.0))
    assert np.array_equal(buffer.relive.priorities(indices.ids), before)
    buffer.update_weight(np.array([0]), np.array([4.0]))  # a plain slot
    drawn = np.concatenate([buffer.sample(100)[1] for _ in range(50)])
    share = 4.0**0.6 / (4.0**0.6 + 15 * 0.25**0.6)
    assert abs((drawn == 0).mean() - share) < 0.03
    batch, slots = buffer.sample(64)
    want = np.where(slots == 0, (4 / 0.25) ** (-0.6 * 0.4), 1.0)
    assert np.allclose(batch.weight, want, rtol=1e-5)
    assert np.allclose(buffer[np.asarray(slots)].weight, want, rtol=1e-5)
    buffer.set_beta(1.0)
    assert np.allclose(buffer.sample(64)[0].weight.min(), (4 / 0.25) ** -0.6)


@pytest.mark.parametrize("again", [False, True], ids=["", "another draw in between"])
@pytest.mark.parametrize("plain", [False, True], ids=["as drawn", "slots alone"])
def test_an_update_of_overwritten_slots_is_dropped_and_counted(again: bool, plain: bool) -> None:
    buffer = PrioritizedVectorReplayBuffer(20, 2, **PER)
    collected(buffer, 20)
    _, late = buffer.sample(8)
    collector_of(buffer).collect(n_step=20, random=True, reset_before_collect=True)
    if again:
        buffer.sample(8)
    if not (plain and again):  # numbers alone cannot tell which draw they are from
        buffer.update_weight(np.asarray(late) if plain else late, np.full(8, 100.0))
        assert (buffer.relive.priorities(buffer._stored[buffer._stored >= 0]) < 2).all()
        assert buffer.relive.stats().stale_updates == 8


@pytest.mark.parametrize("kind", [VectorReplayBuffer, PrioritizedVectorReplayBuffer])
def test_a_saved_buffer_goes_on(kind: Any, tmp_path: Path) -> None:
    buffer = kind(26, 2, **(PER if kind is PrioritizedVectorReplayBuffer else {}))
    collected(buffer, 60, 14)
    if kind is PrioritizedVectorReplayBuffer:
        buffer.update_weight(buffer.sample(16)[1], np.arange(16.0))
    buffer.save_hdf5(str(tmp_path / "buffer.h5"))
    assert [path.name for path in tmp_path.iterdir()] == ["buffer.h5"]
    assert (tmp_path / "buffer.h5").stat().st_mode & 0o777 == 0o600
    for call in (buffer.save_hdf5, type(buffer).load_hdf5):
        with pytest.raises(relive.ReliveError, match="Expected a path, got `''`"):
            call("")
    others = [kind.load_hdf5(str(tmp_path / "buffer.h5")), copy.deepcopy(buffer)]
    step = {"rew": np.ones(2), "terminated": np.array([True, False]), "truncated": np.zeros(2, bool), "info": {}}
    step |= {"obs": np.zeros((2, 3), np.float32), "obs_next": np.ones((2, 3), np.float32), "act": np.zeros((2, 1))}
    want_slots, want = buffer.add(Batch(step)), buffer.sample(64)
    for other in others:
        for one, two in zip(other.add(Batch(step)), want_slots, strict=True):
            assert np.array_equal(one, two)
        batch, slots = other.sample(64)
        assert np.array_equal(slots, want[1])
        assert np.array_equal(batch.obs, want[0].obs)
        assert np.array_equal(batch.rew, want[0].rew)
        assert np.array_equal(other.unfinished_index(), buffer.unfinished_index())
        assert np.array_equal(other.next(other.sample_indices(0)), buffer.next(buffer.sample_indices(0)))


def test_an_algorithm_learns_with_priorities_and_several_steps() -> None:
    from tianshou.algorithm import DQN
    from tianshou.algorithm.algorithm_base import policy_within_training_step
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.utils.net.common import Net

    buffer, env = PrioritizedVectorReplayBuffer(200, 2, **PER), gymnasium.make("CartPole-v1")
    envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(2)])
    model = Net(state_shape=4, action_shape=2, hidden_sizes=[8])
    policy = DiscreteQLearningPolicy(
        model=model, action_space=env.action_space, observation_space=env.observation_space
    )
    Collector(policy, envs, buffer).collect(n_step=100, random=True, reset_before_collect=True)
    learner = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), n_step_return_horizon=3, gamma=0.9)
    ids = buffer._stored[buffer._stored >= 0]
    with policy_within_training_step(policy):
        for _ in range(3):
            learner.update(buffer, 32)
    assert len(np.unique(buffer.relive.priorities(ids))) > 10


def test_a_reset_buffer_begins_anew() -> None:
    buffer = PrioritizedVectorReplayBuffer(26, 2, **PER)
    collector = collector_of(buffer)
    collector.collect(n_step=20, random=True, reset_before_collect=True)
    collector.reset_buffer()
    collector.collect(n_step=6, random=True)
    assert buffer.sample_indices(0).tolist() == [0, 1, 2, 13, 14, 15]


def test_nans_are_found_once_they_come() -> None:
    buffer = VectorReplayBuffer(100, 2)
    collected(buffer, 20)
    assert not buffer.hasnull()
    buffer.set_array_at_key(np.array([np.nan, 1.0]), "extra", [0, 1])
    assert buffer.hasnull()
    assert buffer.hasnull()


REFUSED = {
    "sample_avail": (lambda: VectorReplayBuffer(10, 2, sample_avail=True), r"Expected `sample_avail=False`"),
    "one space": (lambda: VectorReplayBuffer(10, 2, action_space=Counting().action_space), "Expected both spaces"),
    "from_data": (lambda: VectorReplayBuffer.from_data(), r"got `from_data` .*: call `add` for each step"),
    "dropnull": (lambda: VectorReplayBuffer(10, 2).dropnull(), r"got `dropnull`"),
    "set_batch": (lambda: VectorReplayBuffer(10, 2).set_batch(Batch()), r"got `set_batch`"),
    "empty slot": (lambda: VectorReplayBuffer(10, 2)[0], r"got slot `0`, which is empty"),
    "no obs_next": (
        lambda: VectorReplayBuffer(10, 1).add(Batch(obs=[1], act=[1])),
        r"Expected a batch with `obs_next`",
    ),
    "no sampler": (
        lambda: VectorReplayBuffer(10, 1, sampler=relive.Uniform, observation_space=SPACE, action_space=SPACE),
        r"Expected `Uniform\(\)`, `Prioritized",
    ),
    "priorities without an exponent": (
        lambda: VectorReplayBuffer(10, 1, sampler=Ranks(k=5)),
        r"Expected `Uniform\(\)`, `Prioritized",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused_with_a_remedy(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(relive.ReliveError, match=text):
        call()


def test_a_sampler_of_ones_own_draws() -> None:
    buffer = VectorReplayBuffer(80, 2, sampler=Balanced(k=5))
    collected(buffer, 60)
    assert {*buffer.sample_indices(500).tolist()} == {*range(25, 30), *range(65, 70)}


def test_weights_may_be_scaled_by_the_whole_buffer() -> None:
    buffer = VectorReplayBuffer(80, 2, sampler=relive.Prioritized(alpha=1.0, beta=1.0, weights="buffer"))
    collected(buffer, 20)
    slots = buffer.sample_indices(0)
    buffer.update_weight(slots, np.arange(1.0, len(slots) + 1))
    np.testing.assert_allclose(buffer.get_weight(slots[[0, 3]]), [1.0, 0.25], rtol=1e-5)
