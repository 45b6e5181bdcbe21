"""A slow, obvious model of the replay buffer, to compare the fast one with.

Per lane a list of episodes, per episode a list of steps; every question is answered by walking them. Nothing of the
library's arithmetic is used here, and nothing is clever: where the two disagree, one of them is wrong.

What the oracle takes as given: a lane stores one row per step and one per boundary observation; an id is
``row * num_envs + lane``; a lane keeps its newest ``rows_per_lane`` rows, of which it gives up the oldest as soon as
more than ``steps_per_lane`` steps are among them; an anchor goes when a row that it needs goes. Stacked frames may need
further rows, which this model does not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .._base.nests import mapped
from .._base.types import Array, Int64
from .nests import Nested, same_bytes

if TYPE_CHECKING:
    from ..buffer import ReplayBuffer


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


class Lane:
    """One stream of steps."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.rows = self.cuts = self.steps = self.cleared = 0
        self.first = 0  # older rows have been given up, since the lane had more steps than it keeps

    def history(self, obs: Nested) -> int:
        """Rows of older frames that an observation needs at the start of a stream."""
        return 0

    def follows(self, before: Nested, after: Nested) -> bool:
        """Whether the older frames of `after` are the newer frames of `before`."""
        return True

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
        """Whether an observation cannot be the one after the episode's newest step."""
        if episode.final is not None:
            return not same_bytes(episode.final, obs)
        return not self.follows(episode.steps[-1].obs, obs)

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


class ItemModel(Protocol):
    """An item, expanded step by step; see `TransitionsModel`.

    >>> class Rewards:
    ...     starts, older = 1, 0
    ...     def expand(self, anchor):
    ...         return None if anchor.episode.final is None else {"reward": anchor.step.reward}
    """

    @property
    def starts(self) -> int:
        """Items start at every `starts`-th step of a lane."""
        ...

    @property
    def older(self) -> int:
        """Rows before the anchor that the item reads; with stacked frames, at least the older frames of its own."""
        ...

    def expand(self, anchor: Anchor) -> dict[str, Nested] | None:
        """The fields of the item but `ids`, or None while it is not complete."""
        ...


@dataclass(frozen=True)
class TransitionsModel:
    """Windows of `n` steps, or fewer where the episode ends: the model of `relive.Transitions`.

    >>> TransitionsModel(n=3, gamma=0.9).starts
    1
    """

    n: int
    gamma: float
    starts: int = 1
    older: int = 0

    def expand(self, anchor: Anchor) -> dict[str, Nested] | None:
        """The n-step item that starts at `anchor`, or None while its window is not complete."""
        episode = anchor.episode
        window = episode.steps[anchor.position : anchor.position + self.n]
        first, last, after = window[0], window[-1], anchor.position + len(window)
        if after < len(episode.steps):
            successor = episode.steps[after].obs
        elif episode.closed or (len(window) == self.n and episode.final is not None):
            successor = episode.final
        else:
            return None
        return {
            "obs": first.obs,
            "action": first.action,
            "reward": sum(self.gamma**k * step.reward for k, step in enumerate(window)),
            "next_obs": last.obs if successor is None else successor,
            "discount": 0.0 if last.terminated or successor is None else self.gamma ** len(window),
            "terminated": last.terminated,
            "truncated": last.truncated,
            "steps": len(window),
            **first.extras,
        }


