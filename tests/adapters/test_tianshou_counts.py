"""relive.tianshou counts slots, returns and lengths as Tianshou's own buffer does: random programs on both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import needs

needs("tianshou")
from tianshou.data import Batch
from tianshou.data import VectorReplayBuffer as Theirs

from relive.tianshou import VectorReplayBuffer

OF_CHILDREN = ("_insertion_idx", "_size", "_ep_return", "_ep_len", "_ep_start_idx", "last_index")


def step_of(rng: np.random.Generator, t: int, lanes: int, reward: str, infos: int) -> Batch:
    """Make a step; with `infos` 0 it has none, and from 2 on names come and go."""
    ends = rng.random((2, lanes)) < 0.15
    obs = np.full((lanes, 3), t, np.float32)
    info: dict[str, Any] = {}
    if infos:
        info["number"] = rng.random(lanes)
    if infos > 1 and rng.random() < 0.4:
        info["late"] = Batch(text=np.array([f"{t} {lane}" for lane in range(lanes)], object))
    step = Batch(
        obs=obs, act=np.zeros(lanes), rew=(rng.random(lanes) * 9).astype(reward), obs_next=obs + 1,
        terminated=ends[0], truncated=ends[1] & ~ends[0], info=Batch(info),
    )  # fmt: skip
    if infos > 2:
        step.policy = Batch(hidden=rng.random((lanes, 2)))
    return step


def assert_same(ours: Any, theirs: Any, at: str = "") -> None:
    """Check that batches have the same names and values, but for what relive holds."""
    held = set() if at else {"obs", "act", "obs_next"}
    names = set(theirs.get_keys()) - held
    assert names == set(ours.get_keys()) - held, at
    for name in names:
        one, two = ours[name], theirs[name]
        if isinstance(two, Batch):
            assert_same(one, two, f"{at}.{name}")
        else:
            assert one.dtype == two.dtype, f"{at}.{name}"
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("reward", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize("infos", range(4))
def test_random_programs_count_alike(infos: int, reward: str) -> None:
    rng = np.random.default_rng(infos)
    for _ in range(3):
        lanes = int(rng.integers(1, 5))
        ours, theirs = VectorReplayBuffer(11 * lanes, lanes), Theirs(11 * lanes, lanes)
        for t in range(60):
            which = np.sort(rng.permutation(lanes)[: rng.integers(1, lanes + 1)])
            step = step_of(rng, t, len(which), reward, infos)
            given = None if len(which) == lanes and t % 2 else which
            for one, two in zip(ours.add(step, given), theirs.add(step, given), strict=True):
                assert one.dtype == two.dtype
                np.testing.assert_array_equal(one, two)
            if rng.random() < 0.02:
                keep = bool(rng.random() < 0.5)
                for buffer in (ours, theirs):
                    buffer.reset(keep_statistics=keep)
            for child, other in zip(ours.buffers, theirs.buffers, strict=True):
                for name in OF_CHILDREN:
                    assert getattr(child, name) == getattr(other, name), name
                    assert np.asarray(getattr(child, name)).dtype == np.asarray(getattr(other, name)).dtype, name
            assert (len(ours), ours.last_index.tolist()) == (len(theirs), theirs.last_index.tolist())
        assert_same(ours._meta, theirs._meta)
        np.testing.assert_array_equal(ours.sample_indices(0), theirs.sample_indices(0))


def test_tensors_and_lists_are_left_to_tianshou() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    ours, theirs = VectorReplayBuffer(20, 2), Theirs(20, 2)
    for t in range(12):
        step = step_of(rng, t, 2, "float32", 1)
        if t % 3 == 1:
            step.rew = torch.as_tensor(step.rew)
        if t % 3 == 2:
            step.__dict__["rew"] = step.rew.tolist()
        for one, two in zip(ours.add(step), theirs.add(step), strict=True):
            np.testing.assert_array_equal(one, two)
    assert_same(ours._meta, theirs._meta)
