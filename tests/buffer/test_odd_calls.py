"""Calls at the edge of what is meant: late ids, duplicates, arrays changed behind the buffer, huge numbers, copies."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relive
from relive.errors import ArgumentError, StaleId

SAMPLERS = {
    "uniform": relive.Uniform(),
    "without replacement": relive.Uniform(replacement=False),
    "episodes": relive.Uniform(over="episodes"),
    "prioritized": relive.Prioritized(eps=0.0),
    "prioritized without replacement": relive.Prioritized(eps=0.0, replacement=False),
}
PRIORITIZED = ["prioritized", "prioritized without replacement"]


def make(sampler: str, stack: int | None = None, **choices: Any) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field((2,), stack=stack), action=relive.Field())
    return relive.ReplayBuffer(schema, 16, sampler=SAMPLERS[sampler], seed=0, **choices)


def add(buffer: relive.ReplayBuffer, t: float, successor: bool = True, jump: float = 0.0, **more: Any) -> int:
    frames = buffer.schema.columns[0].field.frames
    obs = (np.arange(t - frames + 1, t + 1)[:, None] + jump).repeat(2, axis=1)
    after = {"next_obs": (obs + 1).squeeze(0) if frames == 1 else obs + 1} if successor else {}
    obs = obs.squeeze(0) if frames == 1 else obs
    ids = buffer.add(obs=obs, action=0.0, reward=t, terminated=False, truncated=False, **after, **more)
    return int(ids[0])


@pytest.mark.parametrize("how", ["cut", "a reset that does not continue the stack"])
@pytest.mark.parametrize("sampler", PRIORITIZED)
def test_a_step_that_a_cut_dropped(sampler: str, how: str) -> None:
    """Check that its late priority is dropped and counted, like an overwritten step's; `read` names the reason."""
    buffer = make(sampler, stack=None if how == "cut" else 2)
    ids = [add(buffer, t, successor=False) for t in range(2)]
    buffer.cut() if how == "cut" else add(buffer, 50, successor=False)
    assert buffer.update_priorities(ids, [3.0, 4.0]) == 1
    assert buffer.stats().stale_updates == 1
    assert buffer.priorities(ids[:1]).tolist() == pytest.approx([3.0])
    words = rf"got `{ids[1]}`, dropped by a cut before its successor was known \(1 of 1\) - at `ReplayBuffer.read`"
    with pytest.raises(StaleId, match=words):
        buffer.read(ids[1:])
    with pytest.raises(StaleId, match="never issued"):
        buffer.update_priorities([ids[0], 1000], [9.0, 9.0])
    assert buffer.priorities(ids[:1]).tolist() == pytest.approx([3.0]), "a refused call changes nothing"


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_batch_is_the_callers(sampler: str) -> None:
    """Check that values written into a batch do not reach the buffer's statistics."""
    buffer = make(sampler)
    for t in range(12):
        add(buffer, t)
    batch = buffer.sample(6)
    before = buffer.stats()
    for name in batch:
        batch[name][...] = 0
    assert buffer.stats() == before


