"""What the model of a replay buffer holds: lanes, their episodes and steps, and where items start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._base.nests import mapped, paths
from .._base.types import Array
from .nests import Nested, same_bytes


@dataclass
class Step:
    """One stored step, in the schema's dtypes; the reward in float64.

    >>> lane = Lane()
    >>> _ = lane.add(dict(obs=0.0, action=1, reward=0.5, next_obs=1.0, terminated=False, truncated=False))
    >>> lane.episodes[0].steps[0].reward
    array(0.5)
    """

    row: int
    number: int  # how many steps the lane had before
    obs: Nested
    action: Nested
    reward: Array
    terminated: bool
    truncated: bool
    extras: dict[str, Nested]
    priority: float | None  # the argument of `add(priority=...)`


@dataclass
class Episode:
    """An uninterrupted stretch of steps; `final` is the observation after the last one, once it is known.

    >>> Episode(final=3.0, closed=True).newest_obs
    3.0
    """

    history: int = 0  # rows of older frames stored before the first step
    steps: list[Step] = field(default_factory=list)
    final: Nested | None = None
    closed: bool = False
    cut: bool = False

    @property
    def newest_obs(self) -> Nested:
        """The last observation known."""
        return self.steps[-1].obs if self.final is None else self.final


@dataclass(frozen=True)
class Stack:
    """A stack of one field: `k` frames, oldest first, along `axis`.

    >>> Stack(2).history(np.array([0.0, 3.0])), Stack(2).history(np.array([2.0, 3.0]))
    (0, 1)
    """

    k: int
    pad: str = "zero"
    axis: int = 0

    def frames(self, value: Array) -> list[bytes]:
        """Return the frames of a stack, oldest first."""
        return [np.ascontiguousarray(np.take(value, i, axis=self.axis)).tobytes() for i in range(self.k)]

    def history(self, value: Array) -> int:
        """Count the fewest older frames that must be kept for padding to give the rest."""
        frames = self.frames(value)
        for kept in range(self.k - 1):
            known = frames[self.k - 1 - kept :]
            padding = known[0] if self.pad == "first" else bytes(len(known[0]))
            if [padding] * (self.k - 1 - kept) + known == frames:
                return kept
        return self.k - 1


def stacks_of(fields: Nested) -> Nested:
    """Return the stacks of an observation's (nested) fields; None for a field without one.

    >>> from relive import Field
    >>> stacks_of({"image": Field((8, 8), stack=4), "speed": Field()})
    {'image': Stack(k=4, pad='zero', axis=0), 'speed': None}
    """
    return mapped(lambda f: None if f.stack is None else Stack(f.stack, f.pad, f.stack_axis), fields)


def most_frames(stacks: Nested) -> int:
    """Return the frames of the largest stack; 1 if nothing is stacked.

    >>> most_frames({"image": Stack(4), "speed": None})
    4
    """
    if isinstance(stacks, dict):
        return max(most_frames(child) for child in stacks.values())
    return 1 if stacks is None else int(stacks.k)


class Lane:
    """One stream of steps, of observations with these stacks."""

    def __init__(self, stacks: Nested = None) -> None:
        self.stacks = stacks
        self.episodes: list[Episode] = []
        self.rows = self.cuts = self.steps = self.cleared = 0
        self.first = 0  # older rows have been given up, since the lane had more steps than it keeps

    def history(self, obs: Nested) -> int:
        """Count the rows of older frames that an observation needs at a stream's start: its neediest field's."""
        return max(0 if s is None else int(s.history(value)) for s, value in self.pairs(obs))

    def follows(self, before: Nested, after: Nested) -> bool:
        """Return True if the older frames of `after` are the newer frames of `before`, in every stacked field."""
        pairs = zip(self.pairs(before), self.pairs(after), strict=True)
        return all(s is None or s.frames(one)[1:] == s.frames(other)[:-1] for (s, one), (_, other) in pairs)

    def pairs(self, obs: Nested) -> list[tuple[Any, Array]]:
        """List the fields of an observation, each with its stack."""
        stacks = dict(paths(self.stacks)) if isinstance(self.stacks, dict) else {}
        return [(stacks.get(path) if path else self.stacks, np.asarray(value)) for path, value in paths(obs)]

    def add(self, given: dict[str, Nested]) -> int:
        """Store a step, given as the arguments of `ReplayBuffer.add`; returns its row."""
        named = dict(given)
        next_obs, priority = named.pop("next_obs", None), named.pop("priority", None)
        obs, action, reward = (named.pop(name) for name in ("obs", "action", "reward"))
        terminated, truncated = bool(named.pop("terminated")), bool(named.pop("truncated"))
        episode = self.open_episode()
        if episode is not None and self.breaks(episode, obs):
            self.close(episode, cut=True)
            episode = None
        if episode is None:
            episode = Episode(self.history(obs))
            self.rows += episode.history
            self.episodes.append(episode)
        exact = np.asarray(reward, np.float64)
        step = Step(self.rows, self.steps, obs, action, exact, terminated, truncated, named, priority)
        episode.steps.append(step)
        episode.final = next_obs
        self.rows += 1
        self.steps += 1
        unrelated = next_obs is not None and not self.follows(obs, next_obs)
        if unrelated:
            self.rows += self.history(next_obs)
        if terminated or truncated or unrelated:
            self.close(episode, cut=not (terminated or truncated))
        return step.row

    def breaks(self, episode: Episode, obs: Nested) -> bool:
        """Return True if an observation cannot be the one after the episode's newest step."""
        if episode.final is not None:
            return not same_bytes(episode.final, obs)
        return not self.follows(episode.steps[-1].obs, obs)

    def cut(self) -> None:
        """End the stream without a flag."""
        episode = self.open_episode()
        if episode is not None:
            self.close(episode, cut=True)

    def open_episode(self) -> Episode | None:
        """Return the episode that has not ended, if there is one."""
        return self.episodes[-1] if self.episodes and not self.episodes[-1].closed else None

    def close(self, episode: Episode, cut: bool) -> None:
        """End an episode; a known final observation takes a row."""
        episode.closed, episode.cut = True, cut
        self.cuts += cut
        if episode.final is not None:
            self.rows += 1  # the boundary row
        elif cut:  # the newest step's successor will never be known: its observation ends the stream
            episode.final = episode.steps.pop().obs


@dataclass(frozen=True)
class Anchor:
    """One step of a lane, by its episode among all that are left and its position in it.

    >>> lane = Lane()
    >>> _ = lane.add(dict(obs=0.0, action=1, reward=0.5, next_obs=1.0, terminated=False, truncated=False))
    >>> anchor = Anchor(lane, number=0, position=0)
    >>> anchor.step.action, anchor.episode.final
    (1, 1.0)
    """

    lane: Lane
    number: int
    position: int

    @property
    def episode(self) -> Episode:
        """The step's episode."""
        return self.lane.episodes[self.number]

    @property
    def step(self) -> Step:
        """The step itself."""
        return self.episode.steps[self.position]
