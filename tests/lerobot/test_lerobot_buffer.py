"""LeRobot's buffer on relive: every item is a step as it was added, in LeRobot's shapes and float32."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import run_program
from depth import LONG
from needs import needs
from standing_in import layout as layout

torch = needs("torch")
from relive.errors import ArgumentError, MissingExtra, ReliveWarning, SchemaError, StaleId
from relive.lerobot import ReplayBuffer, concatenate_batch_transitions, random_crop_vectorized, random_shift

IMAGE, STATE = "observation.images.top", "observation.state"
KINDS = ("exact", "rounded", "float32", "none")


@cache
def state_of(number: int, kind: str = "exact") -> dict[str, Any]:
    """Make an observation of a number; its image is a camera's, of anything in [0, 1], or absent."""
    state = {STATE: torch.tensor([[number + 0.5, -number]])}
    if kind != "none":
        levels = torch.from_numpy(np.random.default_rng(number).integers(0, 256, (1, 3, 4, 5)).astype(np.uint8))
        state[IMAGE] = levels.float() / 255 if kind == "exact" else levels.float() / 255.5
    return state


def step_of(number: int, kind: str = "exact", **changed: Any) -> dict[str, Any]:
    """Make a step; episodes have 7 steps, and end in `done`, are truncated, are both, or break off, in turns."""
    ends, turn = number % 7 == 6, number // 7 % 4
    step = {
        "state": state_of(2 * number, kind),
        "action": torch.tensor([[number, 1.0, 2.0]]),
        "reward": float(number),
        "next_state": state_of(2 * number + (3 if ends else 2), kind),
        "done": ends and turn in (0, 2),
        "truncated": ends and turn in (1, 2),
        "complementary_info": {"penalty": torch.tensor([number + 0.25]), "is_intervention": number % 2},
    }
    return {**step, **changed}


def filled(numbers: Any, size: int = 50, **choices: Any) -> ReplayBuffer:
    """Make a buffer of the steps of these numbers."""
    buffer = ReplayBuffer(size, "cpu", **{"use_drq": False, **choices})
    for number in numbers:
        buffer.add(**step_of(number))
    return buffer


def check(batch: Any, kind: str, added: int, capacity: int) -> None:
    """Check every item of a batch, to the bit."""
    assert {*batch} == {"state", "action", "reward", "next_state", "done", "truncated", "complementary_info"}
    for place, number in enumerate(map(int, batch["reward"].tolist())):
        assert added - capacity <= number < added
        step = step_of(number, kind)
        for name in ("state", "next_state"):
            for key, value in step[name].items():
                got = batch[name][key][place]
                wanted = value[0] if key == STATE or kind != "rounded" else (value[0] * 255).round() / 255
                assert got.dtype == torch.float32
                assert torch.equal(got, wanted), (name, key, number)
        assert batch["action"][place].tolist() == [number, 1.0, 2.0]
        assert [batch[name][place].item() for name in ("done", "truncated")] == [step["done"], step["truncated"]]
        info = {name: values[place].item() for name, values in batch["complementary_info"].items()}
        assert info == {"penalty": number + 0.25, "is_intervention": number % 2}


@pytest.mark.parametrize("kind", KINDS)
def test_every_item_is_as_it_was_added(kind: str, tmp_path: Path) -> None:
    """Check while it is filled, when it is overwritten, and after it was closed and opened again."""
    images = "exact" if kind == "none" else kind
    where = {"images": images, "path": tmp_path / "replay", "every": 0.1}
    buffer, drawn = ReplayBuffer(50, "cpu", use_drq=False, optimize_memory=True, seed=0, **where), 0
    for number in range(170):
        buffer.add(**step_of(number, kind))
        if number == 100:
            buffer.close()
            buffer = ReplayBuffer(50, "cpu", use_drq=False, **where)
        for _ in range(16 if LONG else number % 10 == 0):
            batch = buffer.sample(256)
            drawn += len(batch["reward"])
            check(batch, kind, number + 1, 50)
    assert len(buffer) == 50
    assert drawn > (100_000 if LONG else 500)
    places = [number % 50 for number in range(120, 170)]
    assert [int(buffer.rewards[place]) for place in places] == [*range(120, 170)]
    assert torch.equal(buffer.states[STATE][places[3]], state_of(246)[STATE][0])
    for place in (-1, -2, -len(buffer)):
        assert torch.equal(buffer.rewards[place], buffer.rewards[len(buffer) + place])
    assert torch.equal(buffer.next_states[STATE][places[3] : places[3] + 2][0], state_of(248)[STATE][0])
    assert buffer.dones[:].sum() + buffer.truncateds[:].sum() == 7
    assert {*buffer.states} == {STATE, *([] if kind == "none" else [IMAGE])}
    with pytest.raises(StaleId):
        buffer.actions[50]


