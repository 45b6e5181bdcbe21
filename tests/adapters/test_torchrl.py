"""relive.torchrl through TorchRL's own collector and losses."""

from __future__ import annotations

import copy
import inspect
import io
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

torchrl = needs("torchrl")
torch = pytest.importorskip("torch")
from counter import GAMMA, Counting, wrong
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, ListStorage, TensorDictMaxValueWriter
from torchrl.data.replay_buffers import (
    CompressedListStorage,
    RandomSampler,
    SamplerWithoutReplacement,
    StorageEnsemble,
    TensorDictRoundRobinWriter,
)
from torchrl.envs import GymWrapper, SerialEnv

import relive
from relive.torchrl import TensorDictReplayBuffer

SAMPLERS = [None, relive.Prioritized(alpha=0.6, beta=0.4)]


def collector_of(lanes: int, **choices: Any) -> Collector:
    make = [lambda i=i: GymWrapper(Counting(i)) for i in range(lanes)]
    return Collector(SerialEnv(lanes, make) if lanes > 1 else make[0](), None, frames_per_batch=12, **choices)


@cache
def experience(lanes: int, resets: bool) -> tuple[list[Any], dict[tuple[int, int], int]]:
    """Return 252 steps as a collector gives them, and the steps of the episodes that its resets ended."""
    collector, parts, cuts = collector_of(lanes, total_frames=252, reset_at_each_iter=resets), [], {}
    for data in collector:
        parts.append(data.clone())
        for after in data["next"].reshape(lanes, -1)[:, -1]:
            if resets and not after["done"].item():
                lane, episode, t = after["observation"].int().tolist()
                cuts[lane, episode] = t
    collector.shutdown()
    return parts, cuts


def collected(buffer: Any, steps: int = 252, lanes: int = 2, resets: bool = False) -> dict[tuple[int, int], int]:
    """Fill a buffer as in a loop over a collector."""
    parts, cuts = experience(lanes, resets)
    for data in parts[: steps // 12]:
        buffer.extend(data)
    return cuts


def faults(buffer: Any, n: int, cuts: Any = None) -> int:
    items = buffer[:]
    m = items["steps_to_next_obs"]
    discount = torch.where(items["next", "terminated"], 0.0, GAMMA**m)
    return wrong(items["observation"], items["next", "reward"], discount, items["next", "observation"], n, cuts)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(("size", "resets"), [(1000, False), (1000, True), (26, False), (26, True)])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=["uniform", "prioritized"])
def test_every_item_is_what_happened(sampler: Any, size: int, resets: bool, lanes: int, n: int) -> None:
    buffer = TensorDictReplayBuffer(size, n_step=n, gamma=GAMMA, sampler=sampler, seed=0)
    cuts = collected(buffer, lanes=lanes, resets=resets)
    assert len(buffer) == min(252, size)
    assert len(buffer[:]) > len(buffer) - n * lanes
    assert faults(buffer, n, cuts) == 0
    stored = {tuple(row) for row in buffer[:]["observation"].tolist()}
    assert {tuple(row) for row in buffer.sample(64)["observation"].tolist()} <= stored


def test_meta_the_judge_finds_another_gamma() -> None:
    buffer = TensorDictReplayBuffer(1000, n_step=3, gamma=0.25)
    collected(buffer)
    assert faults(buffer, 3) > 100


def test_a_collector_fills_it_by_itself() -> None:
    buffer = TensorDictReplayBuffer(1000, n_step=3, gamma=GAMMA, batch_size=8)
    for _ in collector_of(2, total_frames=240, replay_buffer=buffer):
        pass
    assert (len(buffer), buffer.write_count, faults(buffer, 3)) == (240, 240, 0)
    assert next(iter(buffer)).shape == (8,)


