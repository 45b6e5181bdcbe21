"""relive.cpprb in the loops of cpprb's users, and beside cpprb where it is installed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counter import GAMMA, Counting, wrong
from needs import needs

import relive
from relive._adapters.saves import packed
from relive.cpprb import PrioritizedReplayBuffer, ReplayBuffer

ENV_DICT = {"obs": {"shape": 3}, "act": {"shape": 1}, "rew": {}, "next_obs": {"shape": 3}, "done": {}}
SHARED = {name: ENV_DICT[name] for name in ("obs", "act", "rew", "done")}
KINDS = [ReplayBuffer, PrioritizedReplayBuffer]


def made(kind: Any = ReplayBuffer, size: int = 1000, n: int = 1, **choices: Any) -> Any:
    nstep = {"size": n, "gamma": GAMMA, "rew": "rew", "next": "next_obs"}
    env_dict = choices.pop("env_dict", ENV_DICT)
    return kind(size, env_dict, Nstep=nstep, seed=0, **choices)


def collected(buffer: Any, steps: int = 240, reset_every: int | None = None, told: bool = True, skip: int = 0) -> Any:
    """The loop of cpprb's examples; with `told`, each end of an episode is told by `on_episode_end`."""
    env, cuts = Counting(0), {}
    env.episode += skip
    obs, _ = env.reset()
    for t in range(1, steps + 1):
        after, reward, terminated, truncated, _ = env.step(np.zeros(1))
        buffer.add(obs=obs, act=np.zeros(1), rew=reward, next_obs=after, done=terminated)
        obs = after
        reset = reset_every and t % reset_every == 0
        if reset and not (terminated or truncated):
            cuts[0, env.episode] = env.t
        if terminated or truncated or reset:
            if told:
                buffer.on_episode_end()
            obs, _ = env.reset()
    return cuts


def faults(items: Any, n: int, cuts: Any) -> int:
    return wrong(items["obs"], items["rew"], items["discounts"][:, 0], items["next_obs"], n, cuts)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(("size", "reset_every"), [(1000, None), (1000, 7), (20, None), (20, 7)])