def test_an_image_that_is_not_exact_makes_all_of_them_floats(tmp_path: Path) -> None:
    """Check that stored images stay the same, to the bit, also in saves."""
    path = tmp_path / "replay"
    buffer = filled(range(20), path=path, every=0.1)
    with pytest.warns(ReliveWarning, match="stored as float32"):
        buffer.add(**step_of(20, "float32"))
    for again in (False, True):
        if again:
            buffer.close()
            # A kill while the directory was removed, whose place the new one was to take.
            path.rename(tmp_path / "replay.float32")
            path.mkdir()
            (path / "rest").touch()
            buffer = ReplayBuffer(50, "cpu", use_drq=False, path=path)
        assert torch.equal(buffer.next_states[IMAGE][20], step_of(20, "float32")["next_state"][IMAGE][0])
        for number in range(20):
            for name, value in (("states", state_of(2 * number)), ("next_states", step_of(number)["next_state"])):
                assert torch.equal(getattr(buffer, name)[IMAGE][number], value[IMAGE][0]), (name, number)
    assert not (tmp_path / "replay.float32").exists()


def test_the_newest_step_waits_for_its_next_state() -> None:
    """Check that it is not drawn before, and not lost if images become floats meanwhile."""
    buffer = ReplayBuffer(50, "cpu", use_drq=False, optimize_memory=True)
    for number in range(9):
        buffer.add(**step_of(number, next_state=None))
    assert len(buffer) == 9
    assert {*buffer.sample(9)["reward"].tolist()} <= {*range(8)}
    with pytest.warns(ReliveWarning, match="stored as float32"):
        buffer.add(**step_of(9, "float32"))
    for number in (7, 8):
        after = state_of(2 * (number + 1), "exact" if number == 7 else "float32")
        assert torch.equal(buffer.next_states[IMAGE][number], after[IMAGE][0])


def test_memory() -> None:
    """Compare with two arrays of float32 for two cameras' images, and with one, as LeRobot has them."""
    buffer = ReplayBuffer(10_000, "cpu", use_drq=False)
    state = {f"observation.images.{name}": torch.zeros(1, 3, 128, 128) for name in "ab"}
    buffer.add(state, torch.zeros(1, 3), 0.0, state, False, False)
    floats = 10_000 * 2 * 3 * 128 * 128 * 4
    assert buffer.relive is not None
    nbytes = buffer.relive.stats().nbytes
    assert (nbytes / floats, nbytes / (2 * floats)) < (0.27, 0.14)


def test_images_are_changed_by_one_call(record_property: Any) -> None:
    """Check on both states, and one camera after the other; without a function by DrQ's shift."""
    calls = []

    def augment(images: Any) -> Any:
        calls.append(tuple(images.shape))
        return images + torch.arange(len(images))[:, None, None, None]

    buffer = ReplayBuffer(50, "cpu", image_augmentation_function=augment)
    state = {STATE: torch.zeros(1, 2), **{f"observation.images.{name}": torch.zeros(1, 3, 8, 8) for name in "ab"}}
    for _ in range(5):
        buffer.add(state, torch.zeros(1), 0.0, state, False, False)
    batch = buffer.sample(4)
    assert calls == [(16, 3, 8, 8)]
    first = [
        batch[name][f"observation.images.{key}"][:, 0, 0, 0].tolist()
        for key in "ab"
        for name in ("state", "next_state")
    ]
    assert first == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    images = torch.rand(6, 3, 9, 7)
    shifted = random_shift(images, pad=2)
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2), mode="replicate")
    windows = [[padded[:, :, y : y + 9, x : x + 7] for x in range(5)] for y in range(5)]
    for place in range(6):
        assert any(torch.equal(shifted[place], window[place]) for row in windows for window in row)
    with pytest.raises(ArgumentError, match=r"Requested crop size \(10, 7\) is bigger than the image size \(9, 7\)"):
        random_crop_vectorized(images, (10, 7))


