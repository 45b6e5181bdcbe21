"""`Windows`: LeRobot's definition item by item; refusals. `test_items.py` has its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

import relive
from relive import Windows
from relive.errors import ArgumentError
from relive.trajectories import Trajectory, from_lerobot, to_lerobot

FPS = 10
DELTAS = {
    "observation.front": (-0.2, -0.1, 0.0), "observation.wrist": (0.0,), "observation.state": (-0.1, 0.0, 0.4),
    "action": tuple(round(0.1 * k, 1) for k in range(-1, 15)),
}  # fmt: skip
SCHEMA = relive.Schema(
    obs={
        "front": relive.Field((6, 8, 3), "uint8"),
        "wrist": relive.Field((4, 4, 3), "uint8"),
        "state": relive.Field(3),
    },
    action=relive.Field(2),
)
SIMPLE = relive.Schema(obs=relive.Field(), action=relive.Field(), note=relive.Field())


def episodes() -> list[Trajectory]:
    """Make five episodes, of 1 to 31 frames, seen by two cameras."""
    rng = np.random.default_rng(0)
    made = []
    for length in (7, 1, 31, 16, 2):
        done = np.zeros((length, 1), bool)
        done[-1] = True
        obs = {
            "front": rng.integers(0, 256, (length, 1, 6, 8, 3), "uint8"),
            "wrist": rng.integers(0, 256, (length, 1, 4, 4, 3), "uint8"),
            "state": rng.normal(size=(length, 1, 3)).astype("float32"),
        }
        action = rng.normal(size=(length, 1, 2)).astype("float32")
        made.append(Trajectory(curr_obs=obs, actions=action, dones=done, task="stack the cups"))
    return made


def recorded(folder: Path) -> tuple[relive.ReplayBuffer, np.ndarray]:
    """Write the episodes as a data set, and read it into a buffer: every frame is a step."""
    to_lerobot(episodes(), folder, fps=FPS)
    buffer = relive.ReplayBuffer(SCHEMA, 100, item=item())
    ids = []
    for episode in from_lerobot(folder):
        obs, action = {name: array[:, 0] for name, array in episode["curr_obs"].items()}, episode["actions"][:, 0]
        last = np.arange(len(action)) == len(action) - 1
        ids.append(buffer.extend(obs=obs, action=action, reward=last, terminated=last, truncated=last & False))
    return buffer, np.concatenate(ids)


def item(**choices: Any) -> Windows:
    steps = {name.removeprefix("observation."): [round(FPS * t) for t in times] for name, times in DELTAS.items()}
    action = steps.pop("action")
    return Windows(obs=steps, action=action, **choices)


def defined(number: int) -> dict[str, np.ndarray]:
    """`LeRobotDataset.__getitem__` by its definition: offsets are clamped to the frame's episode, and the rest is said.

    `query = max(start, min(end - 1, number + delta))`, `is_pad = number + delta < start or number + delta >= end`.
    """
    whole, ends = episodes(), np.cumsum([len(episode["actions"]) for episode in episodes()])
    which = int(np.searchsorted(ends, number, "right"))
    end = int(ends[which])
    start = end - len(whole[which]["actions"])
    found: dict[str, np.ndarray] = {}
    for name, times in DELTAS.items():
        frames = [number + round(FPS * t) for t in times]
        near = [max(start, min(end - 1, frame)) - start for frame in frames]
        fields = {"action": whole[which]["actions"], **whole[which]["curr_obs"]}
        found[name] = fields[name.removeprefix("observation.")][near, 0]
        found[f"{name}_is_pad"] = np.array([frame < start or frame >= end for frame in frames])
    return found


def shown(batch: relive.Batch, place: int) -> dict[str, np.ndarray]:
    """Name an item's fields as LeRobot does."""
    names = [f"observation.{name}" for name in batch.obs]
    values = dict(zip(names, batch.obs.values(), strict=True)) | {"action": batch.action}
    pads = {f"{name}_is_pad": pad for name, pad in zip(names, batch.pad.obs.values(), strict=True)}
    return {name: value[place] for name, value in {**values, **pads, "action_is_pad": batch.pad.action}.items()}


def test_items_are_those_of_lerobots_definition(tmp_path: Path) -> None:
    needs("pyarrow")
    buffer, ids = recorded(tmp_path / "cups")
    batch = buffer.read(ids)
    for number in range(len(ids)):
        got, want = shown(batch, number), defined(number)
        assert got.keys() == want.keys()
        for name in want:
            np.testing.assert_array_equal(got[name], want[name], err_msg=f"{number} {name}")
    assert sorted(np.concatenate([part.ids for part in buffer.batches(7)]).tolist()) == ids.tolist()


def test_items_are_those_of_lerobot(tmp_path: Path) -> None:
    theirs = needs("lerobot.datasets.lerobot_dataset")
    buffer, ids = recorded(tmp_path / "cups")
    batch = buffer.read(ids)
    data = theirs.LeRobotDataset("made/cups", root=tmp_path / "cups", delta_timestamps=DELTAS)
    for number in range(len(ids)):
        want = data[number]
        for name, value in shown(batch, number).items():
            given = want[name].numpy()
            if value.dtype == np.uint8:  # as floats, channels first
                given = np.moveaxis(np.round(given * 255).astype("uint8"), -3, -1)
            np.testing.assert_array_equal(value, given, err_msg=f"{number} {name}")


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({}, "offsets of at least one field"),
        ({"obs": ()}, "integers, at least one"),
        ({"obs": 3}, "integers, at least one"),
        ({"obs": "ab"}, "integers, at least one"),
        ({"obs": (0.5,)}, "an integer, got `0.5`"),
        ({"obs": (2**40,)}, "offsets below"),
        ({"reward": {"a": (0,)}}, "integers, at least one"),
        ({"extras": (0, 1)}, "a mapping from names"),
        ({"reward": (0, 1), "n_step": 2}, "`reward` or `n_step`"),
    ],
)
def test_what_is_refused(choices: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        Windows(**choices)


@pytest.mark.parametrize(
    ("choices", "schema", "text"),
    [
        ({"extras": {"nope": (0,)}}, SIMPLE, "one of `obs`, `action`, `reward`, `note`, got `nope`"),
        ({"obs": {"a": (0,)}}, SIMPLE, "got `obs.a`"),
        ({"action": (-5, 6)}, SIMPLE, r"at most 10 steps, .* got `12` \(5 before the anchor and 7 from it on\)"),
        ({"obs": (0,)}, relive.Schema(**SIMPLE.tree, pad=relive.Field()), "without a field `pad`"),
        ({"extras": {"s": (0,)}}, relive.Schema(**SIMPLE.tree, s=relive.Field(every=1)), "a value at every step's row"),
        ({"obs": (0,)}, relive.Schema(**SIMPLE.tree, s=relive.Field(every=2)), "kept at every step"),
        (
            {"extras": {"discount": (0,)}, "n_step": 2}, relive.Schema(**SIMPLE.tree, discount=relive.Field()),
            "`discount` or `n_step`",
        ),
    ],
)  # fmt: skip
def test_what_a_buffer_refuses(choices: dict[str, Any], schema: relive.Schema, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        relive.ReplayBuffer(schema, 10, item=Windows(**choices))


def test_text() -> None:
    choice = Windows(obs={"a": (-1, 0), "b": range(5)}, action=range(-1, 15), pad="zero", n_step=3)
    assert repr(choice) == (
        "Windows(obs={'a': (-1, 0), 'b': range(0, 5)}, action=range(-1, 15), pad='zero', n_step=3, gamma=0.99)"
    )
    assert eval(repr(choice)) == choice
