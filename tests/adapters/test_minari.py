"""Minari's data sets come in whole, and go out again."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from needs import needs

import relive
from relive.minari import from_arrays, from_minari, to_minari

minari = needs("minari")
needs("h5py")
# Minari advises on what a data set should say of itself.
pytestmark = pytest.mark.filterwarnings("ignore:.* is (set to )?None:UserWarning")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


class Counting(gymnasium.Env):  # type: ignore[misc]
    """Nested observations that count; every other episode is truncated."""

    def __init__(self) -> None:
        box = gymnasium.spaces.Box(0.0, 1e6, (2,), np.float64)
        pair = gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(1000), gymnasium.spaces.MultiBinary(2)))
        self.observation_space = gymnasium.spaces.Dict({"code": box, "pair": pair})
        self.action_space = gymnasium.spaces.Discrete(5)
        self._episode, self._t = -1, 0

    def _obs(self) -> Any:
        code = np.array([self._episode, self._t], np.float64)
        return {"code": code, "pair": (self._t, np.array([self._t % 2, 1], np.int8))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._episode, self._t = self._episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._t += 1
        ended = self._t == 2 + self._episode % 3
        odd = self._episode % 2 == 1
        return self._obs(), float(10 * self._episode + self._t), ended and odd, ended and not odd, {}


def collected(env: Any, episodes: int) -> Any:
    """Make a data set of that number of whole episodes."""
    parts, space = [], env.observation_space
    for number in range(episodes):
        obs, ended, rows = [env.reset(seed=number)[0]], False, []
        while not ended:
            action = env.action_space.sample()
            after, *outcome, _ = env.step(action)
            obs.append(after)
            rows.append((action, *outcome))
            ended = outcome[1] or outcome[2]
        columns = dict(zip(("actions", "rewards", "terminations", "truncations"), zip(*rows, strict=True), strict=True))
        arrays = {name: np.array(values) for name, values in columns.items()}
        parts.append(minari.data_collector.EpisodeBuffer(id=number, observations=batched(obs, space), **arrays))
    spaces = {"observation_space": space, "action_space": env.action_space}
    return minari.create_dataset_from_buffers("tests/made-v0", parts, **spaces)


def batched(values: list[Any], space: Any) -> Any:
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: batched([value[name] for value in values], child) for name, child in space.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(batched([value[i] for value in values], child) for i, child in enumerate(space))
    return np.array(values, space.dtype)


def everything(buffer: relive.ReplayBuffer) -> relive.Batch:
    ids = np.sort(buffer.column("ids")[buffer.column("ids") >= 0])
    return buffer.read(ids)


def compare(buffer: relive.ReplayBuffer, dataset: Any) -> None:
    """Check that every step of the data set is in the buffer, unchanged."""
    batch, at = everything(buffer), 0
    assert len(buffer) == len(batch.reward) == dataset.total_steps
    for episode in dataset.iterate_episodes():
        length = len(episode.rewards)
        rows = slice(at, at + length)
        flat = isinstance(episode.observations, np.ndarray)
        code = episode.observations if flat else episode.observations["code"]
        obs, following = (batch.obs, batch.next_obs) if flat else (batch.obs.code, batch.next_obs.code)
        np.testing.assert_array_equal(obs[rows], code[:-1].astype(np.float32))
        np.testing.assert_array_equal(following[rows], code[1:].astype(np.float32))
        if not flat:
            np.testing.assert_array_equal(batch.obs.pair["0"][rows], episode.observations["pair"][0][:-1])
        np.testing.assert_array_equal(batch.action[rows], episode.actions)
        np.testing.assert_array_equal(batch.reward[rows], episode.rewards.astype(np.float32))
        np.testing.assert_array_equal(batch.terminated[rows], episode.terminations)
        np.testing.assert_array_equal(batch.truncated[rows], episode.truncations)
        at += length


@pytest.mark.parametrize("kind", ["flat", "nested"])
def test_a_data_set_comes_in_whole_and_goes_out_again(kind: str) -> None:
    env = gymnasium.make("CartPole-v1", max_episode_steps=20) if kind == "flat" else Counting()
    dataset = collected(env, 12)
    buffer = from_minari(dataset, seed=0)
    compare(buffer, dataset)
    ended = sum(bool(e.terminations[-1]) for e in dataset.iterate_episodes())
    assert (everything(buffer).discount == 0).sum() == ended
    assert buffer.stats().cuts == 0
    assert buffer.capacity == dataset.total_steps + dataset.total_episodes
    float_field = buffer.schema.columns[0].field
    assert float_field.dtype == np.float32

    written = to_minari(
        buffer, "tests/again-v0", observation_space=env.observation_space, action_space=env.action_space
    )
    assert (written.total_steps, written.total_episodes) == (dataset.total_steps, dataset.total_episodes)
    compare(from_minari("tests/again-v0"), dataset)


def test_items_samplers_and_dtypes_are_chosen() -> None:
    dataset = collected(Counting(), 6)
    buffer = from_minari(
        dataset, item=relive.Transitions(n_step=3, gamma=0.5), sampler=relive.Prioritized(), float_dtype=None, seed=1
    )
    assert buffer.schema.columns[0].field.dtype == np.float64
    batch = buffer.sample(32)
    code = batch.obs.code
    length = 2 + code[:, 0] % 3
    steps = np.minimum(3, length - code[:, 1])
    np.testing.assert_array_equal(batch.steps, steps)
    np.testing.assert_array_equal(batch.next_obs.code[:, 1], code[:, 1] + steps)


def test_spaces_follow_the_schema_where_none_are_given() -> None:
    rng = np.random.default_rng(0)
    schema = relive.Schema(
        obs={"image": relive.Field((8, 8, 3), "uint8"), "flag": relive.Field((), "bool"), "x": relive.Field((3,))},
        action=relive.Field((2,), "float64"),
    )
    buffer = relive.ReplayBuffer(schema, 100, num_envs=2, item=relive.Transitions(n_step=3), seed=0)
    obs = {
        "image": rng.integers(0, 255, (2, 21, 8, 8, 3)),
        "flag": rng.random((2, 21)) < 0.5,
        "x": rng.random((2, 21, 3)),
    }
    before, after = ({name: value[:, part] for name, value in obs.items()} for part in (slice(-1), slice(1, None)))
    ends = np.zeros((2, 20), bool)
    ends[:, 6], ends[0, 13] = True, True
    steps = {"obs": before, "next_obs": after, "action": rng.random((2, 20, 2)), "reward": rng.random((2, 20))}
    buffer.extend(**steps, terminated=ends, truncated=np.zeros((2, 20), bool))
    written = to_minari(buffer, "tests/schema-v0", description="by hand")
    assert written.total_steps == 40
    assert [len(e) for e in written.iterate_episodes()] == [7, 7, 6, 7, 13]
    again = from_minari(written)
    found = everything(again)
    # Lane by lane, with the rewards of single steps, and the newest step's next observation.
    np.testing.assert_array_equal(found.reward, steps["reward"].astype(np.float32).reshape(-1))
    np.testing.assert_array_equal(found.obs.image, before["image"].reshape(-1, 8, 8, 3))
    np.testing.assert_array_equal(found.next_obs.x, after["x"].astype(np.float32).reshape(-1, 3))
    np.testing.assert_array_equal(found.obs.flag, before["flag"].reshape(-1))
    assert found.terminated.sum() == 3


def test_an_environment_gives_the_spaces() -> None:
    dataset = collected(gymnasium.make("CartPole-v1"), 2)
    written = to_minari(from_minari(dataset), "tests/env-v0", env="CartPole-v1")
    assert written.spec.env_spec.id == "CartPole-v1"
    assert written.observation_space == dataset.observation_space
    compare(from_minari(written), dataset)


def test_the_page_about_offline_data_is_right(capsys: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "trajectories.md").read_text(encoding="utf-8")
    block = page.split("<!-- no-run -->\n```python\n")[1].split("```")[0]
    exec(compile(block, "trajectories.md", "exec"), {})


def test_an_unknown_last_observation_is_told() -> None:
    data = {"observations": np.arange(6.0)[:, None], "actions": np.zeros(6, int), "rewards": np.arange(6.0)}
    ends = np.arange(6)
    buffer = from_arrays(data | {"terminals": ends == 1, "timeouts": ends == 3})
    with pytest.warns(relive.ReliveWarning, match="3 of 3 episodes have no last observation"):
        written = to_minari(buffer, "tests/unknown-v0")
    assert [e.observations[:, 0].tolist() for e in written.iterate_episodes()] == [[0, 1, 1], [2, 3, 3], [4, 5, 5]]


def test_what_is_no_data_set_or_buffer_is_refused() -> None:
    with pytest.raises(relive.ArgumentError, match="Expected a data set on this machine, got `no/such-v0`"):
        from_minari("no/such-v0")
    with pytest.raises(relive.ArgumentError, match="or the id of one, got `list`"):
        from_minari([])
    empty = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 10)
    with pytest.raises(relive.ArgumentError, match="with at least one step, got an empty one"):
        to_minari(empty, "tests/none-v0")


def with_infos(*lengths: int, name: str = "success") -> Any:
    """Make a data set with one info more than steps, the reset's, as Minari's collector records them."""
    parts = []
    for number, length in enumerate(lengths):
        obs = np.arange(length + 1, dtype=np.float32)[:, None]
        infos = {name: np.arange(length + 1) / 2.0, "deep": {"qpos": obs + number}}
        flags = {"terminations": np.arange(length) == length - 1, "truncations": np.zeros(length, bool)}
        columns = {"observations": obs, "actions": np.zeros(length, np.int64), "rewards": np.full(length, 1e-300)}
        parts.append(minari.data_collector.EpisodeBuffer(id=number, **columns, **flags, infos=infos))
    spaces = {"observation_space": gymnasium.spaces.Box(-9, 99, (1,)), "action_space": gymnasium.spaces.Discrete(2)}
    return minari.create_dataset_from_buffers("tests/infos-v0", parts, **spaces)


def test_infos_are_named_and_can_be_kept() -> None:
    dataset = with_infos(3, 1)
    with pytest.warns(relive.ReliveWarning, match=r"Left out `deep/qpos`, `success` - .*`extras=\(\)` says"):
        assert len(from_minari(dataset)) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_minari(dataset, extras=())
        buffer = from_minari(dataset, extras=["success", "deep/qpos"])
    batch = everything(buffer)
    assert batch.success.tolist() == [0.5, 1.0, 1.5, 0.5]  # what `step` returned, not `reset`
    assert batch.deep.qpos[:, 0].tolist() == [1, 2, 3, 2]
    with pytest.raises(relive.SchemaError, match="an array `deep/qvel`, got `deep`, `success` - at"):
        from_minari(dataset, extras=["deep/qvel"])


def test_rewards_have_the_dtype_that_was_asked_for() -> None:
    dataset = with_infos(3)
    assert from_minari(dataset, extras=(), float_dtype=None).column("reward").max() == 1e-300
    assert from_minari(dataset, extras=()).schema.reward == relive.Field()


def test_the_extra_brings_what_minari_imports_and_does_not_require() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["optional-dependencies"]["minari"]
    assert any(name.startswith("pillow") for name in wanted)  # both of its storages import PIL