def test_samples_have_the_keys_that_came() -> None:
    buffer = TensorDictReplayBuffer(100, gamma=GAMMA)
    data = TensorDict({"observation": torch.zeros(3, 2), "action": torch.ones(3, 1), "_reset": torch.ones(3)}, [3])
    data["agents"] = TensorDict({"state": torch.zeros(3, 4, dtype=torch.int32)}, [3])
    for name in ("done", "terminated"):
        data[name] = data["next", name] = torch.zeros(3, 1, dtype=torch.bool)
    data["next", "observation"] = torch.zeros(3, 2)
    data["next", "agents", "state"] = torch.zeros(3, 4, dtype=torch.int32)
    data["next", "reward"], data["next", "info"] = torch.ones(3, 2), torch.arange(3.0)
    assert buffer.extend(data).tolist() == [0, 1, 2]
    assert buffer.add(data[0]) == 3
    sample = buffer.sample(5)
    made = {"index", "_weight", "steps_to_next_obs", ("next", "truncated")}
    assert set(sample.keys(True, True)) == {*data.exclude("_reset").keys(True, True), *made}
    for key in data.exclude("_reset").keys(True, True):
        assert (sample[key].shape[1:], sample[key].dtype) == (data[key].shape[1:], data[key].dtype), key
    buffer.empty(empty_write_count=False)
    assert (len(buffer), buffer.write_count) == (0, 4)
    buffer.empty()
    assert buffer.write_count == 0


def test_priorities_weights_and_late_updates() -> None:
    buffer = TensorDictReplayBuffer(20, sampler=relive.Prioritized(alpha=1.0, beta=1.0, eps=0.5), seed=0)
    collected(buffer, 24, lanes=1)
    sample = buffer.sample(64)
    late = sample["index"]
    sample["td_error"] = torch.full((64, 1), -0.5, requires_grad=True)
    buffer.update_tensordict_priority(sample)
    with pytest.raises(relive.PriorityError, match=r"Expected a finite TD error, got `nan` \(1 of 64\)"):
        buffer.update_priority(late, torch.where(torch.arange(64) == 3, torch.nan, 1.0))
    buffer.update_priority(buffer[:]["index"], 0.5)
    index = buffer[:]["index"][3]
    assert buffer.update_priority(index, torch.tensor(3.5)) == 1
    sample = buffer.sample(2300)
    assert abs((sample["index"] == index).float().mean() - 4 / 23) < 0.01
    assert torch.allclose(sample["priority_weight"], torch.where(sample["index"] == index, 0.25, 1.0))
    assert (sample["_weight"] == sample["priority_weight"]).all()
    collected(buffer, 24, lanes=1)
    assert buffer.update_priority(late, 100.0) == 0
    assert buffer.relive.stats().stale_updates == 64
    assert (buffer.relive.priorities(buffer[:]["index"].numpy()) < 10).all()


def test_priorities_come_with_new_steps() -> None:
    buffer = TensorDictReplayBuffer(100, sampler=relive.Prioritized(alpha=1.0, eps=0.0), seed=0)
    shape = {"observation": torch.arange(4.0)[:, None], "next": {"observation": torch.arange(1.0, 5)[:, None]}}
    data = TensorDict(shape, [4])
    data["next", "reward"], data["next", "done"] = torch.ones(4, 1), torch.zeros(4, 1, dtype=torch.bool)
    data["td_error"] = torch.tensor([0.0, 0.0, -2.0, 0.0])[:, None]
    ids = buffer.extend(data)
    assert set(buffer.sample(64)["index"].tolist()) == {2}
    assert buffer.relive.priorities(ids.numpy()).tolist() == [0.0, 0.0, 2.0, 0.0]