def test_iterators_raise() -> None:
    """Check that an error replaces its batch; in LeRobot the learner waits for ever."""
    empty, buffer = filled([]), filled(range(9), use_drq=True, image_augmentation_function=lambda images: 1 // 0)
    for ahead in (False, True):
        with pytest.raises(RuntimeError, match="Cannot sample from an empty buffer"):
            next(empty.get_iterator(2, async_prefetch=ahead))
        with pytest.raises(ZeroDivisionError):
            next(buffer.get_iterator(2, async_prefetch=ahead))
    buffer.use_drq = False
    for ahead in (False, True):
        batches = buffer.get_iterator(20, async_prefetch=ahead)
        for _ in range(3):
            batch = next(batches)
            assert len(batch["reward"]) == 9
            check(batch, "exact", 9, 50)


def test_adding_beside_a_thread_that_draws() -> None:
    """Check that no item mixes two steps."""
    buffer, over = filled(range(20), size=20), threading.Event()

    def add() -> None:
        number = 20
        while not over.is_set():
            buffer.add(**step_of(number))
            number += 1

    thread = threading.Thread(target=add)
    thread.start()
    try:
        batches = buffer.get_iterator(64)
        for _ in range(200 if LONG else 20):
            check(next(batches), "exact", 1 << 30, 1 << 30)
    finally:
        over.set()
        thread.join()


def test_the_end_of_a_program_writes_a_last_save(tmp_path: Path) -> None:
    code = """
import sys, torch
from relive.lerobot import ReplayBuffer
buffer = ReplayBuffer(1000, "cpu", path=sys.argv[1], every=60.0, use_drq=False)
state = {"observation.state": torch.zeros(1, 3)}
for number in range(100):
    buffer.add(state, torch.zeros(1, 2), float(number), state, False, False)
batches = buffer.get_iterator(8)
next(batches)
"""
    path = str(tmp_path / "replay")
    ended = run_program(code, path, loaded=["torch"])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ReplayBuffer(1000, "cpu", path=path)) == 100


def test_two_batches_as_one() -> None:
    buffer, other = filled(range(9)), filled(range(9, 12))
    left, right = buffer.sample(9), other.sample(3)
    both = concatenate_batch_transitions(left, right)
    assert both is left
    check(both, "exact", 12, 50)
    assert len(both["reward"]) == 12
    alone = {**other.sample(3), "complementary_info": None}
    assert concatenate_batch_transitions(alone, right)["complementary_info"] == right["complementary_info"]


REFUSED = {
    "a key of complementary_info that is new": (
        {"complementary_info": {"penalty": 0.0, "is_intervention": 0, "new": 1.0}},
        "`new`",
    ),
    "a key of complementary_info that is missing": ({"complementary_info": {"penalty": 0.0}}, "`is_intervention`"),
    "a state without a key": ({"state": {STATE: torch.zeros(1, 2)}}, IMAGE.replace(".", r"\.")),
    "an action of another shape": ({"action": torch.zeros(1, 4)}, "action"),
    "an object": ({"complementary_info": {"penalty": "much", "is_intervention": 0}}, "a tensor or a number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_step_changes_nothing(case: str) -> None:
    changed, text = REFUSED[case]
    buffer = filled([0])
    with pytest.raises(SchemaError, match=text):
        buffer.add(**step_of(1, **changed))
    buffer.add(**step_of(1))
    check(buffer.sample(64), "exact", 2, 50)
    assert len(buffer) == 2


def test_refused_choices(tmp_path: Path) -> None:
    for choices, text in [
        ({"capacity": 0}, "Capacity must be greater than 0."),
        ({"storage_device": "cuda"}, "`device` says where batches go"),
        ({"images": "uint4"}, "uint4"),
        ({"unknown_info": "keep"}, "keep"),
    ]:
        with pytest.raises(ValueError, match=text):
            ReplayBuffer(**{"capacity": 5, "device": "cpu", **choices})
    twice = {"observation.image": torch.zeros(1, 2), "observation.image.wrist": torch.zeros(1, 2)}
    with pytest.raises(SchemaError, match=r"no key that begins with `observation.image\.`"):
        ReplayBuffer(5, "cpu").add(twice, torch.zeros(1), 0.0, twice, False, False)
    with pytest.raises(ValueError, match=r"The replay buffer is empty. Cannot convert to a dataset."):
        ReplayBuffer(5, "cpu").to_lerobot_dataset("stand/in", root=tmp_path / "new")
    with pytest.raises(MissingExtra, match="pip install 'lerobot"):
        filled([0]).to_lerobot_dataset("stand/in", root=tmp_path / "new")


def test_there_and_back(layout: str, tmp_path: Path) -> None:
    """Check that steps without a successor in a data set are left out, and the one before is truncated."""
    buffer = filled(range(28))
    root = tmp_path / "set"
    (tmp_path / "set.unfinished").mkdir()  # what a killed process left
    dataset = buffer.to_lerobot_dataset("stand/in", fps=10, root=root)
    assert not (tmp_path / "set.unfinished").exists()
    assert len(dataset) == 28
    with pytest.raises(FileExistsError):
        buffer.to_lerobot_dataset("stand/in", root=root)
    again = ReplayBuffer.from_lerobot_dataset(dataset, "cpu", [STATE, IMAGE], use_drq=False)
    kept = [number for number in range(28) if number not in (13, 27)]
    assert [int(reward) for reward in again.rewards] == kept
    for place, number in enumerate(kept):
        step = step_of(number)
        done = step["done"]
        assert bool(again.dones[place]) == done
        assert bool(again.truncateds[place]) == (number in (12, 26))
        for name, wanted in (("states", step["state"]), ("next_states", step["state" if done else "next_state"])):
            for key, value in wanted.items():
                assert torch.equal(getattr(again, name)[key][place], value[0]), (name, key, number)
