"""LeRobot's buffer under random programs, and frames of data sets under random flags, against slow readings of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from depth import LONG
from needs import needs

torch = needs("torch")
from relive.errors import SchemaError
from relive.lerobot import ReplayBuffer

IMAGE, STATE = "observation.images.top", "observation.state"
PROGRAMS = 600 if LONG else 80


def observed(number: int, exact: bool = True) -> dict[str, Any]:
    level = float(number % 250) + (0.0 if exact else 0.3)
    return {STATE: torch.full((1, 2), float(number)), IMAGE: torch.full((1, 3, 2, 2), level) / 255}


def items(buffer: ReplayBuffer) -> dict[int, Any]:
    """Return every item that can be drawn, by its reward, which is the number of its step."""
    found = {}
    for part in buffer._parts():
        for place, number in enumerate(part["reward"].tolist()):
            states = [part[name][key][place].tolist() for name in ("state", "next_state") for key in (STATE, IMAGE)]
            found[int(number)] = (*states, part["done"][place].item(), part["truncated"][place].item())
    return found


@pytest.mark.filterwarnings("ignore:An image is no multiple:relive.ReliveWarning")
@pytest.mark.filterwarnings("ignore:Expected:relive.ReliveWarning")
@pytest.mark.parametrize("part", range(5))
def test_images_become_floats_at_any_moment(part: int) -> None:
    """Check that the buffer equals one that had floats from the first step on."""
    for seed in range(part, PROGRAMS, 5):
        rng, capacity = np.random.default_rng(seed), int(np.random.default_rng(seed).choice([4, 30]))
        widened = ReplayBuffer(capacity, "cpu", use_drq=False)
        floats = ReplayBuffer(capacity, "cpu", use_drq=False, images="float32")
        when, place = int(rng.integers(0, 8)), 0
        for number in range(int(rng.integers(when + 1, 14))):
            done, truncated = rng.random() < 0.2, rng.random() < 0.2
            state, place = observed(place, exact=number != when), place + 1
            after = None if rng.random() < 0.5 else observed(place)
            step = {"state": state, "action": torch.zeros(1, 1), "reward": float(number), "next_state": after}
            step |= {"done": bool(done), "truncated": bool(truncated)}
            for buffer in (widened, floats):
                buffer.add(**step)
            place += 5 * (rng.random() < 0.2 or done or truncated)
            if number >= when:
                assert len(widened) == len(floats), seed
                assert items(widened) == items(floats), seed


FLAGS = ("next.done", "next.terminated", "next.truncated")


def frames_of(rng: Any) -> tuple[list[dict[str, Any]], bool]:
    """Make the frames of some episodes, with some flags, and tell if they have next observations of their own."""
    own, flags = bool(rng.random() < 0.3), [name for name in FLAGS if rng.random() < 0.6]
    frames: list[dict[str, Any]] = []
    for episode in range(int(rng.integers(1, 4))):
        for place in range(length := int(rng.integers(1, 5))):
            number, last = 10 * episode + place, place == length - 1
            terminated = bool(rng.random() < (0.6 if last else 0.1))
            truncated = not terminated and bool(rng.random() < (0.6 if last else 0.1))
            truth = dict(zip(FLAGS, (terminated or truncated, terminated, truncated), strict=True))
            frame = {
                STATE: torch.full((2,), float(number)),
                "action": torch.zeros(1),
                "next.reward": torch.tensor(number),
            }
            frame |= {"episode_index": torch.tensor(episode), "next.success": torch.tensor(True)}
            frame |= {name: torch.tensor(truth[name]) for name in flags}
            frames.append(frame | ({f"next.{STATE}": torch.full((2,), number + 0.5)} if own else {}))
    return frames, own


def read(frames: list[dict[str, Any]], own: bool) -> dict[int, tuple[float | None, bool, bool]]:
    """Read each step from the frames: the observation after it, None if nothing bootstraps, and both flags."""
    found: dict[int, tuple[float | None, bool, bool]] = {}
    before: int | None = None  # a step whose stream goes on
    for place, frame in enumerate(frames):
        number = int(frame["next.reward"])
        following = frames[place + 1] if place + 1 < len(frames) else None
        follows = following is not None and bool(following["episode_index"] == frame["episode_index"])
        done, terminated, truncated = (bool(frame[name]) if name in frame else None for name in FLAGS)
        ended = bool(done or terminated or truncated)
        terminal = terminated
        if terminal is None:
            terminal = (not follows if done is None else done) and not truncated
        if own:
            found[number] = None if terminal else number + 0.5, terminal, not terminal and (ended or not follows)
        elif terminal:
            found[number] = None, True, False
        elif follows and not ended and following is not None:
            found[number] = float(following["next.reward"]), False, False
        elif before is not None:
            found[before] = found[before][0], False, True
        before = number if number in found and not terminal and not own else None
    return found


def test_every_data_set_gives_the_steps_that_its_frames_say() -> None:
    seen = set()
    for seed in range(400 if LONG else 130):
        frames, own = frames_of(np.random.default_rng(seed))
        wanted = read(frames, own)
        buffer = ReplayBuffer.from_lerobot_dataset(frames, "cpu", [STATE], capacity=200, use_drq=False)
        assert len(buffer) == len(wanted), seed
        if not wanted:
            continue
        places = {int(number): place for place, number in enumerate(buffer.rewards)}
        assert places.keys() == wanted.keys(), seed
        for number, (after, terminal, truncated) in wanted.items():
            place = places[number]
            assert (bool(buffer.dones[place]), bool(buffer.truncateds[place])) == (terminal, truncated), (seed, number)
            if after is not None:
                assert buffer.next_states[STATE][place].tolist() == [after, after], (seed, number)
        seen.add((own, *[name in frames[0] for name in FLAGS]))
    assert len(seen) == 16


@pytest.mark.parametrize(
    "name", ["done", "is_terminal", "reward", "next.state", "discount", "is_last", "next.observation"]
)
def test_features_that_look_like_ends_successors_or_rewards_are_refused(name: str) -> None:
    frames, _ = frames_of(np.random.default_rng(0))
    with pytest.raises(SchemaError, match=f"a use of `{name}`, which has the name of"):
        ReplayBuffer.from_lerobot_dataset([frame | {name: frame["action"]} for frame in frames], "cpu", [STATE])
    last = [*frames, frames[-1] | {name: frames[0]["action"]}]
    with pytest.raises(SchemaError, match="a use of"):
        ReplayBuffer.from_lerobot_dataset(last, "cpu", [STATE], use_drq=False)


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"state_keys": None}, "state_keys"),
        ({"capacity": 1}, r"at least \d"),
        ({"state_keys": ["observation.else"]}, "else"),
    ],
)
def test_choices_that_no_data_set_fits_are_refused(choices: dict[str, Any], text: str) -> None:
    frames, _ = frames_of(np.random.default_rng(0))
    with pytest.raises(ValueError, match=text):
        ReplayBuffer.from_lerobot_dataset(frames, "cpu", **{"state_keys": [STATE], **choices})


def test_next_observations_of_some_keys_are_refused() -> None:
    frames, _ = frames_of(np.random.default_rng(0))
    two = [frame | {"observation.more": frame[STATE], "next.observation.more": frame[STATE]} for frame in frames]
    for frame in two:
        frame.pop(f"next.{STATE}", None)
    with pytest.raises(SchemaError, match=r"`next\.\.\.\.` of each of `state_keys`"):
        ReplayBuffer.from_lerobot_dataset(two, "cpu", [STATE, "observation.more"])
