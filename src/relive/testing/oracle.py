"""A slow, obvious model of the replay buffer, to compare the fast one with.

Per lane a list of episodes, per episode a list of steps; every question is answered by walking them. Nothing here is
imported from the rest of the library, and nothing here is clever: where the two disagree, one of them is wrong.

What the oracle takes as given: a lane stores one row per step, one per boundary observation, and, where a stack's older
frames are not those of the stream, one *history row* per frame that must be kept beside it; an id is
``row * num_envs + lane``; a lane keeps exactly its newest ``rows_per_lane`` rows; an anchor goes when a row that it
needs goes. Observations are kept as the caller gave them, stacks included: what is drawn is what was given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from .._types import Array
from .frames import Nested, follows, history_of, most_frames, same_bytes


@dataclass
class Step:
    """One stored step, in the schema's dtypes."""

    row: int
    obs: Nested
    action: Nested
    reward: Array
    terminated: bool
    truncated: bool
    extras: dict[str, Nested]
    priority: float | None = None  # the argument of `add(priority=...)`
    number: int = -1  # how many steps the lane had before


@dataclass
class Episode:
    """An uninterrupted stretch of steps; `final` is the observation after the last one, once it is known."""

    history: int  # rows of older frames stored before the first step
    steps: list[Step] = field(default_factory=list)
    final: Nested | None = None
    closed: bool = False
    cut: bool = False

    @property
    def newest_obs(self) -> Nested:
        """The last observation known."""
        return self.steps[-1].obs if self.final is None else self.final


class Lane:
    """One stream of steps."""

    def __init__(self, stacks: Nested) -> None:
        self.stacks = stacks
        self.episodes: list[Episode] = []
        self.rows = 0
        self.cuts = 0
        self.steps = 0

    def add(self, step: Step, next_obs: Nested | None) -> int:
        """Store a step; returns its row."""
        episode = self.open_episode()
        if episode is not None and self.breaks(episode, step.obs):
            self.close(episode, cut=True)
            episode = None
        if episode is None:
            episode = Episode(history_of(self.stacks, step.obs))
            self.rows += episode.history
            self.episodes.append(episode)
        step.row, step.number = self.rows, self.steps
        self.rows += 1
        self.steps += 1
        episode.steps.append(step)
        episode.final = next_obs
        over = step.terminated or step.truncated
        unrelated = next_obs is not None and not follows(self.stacks, step.obs, next_obs)
        if unrelated:
            self.rows += history_of(self.stacks, next_obs)
        if over or unrelated:
            self.close(episode, cut=not over)
        return step.row

    def breaks(self, episode: Episode, obs: Nested) -> bool:
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
        """The episode that goes on, if there is one."""
        return self.episodes[-1] if self.episodes and not self.episodes[-1].closed else None

    def close(self, episode: Episode, cut: bool) -> None:
        """End an episode; a known final observation takes a row."""
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
        """Drop episodes that lie wholly before `row` (keeps the oracle's walks short)."""
        while self.episodes and self.episodes[0].closed and all(s.row < row for s in self.episodes[0].steps):
            del self.episodes[0]


@dataclass(frozen=True)
class Anchor:
    """One step of a lane, by its episode among all that are left and its position in it."""

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


class ItemModel(Protocol):
    """An item, expanded step by step: `relive.testing.oracle_items` has those of relive's own."""

    @property
    def starts(self) -> int:
        """Items start at every `starts`-th step of a lane."""
        ...

    @property
    def older(self) -> int:
        """Rows before the anchor that the item reads, whatever the stacks are."""
        ...

    def expand(self, anchor: Anchor) -> dict[str, Nested] | None:
        """The fields of the item, or None while it is not complete."""
        ...


