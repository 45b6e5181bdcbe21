"""A slow, obvious model of the replay buffer, to be compared with the fast one.

Per lane a list of episodes, per episode a list of steps; every question is answered by walking them. Nothing here is
imported from the library, and nothing here is clever: where the two disagree, one of them is wrong.

Ring facts that the model relies on: a lane stores one row per step and one per boundary observation; an id is
``row * num_envs + lane``; a lane keeps exactly its newest ``rows_per_lane`` rows; an anchor goes when its own row goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Tree = Any  # nested dict of arrays, or one array


def tree_map(function, *trees: Tree) -> Tree:
    """Apply `function` to the leaves of equally nested mappings."""
    if hasattr(trees[0], "keys"):
        return {key: tree_map(function, *(tree[key] for tree in trees)) for key in trees[0]}
    return function(*trees)


def leaves(tree: Tree) -> list[np.ndarray]:
    """The arrays of a nested mapping, by sorted key."""
    if hasattr(tree, "keys"):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    return [np.asarray(tree)]


def same_bytes(a: Tree, b: Tree) -> bool:
    """True when every leaf has the same bytes (so NaN equals itself and 0.0 differs from -0.0)."""
    return all(x.tobytes() == y.tobytes() for x, y in zip(leaves(a), leaves(b), strict=True))


@dataclass
class Step:
    """One stored step, in the schema's dtypes."""

    row: int
    obs: Tree
    action: Tree
    reward: float
    terminated: bool
    truncated: bool
    extras: dict[str, Tree]
    priority: float | None = None  # what `add(priority=...)` said


@dataclass
class Episode:
    """An uninterrupted stretch of steps; `final` is the observation after the last one, once it is known."""

    steps: list[Step] = field(default_factory=list)
    final: Tree | None = None
    closed: bool = False


@dataclass
class Item:
    """What one id expands to."""

    obs: Tree
    action: Tree
    reward: float
    next_obs: Tree
    discount: float
    terminated: bool
    truncated: bool
    steps: int
    extras: dict[str, Tree]


