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
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.nests import mapped
from .._base.types import Int64
from .item_models import ItemModel
from .nests import Nested
from .streams import Anchor, Lane, most_frames, stacks_of

if TYPE_CHECKING:
    from ..buffer import ReplayBuffer


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

    >>> from relive.testing import GO, STAY, SCHEMAS, Script, SyntheticEnvs, TransitionsModel
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
        self._anchors: dict[int, Anchor] = {}
        self._expanded: dict[int, tuple[int, Any]] = {}  # items that stay, and the cuts of their lanes until then
        self.priority: dict[int, float] = {}
        self.highest: float | None = None
        self.stale = 0

    @classmethod
    def of(cls, buffer: ReplayBuffer, item: ItemModel) -> OracleBuffer:
        """Make the model of a buffer that is still empty.

        >>> from relive import ReplayBuffer
        >>> from relive.testing import SCHEMAS, TransitionsModel
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
        oldest = self.oldest(lane)
        stored = [step.row for episode in lane.episodes for step in episode.steps if step.row >= oldest]
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
        """Follow some stored steps ahead (or back); return the ids reached, and the number of steps made."""
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
        for lane in self.lanes:  # forget episodes that are overwritten, to keep walks short
            oldest = self.oldest(lane)
            while lane.episodes and lane.episodes[0].closed and all(s.row < oldest for s in lane.episodes[0].steps):
                del lane.episodes[0]
        self._anchors = {
            step.row * self.num_envs + number: Anchor(lane, at, position)
            for number, lane in enumerate(self.lanes)
            for oldest in [self.oldest(lane)]
            for at, episode in enumerate(lane.episodes)
            for position, step in enumerate(episode.steps)
            if step.row >= oldest
        }
        anchors = {key: anchor for key, anchor in self._anchors.items() if self.is_stored(anchor)}
        complete = {key for key in anchors.keys() - self.drawable if self.expanded(key, anchors[key]) is not None}
        self.drawable = (self.drawable & anchors.keys()) | complete
        self._expanded = {key: item for key, item in self._expanded.items() if key in self.drawable}
        self.priority = {key: value for key, value in self.priority.items() if key in self.drawable}
        for key in self.drawable - self.priority.keys():
            given = anchors[key].step.priority
            default = self.initial if self.highest is None else self.highest
            self.priority[key] = default if given is None else float(given)

    def raise_highest(self, value: float) -> None:
        """Raise the running maximum of raw priorities; zero means "never" of one item, and nothing about new ones."""
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

    def write(self, ids: Iterable[int], values: dict[str, Any]) -> int:
        """Give the steps that are stored new values, `[n, ...]` by field; the last of several counts.

        Returns how many were given.
        """
        anchors, written = self.anchors(), 0
        self._expanded.clear()
        for place, key in enumerate(ids):
            if key in anchors:
                step, given = anchors[key].step, mapped(lambda value, at=place: value[at], values)
                step.reward = np.asarray(given.pop("reward", step.reward), np.float64)
                step.extras = {**step.extras, **given}
                written += 1
        return written

    def by_slot(self) -> list[int]:
        """List drawable ids in the order of draws: by slot in the lane's ring, then by lane."""
        return sorted(self.priority, key=lambda i: (i // self.num_envs % self.rows_per_lane, i % self.num_envs))

    def episodes(self) -> list[list[int]]:
        """List the drawable ids of every episode that has some."""
        anchors = self.anchors()
        found: dict[int, list[int]] = {}
        for key in sorted(self.priority):
            found.setdefault(id(anchors[key].episode), []).append(key)
        return list(found.values())

    def oldest(self, lane: Lane) -> int:
        """Return the oldest row of a lane that is still stored."""
        return max(lane.first, lane.rows - self.rows_per_lane)

    def anchors(self) -> dict[int, Anchor]:
        """Return every step whose row is stored, by id."""
        return self._anchors

    def older(self, anchor: Anchor) -> int:
        """Count the rows before the anchor that the item reads, older frames of the first observation included."""
        if hasattr(self.item, "lookback"):
            return min(int(self.item.lookback), anchor.position + anchor.episode.history)
        shown = min(getattr(self.item, "burn_in", 0), anchor.position)  # steps in front of the anchor
        first = anchor.position - shown
        frames = min(self.frames - 1, first + anchor.episode.history)
        return shown + max(min(self.item.older, first), frames)

    def is_stored(self, anchor: Anchor) -> bool:
        """Return True if an item may start here, and all rows that it reads and that were added are stored."""
        starts = self.item.starts
        start = anchor.step.number % starts == 0 if starts else anchor.position == 0
        return start and anchor.step.row - self.older(anchor) >= self.oldest(anchor.lane)

    def items(self) -> dict[int, Any]:
        """Return every drawable id and its item, by ascending id."""
        anchors = self.anchors()
        return {key: self.expanded(key, anchors[key]) for key in sorted(self.drawable)}

    def expanded(self, key: int, anchor: Anchor) -> Any:
        """Return the item of an anchor; one that does not grow is expanded anew after cuts alone."""
        if getattr(self.item, "grows", True):
            return self.item.expand(anchor)
        if self._expanded.get(key, (-1,))[0] != anchor.lane.cuts:
            self._expanded[key] = anchor.lane.cuts, self.item.expand(anchor)
        return self._expanded[key][1]

    def undrawable(self) -> list[int]:
        """List ids near every edge that must be refused: overwritten, boundary rows, waiting steps, the next."""
        return [
            row * self.num_envs + number
            for number, lane in enumerate(self.lanes)
            for row in range(max(0, self.oldest(lane) - 2), lane.rows + 1)
            if row * self.num_envs + number not in self.drawable
        ]
