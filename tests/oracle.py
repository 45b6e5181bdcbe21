"""A slow, obvious model of the replay buffer, to be compared with the fast one.

Per lane a list of episodes, per episode a list of steps; every question is answered by walking them. Nothing here is
imported from the library, and nothing here is clever: where the two disagree, one of them is wrong.

Ring facts that the model relies on: a lane stores one row per step, one per boundary observation, and, where a stack's
older frames are not those of the stream, one *history row* per frame that must be kept beside it; an id is
``row * num_envs + lane``; a lane keeps exactly its newest ``rows_per_lane`` rows; an anchor goes when a row that it
needs goes. Observations are kept as the caller gave them, stacks and all: what is drawn is what was given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from oracle_stacks import Stack, follows, history_of, same_bytes

Tree = Any  # nested dict of arrays, or one array


@dataclass
class Step:
    """One stored step, in the schema's dtypes."""

    row: int
    obs: Tree
    action: Tree
    reward: np.ndarray
    terminated: bool
    truncated: bool
    extras: dict[str, Tree]
    priority: float | None = None  # what `add(priority=...)` said
    number: int = -1  # how many steps the lane had lived before


@dataclass
class Episode:
    """An uninterrupted stretch of steps; `final` is the observation after the last one, once it is known."""

    history: int  # rows of older frames stored before the first step
    steps: list[Step] = field(default_factory=list)
    final: Tree | None = None
    closed: bool = False
    cut: bool = False

    @property
    def newest_obs(self) -> Tree:
        """The last observation known."""
        return self.steps[-1].obs if self.final is None else self.final


class Lane:
    """One stream of steps."""

    def __init__(self, stacks: Tree) -> None:
        self.stacks = stacks
        self.episodes: list[Episode] = []
        self.rows = 0
        self.cuts = 0
        self.lived = 0

    def add(self, step: Step, next_obs: Tree | None) -> int:
        """Store a step; returns its row."""
        episode = self.open_episode()
        if episode is not None and self.breaks(episode, step.obs):
            self.close(episode, cut=True)
            episode = None
        if episode is None:
            episode = Episode(history_of(self.stacks, step.obs))
            self.rows += episode.history
            self.episodes.append(episode)
        step.row, step.number = self.rows, self.lived
        self.rows += 1
        self.lived += 1
        episode.steps.append(step)
        episode.final = next_obs
        over = step.terminated or step.truncated
        unrelated = next_obs is not None and not follows(self.stacks, step.obs, next_obs)
        if unrelated:
            self.rows += history_of(self.stacks, next_obs)
        if over or unrelated:
            self.close(episode, cut=not over)
        return step.row

    def breaks(self, episode: Episode, obs: Tree) -> bool:
        """Whether an observation cannot be the one after the episode's newest step."""
        if episode.final is not None:
            return not same_bytes(episode.final, obs)
        return not follows(self.stacks, episode.steps[-1].obs, obs)

    def cut(self) -> None:
        """End the stream without a flag."""
        episode = self.open_episode()
        if episode is not None:
            self.close(episode, cut=True)

    def open_episode(self) -> Episode | None:
        return self.episodes[-1] if self.episodes and not self.episodes[-1].closed else None

    def close(self, episode: Episode, cut: bool) -> None:
        episode.closed, episode.cut = True, cut
        self.cuts += cut
        if episode.final is not None:
            self.rows += 1  # the boundary row
        elif cut:  # the newest step's successor will never be known: its observation ends the stream
            episode.final = episode.steps.pop().obs

    def oldest(self, rows_per_lane: int) -> int:
        """The oldest row that is still stored."""
        return max(0, self.rows - rows_per_lane)

    def forget_before(self, row: int) -> None:
        """Drop episodes that lie wholly before `row` (keeps the model's walks short)."""
        while self.episodes and self.episodes[0].closed and all(s.row < row for s in self.episodes[0].steps):
            del self.episodes[0]


@dataclass(frozen=True)
class Place:
    """One step of a lane, found by walking: its episode among all that are left, and its position in it."""

    lane: Lane
    number: int
    position: int

    @property
    def episode(self) -> Episode:
        return self.lane.episodes[self.number]

    @property
    def step(self) -> Step:
        return self.episode.steps[self.position]


