"""What the model draws: n-step transitions and sequences, expanded step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from oracle import Episode, Place, Step
from oracle_stacks import same_bytes, tree_map

Tree = Any
Fields = dict[str, Tree]
WHOLE = ("ids", "weights")  # fields of a batch without a time axis, whatever the item


@dataclass(frozen=True)
class Transitions:
    """Windows of `n` steps, or fewer where the episode ends."""

    n: int
    gamma: float
    starts: int = 1
    older: int = 0

    def expand(self, place: Place) -> Fields | None:
        """The n-step item that starts at `place`, or None while its window is not complete."""
        return window_of(place.episode, place.position, self.n, self.gamma)


def window_of(episode: Episode, position: int, n: int, gamma: float) -> Fields | None:
    """One step with its n-step reward, discount and successor."""
    window = episode.steps[position : position + n]
    first, last = window[0], window[-1]
    after = position + len(window)
    if after < len(episode.steps):
        successor = episode.steps[after].obs
    elif episode.closed or (len(window) == n and episode.final is not None):
        successor = episode.final
    else:
        return None
    return {
        "obs": first.obs,
        "action": first.action,
        "reward": sum(gamma**k * step.reward for k, step in enumerate(window)),
        "next_obs": last.obs if successor is None else successor,
        "discount": 0.0 if last.terminated or successor is None else gamma ** len(window),
        "terminated": last.terminated,
        "truncated": last.truncated,
        "steps": len(window),
        **first.extras,
    }


@dataclass(frozen=True)
class Sequences:
    """`length` steps in a row, with what n-step targets need after the last; `state` are the fields of anchors only."""

    length: int  # burn-in included
    n: int
    gamma: float
    starts: int = 1
    across: bool = False
    state: tuple[str, ...] = ()
    older: int = 1

    def expand(self, place: Place) -> Fields | None:
        """The sequence that starts at `place`, or None while some of its observations are to come."""
        chain, ended = self.chain(place)
        total = self.length + self.n
        steps, last = chain[:total], chain[-1].episode
        if not ended and len(steps) < total - (last.final is not None and not last.closed):
            return None
        observations = [p.step.obs for p in steps] + [last.newest_obs] * (total - len(steps))
        before = [previous(p) for p in steps]
        if len(before) < total:
            before.append(steps[-1].step)
        # What repeats the last observation follows nothing.
        before += [None] * (total - len(before))
        fields: Fields = {
            "all_obs": stacked(observations),
            "all_prev_action": stacked([zeros(place.step.action) if s is None else s.action for s in before]),
            "all_prev_reward": stacked([zeros(place.step.reward) if s is None else s.reward for s in before]),
            **{name: place.step.extras[name] for name in self.state},
            **self.rows(steps, observations),
        }
        for name in ("obs", "prev_action", "prev_reward"):
            fields[name] = tree_map(lambda array: array[: self.length], fields[f"all_{name}"])
        return fields

    def chain(self, place: Place) -> tuple[list[Place], bool]:
        """The steps from `place` on, and whether that are all, because the stream ended."""
        found: list[Place] = []
        for number in range(place.number, len(place.lane.episodes)):
            episode = place.lane.episodes[number]
            first = place.position if number == place.number else 0
            found += [Place(place.lane, number, position) for position in range(first, len(episode.steps))]
            if episode.cut or (episode.closed and not self.across):
                return found, True
        return found, False

    def rows(self, steps: list[Place], observations: list[Tree]) -> Fields:
        """What every step of the sequence carries; zeros where it is over."""
        lived = steps[: self.length]
        windows = [window_of(p.episode, p.position, self.n, self.gamma) for p in lived]
        for i, window in enumerate(windows):
            if not self.across and not same_bytes(window["next_obs"], observations[i + self.n]):
                raise AssertionError("within an episode the successors are the observations, n steps later")
        fields: Fields = {"mask": np.arange(self.length) < len(lived)}
        for name in windows[0]:
            if name in self.state or name == "obs":
                continue
            values = [window[name] for window in windows]
            for i in range(len(lived), self.length):
                values.append(observations[i + self.n] if name == "next_obs" else zeros(values[0]))
            fields[name] = stacked(values)
        return fields


def previous(place: Place) -> Step | None:
    """The step before, in the same episode."""
    return place.episode.steps[place.position - 1] if place.position else None


def stacked(values: list[Tree]) -> Tree:
    """A list of equally nested values as one, along a new first axis."""
    return tree_map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *values)


def zeros(value: Tree) -> Tree:
    """Zeros of the same nest, shapes and dtypes."""
    return tree_map(lambda part: np.zeros_like(np.asarray(part)), value)
