"""A slow, obvious model of the replay buffer, to compare the fast one with.

Per lane a list of episodes, per episode a list of steps; every question is answered by walking them. Nothing of the
library's arithmetic is used here, and nothing is clever: where the two disagree, one of them is wrong.

What the oracle takes as given: a lane stores one row per step and one per boundary observation; an id is
``row * num_envs + lane``; a lane keeps its newest ``rows_per_lane`` rows, of which it gives up the oldest as soon as
more than ``steps_per_lane`` steps are among them; an anchor goes when a row that it needs goes; a stream that begins
with a stack takes a row for every older frame that padding does not give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .._base.nests import mapped, paths
from .._base.types import Array, Int64
from .nests import Nested, same_bytes, stacked

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


@dataclass(frozen=True)
class Stack:
    """How one field is stacked: `k` frames, oldest first, along `axis`.

    >>> Stack(2).history(np.array([0.0, 3.0])), Stack(2).history(np.array([2.0, 3.0]))
    (0, 1)
    """

    k: int
    pad: str = "zero"
    axis: int = 0

    def frames(self, value: Array) -> list[bytes]:
        """The frames of a stack, oldest first."""
        return [np.ascontiguousarray(np.take(value, i, axis=self.axis)).tobytes() for i in range(self.k)]

    def history(self, value: Array) -> int:
        """The fewest older frames that must be kept for padding to give the rest."""
        frames = self.frames(value)
        for kept in range(self.k - 1):
            known = frames[self.k - 1 - kept :]
            padding = known[0] if self.pad == "first" else bytes(len(known[0]))
            if [padding] * (self.k - 1 - kept) + known == frames:
                return kept
        return self.k - 1


def stacks_of(fields: Nested) -> Nested:
    """The stacks of an observation's (nested) fields; None for a field without one.

    >>> from relive import Field
    >>> stacks_of({"image": Field((8, 8), stack=4), "speed": Field()})
    {'image': Stack(k=4, pad='zero', axis=0), 'speed': None}
    """
    return mapped(lambda f: None if f.stack is None else Stack(f.stack, f.pad, f.stack_axis), fields)


def most_frames(stacks: Nested) -> int:
    """Frames of the largest stack; 1 where nothing is stacked.

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
        """Rows of older frames that an observation needs at the start of a stream: as many as its neediest field."""
        return max(0 if s is None else int(s.history(value)) for s, value in self.pairs(obs))

    def follows(self, before: Nested, after: Nested) -> bool:
        """Whether the older frames of `after` are the newer frames of `before`, in every stacked field."""
        pairs = zip(self.pairs(before), self.pairs(after), strict=True)
        return all(s is None or s.frames(one)[1:] == s.frames(other)[:-1] for (s, one), (_, other) in pairs)

    def pairs(self, obs: Nested) -> list[tuple[Any, Array]]:
        """The stack of each field of an observation, and the field."""
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


@dataclass(frozen=True)
class SequencesModel:
    """`length` steps in a row, with what n-step targets need after the last; `state` are the fields of anchors only.

    >>> SequencesModel(length=4, n=1, gamma=0.99).older
    1
    """

    length: int  # burn-in included
    n: int
    gamma: float
    starts: int = 1
    across: bool = False
    state: tuple[str, ...] = ()
    older: int = 1

    def expand(self, anchor: Anchor) -> dict[str, Nested] | None:
        """The sequence that starts at `anchor`, or None while some of its observations are to come."""
        chain, ended = self.chain(anchor)
        total = self.length + self.n
        steps, last = chain[:total], chain[-1].episode
        if not ended and len(steps) < total - (last.final is not None and not last.closed):
            return None
        observations = [s.step.obs for s in steps] + [last.newest_obs] * (total - len(steps))
        before: list[Step | None] = [_previous(s) for s in steps]
        if len(before) < total:
            before.append(steps[-1].step)
        # What repeats the last observation follows nothing.
        before += [None] * (total - len(before))
        fields: dict[str, Nested] = {
            "all_obs": stacked(observations),
            "all_prev_action": stacked([_zeros(anchor.step.action) if s is None else s.action for s in before]),
            "all_prev_reward": stacked([_zeros(anchor.step.reward) if s is None else s.reward for s in before]),
            **{name: anchor.step.extras[name] for name in self.state},
            **self.rows(steps, observations),
        }
        for name in ("obs", "prev_action", "prev_reward"):
            fields[name] = mapped(lambda array: array[: self.length], fields[f"all_{name}"])
        return fields

    def chain(self, anchor: Anchor) -> tuple[list[Anchor], bool]:
        """The steps from `anchor` on, and whether these are all, because the stream ended."""
        found: list[Anchor] = []
        for number in range(anchor.number, len(anchor.lane.episodes)):
            episode: Episode = anchor.lane.episodes[number]
            first = anchor.position if number == anchor.number else 0
            found += [Anchor(anchor.lane, number, position) for position in range(first, len(episode.steps))]
            if episode.cut or (episode.closed and not self.across):
                return found, True
        return found, False

    def rows(self, steps: list[Anchor], observations: list[Nested]) -> dict[str, Nested]:
        """What every step of the sequence carries; zeros where it is over."""
        valid = steps[: self.length]
        windows: list[Any] = [TransitionsModel(self.n, self.gamma).expand(s) for s in valid]
        for i, window in enumerate(windows):
            if not self.across and not same_bytes(window["next_obs"], observations[i + self.n]):
                raise AssertionError("within an episode the successors are the observations, n steps later")
        fields: dict[str, Nested] = {"mask": np.arange(self.length) < len(valid)}
        for name in windows[0]:
            if name in self.state or name == "obs":
                continue
            values = [window[name] for window in windows]
            for i in range(len(valid), self.length):
                values.append(observations[i + self.n] if name == "next_obs" else _zeros(values[0]))
            fields[name] = stacked(values)
        return fields