class OracleBuffer:
    """All lanes, and which ids can be drawn with which priority.

    `item` has `expand(place)`, which gives the item or None while it is not complete, `starts`, and `older`, the rows
    before an anchor that it reads whatever the stacks are. `stacks` is shaped like an observation and holds a `Stack`
    or None for every field.
    """

    def __init__(self, num_envs: int, rows_per_lane: int, item: Any, initial: float = 1.0, stacks: Tree = None) -> None:
        self.num_envs, self.rows_per_lane, self.item, self.initial = num_envs, rows_per_lane, item, initial
        self.frames = max((stack.k for stack in all_stacks(stacks)), default=1)
        self.lanes = [Lane(stacks) for _ in range(num_envs)]
        self.priority: dict[int, float] = {}  # raw, of every drawable id
        self.highest: float | None = None
        self.added = 0
        self.stale = 0

    def add(self, lane: int, step: Step, next_obs: Tree | None) -> int:
        """Store one step of one lane; returns its id. Call `refresh` after the last of a call."""
        self.added += 1
        if step.priority is not None:
            self.raise_highest(step.priority)
        return self.lanes[lane].add(step, next_obs) * self.num_envs + lane

    def cut(self, lanes: list[int]) -> None:
        """End the stream of these lanes."""
        for lane in lanes:
            self.lanes[lane].cut()
        self.refresh()

    def raise_highest(self, value: float) -> None:
        """The running maximum of raw priorities."""
        if value > 0:  # zero says "never" of one item, and nothing about new ones
            self.highest = value if self.highest is None else max(self.highest, value)

    def refresh(self) -> None:
        """Find out which ids can be drawn now; newcomers get their priority. An item that is complete stays so."""
        places = {key: place for key, place in self.places().items() if self.is_stored(place)}
        for gone in set(self.priority) - set(places):
            del self.priority[gone]
        for key in set(places) - set(self.priority):
            if self.item.expand(places[key]) is not None:
                given = places[key].step.priority
                default = self.initial if self.highest is None else self.highest
                self.priority[key] = default if given is None else given
        for lane in self.lanes:
            lane.forget_before(lane.oldest(self.rows_per_lane))

    def places(self) -> dict[int, Place]:
        """Every step whose row is stored, by id."""
        return {
            episode.steps[position].row * self.num_envs + number: Place(lane, at, position)
            for number, lane in enumerate(self.lanes)
            for at, episode in enumerate(lane.episodes)
            for position in range(len(episode.steps))
            if episode.steps[position].row >= lane.oldest(self.rows_per_lane)
        }

    def is_stored(self, place: Place) -> bool:
        """Whether an item may start here and every row that it reads, and that has come, is stored."""
        frames = min(self.frames - 1, place.position + place.episode.history)
        older = max(frames, min(self.item.older, place.position))
        start = place.step.number % self.item.starts == 0
        return start and place.step.row - older >= place.lane.oldest(self.rows_per_lane)

    def items(self) -> dict[int, Any]:
        """Every drawable id and its item."""
        places = self.places()
        return {key: self.item.expand(places[key]) for key in sorted(self.priority)}

    def episodes(self) -> list[list[int]]:
        """The drawable ids of every episode that has some."""
        places = self.places()
        found: dict[int, list[int]] = {}
        for key in sorted(self.priority):
            found.setdefault(id(places[key].episode), []).append(key)
        return list(found.values())

    def update(self, ids: list[int], raw: list[float]) -> int:
        """Set raw priorities; returns how many were applied."""
        applied = 0
        for key, value in zip(ids, raw, strict=True):
            if key in self.priority:
                self.priority[key] = value
                self.raise_highest(value)
                applied += 1
            else:
                self.stale += 1
        return applied

    def anchors(self) -> list[int]:
        """Drawable ids in anchor order: by slot in the lane's ring, then by lane."""
        return sorted(self.priority, key=lambda i: (i // self.num_envs % self.rows_per_lane, i % self.num_envs))

    @property
    def cuts(self) -> int:
        return sum(lane.cuts for lane in self.lanes)

    @property
    def stored(self) -> int:
        """Steps whose row is still in the ring."""
        return len(self.places())

    def silent_ids(self) -> list[int]:
        """Ids near every edge that must be refused: overwritten, boundary and history rows, waiting steps, the next."""
        return [
            row * self.num_envs + number
            for number, lane in enumerate(self.lanes)
            for row in range(max(0, lane.oldest(self.rows_per_lane) - 2), lane.rows + 1)
            if row * self.num_envs + number not in self.priority
        ]


def all_stacks(stacks: Tree) -> list[Stack]:
    """The stacked fields of an observation."""
    if isinstance(stacks, dict):
        return [stack for child in stacks.values() for stack in all_stacks(child)]
    return [] if stacks is None else [stacks]
