"""relive.ray.rllib through RLlib's own episodes, connectors and algorithms."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from needs import needs

needs("ray.rllib", "tree")
pytest.importorskip("torch")
import tree
from counter import GAMMA, Counting, length, wrong
from ray.rllib.connectors.common import AddObservationsFromEpisodesToBatch, BatchIndividualItems
from ray.rllib.connectors.learner import (
    AddColumnsFromEpisodesToTrainBatch,
    AddNextObservationsFromEpisodesToTrainBatch,
)
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

import relive
from relive.ray.rllib import EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer

KINDS = [EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer]
STEPS = 120  # of each environment


class Runner:
    """Steps environments as RLlib's env-runners do: episodes come in chunks, those that ended first."""

    def __init__(self, lanes: int, kind: str = "array", state: bool = False) -> None:
        self.state = state
        self.envs = [Counting(lane, kind) for lane in range(lanes)]
        self.episodes = [self._begin(env) for env in self.envs]
        self.cuts: dict[tuple[int, int], int] = {}

    def _begin(self, env: Counting) -> SingleAgentEpisode:
        episode = SingleAgentEpisode(observation_space=env.observation_space, action_space=env.action_space)
        episode.add_env_reset(*env.reset())
        return episode

    def sample(self, steps: int, to_numpy: bool = True) -> list[SingleAgentEpisode]:
        done, going = [], []
        for lane, env in enumerate(self.envs):
            for _ in range(steps):
                *moved, info = env.step(None)
                extra: dict[str, Any] = {"action_logp": np.float32(env.t)}
                if self.state:
                    extra["state_out"] = {"h": np.full(2, env.t, np.float32)}
                obs, reward, terminated, truncated = moved
                self.episodes[lane].add_env_step(
                    obs, np.full(1, env.t, np.float32), reward, info,
                    terminated=terminated, truncated=truncated, extra_model_outputs=extra,
                )  # fmt: skip
                if terminated or truncated:
                    done.append(self.episodes[lane])
                    self.episodes[lane] = self._begin(env)
            if len(self.episodes[lane]):
                going.append(self.episodes[lane])
                self.episodes[lane] = going[-1].cut(len_lookback_buffer=1)
        return [each.to_numpy() for each in done + going] if to_numpy else done + going


def filled(buffer: Any, lanes: int = 3, kind: str = "array", **choices: Any) -> Runner:
    runner, rng, t = Runner(lanes, kind), np.random.default_rng(0), 0
    while t < STEPS:
        steps = int(rng.integers(1, 7))
        buffer.add(runner.sample(min(steps, STEPS - t), **choices))
        t += steps
    return runner


def columns(items: list[Any]) -> dict[str, np.ndarray]:
    got = {name: np.array([f(each) for each in items]) for name, f in COLUMNS.items()}
    return got | {"discount": np.where(got["terminated"], 0.0, GAMMA ** got["n_step"])}


COLUMNS = {
    "obs": lambda e: e.get_observations(0),
    "next_obs": lambda e: e.get_observations(1),
    "action": lambda e: float(np.ravel(e.get_actions(0))[0]),
    "reward": lambda e: e.get_rewards(0),
    "n_step": lambda e: e.get_extra_model_outputs("n_step", 0),
    "weights": lambda e: e.get_extra_model_outputs("weights", 0),
    "terminated": lambda e: e.is_terminated,
    "t": lambda e: e.t_started,
}