@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize("choices", [{}, {"env_dict": SHARED, "next_of": "obs"}], ids=["next_obs", "next_of"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_item_is_what_happened(
    kind: Any, choices: Any, told: bool, size: int, reset_every: int | None, n: int
) -> None:
    buffer = made(kind, size, n, **choices)
    cuts = collected(buffer, 240, reset_every, told)
    items = buffer.get_all_transitions()
    assert len(items["obs"]) == buffer.get_stored_size() > min(240, size) - n
    assert faults(items, n, cuts) == 0
    stored = {tuple(row) for row in items["obs"].tolist()}
    sample = buffer.sample(64)
    assert {tuple(row) for row in sample["obs"].tolist()} <= stored
    assert faults(sample, n, cuts) == 0


def test_samples_look_like_cpprbs() -> None:
    cpprb = needs("cpprb")
    env_dict = {**ENV_DICT, "rew": {"shape": 2}, "flag": {"dtype": bool}}
    ours, theirs = (kind(10, env_dict) for kind in (PrioritizedReplayBuffer, cpprb.PrioritizedReplayBuffer))
    for t in range(14):
        step = {"obs": np.full(3, t), "act": t, "rew": [t, 1], "next_obs": np.full(3, t + 1), "done": 0}
        step |= {"flag": t % 2}
        ours.add(**{name: np.asarray(value, env_dict[name].get("dtype")) for name, value in step.items()})
        theirs.add(**step)
    one, two = ours.get_all_transitions(), theirs.get_all_transitions()
    for name in env_dict:
        assert np.array_equal(one[name], two[name]), name
        assert one[name].dtype == two[name].dtype, name
    one, two = ours.sample(4), theirs.sample(4)
    assert {name: value.shape for name, value in one.items() if name != "discounts"} == {
        name: value.shape for name, value in two.items()
    }
    assert (ours.get_stored_size(), ours.get_buffer_size()) == (10, 10)


@pytest.mark.parametrize("n", [1, 3])
def test_the_next_index_is_cpprbs(n: int) -> None:
    """Also around the ring, after ends and `clear`; where windows wait, cpprb stores one step more for each."""
    cpprb = needs("cpprb")
    how = {"Nstep": {"size": n, "gamma": 0.5, "rew": "rew", "next": "next_obs"}} if n > 1 else {}
    buffers = [kind(10, ENV_DICT, **how) for kind in (ReplayBuffer, cpprb.ReplayBuffer)]
    seen = set()
    for t in range(60):
        done = t % 7 == 4 or t == 40
        for buffer in buffers:
            buffer.add(obs=np.full(3, t), next_obs=np.full(3, t + 1), act=0, rew=1, done=done)
            if done:
                buffer.on_episode_end()
            if t == 40:
                buffer.clear()
        ours, theirs = (buffer.get_next_index() for buffer in buffers)
        assert ours == theirs, t
        seen.add(ours)
    assert seen == set(range(10))


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_files_are_named(name: str, tmp_path: Path) -> None:
    buffer = made(n=1)
    for call in (buffer.save_transitions, buffer.load_transitions):
        with pytest.raises(relive.ReliveError, match="Expected a path"):
            call(name)
    buffer.save_transitions(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npz"]
    assert (tmp_path / "kept.npz").stat().st_mode & 0o777 == 0o600


def test_add_returns_the_first_item_that_can_be_drawn_from_then_on() -> None:
    buffer = made(n=3)
    step = {"act": 0.0, "rew": 1.0, "done": 0}

    def add(t: int, **more: Any) -> Any:
        return buffer.add(obs=np.full(3, t), next_obs=np.full(3, t + 1), **{**step, **more})

    assert [add(t) for t in range(4)] == [None, None, 0, 1]
    assert buffer.get_current_episode_len() == 4
    assert add(4, done=1) == 2
    assert buffer.get_current_episode_len() == 0
    assert buffer.get_stored_size() == 5
    many = np.arange(10, 15)[:, None] * np.ones(3)
    index = buffer.add(obs=many, next_obs=many + 1, act=np.zeros(5), rew=np.ones(5), done=np.zeros(5))
    assert (index, buffer.get_stored_size()) == (6, 8)  # 5 is a final observation


def test_a_call_with_more_steps_than_the_buffer_holds_keeps_the_newest() -> None:
    buffer, obs = made(size=10, n=3), np.arange(26)[:, None] * np.ones(3)
    step = {name: np.zeros(25) for name in ("act", "rew", "done")}
    assert buffer.add(obs=obs[:-1], next_obs=obs[1:], **step) == 15
    assert (len(buffer.relive), buffer.get_stored_size(), buffer.get_next_index()) == (10, 8, 3)
    assert buffer.get_all_transitions()["obs"][:, 0].tolist() == [20, 21, 22, 15, 16, 17, 18, 19]
    with pytest.raises(relive.SchemaError, match="T >= 1"):
        buffer.add(obs=obs[:0], next_obs=obs[:0], **{name: rows[:0] for name, rows in step.items()})


def test_every_step_may_end_its_episode() -> None:
    buffer = made(size=200)
    for t in range(500):
        buffer.add(obs=np.full(3, t), next_obs=np.full(3, t + 0.5), act=0, rew=1, done=1)
    assert len(buffer.relive) == buffer.get_stored_size() == 200


def test_several_rewards_are_summed() -> None:
    env_dict = {**ENV_DICT, "bonus": {}}
    buffer = ReplayBuffer(10, env_dict, Nstep={"size": 2, "gamma": 0.5, "rew": ["rew", "bonus"]})
    for t in range(3):
        buffer.add(obs=np.full(3, t), next_obs=np.full(3, t + 1), act=0, rew=1, bonus=t, done=0)
    items = buffer.get_all_transitions()
    assert items["rew"].tolist() == [[1.5], [1.5]]
    assert items["bonus"].tolist() == [[0.5], [2.0]]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_stacks_are_stored_by_frame(dtype: str) -> None:
    env_dict = {"obs": {"shape": (2, 2, 3), "dtype": dtype}, "done": {}}
    buffer = ReplayBuffer(8, env_dict, next_of="obs", stack_compress="obs")
    assert buffer.relive.schema.nbytes < 2 * 2 * np.dtype(dtype).itemsize + 8
    frames = np.arange(40, dtype=dtype)[:, None, None] * np.ones((2, 2), dtype)
    want = []
    for t in [*range(10), *range(20, 24), *range(30, 32)]:  # streams that begin in the middle, with other older frames
        want.append((np.moveaxis(frames[t : t + 3], 0, -1), np.moveaxis(frames[t + 1 : t + 4], 0, -1)))
        buffer.add(obs=want[-1][0], next_obs=want[-1][1], done=0)
    items = buffer.get_all_transitions()
    place = np.argsort(items["indexes"])
    kept = len(place)
    assert kept >= 6
    assert np.array_equal(items["obs"][place], [obs for obs, _ in want[-kept:]])
    assert np.array_equal(items["next_obs"][place], [after for _, after in want[-kept:]])


def test_priorities_weights_and_late_updates() -> None:
    buffer = PrioritizedReplayBuffer(20, ENV_DICT, alpha=1.0, eps=0.5, seed=0)
    assert buffer.get_max_priority() == 1.0
    collected(buffer, 20)
    late = buffer.sample(64)["indexes"]
    with pytest.raises(relive.PriorityError, match=r"Expected a finite TD error, got `nan` \(1 of 64\)"):
        buffer.update_priorities(late, np.where(np.arange(64) == 3, np.nan, 1.0))
    assert buffer.get_max_priority() == 1.0
    indexes = buffer.get_all_transitions()["indexes"]
    buffer.update_priorities(indexes, np.full((20, 1), 0.5))
    buffer.update_priorities(indexes[3:4], [3.5])
    assert buffer.get_max_priority() == 3.5
    sample = buffer.sample(2300, beta=1.0)
    assert abs((sample["indexes"] == indexes[3]).mean() - 4 / 23) < 0.01
    assert np.allclose(sample["weights"], np.where(sample["indexes"] == indexes[3], 0.25, 1.0))
    collected(buffer, 20)
    buffer.sample(8)
    buffer.update_priorities(late, np.full(64, 100.0))
    assert buffer.relive.stats().stale_updates == 64
    assert (buffer.relive.priorities(buffer.get_all_transitions()["indexes"]) == 4.0).all()
    buffer.clear()
    assert (buffer.get_stored_size(), buffer.get_max_priority()) == (0, 1.0)


def test_priorities_come_with_new_steps() -> None:
    buffer = PrioritizedReplayBuffer(20, {"x": {}}, eps=0.0)
    buffer.add(x=[1, 2, 3], priorities=[0.0, 2.0, 0.0])
    assert set(buffer.sample(32)["x"][:, 0]) == {2.0}
    with pytest.raises(relive.ArgumentError, match="Expected 2 priorities, one for each step"):
        buffer.add(x=[1, 2], priorities=[1.0])
    with pytest.raises(relive.PriorityError, match="finite priority >= 0"):
        buffer.add(x=1, priorities=-1.0)
    assert buffer.get_stored_size() == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 3])
def test_saved_steps_are_added_to_another_buffer(kind: Any, n: int) -> None:
    buffer, other, file = made(kind, 40, n), made(kind, 60, 3), io.BytesIO()
    cuts = collected(buffer, 100, 7)
    collected(other, 30, skip=50)
    if kind is PrioritizedReplayBuffer:
        some = buffer.sample(8)["indexes"]
        buffer.update_priorities(some, np.full(8, 7.0))
    buffer.save_transitions(file)
    file.seek(0)
    other.load_transitions(file)
    items = other.get_all_transitions()
    items = {name: value[np.argsort(items["indexes"])] for name, value in items.items()}
    new = items["obs"][:, 1] < 50
    assert other.get_stored_size() >= 58
    assert new.sum() >= 38
    assert faults({name: value[new] for name, value in items.items()}, 3, cuts) == 0
    if kind is PrioritizedReplayBuffer:
        raised = other.relive.priorities(np.ascontiguousarray(items["indexes"])) > 6
        assert {tuple(row) for row in items["obs"][raised].tolist()} <= {
            tuple(row) for row in buffer.relive.read(some).obs.obs.tolist()
        }


def test_files_of_lanes_with_two_rows_a_step_are_read(tmp_path: Path) -> None:
    """As `save_transitions` wrote them when capacities counted rows: a table names the newest steps."""
    buffer = made(size=20)
    rows = relive.ReplayBuffer(buffer.relive.schema, 40, boundaries=0)
    for t in range(50):
        obs, end = np.full(3, t, np.float32), t % 6 == 5
        step = {"obs": {"obs": obs}, "next_obs": {"obs": obs + 1}, "reward": [t], "fields": {"act": [0]}}
        rows.add(**step, action=False, terminated=end, truncated=False)
    ids = np.sort(rows.column("ids")[0])[-20:]
    np.savez(tmp_path / "old.npz", **packed(rows), ids=ids[None], next=[0], size=[20], open=[True])
    buffer.load_transitions(tmp_path / "old.npz")
    assert buffer.get_all_transitions()["rew"][:, 0].tolist() == list(range(30, 50))


def test_warnings_name_the_line_of_the_caller() -> None:
    buffer = ReplayBuffer(1000, ENV_DICT)

    def jump() -> None:
        for t in range(200):
            buffer.add(obs=np.full(3, 2 * t), act=0, rew=0, next_obs=np.full(3, 2 * t + 1), done=0)

    with pytest.warns(relive.ReliveWarning, match="do not continue their stream") as caught:
        jump()
    assert {warning.filename for warning in caught} == {__file__}


def test_files_of_others_are_refused(tmp_path: Any) -> None:
    np.savez(tmp_path / "theirs.npz", data=np.array([{"obs": 1}], object))
    with pytest.raises(relive.StorageError, match=r"cpprb's own files are pickles: load them with"):
        made().load_transitions(tmp_path / "theirs.npz")
    file = io.BytesIO()
    buffer = ReplayBuffer(4, {"x": {}})
    buffer.add(x=1)
    buffer.save_transitions(file)
    file.seek(0)
    buffer.clear()
    empty = io.BytesIO()
    buffer.save_transitions(empty)
    empty.seek(0)
    ReplayBuffer(4, {"x": {}}).load_transitions(empty)
    with pytest.raises(relive.SchemaError, match="Expected fields"):
        made().load_transitions(file)


REFUSED = {
    "mmap": (lambda: ReplayBuffer(10, ENV_DICT, mmap_prefix="x"), r"got `mmap_prefix` .*storage="),
    "no fields": (lambda: ReplayBuffer(10), "Expected at least one field"),
    "name": (lambda: ReplayBuffer(10, {"weights": {}}), "got `weights` .*choose another"),
    "shapes": (lambda: ReplayBuffer(10, {"a": {}, "next_a": {"shape": 2}}), "Expected the shape and dtype of `a`"),
    "missing": (lambda: ReplayBuffer(10, {"a": {}, "b": {}}).add(a=1), r"Expected the fields \['a', 'b'\], got no `b`"),
    "unknown": (lambda: ReplayBuffer(10, {"a": {}}).add(a=1, c=1), r"got `c`"),
    "lengths": (lambda: ReplayBuffer(10, {"a": {}, "b": {}}).add(a=[1, 2], b=1), "Expected 2 steps of every field"),
    "next alone": (
        lambda: ReplayBuffer(9, {"next_a": {}}, Nstep={"size": 2, "next": "next_a"}),
        "`next_...` of a field",
    ),
    "next_of": (lambda: ReplayBuffer(10, {"a": {}}, next_of="b"), "Expected names of `env_dict`, got `b`"),
    "empty": (lambda: ReplayBuffer(10, {"a": {}}).sample(1), "Expected at least 1 drawable item, got 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused_with_a_remedy(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(relive.ReliveError, match=text):
        call()
