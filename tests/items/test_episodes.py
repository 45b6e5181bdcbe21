"""`Sequences(starts="episodes", trim=, ahead=)`: EPyMARL's batches at a part of its memory, MuZero's values, saves."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forking import forked
from needs import needs

import relive
from relive import Sequences, Uniform
from relive._ring import kernels
from relive.errors import ArgumentError, ReliveWarning
from relive.testing.agreement import assert_same_batch

EPYMARL = os.environ.get("RELIVE_EPYMARL")  # a checkout
AGENTS, LIMIT, EPISODES = 3, 25, 12
LENGTHS = [7, 25, 3, 12, 9, 4, 11, 5, 8, 6, 10, 2]
SCHEMA = relive.Schema(
    obs={"obs": relive.Field((AGENTS, 5)), "state": relive.Field(7)},
    action={"actions": relive.Field((AGENTS, 1), "int64")},
    avail_actions=relive.Field((AGENTS, 4), "uint8"),
)


def episode(number: int, length: int) -> dict[str, Any]:
    """Make what a runner sees in an episode: T + 1 observations and states, T actions and rewards."""
    rng = np.random.default_rng(number)
    return {
        "obs": rng.normal(size=(length + 1, AGENTS, 5)).astype("float32"),
        "state": rng.normal(size=(length + 1, 7)).astype("float32"),
        "avail_actions": rng.integers(0, 2, (length, AGENTS, 4)),
        "actions": rng.integers(0, 4, (length, AGENTS, 1)),
        "reward": rng.normal(size=length).astype("float32"),
    }


def ours(item: Sequences, **choices: Any) -> tuple[relive.ReplayBuffer, np.ndarray]:
    """Store all episodes; returns the ids of their first steps."""
    buffer = relive.ReplayBuffer(SCHEMA, sum(LENGTHS) + 1, item=item, seed=0, **choices)
    first = []
    for number, length in enumerate(LENGTHS):
        seen, ended = episode(number, length), np.arange(length) == length - 1
        obs = {name: seen[name] for name in ("obs", "state")}
        first.append(
            buffer.extend(
                obs={name: array[:-1] for name, array in obs.items()},
                next_obs={name: array[1:] for name, array in obs.items()},
                action={"actions": seen["actions"]}, avail_actions=seen["avail_actions"].astype("uint8"),
                reward=seen["reward"], terminated=ended, truncated=ended & False,
            )[0]
        )  # fmt: skip
    return buffer, np.array(first)


class StandIn:
    """EPyMARL's `ReplayBuffer` by its layout: zeros `[episodes, T_max + 1, ...]`, filled as its runner fills them."""

    def __init__(self) -> None:
        shapes = {"obs": (AGENTS, 5), "state": (7,), "avail_actions": (AGENTS, 4), "actions": (AGENTS, 1)}
        shapes |= {"reward": (1,), "terminated": (1,), "filled": (1,)}
        kinds = {"actions": "int64", "avail_actions": "int32", "terminated": "uint8", "filled": "int64"}
        self.data = {
            name: np.zeros((EPISODES, LIMIT + 1, *shape), kinds.get(name, "float32")) for name, shape in shapes.items()
        }
        for number, length in enumerate(LENGTHS):
            for name, values in episode(number, length).items():
                self.data[name][number, : len(values)] = values.reshape(len(values), *shapes[name])
            self.data["filled"][number, : length + 1] = 1
            self.data["terminated"][number, length - 1] = 1

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.data.values())

    def batch(self, which: np.ndarray) -> dict[str, np.ndarray]:
        """Return these episodes, cut to the longest."""
        most = int(self.data["filled"][which].sum(1).max())
        return {name: array[which, :most] for name, array in self.data.items()}


def compared(batch: relive.Batch, theirs: dict[str, np.ndarray]) -> None:
    """Compare what EPyMARL's learners read: everything but the last entry, and observations with it."""
    filled, mask = theirs["filled"][..., 0] > 0, theirs["filled"][:, :-1, 0].astype(bool)
    mask[:, 1:] &= theirs["terminated"][:, :-2, 0] == 0
    np.testing.assert_array_equal(batch.mask, mask)
    for name in ("obs", "state"):
        np.testing.assert_array_equal(batch.all_obs[name][filled], theirs[name][filled])
    for values, name in ((batch.action["actions"], "actions"), (batch.avail_actions, "avail_actions")):
        np.testing.assert_array_equal(values, np.where(mask[..., None, None], theirs[name][:, :-1], 0))
    np.testing.assert_array_equal(batch.reward[..., None], theirs["reward"][:, :-1])
    np.testing.assert_array_equal(batch.terminated[..., None], theirs["terminated"][:, :-1] > 0)