def faults(items: list[Any], n: int) -> int:
    got = columns(items)
    bad = wrong(got["obs"], got["reward"], got["discount"], got["next_obs"], n)
    return bad + int((got["action"] != got["t"] + 1).sum() + (got["obs"][:, 2] != got["t"]).sum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_step", "to_numpy"), [(1, True), (3, True), (3, False)])
def test_every_item_is_right_and_every_step_is_drawn(kind: Any, n_step: int, to_numpy: bool) -> None:
    buffer = kind(1_000, seed=0)
    filled(buffer, to_numpy=to_numpy)
    items = buffer.sample(2_500, n_step=n_step, gamma=GAMMA)
    assert faults(items, n_step) == 0
    drawn = {tuple(row) for row in columns(items)["obs"].astype(int).tolist()}
    # All but the newest steps, whose windows may not be complete.
    assert len(drawn) > 0.99 * 3 * (STEPS - n_step + 1)
    ends = [row for row in drawn if row[2] == length(row[0], row[1]) - 1]
    assert len(ends) > 90  # RLlib's own prioritized buffer draws none of these with n_step > 1


def test_windows_of_drawn_lengths() -> None:
    buffer = PrioritizedEpisodeReplayBuffer(1_000, seed=0)
    filled(buffer)
    items = buffer.sample(1_500, n_step=(1, 4), gamma=GAMMA)
    lengths = columns(items)["n_step"]
    assert (np.bincount(lengths)[1:] > 150).all()  # ends of episodes leave more short ones
    for n in (1, 2, 3):
        assert faults([item for item, m in zip(items, lengths, strict=True) if m == n], n) == 0


@pytest.mark.parametrize("kind", ["dict", "tuple"])
def test_nests_come_back_as_they_were(kind: str) -> None:
    buffer = EpisodeReplayBuffer(1_000, seed=0)
    runner = filled(buffer, kind=kind)
    buffer.add(runner.sample(5))
    for item in buffer.sample(200):
        for place in (0, 1):
            obs = item.get_observations(place)
            assert type(obs) is {"dict": dict, "tuple": tuple}[kind]
            array, step = (obs["code"], obs["step"]) if kind == "dict" else obs
            assert array[2] == step == item.t_started + place


def test_old_steps_go_and_are_counted() -> None:
    buffer = EpisodeReplayBuffer(60, seed=0)
    runner = filled(buffer)
    assert len(buffer) <= 60
    buffer.sample(8, n_step=3, gamma=GAMMA)
    for _ in range(50):
        buffer.add(runner.sample(4))
    items = buffer.sample(600, n_step=3, gamma=GAMMA)
    assert faults(items, 3) == 0
    assert len(buffer) == 60
    assert buffer.get_added_timesteps() == 3 * (STEPS + 200)
    stored = len({tuple(row[:2]) for row in columns(items)["obs"].tolist()})
    assert stored <= buffer.get_num_episodes() <= stored + 3
    assert buffer.get_num_episodes_evicted() + buffer.get_num_episodes() == buffer._kept.numbers + evicted_before(60)


def evicted_before(capacity: int) -> int:
    """Count the episodes that were evicted while chunks were waiting."""
    buffer = EpisodeReplayBuffer(capacity)
    filled(buffer)
    return buffer.get_num_episodes_evicted()


def test_more_episodes_than_lanes_are_cut_and_said() -> None:
    buffer = EpisodeReplayBuffer(1_000, num_envs=2, seed=0)
    filled(buffer)
    with pytest.warns(relive.errors.ReliveWarning, match="More than 2 episodes are under way.*`num_envs=`"):
        items = buffer.sample(400, n_step=3, gamma=GAMMA)
    got = columns(items)
    for m in (1, 2, 3):
        assert faults([item for item, n in zip(items, got["n_step"], strict=True) if n == m], m) == 0


def test_a_chunk_that_is_missing_ends_the_stream() -> None:
    """Check with equal observations, so that only `t_started` tells."""
    buffer = EpisodeReplayBuffer(100, seed=0)

    def chunk(t: int) -> SingleAgentEpisode:
        rows = {"observations": [0.0] * 3, "actions": [0.0] * 2, "rewards": [t + 1.0, t + 2.0]}
        return SingleAgentEpisode(id_="a", t_started=t, len_lookback_buffer=0, **rows)

    buffer.add([chunk(0), chunk(2), chunk(6)])
    found = {(e.t_started, float(e.rewards[0])) for e in buffer.sample(200, n_step=2, gamma=1.0)}
    assert found == {(0, 3.0), (1, 5.0), (2, 7.0), (3, 4.0), (6, 15.0)}


def test_draws_weights_and_priorities_are_those_of_the_paper() -> None:
    buffer = PrioritizedEpisodeReplayBuffer(1_000, alpha=0.7, eps=0.0, seed=0)
    rows = {"observations": [float(t) for t in range(7)], "actions": [0] * 6, "rewards": [0.0] * 6}
    buffer.add(SingleAgentEpisode(**rows, terminated=True, len_lookback_buffer=0), weight=2.0)
    items = buffer.sample(200)
    assert {float(columns([each])["weights"][0]) for each in items} == {1.0}
    priorities = np.array([4.0, 0.0, 1.0, 2.0, 0.5, 3.0])
    buffer.update_priorities(priorities[[each.t_started for each in items]] * -1)
    got = columns(buffer.sample(3_000, beta=0.5))
    p = priorities**0.7 / (priorities**0.7).sum()
    counts = np.bincount(got["t"], minlength=6)
    assert counts[1] == 0
    assert (np.abs(counts - 3_000 * p) <= 5 * np.sqrt(3_000 * p)).all()
    weights = np.divide(1, 6 * p, where=p > 0, out=np.zeros(6)) ** 0.5
    np.testing.assert_allclose(got["weights"], (weights / weights.max())[got["t"]], rtol=1e-5)


def test_rllibs_connectors_keep_the_order_of_items() -> None:
    """Check that TD errors reach their own steps; connectors may group steps of equal ids."""
    buffer = PrioritizedEpisodeReplayBuffer(1_000, seed=0)
    filled(buffer)
    items = buffer.sample(500, n_step=3, gamma=GAMMA)
    assert len({item.id_ for item in items}) == 500
    batch: dict[str, Any] = {}
    pieces = [AddObservationsFromEpisodesToBatch(as_learner_connector=True), AddColumnsFromEpisodesToTrainBatch()]
    pieces += [AddNextObservationsFromEpisodesToTrainBatch(), BatchIndividualItems()]
    for piece in pieces:
        batch = piece(rl_module=None, batch=batch, episodes=items, explore=False, shared_data={}, metrics=None)
    batch = batch.get("default_policy", batch)
    want = columns(items)
    names = {"obs": "obs", "new_obs": "next_obs", "rewards": "reward", "n_step": "n_step", "weights": "weights"}
    for theirs, ours in names.items():
        np.testing.assert_array_equal(np.asarray(batch[theirs]), want[ours])
    np.testing.assert_array_equal(np.asarray(batch["terminateds"]), want["terminated"])


def test_outputs_of_the_model_that_are_asked_for() -> None:
    buffer = EpisodeReplayBuffer(1_000, extra_model_outputs=["action_logp"], seed=0)
    filled(buffer)
    for item in buffer.sample(50, n_step=3, include_extra_model_outputs=True):
        assert item.get_extra_model_outputs("action_logp", 0) == item.t_started + 1
    assert "action_logp" not in buffer.sample(1, n_step=3)[0].extra_model_outputs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drawn", [False, True])
def test_a_state_goes_on_as_the_buffer_would(kind: Any, drawn: bool) -> None:
    buffer, other = kind(500, seed=0), kind(500, seed=1 if drawn else 0)
    filled(buffer)
    for _ in range(3 if drawn else 0):
        buffer.sample(64, n_step=3, gamma=GAMMA)
        if kind is PrioritizedEpisodeReplayBuffer:
            buffer.update_priorities(np.arange(64.0))
    if drawn:
        buffer.relive.cut()
    other.set_state(buffer.get_state())
    assert len(other) == len(buffer)
    assert other.get_num_episodes() == buffer.get_num_episodes()
    one, two = (each.sample(100, n_step=3, gamma=GAMMA) for each in (buffer, other))
    for name, values in columns(one).items():
        np.testing.assert_array_equal(values, columns(two)[name])
    if drawn:
        other.add(Runner(3).sample(9))
    assert other.get_sampled_timesteps() == buffer.get_sampled_timesteps() == (100 + 192 * drawn)


U, P = EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer
REFUSED = [
    (lambda: U(0), "Expected an integer >= 1, got `0`"),
    (lambda: U(alpha=0.6), "got `alpha` - at `EpisodeReplayBuffer`: `PrioritizedEpisodeReplayBuffer` has priorities"),
    (lambda: U(batch_length_T=-1), "Expected an integer >= 0, got `-1` - at `EpisodeReplayBuffer(batch_length_T)`"),
    (lambda: P().sample(2, batch_length_T=20), "Expected items of one transition, got sequences (`20`)"),
    (
        lambda: U().sample(2, batch_length_T=20, n_step=3),
        "Expected `n_step=1` with sequences, as RLlib has it, got `3`",
    ),
    (lambda: U().sample(2, batch_length_T=20, lookback=2), "Expected a lookback of 0, or of 1 with sequences, got `2`"),
    (lambda: U().sample(2, lookback=1), "Expected a lookback of 0, or of 1 with sequences, got `1`"),
    (lambda: U().sample(2), "Expected at least 1 drawable item, got 0 - at `EpisodeReplayBuffer.sample`"),
    (lambda: U().sample(2, n_step=(3, 3)), "Expected `n_step` >= 1, or a pair `(low, high)`, low < high"),
    (lambda: U().sample(2, include_infos=True), "got `include_infos=True`"),
    (lambda: U().sample(2, sample_episodes=False), "got `sample_episodes=False`"),
    (lambda: U().add(MultiAgentEpisodeOfOne), "Expected a `SingleAgentEpisode`, got `MultiAgentEpisode`"),
    (lambda: U(extra_model_outputs=["v"]).add(one_step()), "Expected a model that gives `v`"),
    (lambda: P().update_priorities([1.0]), "Expected items to update, got none"),
    (lambda: P(alpha=-1.0), "alpha"),
]


class _OfOne(MultiAgentEpisode):
    def __len__(self) -> int:
        return 1


_OfOne.__name__ = "MultiAgentEpisode"
MultiAgentEpisodeOfOne = _OfOne.__new__(_OfOne)


def one_step() -> SingleAgentEpisode:
    rows = {"observations": [0.0, 1.0], "actions": [0.0], "rewards": [1.0]}
    return SingleAgentEpisode(**rows, len_lookback_buffer=0)


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_what_is_refused(call: Any, text: str) -> None:
    with pytest.raises(relive.errors.ReliveError) as error:
        call()
    assert text in str(error.value)


def test_the_first_windows_are_for_life() -> None:
    buffer = PrioritizedEpisodeReplayBuffer(seed=0)
    filled(buffer)
    buffer.sample(4, n_step=3)
    with pytest.raises(relive.errors.ArgumentError, match="a buffer has one item for its life"):
        buffer.sample(4, n_step=2)
    buffer.update_priorities(np.ones(4))
    with pytest.raises(relive.errors.ArgumentError, match="call `sample` before each update"):
        buffer.update_priorities(np.ones(4))


@pytest.mark.parametrize(("lookback", "shortest"), [(0, 0), (1, 2)])
def test_sequences_are_slices_of_their_episodes(lookback: int, shortest: int) -> None:
    """Compare with `SingleAgentEpisode.slice` of the original episodes: every step is the first of some."""
    buffer, runner, whole = EpisodeReplayBuffer(2_000, seed=0), Runner(2, state=True), {}
    for number in range(15):
        for chunk in runner.sample(1 + number % 7, to_numpy=False):
            if chunk.id_ in whole:
                whole[chunk.id_].concat_episode(chunk)
            else:
                whole[chunk.id_] = copy.deepcopy(chunk)
            buffer.add(chunk.to_numpy() if number % 2 else chunk)
    key = {tuple(each.get_observations(0)[:2].tolist()): each.to_numpy() for each in whole.values()}
    seen = set()
    for _ in range(8):
        items = buffer.sample(600, batch_length_T=5, lookback=lookback, min_batch_length_T=shortest)
        assert 600 <= sum(len(each) + 1 for each in items) < 600 + 6
        for item in items:
            lane, number, _ = item.get_observations(0).tolist()[:3]
            of, t = key[lane, number], item.t_started
            seen.add((lane, number, t))
            want = of.slice(slice(t, min(t + 5, len(of))), len_lookback_buffer=lookback)
            assert len(item) == len(want) > shortest
            assert item.observations.lookback == want.observations.lookback == min(lookback, t)
            for name in ("observations", "actions", "rewards"):
                np.testing.assert_array_equal(getattr(item, name).data, getattr(want, name).data)
            for name in ("state_out", "action_logp"):
                if name in item.extra_model_outputs:
                    ours, theirs = (each.extra_model_outputs[name].data for each in (item, want))
                    for a, b in zip(*map(tree.flatten, (ours, theirs)), strict=True):
                        np.testing.assert_array_equal(a, b)
            assert "state_out" in item.extra_model_outputs
            assert (item.is_terminated, item.is_truncated) == (want.is_terminated, want.is_truncated)
    firsts = {(*name, t) for name, of in key.items() if of.is_done for t in range(len(of) - shortest)}
    assert firsts <= seen
    assert buffer.get_num_timesteps() == len(buffer) == buffer.get_added_timesteps()
    buffer.relive.cut()
    again = EpisodeReplayBuffer(2_000)
    again.set_state(buffer.get_state())
    assert len(again) == len(buffer)
    one, two = (each.sample(50, batch_length_T=5, lookback=lookback) for each in (buffer, again))
    assert [each.t_started for each in one] == [each.t_started for each in two]


def test_meta_a_wrong_item_is_seen() -> None:
    buffer = EpisodeReplayBuffer(1_000, seed=0)
    filled(buffer)
    items = buffer.sample(50, n_step=2, gamma=GAMMA)
    assert faults(items, 2) == 0
    items[7].rewards.data = items[7].rewards.data + 1
    assert faults(items, 2) == 1
    assert isinstance(Counting(0), gymnasium.Env)