def _previous(anchor: Anchor) -> Step | None:
    """The step before, in the same episode."""
    return anchor.episode.steps[anchor.position - 1] if anchor.position else None


def _zeros(value: Nested) -> Nested:
    """Zeros of the same nest, shapes and dtypes."""
    return mapped(lambda part: np.zeros_like(np.asarray(part)), value)


class OracleBuffer:
    """The model of a buffer: all lanes, which ids can be drawn, and the raw priority of each.

    Args:
        num_envs: Lanes.
        rows_per_lane: Rows of a lane, `buffer.column("ids").shape[1]`.
        item: The model of the item.
        steps_per_lane: Steps that a lane keeps, `capacity // num_envs`; None: as many as it has rows, as with
            `boundaries=0`.
        initial: The raw priority of new items until the first priority is set.
        stacks: Those of the observation, as `stacks_of` gives them.

    >>> from relive.testing import GO, STAY, SCHEMAS, Script, SyntheticEnvs
    >>> oracle = OracleBuffer(num_envs=1, rows_per_lane=4, item=TransitionsModel(n=2, gamma=0.5))
    >>> steps = SyntheticEnvs(SCHEMAS["flat"], num_envs=1).rollout([0], 6, Script([GO], [STAY], give_next=True))
    >>> oracle.extend([0], steps).tolist(), sorted(oracle.items())
    ([[0, 1, 2, 3, 4, 5]], [2, 3, 4])
    """

    def __init__(
        self,
        num_envs: int,
        rows_per_lane: int,
        item: ItemModel,
        steps_per_lane: int | None = None,
        initial: float = 1.0,
        stacks: Nested = None,
    ) -> None:
        self.num_envs, self.rows_per_lane, self.item = num_envs, rows_per_lane, item
        self.steps_per_lane = rows_per_lane if steps_per_lane is None else steps_per_lane
        self.initial, self.frames = initial, most_frames(stacks)
        self.lanes = [Lane(stacks) for _ in range(num_envs)]
        self.drawable: set[int] = set()
        self.priority: dict[int, float] = {}
        self.highest: float | None = None
        self.stale = 0

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
        initial = float(getattr(buffer.sampler, "initial", 1.0))
        stacks = stacks_of(buffer.schema.tree["obs"])
        return cls(buffer.num_envs, buffer.column("ids").shape[1], item, steps, initial, stacks)

    def extend(self, lanes: list[int], steps: dict[str, Any]) -> Int64:
        """Store the steps `[L', T, ...]` of these lanes, named as in `ReplayBuffer.extend`; returns their ids."""
        ids = np.empty(steps["reward"].shape[:2], np.int64)
        for i, t in np.ndindex(*ids.shape):
            row = self.lanes[lanes[i]].add(mapped(lambda value, at=(i, t): value[at], steps))
            self.give_up(self.lanes[lanes[i]])
            ids[i, t] = row * self.num_envs + lanes[i]
        if "priority" in steps:  # of steps that the same call has overwritten nobody hears
            oldest = np.array([[self.oldest(self.lanes[lane])] for lane in lanes])
            self.raise_highest(steps["priority"][ids // self.num_envs >= oldest].max(initial=0.0))
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
        self.highest = None

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
        """Find out which ids can be drawn now. An item that is complete stays so.

        New items get the priority that they were given, or else the largest so far.
        """
        anchors = {key: anchor for key, anchor in self.anchors().items() if self.is_stored(anchor)}
        complete = {key for key in anchors.keys() - self.drawable if self.item.expand(anchors[key]) is not None}
        self.drawable = (self.drawable & anchors.keys()) | complete
        self.priority = {key: value for key, value in self.priority.items() if key in self.drawable}
        for key in self.drawable - self.priority.keys():
            given = anchors[key].step.priority
            default = self.initial if self.highest is None else self.highest
            self.priority[key] = default if given is None else float(given)
        for lane in self.lanes:  # forget episodes that are overwritten, to keep walks short
            oldest = self.oldest(lane)
            while lane.episodes and lane.episodes[0].closed and all(s.row < oldest for s in lane.episodes[0].steps):
                del lane.episodes[0]

    def raise_highest(self, value: float) -> None:
        """The running maximum of raw priorities; zero means "never" of one item, and nothing about new ones."""
        if value > 0:
            self.highest = float(value) if self.highest is None else max(self.highest, float(value))

    def update(self, ids: list[int], raw: list[float]) -> int:
        """Set raw priorities, the last of several for one id; returns how many were applied."""
        applied = [(key, value) for key, value in zip(ids, raw, strict=True) if key in self.priority]
        for key, value in dict(applied).items():
            self.priority[key] = value
            self.raise_highest(value)
        self.stale += len(ids) - len(applied)
        return len(applied)

    def by_slot(self) -> list[int]:
        """Drawable ids in the order of draws: by slot in the lane's ring, then by lane."""
        return sorted(self.priority, key=lambda i: (i // self.num_envs % self.rows_per_lane, i % self.num_envs))

    def episodes(self) -> list[list[int]]:
        """The drawable ids of every episode that has some."""
        anchors = self.anchors()
        found: dict[int, list[int]] = {}
        for key in sorted(self.priority):
            found.setdefault(id(anchors[key].episode), []).append(key)
        return list(found.values())

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
        """Rows before the anchor that the item reads, older frames of its observation included."""
        frames = min(self.frames - 1, anchor.position + anchor.episode.history)
        return max(min(self.item.older, anchor.position), frames)

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