def test_batches_are_those_of_epymarl_at_a_part_of_its_memory() -> None:
    buffer, first = ours(Sequences(LIMIT, starts="episodes", trim=True), sampler=Uniform(replacement=False))
    theirs = StandIn()
    assert buffer.ids().tolist() == first.tolist()
    for _ in range(20):
        batch = buffer.sample(5)
        which = np.searchsorted(first, batch.ids)
        assert len(set(which.tolist())) == 5
        assert batch.mask.shape == (5, max(LENGTHS[number] for number in which))
        compared(batch, theirs.batch(which))
    assert 2.2 * buffer._core.nbytes < theirs.nbytes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.skipif(EPYMARL is None, reason="RELIVE_EPYMARL names no checkout")
def test_batches_are_those_of_epymarl_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = needs("torch")
    monkeypatch.setattr(sys, "path", [str(Path(str(EPYMARL)) / "src"), *sys.path])
    episodes = needs("components.episode_buffer")
    scheme = {
        "state": {"vshape": 7}, "obs": {"vshape": 5, "group": "agents"},
        "actions": {"vshape": (1,), "group": "agents", "dtype": torch.long},
        "avail_actions": {"vshape": (4,), "group": "agents", "dtype": torch.int},
        "reward": {"vshape": (1,)}, "terminated": {"vshape": (1,), "dtype": torch.uint8},
    }  # fmt: skip
    theirs = episodes.ReplayBuffer(scheme, {"agents": AGENTS}, EPISODES, LIMIT + 1)
    for number, length in enumerate(LENGTHS):
        made = episodes.EpisodeBatch(scheme, {"agents": AGENTS}, 1, LIMIT + 1)
        seen = episode(number, length)
        for t in range(length + 1):
            before = {name: [seen[name][t]] for name in ("state", "obs")}
            made.update(before | ({"avail_actions": [seen["avail_actions"][t]]} if t < length else {}), ts=t)
            if t < length:
                after = {"reward": [(seen["reward"][t],)], "terminated": [(t == length - 1,)]}
                made.update({"actions": [seen["actions"][t]], **after}, ts=t, mark_filled=False)
        theirs.insert_episode_batch(made)
    buffer, first = ours(Sequences(LIMIT, starts="episodes", trim=True), sampler=Uniform(replacement=False))
    found = theirs[np.searchsorted(first, (batch := buffer.sample(5)).ids).tolist()]
    found = found[:, : found.max_t_filled()]
    compared(batch, {name: found[name].numpy() for name in [*scheme, "filled"]})


def test_trimmed_batches_are_the_others_without_padding() -> None:
    for choices in ({}, {"time_major": True}, {"n_step": 3}, {"ahead": ("avail_actions",)}):
        whole, first = ours(Sequences(LIMIT, starts="episodes", step_ids=True, **choices))
        short, _ = ours(Sequences(LIMIT, starts="episodes", step_ids=True, trim=True, **choices))
        batch, trimmed = whole.read(first[[0, 2, 3]]), short.read(first[[0, 2, 3]])
        for name in set(batch) - {"ids", "first", "weights"}:
            more = choices.get("n_step", 1) if name.startswith("all_") else 0
            for (_, one), (_, other) in zip(leaves(batch[name]), leaves(trimmed[name]), strict=True):
                cut = one[: 12 + more] if "time_major" in choices else one[:, : 12 + more]
                np.testing.assert_array_equal(other, cut, err_msg=name)
        assert trimmed.first.all()


def leaves(nest: Any) -> list[tuple[str, np.ndarray]]:
    return list(nest.items()) if hasattr(nest, "items") else [("", nest)]


def test_a_longer_episode_is_cut_and_said_once() -> None:
    buffer, first = ours(Sequences(10, starts="episodes"))
    short = [place for place, length in enumerate(LENGTHS) if length <= 10]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer.read(first[short])
    with pytest.warns(ReliveWarning, match="^Cut an episode of more than 10 steps - at `Sequences"):
        batch = buffer.read(first[[1, 0]])
    assert batch.mask.sum(1).tolist() == [10, 7]
    assert not batch.terminated[0].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer.read(first[[1, 3]])