class OracleBuffer:
    """The model of a buffer: all lanes, and which ids can be drawn.

    Args:
        num_envs: Lanes.
        rows_per_lane: Rows of a lane, `buffer.column("ids").shape[1]`.
        item: The model of the item.
        steps_per_lane: Steps that a lane keeps, `capacity // num_envs`; None: as many as it has rows, as with
            `boundaries=0`.

    >>> from relive.testing import GO, STAY, SCHEMAS, Script, SyntheticEnvs
    >>> oracle = OracleBuffer(num_envs=1, rows_per_lane=4, item=TransitionsModel(n=2, gamma=0.5))
    >>> steps = SyntheticEnvs(SCHEMAS["flat"], num_envs=1).rollout([0], 6, Script([GO], [STAY], give_next=True))
    >>> oracle.extend([0], steps).tolist(), sorted(oracle.items())
    ([[0, 1, 2, 3, 4, 5]], [2, 3, 4])
    """

    def __init__(self, num_envs: int, rows_per_lane: int, item: ItemModel, steps_per_lane: int | None = None) -> None:
        self.num_envs, self.rows_per_lane, self.item = num_envs, rows_per_lane, item
        self.steps_per_lane = rows_per_lane if steps_per_lane is None else steps_per_lane
        self.lanes = [Lane() for _ in range(num_envs)]
        self.drawable: set[int] = set()

    @classmethod
    def of(cls, buffer: ReplayBuffer, item: ItemModel) -> OracleBuffer:
        """The model of a buffer that is empty yet.

        >>> from relive import ReplayBuffer
        >>> from relive.testing import SCHEMAS
        >>> oracle = OracleBuffer.of(ReplayBuffer(SCHEMAS["flat"], 100), TransitionsModel(n=1, gamma=0.99))
        >>> oracle.steps_per_lane, oracle.rows_per_lane
        (100, 164)
        """
        steps = buffer.capacity // buffer.num_envs
        return cls(buffer.num_envs, buffer.column("ids").shape[1], item, steps)

    def extend(self, lanes: list[int], steps: dict[str, Any]) -> Int64:
        """Store the steps `[L', T, ...]` of these lanes, named as in `ReplayBuffer.extend`; returns their ids."""
        ids = np.empty(steps["reward"].shape[:2], np.int64)
        for i, t in np.ndindex(*ids.shape):
            row = self.lanes[lanes[i]].add(mapped(lambda value, at=(i, t): value[at], steps))
            self.give_up(self.lanes[lanes[i]])
            ids[i, t] = row * self.num_envs + lanes[i]
        self.refresh()
        return ids

    def give_up(self, lane: Lane) -> None:
        """Give up the oldest rows of a lane that has more steps than it keeps."""
        stored = [step.row for episode in lane.episodes for step in episode.steps if step.row >= self.oldest(lane)]
        if len(stored) > self.steps_per_lane:
            lane.first = stored[-self.steps_per_lane - 1] + 1

    def cut(self, lanes: list[int]) -> None:
        """End the stream of these lanes."""
        for lane in lanes:
            self.lanes[lane].cut()
        self.refresh()

    def clear(self) -> None:
        """Forget all steps; rows are numbered on."""
        for lane in self.lanes:
            lane.episodes.clear()
            lane.cleared = lane.rows
        self.refresh()

    def follow(self, ids: Iterable[int], steps: Iterable[int]) -> list[tuple[int, int]]:
        """Where so many steps on (or back) lead to from each of some stored steps, and how many of them there are."""
        anchors, found = self.anchors(), []
        for key, wanted in zip(ids, steps, strict=True):
            anchor = here = anchors[key]
            way = 1 if wanted > 0 else -1
            for _ in range(abs(wanted)):
                stands = 0 <= here.position + way < len(here.episode.steps)
                there = replace(here, position=here.position + way) if stands else here
                here = there if there.step.row >= self.oldest(there.lane) else here
            found.append((here.step.row * self.num_envs + key % self.num_envs, here.position - anchor.position))
        return found

    def refresh(self) -> None:
        """Find out which ids can be drawn now. An item that is complete stays so."""
        anchors = {key: anchor for key, anchor in self.anchors().items() if self.is_stored(anchor)}
        complete = {key for key in anchors.keys() - self.drawable if self.item.expand(anchors[key]) is not None}
        self.drawable = (self.drawable & anchors.keys()) | complete
        for lane in self.lanes:  # forget episodes that are overwritten, to keep walks short
            oldest = self.oldest(lane)
            while lane.episodes and lane.episodes[0].closed and all(s.row < oldest for s in lane.episodes[0].steps):
                del lane.episodes[0]

    def oldest(self, lane: Lane) -> int:
        """The oldest row of a lane that is still stored."""
        return max(lane.first, lane.rows - self.rows_per_lane)

    def anchors(self) -> dict[int, Anchor]:
        """Every step whose row is stored, by id."""
        return {
            step.row * self.num_envs + number: Anchor(lane, at, position)
            for number, lane in enumerate(self.lanes)
            for at, episode in enumerate(lane.episodes)
            for position, step in enumerate(episode.steps)
            if step.row >= self.oldest(lane)
        }

    def older(self, anchor: Anchor) -> int:
        """Rows before the anchor that the item reads."""
        return min(self.item.older, anchor.position)

    def is_stored(self, anchor: Anchor) -> bool:
        """Whether an item may start here and every row that it reads, and that has come, is stored."""
        start = anchor.step.number % self.item.starts == 0
        return start and anchor.step.row - self.older(anchor) >= self.oldest(anchor.lane)

    def items(self) -> dict[int, Any]:
        """Every drawable id and its item, by ascending id."""
        anchors = self.anchors()
        return {key: self.item.expand(anchors[key]) for key in sorted(self.drawable)}

    def undrawable(self) -> list[int]:
        """Ids near every edge that must be refused: overwritten, boundary rows, waiting steps, the next."""
        return [
            row * self.num_envs + number
            for number, lane in enumerate(self.lanes)
            for row in range(max(0, self.oldest(lane) - 2), lane.rows + 1)
            if row * self.num_envs + number not in self.drawable
        ]