class Stream:
    """Stands in for a generator."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def random(self, n: Any) -> Any:
        return self.numbers


BAD = {
    "far below 0": np.full(4, -1e12),
    "just below 0": np.array([0.5, 0.5, -5e-324, 0.5]),
    "not a number": np.array([0.5, np.nan, 0.5, 0.5]),
    "1": np.array([0.5, 0.5, 0.5, 1.0]),
    "infinite": np.full(4, np.inf),
    "too few": np.full(1, 0.5),
    "too many": np.full(8, 0.5),
    "of two axes": np.full((4, 1), 0.5),
    "one number": 0.5,
    "text": "0.5",
    "texts": np.full(4, "0.5"),
    "complex": np.full(4, 0.5 + 1j),
    "ragged": [[0.5], 0.5],
    "nothing": None,
    "no numbers": object(),
}


def twins(sampler: str) -> list[relive.ReplayBuffer]:
    """Make two buffers with the same twelve steps."""
    made = [make(sampler) for _ in range(2)]
    for t in range(12):
        for buffer in made:
            add(buffer, t)
    return made


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_uniforms_that_are_none(sampler: str) -> None:
    buffer, twin = twins(sampler)
    rng = buffer.rng
    for name, numbers in BAD.items():
        buffer.rng = Stream(numbers)
        with pytest.raises(ArgumentError, match=r"Expected 4 uniforms in \[0, 1\), got .* - at `ReplayBuffer\.rng`"):
            buffer.sample(4)
        assert buffer.stats().drawn == 0, name
    for edge in (0.0, -0.0, np.nextafter(1.0, 0.0)):
        buffer.rng = Stream(np.full(4, edge))
        assert len(buffer.sample(4).ids) == 4
    buffer.rng = rng
    np.testing.assert_array_equal(buffer.sample(4).ids, twin.sample(4).ids)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_huge_numbers(sampler: str) -> None:
    buffer, twin = twins(sampler)
    for size in (10**13, 2**63 - 1, 2**63, 10**30):
        assert buffer.can_sample(size) is False
        with pytest.raises(ArgumentError, match=r"at `ReplayBuffer\.sample\(batch_size\)`"):
            buffer.sample(size)
    for ids in ([10**30], [2**63], np.array([2**64 - 1], np.uint64)):
        with pytest.raises(ArgumentError):
            buffer.read(ids)
    for ids in ([2**63 - 1], [-(2**63)]):
        with pytest.raises(StaleId, match="never issued"):
            buffer.read(ids)
    for lanes in ([2**62], [10**30], [-1]):
        with pytest.raises(ArgumentError):
            add(buffer, 12, env_ids=lanes)
        with pytest.raises(ArgumentError):
            buffer.cut(lanes)
    if buffer.sampler.prioritizes:
        with pytest.raises(StaleId):
            buffer.update_priorities([0, 2**63 - 1], [1.0, 1.0])
    assert buffer.stats() == twin.stats()
    np.testing.assert_array_equal(buffer.sample(4).ids, twin.sample(4).ids)


@pytest.mark.parametrize("sampler", PRIORITIZED)
def test_a_negative_zero_is_zero(sampler: str) -> None:
    """Check that it is not the sign of no priority, for which new steps get the largest one."""
    buffer = make(sampler)
    raw = [3.0, 0.0, -0.0, 5.0, 0.001]
    ids = [add(buffer, t, priority=priority) for t, priority in enumerate(raw)]
    add(buffer, 5, priority=np.float32(-0.0))
    obs = np.arange(6.0, 9.0)[:, None].repeat(2, axis=1)
    flags = np.zeros(2, bool)
    step = {"obs": obs[:-1], "next_obs": obs[1:], "reward": [0, 0], "terminated": flags, "truncated": flags}
    ids += buffer.extend(action=[0, 0], **step, priority=[-0.0, 2.0]).tolist()
    assert buffer.priorities(ids).tolist() == pytest.approx([*raw, 0.0, 2.0])
    assert buffer.priorities([5]).tolist() == [0.0]


@pytest.mark.parametrize("name", BAD)
def test_uniforms_of_hindsight_that_are_none(name: str) -> None:
    goal = relive.Field((1,))
    schema = relive.Schema(obs={"achieved_goal": goal, "desired_goal": goal}, action=relive.Field())
    item = relive.Hindsight(reward=lambda achieved, desired, info: np.zeros(len(achieved)))
    buffer = relive.ReplayBuffer(schema, 16, item=item)
    obs = {"achieved_goal": [1.0], "desired_goal": [2.0]}
    buffer.add(obs=obs, action=0, reward=0, next_obs=obs, terminated=True, truncated=False)

    class Second(Stream):
        def random(self, n: Any) -> Any:
            return np.zeros(n) if n == 4 else self.numbers

    buffer.rng = Second(BAD[name])
    with pytest.raises(ArgumentError, match=r"uniforms in \[0, 1\), got .* - at `ReplayBuffer\.rng`"):
        buffer.sample(4)


@pytest.mark.parametrize("what", ["nothing", "an update", "given priorities", "a load"])
@pytest.mark.parametrize("sampler", [*PRIORITIZED, "uniform"])
def test_draws_by_priorities_that_nobody_updates(sampler: str, what: str, tmp_path: Path) -> None:
    """Check for one warning, after 1,000 of them."""
    buffer = make(sampler)
    known = what == "given priorities" and sampler != "uniform"
    ids = [add(buffer, t, **({"priority": [1.0 + t]} if known else {})) for t in range(4)]
    buffer.sample(3)
    if what == "an update" and sampler != "uniform":
        buffer.update_priorities(ids, [1.0] * 4)
    if what == "a load":
        buffer.save(tmp_path / "saved")
        buffer = relive.load(tmp_path / "saved")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(99):
            buffer.sample(3)
        assert not said
        for _ in range(101 if what == "nothing" else 2):
            buffer.sample(3)
    texts = [str(one.message) for one in said]
    if sampler != "uniform" and what in ("nothing", "a load"):
        (text,) = texts
        assert text.startswith("No priority was updated in 100 samples: all items are sampled alike")
        assert said[0].filename == __file__
    else:
        assert texts == []
    assert buffer.stats().updates == (4 if what == "an update" and sampler != "uniform" else 0)


def test_updates_are_counted_whatever_becomes_of_them(tmp_path: Path) -> None:
    buffer = make("prioritized")
    ids = [add(buffer, t) for t in range(20)]
    buffer.update_priorities(ids[-4:], [1.0] * 4)
    buffer.update_priorities(ids, [1.0] * 20)
    buffer.save(tmp_path / "saved")
    for each in (buffer, relive.load(tmp_path / "saved")):
        stats = each.stats()
        assert (stats.updates, stats.stale_updates) == (24, 20 - stats.drawable)
