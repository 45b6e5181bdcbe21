"""What the oracle draws: n-step transitions and sequences, expanded step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .frames import Nested, same_bytes, stacked, tree_map
from .oracle import Anchor, Episode, Step

Fields = dict[str, Nested]


@dataclass(frozen=True)
class Transitions:
    """Windows of `n` steps, or fewer where the episode ends."""

    n: int
    gamma: float
    starts: int = 1
    older: int = 0

    def expand(self, anchor: Anchor) -> Fields | None:
        """The n-step item that starts at `anchor`, or None while its window is not complete."""
        return window_of(anchor.episode, anchor.position, self.n, self.gamma)


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

    def expand(self, anchor: Anchor) -> Fields | None:
        """The sequence that starts at `anchor`, or None while some of its observations are to come."""
        chain, ended = self.chain(anchor)
        total = self.length + self.n
        steps, last = chain[:total], chain[-1].episode
        if not ended and len(steps) < total - (last.final is not None and not last.closed):
            return None
        observations = [s.step.obs for s in steps] + [last.newest_obs] * (total - len(steps))
        before = [previous(s) for s in steps]
        if len(before) < total:
            before.append(steps[-1].step)
        # What repeats the last observation follows nothing.
        before += [None] * (total - len(before))
        fields: Fields = {
            "all_obs": stacked(observations),
            "all_prev_action": stacked([zeros(anchor.step.action) if s is None else s.action for s in before]),
            "all_prev_reward": stacked([zeros(anchor.step.reward) if s is None else s.reward for s in before]),
            **{name: anchor.step.extras[name] for name in self.state},
            **self.rows(steps, observations),
        }
        for name in ("obs", "prev_action", "prev_reward"):
            fields[name] = tree_map(lambda array: array[: self.length], fields[f"all_{name}"])
        return fields

    def chain(self, anchor: Anchor) -> tuple[list[Anchor], bool]:
        """The steps from `anchor` on, and whether these are all, because the stream ended."""
        found: list[Anchor] = []
        for number in range(anchor.number, len(anchor.lane.episodes)):
            episode = anchor.lane.episodes[number]
            first = anchor.position if number == anchor.number else 0
            found += [Anchor(anchor.lane, number, position) for position in range(first, len(episode.steps))]
            if episode.cut or (episode.closed and not self.across):
                return found, True
        return found, False

    def rows(self, steps: list[Anchor], observations: list[Nested]) -> Fields:
        """What every step of the sequence carries; zeros where it is over."""
        valid = steps[: self.length]
        windows: list[Any] = [window_of(s.episode, s.position, self.n, self.gamma) for s in valid]
        for i, window in enumerate(windows):
            if not self.across and not same_bytes(window["next_obs"], observations[i + self.n]):
                raise AssertionError("within an episode the successors are the observations, n steps later")
        fields: Fields = {"mask": np.arange(self.length) < len(valid)}
        for name in windows[0]:
            if name in self.state or name == "obs":
                continue
            values = [window[name] for window in windows]
            for i in range(len(valid), self.length):
                values.append(observations[i + self.n] if name == "next_obs" else zeros(values[0]))
            fields[name] = stacked(values)
        return fields


def previous(anchor: Anchor) -> Step | None:
    """The step before, in the same episode."""
    return anchor.episode.steps[anchor.position - 1] if anchor.position else None


def zeros(value: Nested) -> Nested:
    """Zeros of the same nest, shapes and dtypes."""
    return tree_map(lambda part: np.zeros_like(np.asarray(part)), value)