@pytest.mark.filterwarnings("ignore:The env passed to Collector:FutureWarning")
def test_a_loss_learns_with_priorities_and_several_steps() -> None:
    from torchrl.modules import MLP, QValueActor
    from torchrl.objectives import DQNLoss, SoftUpdate

    buffer = TensorDictReplayBuffer(200, n_step=3, gamma=0.9, sampler=SAMPLERS[1], batch_size=16)
    env = GymWrapper(__import__("gymnasium").make("CartPole-v1"))
    actor = QValueActor(MLP(in_features=4, out_features=2, num_cells=[8]), spec=env.action_spec)
    loss = DQNLoss(actor, action_space=env.action_spec)
    loss.make_value_estimator(gamma=0.9)
    SoftUpdate(loss, eps=0.99)
    for data in Collector(env, actor, frames_per_batch=50, total_frames=100):
        buffer.extend(data)
        before = buffer.relive.priorities(buffer[:]["index"].numpy())
        sample = buffer.sample()
        loss(sample)["loss"].backward()
        buffer.update_tensordict_priority(sample)
        assert (buffer.relive.priorities(buffer[:]["index"].numpy()) != before).any()


@pytest.mark.parametrize("way", ["state", "directory", "copy"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=["uniform", "prioritized"])
def test_a_saved_buffer_goes_on(sampler: Any, way: str, tmp_path: Path) -> None:
    buffer = TensorDictReplayBuffer(26, n_step=3, gamma=GAMMA, sampler=sampler, seed=0)
    collected(buffer, 60)
    other = TensorDictReplayBuffer(26, n_step=3, gamma=GAMMA, sampler=sampler)
    if way == "state":
        file = io.BytesIO()
        torch.save(buffer.state_dict(), file)
        other.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    elif way == "directory":
        buffer.dumps(tmp_path / "saved")
        other.loads(tmp_path / "saved")
    else:
        other = copy.deepcopy(buffer)
    for one in (buffer, other):
        collected(one, 24)
    assert not other.relive._core.notices.due  # no advice about rows, which are not the user's to count
    one, two = buffer.sample(64), other.sample(64)
    for key in ("index", "observation", ("next", "observation"), ("next", "reward"), "_weight"):
        assert (one[key] == two[key]).all()
    assert (len(other), other.write_count) == (26, 84)


def test_a_smaller_buffer_takes_the_newest() -> None:
    buffer = TensorDictReplayBuffer(60, sampler=SAMPLERS[1], seed=0)
    collected(buffer, 60)
    small = TensorDictReplayBuffer(20, sampler=SAMPLERS[1], seed=0)
    small.load_state_dict(buffer.state_dict())
    newest = torch.cat([buffer[:]["observation"][20:30], buffer[:]["observation"][50:]])
    assert (small[:]["observation"] == newest).all()
    stored = {tuple(row) for row in newest.tolist()}
    assert {tuple(row) for row in small.sample(200)["observation"].tolist()} <= stored


def steps(**more: Any) -> TensorDict:
    next_ = {"observation": torch.zeros(2, 1), "reward": torch.ones(2, 1), "done": torch.zeros(2, 1, dtype=torch.bool)}
    next_ |= more.pop("next", {})
    return TensorDict({"observation": torch.zeros(2, 1), **more, "next": next_}, [2])


def with_steps() -> LazyTensorStorage:
    storage = LazyTensorStorage(10)
    storage.set(range(2), steps())
    return storage


def on_gpu(storage: Any) -> Any:
    storage.device = torch.device("cuda", 1)  # as its constructor does where there are GPUs
    return storage


# Storages elsewhere than in RAM, of a directory.
ELSEWHERE = {
    "memmap": (lambda d: LazyMemmapStorage(10, scratch_dir=d), r"got `LazyMemmapStorage`.*`storage=relive.Mapped"),
    "temporary memmap": (lambda d: LazyMemmapStorage(10), "got `LazyMemmapStorage`.*`LazyTensorStorage[(]10[)]` keeps"),
    "a function": (lambda d: partial(LazyMemmapStorage, 10, scratch_dir=d), "got `LazyMemmapStorage`"),
    "a GPU": (lambda d: on_gpu(LazyTensorStorage(10)), 'got one on `cuda:1`.*`device="cuda:1"` for'),
    "no device": (lambda d: LazyTensorStorage(10, device="meta"), "got one on `meta`"),
    "shared": (lambda d: LazyTensorStorage(10, shared_init=True), "Expected `shared_init=False`, got `True`"),
    "compressed": (lambda d: CompressedListStorage(10), "got `CompressedListStorage`"),
    "ensemble": (lambda d: StorageEnsemble(LazyTensorStorage(10), LazyTensorStorage(10)), "a storage"),
    "boundless": (lambda d: ListStorage(), r"a `max_size`, got one without.*`ListStorage\(max_size\)`"),
}
REFUSED = {
    "writer": (lambda: TensorDictReplayBuffer(10, writer=1), r"got `writer` .*: steps are overwritten lane by lane"),
    "storage": (lambda: TensorDictReplayBuffer(storage=1), "a storage of TorchRL with a `max_size`.* got `int`"),
    "both sizes": (
        lambda: TensorDictReplayBuffer(10, storage=LazyTensorStorage(10)),
        "`capacity` or `storage`, got both",
    ),
    "neither": (lambda: TensorDictReplayBuffer(), "TensorDictReplayBuffer"),
    "steps in it": (lambda: TensorDictReplayBuffer(storage=with_steps()), "an empty storage, got one of 2 steps"),
    "no path": (lambda: TensorDictReplayBuffer(10).dumps(""), "Expected a path, got `''`"),
    "nothing to load": (lambda: TensorDictReplayBuffer(10).loads(""), "Expected a path, got `''`"),
    "no reward": (lambda: TensorDictReplayBuffer(10).extend(steps().exclude(("next", "reward"))), r"\"reward\"\)` and"),
    "next alone": (
        lambda: TensorDictReplayBuffer(10, n_step=2).extend(steps(next={"a": torch.ones(2)})),
        "leave it out",
    ),
    "no size": (lambda: TensorDictReplayBuffer(10).sample(), "Expected a `batch_size`"),
    "empty": (lambda: TensorDictReplayBuffer(10).sample(2), "Expected at least 1 drawable item, got 0"),
    "float8": (
        lambda: TensorDictReplayBuffer(10).extend(steps(a=torch.ones(2).to(torch.float8_e5m2))),
        "a boolean, integer",
    ),
    "no priorities": (lambda: TensorDictReplayBuffer(10).update_priority(0, 1.0), r"relive.Prioritized\(...\)"),
    "no state": (lambda: TensorDictReplayBuffer(10).load_state_dict({"a": torch.ones(1)}), "Expected the state of a"),
}


REFUSED |= {
    name: (lambda make=make: TensorDictReplayBuffer(storage=make("storage")), text)
    for name, (make, text) in ELSEWHERE.items()
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused_with_a_remedy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, text = REFUSED[name]
    with pytest.raises(relive.ReliveError, match=text):
        call()
    assert not list(tmp_path.rglob("*.memmap"))


def test_other_keys_and_lanes_than_the_first_are_refused() -> None:
    buffer = TensorDictReplayBuffer(10)
    buffer.extend(steps(a=torch.ones(2)))
    for other, text in [
        (steps(), r"no `\('a',\)`"),
        (steps(a=torch.ones(2))[:, None].reshape(2, 1), "of 1 environments"),
    ]:
        with pytest.raises(relive.SchemaError, match=text):
            buffer.extend(other)
    assert len(buffer) == 2


@pytest.mark.parametrize("storage", [LazyTensorStorage(7), partial(LazyTensorStorage, 7), ListStorage(7)])
def test_a_storage_says_the_capacity(storage: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    for _ in range(6):
        buffer.extend(steps())
    assert len(buffer) == 7
    assert buffer.sample()["observation"].shape == (4, 1)


BUFFERS = [
    torchrl.data.ReplayBuffer,
    torchrl.data.TensorDictReplayBuffer,
    torchrl.data.PrioritizedReplayBuffer,
    torchrl.data.TensorDictPrioritizedReplayBuffer,
]
OWN = {"storage", "sampler", "batch_size", "priority_key"}
DEFAULTS = {
    (name, repr(parameter.default)): parameter.default
    for kind in BUFFERS
    for name, parameter in inspect.signature(kind.__init__).parameters.items()
    if parameter.default is not inspect.Parameter.empty and name not in OWN
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for (name, _), value in DEFAULTS.items()])
def test_every_argument_of_torchrl_is_taken_at_its_default(name: str, value: Any) -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10), **{name: value})
    buffer.extend(steps(), update_priority=None)
    assert buffer.sample(2, return_info=False, include_info=None).shape == (2,)