class OracleBuffer:
    """The model of a buffer: all lanes, and which ids can be drawn with which raw priority.

    Args:
        num_envs: Lanes.
        rows_per_lane: `capacity // num_envs`.
        item: The model of the item.
        initial: The raw priority of new items until there is a larger one.
        stacks: Shaped like an observation, with a `Stack` or None for every field; see `stacks_of`.

    >>> import numpy as np
    >>> from relive.testing import OracleBuffer, oracle_items
    >>> oracle = OracleBuffer(num_envs=1, rows_per_lane=4, item=oracle_items.Transitions(n=2, gamma=0.5))
    >>> for t in range(3):
    ...     id = oracle.add(0, Step(-1, np.float32(t), np.int64(0), np.ones(()), False, False, {}), np.float32(t + 1))
    >>> oracle.refresh()
    >>> sorted(oracle.items()), float(oracle.items()[0]["reward"])
    ([0, 1], 1.5)
    """

    def __init__(
        self, num_envs: int, rows_per_lane: int, item: ItemModel, initial: float = 1.0, stacks: Nested = None
    ) -> None:
        self.num_envs, self.rows_per_lane, self.item, self.initial = num_envs, rows_per_lane, item, initial
        self.frames = most_frames(stacks)
        self.lanes = [Lane(stacks) for _ in range(num_envs)]
        self.priority: dict[int, float] = {}  # raw, of every drawable id
        self.highest: float | None = None
        self.added = 0
        self.stale = 0

    def add(self, lane: int, step: Step, next_obs: Nested | None) -> int:
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
        """The running maximum of raw priorities; zero means "never" of one item, and nothing about new ones."""
        if value > 0:
            self.highest = value if self.highest is None else max(self.highest, value)

    def refresh(self) -> None:
        """Find out which ids can be drawn now; new ones get their priority. An item that is complete stays so."""
        anchors = {key: anchor for key, anchor in self.anchors().items() if self.is_stored(anchor)}
        for gone in set(self.priority) - set(anchors):
            del self.priority[gone]
        for key in set(anchors) - set(self.priority):
            if self.item.expand(anchors[key]) is not None:
                given = anchors[key].step.priority
                default = self.initial if self.highest is None else self.highest
                self.priority[key] = default if given is None else given
        for lane in self.lanes:
            lane.forget_before(lane.oldest(self.rows_per_lane))

    def anchors(self) -> dict[int, Anchor]:
        """Every step whose row is stored, by id."""
        return {
            episode.steps[position].row * self.num_envs + number: Anchor(lane, at, position)
            for number, lane in enumerate(self.lanes)
            for at, episode in enumerate(lane.episodes)
            for position in range(len(episode.steps))
            if episode.steps[position].row >= lane.oldest(self.rows_per_lane)
        }

    def is_stored(self, anchor: Anchor) -> bool:
        """Whether an item may start here and every row that it reads, and that has come, is stored."""
        frames = min(self.frames - 1, anchor.position + anchor.episode.history)
        older = max(frames, min(self.item.older, anchor.position))
        start = anchor.step.number % self.item.starts == 0
        return start and anchor.step.row - older >= anchor.lane.oldest(self.rows_per_lane)

    def items(self) -> dict[int, Any]:
        """Every drawable id and its item, by ascending id."""
        anchors = self.anchors()
        return {key: self.item.expand(anchors[key]) for key in sorted(self.priority)}

    def episodes(self) -> list[list[int]]:
        """The drawable ids of every episode that has some."""
        anchors = self.anchors()
        found: dict[int, list[int]] = {}
        for key in sorted(self.priority):
            found.setdefault(id(anchors[key].episode), []).append(key)
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

    def by_slot(self) -> list[int]:
        """Drawable ids in the order of draws: by slot in the lane's ring, then by lane."""
        return sorted(self.priority, key=lambda i: (i // self.num_envs % self.rows_per_lane, i % self.num_envs))

    @property
    def cuts(self) -> int:
        """Streams that were cut."""
        return sum(lane.cuts for lane in self.lanes)

    @property
    def stored(self) -> int:
        """Steps whose row is still in the ring."""
        return len(self.anchors())

    def undrawable(self) -> list[int]:
        """Ids near every edge that must be refused: overwritten, boundary and history rows, waiting steps, the next."""
        return [
            row * self.num_envs + number
            for number, lane in enumerate(self.lanes)
            for row in range(max(0, lane.oldest(self.rows_per_lane) - 2), lane.rows + 1)
            if row * self.num_envs + number not in self.priority
        ]
