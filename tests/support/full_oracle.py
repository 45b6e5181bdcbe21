"""The oracle of all that relive has: stacked frames, sequences, priorities and their updates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import relive
from relive._base.nests import mapped
from relive.testing import OracleBuffer, TransitionsModel, agreement
from relive.testing.agreement import check
from relive.testing.nests import Nested, same_bytes, stacked
from relive.testing.oracle import Anchor, Episode, ItemModel, Lane, Step

Fields = dict[str, Nested]


@dataclass(frozen=True)
class Stack:
    """How one field is stacked: `k` frames, oldest first, along `axis`."""

    k: int
    pad: str = "zero"
    axis: int = 0

    def frames(self, value: np.ndarray) -> list[bytes]:
        """The frames of a stack, oldest first."""
        return [np.ascontiguousarray(np.take(value, i, axis=self.axis)).tobytes() for i in range(self.k)]

    def history(self, value: np.ndarray) -> int:
        """The fewest older frames that must be kept for padding to give the rest."""
        frames = self.frames(value)
        for kept in range(self.k - 1):
            known = frames[self.k - 1 - kept :]
            padding = known[0] if self.pad == "first" else bytes(len(known[0]))
            if [padding] * (self.k - 1 - kept) + known == frames:
                return kept
        return self.k - 1


def stacks_of(fields: Nested) -> Nested:
    """The stacks of an observation's (nested) fields; None for a field without one."""
    if isinstance(fields, dict):
        return {name: stacks_of(child) for name, child in fields.items()}
    return None if fields.stack is None else Stack(fields.stack, fields.pad, fields.stack_axis)


def most_frames(stacks: Nested) -> int:
    """Frames of the largest stack; 1 where nothing is stacked."""
    if isinstance(stacks, dict):
        return max(most_frames(child) for child in stacks.values())
    return 1 if stacks is None else int(stacks.k)


class StackedLane(Lane):
    """A lane that keeps a row for every older frame that its stream does not give."""

    def __init__(self, stacks: Nested) -> None:
        super().__init__()
        self.stacks = stacks

    def history(self, obs: Nested) -> int:
        return history_of(self.stacks, obs)

    def follows(self, before: Nested, after: Nested) -> bool:
        return follows(self.stacks, before, after)


def history_of(stacks: Nested, obs: Nested) -> int:
    """Rows of older frames that an observation needs at the start of a stream: as many as its neediest field."""
    if isinstance(stacks, dict):
        return max(history_of(stacks[name], obs[name]) for name in stacks)
    return 0 if stacks is None else int(stacks.history(np.asarray(obs)))


def follows(stacks: Nested, before: Nested, after: Nested) -> bool:
    """Whether the older frames of `after` are the newer frames of `before`, in every stacked field."""
    if isinstance(stacks, dict):
        return all(follows(stacks[name], before[name], after[name]) for name in stacks)
    return stacks is None or stacks.frames(np.asarray(before))[1:] == stacks.frames(np.asarray(after))[:-1]


class FullOracle(OracleBuffer):
    """A model with stacks, shaped like an observation, and with the raw priority of every drawable id."""

    def __init__(
        self,
        num_envs: int,
        rows_per_lane: int,
        item: ItemModel,
        initial: float = 1.0,
        stacks: Nested = None,
        steps_per_lane: int | None = None,
    ) -> None:
        super().__init__(num_envs, rows_per_lane, item, steps_per_lane)
        self.initial, self.frames = initial, most_frames(stacks)
        self.lanes = [StackedLane(stacks) for _ in range(num_envs)]
        self.priority: dict[int, float] = {}
        self.highest: float | None = None
        self.stale, self.adding = 0, False

    def extend(self, lanes: list[int], steps: dict[str, Any]) -> np.ndarray:
        self.adding = True
        ids = super().extend(lanes, steps)
        self.adding = False
        if "priority" in steps:  # of steps that the same call has overwritten nobody hears
            oldest = np.array([[self.oldest(self.lanes[lane])] for lane in lanes])
            self.raise_highest(steps["priority"][ids // self.num_envs >= oldest].max(initial=0.0))
        self.refresh()
        return ids

    def clear(self) -> None:
        super().clear()
        self.highest = None

    def older(self, anchor: Anchor) -> int:
        return max(super().older(anchor), min(self.frames - 1, anchor.position + anchor.episode.history))

    def refresh(self) -> None:
        """New items get the priority that they were given, or else the largest so far."""
        if self.adding:
            return
        super().refresh()
        anchors = self.anchors()
        for key in set(self.priority) - self.drawable:
            del self.priority[key]
        for key in self.drawable - set(self.priority):
            given = anchors[key].step.priority
            default = self.initial if self.highest is None else self.highest
            self.priority[key] = default if given is None else float(given)

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


def assert_same_buffer(
    buffer: relive.ReplayBuffer, oracle: FullOracle, whole: Iterable[str] | None = None, probe: int = 0
) -> None:
    """As in `relive.testing`, and what depends on priorities."""
    can_draw = any(priority > 0 for priority in oracle.priority.values())
    check(buffer.can_sample(1) is can_draw, f"can_sample(1) is not {can_draw}")
    agreement.assert_same_buffer(buffer, oracle, whole, probe)
    check(buffer.stats().stale_updates == oracle.stale, f"stale updates are not {oracle.stale}")


@dataclass(frozen=True)
class SequencesModel:
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
        before: list[Step | None] = [previous(s) for s in steps]
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

    def rows(self, steps: list[Anchor], observations: list[Nested]) -> Fields:
        """What every step of the sequence carries; zeros where it is over."""
        valid = steps[: self.length]
        windows: list[Any] = [TransitionsModel(self.n, self.gamma).expand(s) for s in valid]
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
    return mapped(lambda part: np.zeros_like(np.asarray(part)), value)
