"""Arrays that adapters hand out as copies are read-only and say what writes; buffers that do not fit are refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

needs("stable_baselines3")

import torch
from gymnasium import spaces
from sb3_loops import built, envs_of, small
from stable_baselines3 import DQN

import relive
from relive._adapters.copies import ReadOnly
from relive.errors import ArgumentError, SchemaError
from relive.sb3 import HerReplayBuffer, PrioritizedDQN, ReplayBuffer

pytestmark = [
    pytest.mark.filterwarnings("ignore:The last trajectory in the replay buffer:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*steps do not continue their stream:relive.errors.ReliveWarning"),
]
WAYS: dict[str, Callable[[Any], Any]] = {
    "an item": lambda array: array.__setitem__(0, 1),
    "a slice": lambda array: array.__setitem__(slice(2), 1),
    "a mask": lambda array: array.__setitem__(np.ones(array.shape, bool), 1),
    "of a slice": lambda array: array[:2].__setitem__(0, 1),
    "of a row": lambda array: array[1].__setitem__(..., 1),
    "of another shape": lambda array: array.reshape(-1).__setitem__(0, 1),
    "in place": lambda array: array.__iadd__(1),
    "in place, of a slice": lambda array: array[:2].__imul__(2),
    "out": lambda array: np.add(np.ones_like(array), 1, out=array),
    "at": lambda array: np.add.at(array, 0, 1),
    "fill": lambda array: array.fill(1),
    "put": lambda array: array.put([0], [1]),
    "sort": lambda array: array.sort(axis=0),
    "partition": lambda array: array.partition(0, axis=0),
}


def sb3_buffer(kind: str = "box", **choices: Any) -> ReplayBuffer:
    box = spaces.Box(-9, 9, (2,), np.float32)
    space = box if kind == "box" else spaces.Dict({"a": box, "b": box})
    buffer = ReplayBuffer(10, space, spaces.Box(-1, 1, (1,), np.float32), device="cpu", seed=0, n_envs=2, **choices)
    for t in range(4):
        obs: Any = np.full((2, 2), t, np.float32)
        after: Any = obs + 1
        if kind != "box":
            obs, after = ({"a": each, "b": each} for each in (obs, after))
        buffer.add(obs, after, np.zeros((2, 1)), np.full(2, t), np.zeros(2), [{}] * 2)
    return buffer


def tianshou_buffer(nested: bool = False) -> Any:
    needs("tianshou")
    from tianshou.data import Batch

    from relive.tianshou import VectorReplayBuffer

    buffer = VectorReplayBuffer(20, 1)
    for t in range(9):
        obs: Any = np.full((1, 2), t, np.float32)
        after = obs + 1
        if nested:
            obs, after = Batch(a=obs), Batch(a=after)
        step = Batch(obs=obs, act=np.ones((1, 1)), rew=np.zeros(1), obs_next=after, info=Batch())
        buffer.add(Batch(step, terminated=np.array([False]), truncated=np.array([False])), buffer_ids=[0])
    return buffer


ARRAYS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    name: (sb3_buffer, lambda buffer, name=name: getattr(buffer, name))
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
}
ARRAYS["a dict's observations"] = lambda: sb3_buffer("dict"), lambda buffer: buffer.observations["b"]
for shown in ("obs", "act", "obs_next"):
    ARRAYS[f"tianshou {shown}"] = tianshou_buffer, lambda buffer, shown=shown: getattr(buffer, shown)
ARRAYS["tianshou nested"] = lambda: tianshou_buffer(nested=True), lambda buffer: buffer.obs.a


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ARRAYS)
def test_writing_into_a_copy_is_refused(name: str, way: str) -> None:
    make, look = ARRAYS[name]
    buffer = make()
    before = np.array(look(buffer))
    with pytest.raises(ArgumentError, match="no assignment to a copy of what is stored") as caught:
        WAYS[way](look(buffer))
    said = "`add`" if "tianshou" in name else "`buffer.relive.write(ids, reward=...)`"
    assert said in str(caught.value)
    np.testing.assert_array_equal(look(buffer), before)


@pytest.mark.parametrize("name", ARRAYS)
def test_what_is_computed_from_a_copy_is_a_plain_array(name: str) -> None:
    make, look = ARRAYS[name]
    array = look(make())
    assert isinstance(array, ReadOnly)
    for plain in (array + 1, np.maximum(array, 2), np.array(array), np.concatenate([array, array]), -array):
        plain[0] = 3
        assert type(plain) is np.ndarray
    for mine in (array.copy(), array.astype(np.float64), copy.deepcopy(array), pickle.loads(pickle.dumps(array))):
        mine[0] = 3
    assert not np.asarray(array).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        np.copyto(array, 0)
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    assert array.sum() == np.asarray(array).sum()
    assert torch.tensor(array).shape == array.shape


@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "dones", "timeouts", "pos", "full"])
def test_what_is_for_looking_at_cannot_be_assigned(name: str) -> None:
    buffer = sb3_buffer()
    before = np.array(getattr(buffer, name))
    with pytest.raises(ArgumentError, match=f"at `ReplayBuffer.{name}`"):
        setattr(buffer, name, 3)
    assert (getattr(buffer, name) == before).all()
    buffer.device = torch.device("cpu")
    buffer.note = 3  # attributes of one's own stay possible
    for other in (pickle.loads(pickle.dumps(buffer)), copy.deepcopy(buffer)):
        assert (other.pos, other.full, other.size()) == (4, False, 4)
    buffer.reset()
    assert (buffer.pos, buffer.full) == (0, False)


def test_the_call_that_the_error_names_writes_rewards() -> None:
    buffer = sb3_buffer(writable=True)
    ids = buffer.sample(50).ids
    assert buffer.relive.write(np.unique(ids), reward=np.full(len(np.unique(ids)), 7.0)) == len(np.unique(ids))
    assert set(buffer.sample(50).rewards[:, 0].tolist()) == {7.0}
    with pytest.raises(ArgumentError, match="a writable field"):
        sb3_buffer().relive.write(ids, reward=ids)


def test_sb3_marks_the_newest_step_as_an_end_itself() -> None:
    """`learn` writes into `dones` before a reset, where the model has `optimize_memory_usage`."""
    kwargs = {"buffer_size": 100, "learning_starts": 10**6, "optimize_memory_usage": True, "seed": 1, **small()}
    model = DQN("MlpPolicy", envs_of(), replay_buffer_class=ReplayBuffer, **kwargs)
    model.learn(21)
    with pytest.warns(UserWarning, match="The last trajectory in the replay buffer will be truncated"):
        model.learn(21)
    buffer = sb3_buffer()
    buffer.dones[buffer.pos - 1] = True
    obs = np.full((2, 2), 4, np.float32)  # continues the stream, byte for byte
    buffer.add(obs, obs + 1, np.zeros((2, 1)), np.zeros(2), np.zeros(2), [{}] * 2)
    newest = buffer.relive.read(buffer.relive.column("ids")[:, 3])
    assert newest.obs[:, 0].tolist() == [3, 3]
    assert buffer.relive.follow(newest.ids, 1).steps.tolist() == [0, 0]
    for place in (0, slice(None), np.array([buffer.pos - 1])):
        with pytest.raises(ArgumentError, match=r"ReplayBuffer\.dones"):
            buffer.dones[place] = True


def other(**changed: Any) -> relive.ReplayBuffer:
    fields = {"obs": relive.Field((2,)), "action": relive.Field((1,))} | changed.pop("fields", {})
    return relive.ReplayBuffer(relive.Schema(**fields), 20, **{"num_envs": 2, **changed})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda: other(num_envs=1), r"Expected 2 environments, got 1 environment - .*relive.load\(\[path, empty\]\)"),
        (lambda: other(num_envs=4), "Expected 2 environments, got 4 environments"),
        (
            lambda: other(fields={"obs": relive.Field((3,))}),
            r"of shape `\(2,\)`, got `float32` of shape `\(3,\)`",
        ),
        (lambda: other(fields={"obs": relive.Field((2,), "float64")}), "got `float64` of shape"),
        (lambda: other(fields={"more": relive.Field()}), "Expected no such field, got `float32`"),
        (
            lambda: other(fields={"obs": {"a": relive.Field((2,))}}),
            r"got no such field - at `ReplayBuffer.relive: \$",
        ),
        (lambda: other(item=relive.Transitions(n_step=3)), "`relive.load.path, item=model.replay_buffer.relive.item.`"),
        (lambda: None, "a `relive.ReplayBuffer`, got `NoneType`"),
    ],
)
def test_a_buffer_that_does_not_fit_is_refused_at_the_assignment(given: Any, text: str) -> None:
    buffer = sb3_buffer()
    mine = buffer.relive
    with pytest.raises(ArgumentError, match=text):
        buffer.relive = given()
    assert buffer.relive is mine
    buffer.relive = other()
    assert buffer.relive is not mine


def test_a_pickled_buffer_of_other_environments_is_refused(tmp_path: Path) -> None:
    one = PrioritizedDQN("MlpPolicy", envs_of(1), buffer_size=400, **small())
    one.learn(20)
    one.save_replay_buffer(tmp_path / "one.pkl")
    many = built(PrioritizedDQN)
    mine = many.replay_buffer
    with pytest.raises(ArgumentError, match=r"2 environments, got 1 environment - at `PrioritizedDQN\.load_re"):
        many.load_replay_buffer(tmp_path / "one.pkl")
    assert many.replay_buffer is mine
    plain = DQN("MlpPolicy", envs_of(), replay_buffer_class=ReplayBuffer, buffer_size=100, **small())
    plain.load_replay_buffer(tmp_path / "one.pkl")  # SB3's own code, which calls nothing of relive's
    with pytest.raises(ArgumentError, match=r"Expected 1 environment, got 2 environments - at `ReplayBuffer\.add`"):
        plain.learn(20)
    again = PrioritizedDQN("MlpPolicy", envs_of(1), buffer_size=400, **small())
    again.load_replay_buffer(tmp_path / "one.pkl")
    assert again.replay_buffer.size() == 20


def test_a_hindsight_buffer_of_other_environments_is_refused() -> None:
    envs = envs_of(kind="dict")
    buffer = HerReplayBuffer(20, envs.observation_space, envs.action_space, env=envs, device="cpu", n_envs=1)
    loaded = pickle.loads(pickle.dumps(buffer))
    with pytest.raises(ArgumentError, match=r"1 environment, got 2 environments - at `HerReplayBuffer\.set_env"):
        loaded.set_env(envs)


def test_a_step_of_another_shape_is_refused_by_name() -> None:
    buffer = sb3_buffer()
    with pytest.raises(SchemaError, match=r"Expected shape `\(2, 2\)`, got `\(2, 3\)` - at `ReplayBuffer.add`"):
        buffer.add(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 1)), np.zeros(2), np.zeros(2), [{}] * 2)
    assert buffer.size() == 4


def test_columns_of_lerobot_cannot_be_assigned() -> None:
    from relive.lerobot import ReplayBuffer as LeRobots

    buffer, state = LeRobots(10, "cpu", use_drq=False), {"observation.state": torch.zeros(1, 2)}
    buffer.add(state, torch.zeros(1, 1), 0.0, state, False, False)
    for assign in (
        lambda: buffer.rewards.__setitem__(0, 1.0),
        lambda: buffer.states["observation.state"].__setitem__(0, torch.zeros(2)),
        lambda: buffer.states.__setitem__("observation.state", torch.zeros(1, 2)),
    ):
        with pytest.raises(ArgumentError, match="no assignment to a copy of what is stored"):
            assign()