class Lane:
    """One stream of steps."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.rows = 0
        self.cuts = 0

    def add(self, step: Step, next_obs: Tree | None) -> int:
        """Store a step; returns its row."""
        episode = self.open_episode()
        if episode is not None and episode.final is not None and not same_bytes(episode.final, step.obs):
            self.close(episode)
            self.cuts += 1
            episode = None
        if episode is None:
            episode = Episode()
            self.episodes.append(episode)
        step.row = self.rows
        self.rows += 1
        episode.steps.append(step)
        episode.final = next_obs
        if step.terminated or step.truncated:
            self.close(episode)
        return step.row

    def cut(self) -> None:
        """End the stream without a flag."""
        episode = self.open_episode()
        if episode is not None:
            self.close(episode)
            self.cuts += 1

    def open_episode(self) -> Episode | None:
        return self.episodes[-1] if self.episodes and not self.episodes[-1].closed else None

    def close(self, episode: Episode) -> None:
        episode.closed = True
        if episode.final is not None:
            self.rows += 1  # the boundary row

    def locate(self, row: int) -> tuple[Episode, int] | None:
        """The episode and position of the step stored at `row`; None for a boundary row or one never written."""
        for episode in self.episodes:
            for position, step in enumerate(episode.steps):
                if step.row == row:
                    return episode, position
        return None

    def forget_before(self, row: int) -> None:
        """Drop episodes that lie wholly before `row` (keeps the model's walks short)."""
        self.episodes = [e for e in self.episodes if not e.closed or e.steps[-1].row >= row]


def expand(episode: Episode, position: int, n_step: int, gamma: float) -> Item | None:
    """The n-step item that starts at `position`, or None while its window is not complete."""
    window = episode.steps[position : position + n_step]
    first, last = window[0], window[-1]
    over = last.terminated or last.truncated
    after = position + len(window)
    if after < len(episode.steps):
        successor = episode.steps[after].obs
    else:
        if len(window) < n_step and not episode.closed:
            return None
        successor = episode.final
        if successor is None and not over:
            if not episode.closed or len(window) == 1:
                return None
            # a cut whose last step has no known successor: that step's observation ends the stream
            window = window[:-1]
            successor, last, over = last.obs, window[-1], False
    discount = gamma ** len(window)
    if last.terminated or successor is None:
        discount = 0.0
    return Item(
        obs=first.obs,
        action=first.action,
        reward=float(sum(gamma**k * step.reward for k, step in enumerate(window))),
        next_obs=last.obs if successor is None else successor,
        discount=discount,
        terminated=last.terminated,
        truncated=last.truncated,
        steps=len(window),
        extras=first.extras,
    )


class OracleBuffer:
    """All lanes, and which ids can be drawn with which priority."""

    def __init__(self, num_envs: int, rows_per_lane: int, n_step: int, gamma: float, initial: float = 1.0) -> None:
        self.num_envs, self.rows_per_lane = num_envs, rows_per_lane
        self.n_step, self.gamma, self.initial = n_step, gamma, initial
        self.lanes = [Lane() for _ in range(num_envs)]
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
        """Find out which ids can be drawn now; newcomers get their priority."""
        drawable = self.items()
        for gone in set(self.priority) - set(drawable):
            del self.priority[gone]
        for new in set(drawable) - set(self.priority):
            lane = self.lanes[new % self.num_envs]
            episode, position = lane.locate(new // self.num_envs)
            given = episode.steps[position].priority
            default = self.initial if self.highest is None else self.highest
            self.priority[new] = default if given is None else given
        for lane in self.lanes:
            lane.forget_before(lane.rows - self.rows_per_lane)

    def items(self) -> dict[int, Item]:
        """Every drawable id and its item."""
        found: dict[int, Item] = {}
        for number, lane in enumerate(self.lanes):
            for row in range(max(0, lane.rows - self.rows_per_lane), lane.rows):
                place = lane.locate(row)
                if place is None:
                    continue
                item = expand(*place, self.n_step, self.gamma)
                if item is not None:
                    found[row * self.num_envs + number] = item
        return found

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
    def rows_held(self) -> int:
        """Rows in use over all lanes, boundary rows included."""
        return sum(min(lane.rows, self.rows_per_lane) for lane in self.lanes)

    @property
    def steps_held(self) -> int:
        """Steps whose row is still in the ring."""
        return sum(
            lane.locate(row) is not None
            for lane in self.lanes
            for row in range(max(0, lane.rows - self.rows_per_lane), lane.rows)
        )

    def silent_ids(self) -> list[int]:
        """Ids near every edge that must be refused: just overwritten, boundary rows, waiting steps, the next ones."""
        found = []
        for number, lane in enumerate(self.lanes):
            oldest = max(0, lane.rows - self.rows_per_lane)
            for row in range(max(0, oldest - 2), lane.rows + 1):
                key = row * self.num_envs + number
                if key not in self.priority:
                    found.append(key)
        return found


def stratified_targets(u: np.ndarray, total: float, stratified: bool) -> np.ndarray:
    """Where the uniforms fall on the cumulative priorities."""
    if not stratified:
        return u * total
    return (np.arange(len(u)) + u) * (total / len(u))


def draw(mass: np.ndarray, targets: np.ndarray, slack: float = 1e-9) -> tuple[np.ndarray, np.ndarray]:
    """Index of the half-open interval that holds each target, and whether rounding could not have changed it."""
    edges = np.cumsum(mass)
    index = np.searchsorted(edges, targets, side="right")
    index = np.minimum(index, np.flatnonzero(mass > 0)[-1])
    near = np.abs(edges[None, :] - targets[:, None]).min(axis=1)
    return index, near > slack * edges[-1]


def is_weights(mass: np.ndarray, drawn: np.ndarray, beta: float, normalise: str) -> np.ndarray:
    """(N P)^-beta, divided by the largest in the batch, in the buffer, or not."""
    weights = (len(mass) * mass[drawn] / mass.sum()) ** -beta
    if normalise == "batch":
        return weights / weights.max()
    if normalise == "buffer":
        return weights / ((len(mass) * mass[mass > 0].min() / mass.sum()) ** -beta)
    return weights