def test_an_unfinished_episode_waits() -> None:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 100, item=Sequences(5, starts="episodes"))
    for step in range(12):
        buffer.add(obs=step, action=step, reward=0, next_obs=step + 1, terminated=step == 3, truncated=False)
        if step == 3:
            buffer.cut()
        # The second episode has its five steps with step 8; its first one is in the row behind a final observation.
        assert buffer.ids().tolist() == [] + [0] * (step >= 3) + [5] * (step >= 8)


def test_extras_ahead_are_those_of_the_bootstrap_position() -> None:
    """Check MuZero's target: rewards of n steps, and the value that its search found n steps on."""
    schema = relive.Schema(obs=relive.Field(), action=relive.Field(), value=relive.Field(), policy=relive.Field(2))
    buffer = relive.ReplayBuffer(schema, 100, item=Sequences(3, n_step=2, gamma=0.5, ahead=("value", "policy")))
    time = np.arange(8.0)
    ids = buffer.extend(
        obs=time, next_obs=time + 1, action=time, reward=time, value=10 * time, policy=np.stack([time, -time], -1),
        terminated=time == 5, truncated=time < 0,
    )  # fmt: skip
    batch = buffer.read(ids[:5])
    values = [[20, 30, 40], [30, 40, 50], [40, 50, 0], [50, 0, 0], [0, 0, 0]]
    assert batch.next_value.tolist() == values
    np.testing.assert_array_equal(batch.next_policy, np.stack([np.array(values), -np.array(values)], -1) / 10)
    target = batch.reward + batch.discount * batch.next_value
    assert target[0].tolist() == [0 + 0.5 + 0.25 * 20, 1 + 1 + 0.25 * 30, 2 + 1.5 + 0.25 * 40]


def test_saves_and_other_items(tmp_path: Path) -> None:
    item = Sequences(LIMIT, starts="episodes", trim=True, ahead=("avail_actions",))
    buffer, first = ours(item)
    buffer.save(tmp_path / "one")
    assert len(relive.load(tmp_path / "one").ids(item=relive.Transitions())) == sum(LENGTHS)
    plain, _ = ours(relive.Transitions())
    plain.save(tmp_path / "two")
    assert relive.load(tmp_path / "two", item=item).ids().tolist() == first.tolist()
    with pytest.raises(ArgumentError, match="an item that starts every 1 steps, or at any"):
        plain.ids(item=item)


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"starts": "steps"}, "one of `'episodes'`"),
        ({"starts": 0}, "an integer >= 1, got `0`"),
        ({"starts": 1.5}, "an integer >= 1, got `1.5`"),
        ({"starts": "episodes", "burn_in": 2}, 'none with `starts="episodes"`, got `2`'),
        ({"starts": "episodes", "across_episodes": True}, 'none with `starts="episodes"`, got `True`'),
        ({"ahead": "value"}, "names of extras"),
        ({"ahead": ("value",), "across_episodes": True}, "none with `ahead`, got `True`"),
    ],
)
def test_what_is_refused(choices: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        Sequences(4, **choices)


def test_extras_that_are_none() -> None:
    for names in (("nope",), ("reward",), ("obs",)):
        with pytest.raises(ArgumentError, match="the name of an extra that every step has"):
            relive.ReplayBuffer(SCHEMA, 100, item=Sequences(4, ahead=names))
    taken = relive.Schema(**SCHEMA.tree, next_avail_actions=relive.Field())
    with pytest.raises(ArgumentError, match="no field `next_avail_actions`"):
        relive.ReplayBuffer(taken, 100, item=Sequences(4, ahead=("avail_actions",)))


@pytest.mark.skipif(not kernels.is_native(), reason="only native kernels share")
@pytest.mark.parametrize("item", [Sequences(30, starts="episodes", trim=True), relive.Transitions(n_step=2)], ids=repr)
def test_another_process_reads_episodes_by_an_item_of_its_own(item: Any) -> None:
    """Check its items against those of a buffer that was made with that item."""
    alone, _ = ours(item)
    wanted = next(alone.batches(200, shuffle=False))

    def read() -> None:
        with relive.open(buffer.storage.address, item=item, sampler=Uniform(), seed=1) as reader:
            assert_same_batch(reader.read(wanted.ids), wanted)
            drawn = reader.sample(50)
            assert_same_batch(drawn, alone.read(drawn.ids))

    with ours(Sequences(25, starts="episodes"), storage=relive.Shared())[0] as buffer:
        with forked(read):
            pass
        if isinstance(item, Sequences):
            assert len(wanted.ids) == EPISODES
            with pytest.raises(ArgumentError, match=r"items that start with episodes, got every 3 steps - at `open"):
                relive.open(buffer.storage.address, item=Sequences(4, starts=3))