@pytest.mark.parametrize("name", sorted({name for name, _ in DEFAULTS}))
def test_every_argument_of_torchrl_is_refused_by_name_at_another_value(name: str) -> None:
    with pytest.raises(relive.ArgumentError, match=f"Expected `{name}=.*as by default, got `{name}`"):
        TensorDictReplayBuffer(10, **{name: object()})


def test_what_torchrl_makes_by_itself_may_be_given() -> None:
    given = {"pin_memory": False, "prefetch": 0, "writer": TensorDictRoundRobinWriter(), "sampler": RandomSampler()}
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10, ndim=2), **given)
    buffer.extend(steps())
    assert buffer.sample(2).shape == (2,)
    assert buffer.relive.sampler == relive.Uniform()
    TensorDictReplayBuffer(10, sampler=RandomSampler)
    with pytest.raises(relive.ArgumentError, match="a sampler of relive's, got TorchRL's `SamplerWithoutReplacement`"):
        TensorDictReplayBuffer(10, sampler=SamplerWithoutReplacement())
    with pytest.raises(relive.ArgumentError, match="as by default, got `writer`"):
        TensorDictReplayBuffer(10, writer=TensorDictMaxValueWriter())


@pytest.mark.parametrize(
    "assign",
    [
        lambda buffer: buffer.__setitem__(0, steps()[0]),
        lambda buffer: buffer.update_(steps()),
        lambda buffer: buffer.set_("reward", torch.zeros(2)),
    ],
)
def test_assignments_name_the_call_that_writes(assign: Any) -> None:
    buffer, plain = TensorDictReplayBuffer(10, writable=True, seed=0), TensorDictReplayBuffer(10)
    for each in (buffer, plain):
        each.extend(steps())
    with pytest.raises(relive.ArgumentError, match=r"`buffer.relive.write\(ids, reward=...\)` changes stored"):
        assign(buffer)
    assert buffer.relive.write(buffer[:]["index"].numpy(), reward=np.array([5.0, 6.0])) == 2
    assert buffer[:]["next", "reward"][:, 0].tolist() == [5, 6]
    with pytest.raises(relive.ArgumentError, match="a writable field"):
        plain.relive.write(np.zeros(1, int), reward=np.ones(1))


def test_bfloat16_goes_in_and_out(tmp_path: Path) -> None:
    numbers = torch.tensor([[0.1], [0.7]], dtype=torch.bfloat16)
    buffer = TensorDictReplayBuffer(10, seed=0)
    buffer.extend(steps(a=numbers, observation=numbers, next={"observation": numbers + 1, "reward": numbers}))
    buffer.dumps(tmp_path)
    loaded = TensorDictReplayBuffer(10)
    loaded.loads(tmp_path)
    for each in (buffer, loaded):
        data = each.sample(30)
        assert data["a"].dtype == data["next", "reward"].dtype == torch.bfloat16
        assert torch.equal(data["a"], data["observation"])
        assert torch.equal(data["next", "observation"], data["a"] + 1)
        assert torch.equal(data["next", "reward"], data["a"])
    assert (tmp_path / "relive.npz").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["relive.npz"]
