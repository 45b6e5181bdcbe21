"""What one draw returns, by walking the episodes of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .._base.nests import mapped, nested, paths
from .nests import Nested, same_bytes, stacked
from .streams import Anchor, Episode, Step


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

    @property
    def older(self) -> int:
        """Rows before the anchor that the item reads; with stacked frames, at least the older frames of its own."""

    def expand(self, anchor: Anchor) -> dict[str, Nested] | None:
        """Return the fields of the item but `ids`, or None while it is not complete."""


@dataclass(frozen=True)
class TransitionsModel:
    """Windows of `n` steps, or fewer where the episode ends: the model of `relive.Transitions`.

    A step's own discount is its extra `discount`.

    >>> TransitionsModel(n=3, gamma=0.9).starts
    1
    """

    n: int
    gamma: float
    starts: int = 1
    older: int = 0
    chunk: bool = False
    grows = False  # what is complete stays as it is

    def expand(self, anchor: Anchor) -> dict[str, Nested] | None:
        """Return the n-step item that starts at `anchor`, or None while its window is not complete."""
        episode = anchor.episode
        window = episode.steps[anchor.position : anchor.position + self.n]
        first, last, after = window[0], window[-1], anchor.position + len(window)
        if after < len(episode.steps):
            successor = episode.steps[after].obs
        elif episode.closed or (len(window) == self.n and episode.final is not None):
            successor = episode.final
        else:
            return None
        factors = [self.gamma * float(step.extras.get("discount", 1.0)) for step in window]
        actions = [step.action for step in window] + [_zeros(first.action)] * (self.n - len(window))
        chunk = {"mask": np.arange(self.n) < len(window)} if self.chunk else {}
        return {
            "obs": first.obs,
            "action": stacked(actions) if self.chunk else first.action,
            **first.extras,
            "reward": sum(math.prod(factors[:k]) * step.reward for k, step in enumerate(window)),
            "next_obs": last.obs if successor is None else successor,
            "discount": 0.0 if last.terminated or successor is None else math.prod(factors),
            "terminated": last.terminated,
            "truncated": last.truncated,
            "steps": len(window),
            **chunk,
        }


@dataclass(frozen=True)
class SequencesModel:
    """`length` steps in a row, with what n-step targets need after the last.

    Attributes:
        length: Steps that are shown, those in front of the anchor included.
        n: Longest window.
        gamma: Discount per step.
        starts: Anchors are every so many steps of a lane; 0: the first of each episode.
        across: Whether sequences go on behind an episode's end.
        state: Fields that are shown as they were at the first step, zero where they are not kept.
        older: Rows before the first step that are read.
        burn_in: Steps in front of the anchor, fewer where its episode has fewer; 0 across episodes.
        every: `state` is kept at every so many steps of a lane.
        ahead: Extras that are shown n steps on, too.

    >>> SequencesModel(length=4, n=1, gamma=0.99).older
    1
    """

    length: int
    n: int
    gamma: float
    starts: int = 1
    across: bool = False
    state: tuple[str, ...] = ()
    older: int = 1
    burn_in: int = 0
    every: int = 1
    ahead: tuple[str, ...] = ()
    grows = False

    def expand(self, anchor: Anchor) -> dict[str, Nested] | None:
        """Return the sequence of `anchor`, or None while some of its observations are to come."""
        begin = max(anchor.position - self.burn_in, 0)
        front = self.burn_in - (anchor.position - begin)  # positions for which there is no step
        first = Anchor(anchor.lane, anchor.number, begin)
        chain, ended = self.chain(first)
        total = self.length + self.n - front
        needed, last = total + bool(self.ahead), chain[-1].episode
        steps = chain[:total]
        if not ended and len(chain[:needed]) < needed - (last.final is not None and not last.closed):
            return None
        observations = [first.step.obs] * front
        observations += [s.step.obs for s in steps] + [last.newest_obs] * (total - len(steps))
        before: list[Step | None] = [_previous(s) for s in steps]
        if len(before) < total:
            before.append(steps[-1].step)
        # What repeats the last observation follows nothing.
        before = [None] * front + before + [None] * (total - len(before))
        kept = first.step.number % self.every == 0
        states = {name: first.step.extras[name] for name in self.state}
        action, reward = _zeros(anchor.step.action), _zeros(anchor.step.reward)
        fields: dict[str, Nested] = {
            "all_obs": stacked(observations),
            "all_prev_action": stacked([action if s is None else s.action for s in before]),
            "all_prev_reward": stacked([reward if s is None else s.reward for s in before]),
            **{name: state if kept else _zeros(state) for name, state in states.items()},
            **self.rows(steps, observations, front),
            "first": np.bool_(begin == 0),
        }
        for name in self.ahead:
            zero = _zeros(anchor.step.extras[name])
            there = [*range(front, self.length)]
            later = {t: chain[t - front + self.n] for t in there if t - front + self.n < len(chain)}
            shown = {t: at.step.extras[name] for t, at in later.items() if t - front < len(steps)}
            fields[f"next_{name}"] = stacked([shown.get(t, zero) for t in range(self.length)])
        for name in ("obs", "prev_action", "prev_reward"):
            fields[name] = mapped(lambda array: array[: self.length], fields[f"all_{name}"])
        return fields

    def chain(self, anchor: Anchor) -> tuple[list[Anchor], bool]:
        """List the steps from `anchor` on, and return True with them if these are all, because the stream ended."""
        found: list[Anchor] = []
        for number in range(anchor.number, len(anchor.lane.episodes)):
            episode: Episode = anchor.lane.episodes[number]
            first = anchor.position if number == anchor.number else 0
            found += [Anchor(anchor.lane, number, position) for position in range(first, len(episode.steps))]
            if episode.cut or (episode.closed and not self.across):
                return found, True
        return found, False

    def rows(self, steps: list[Anchor], observations: list[Nested], front: int) -> dict[str, Nested]:
        """Return the fields of every step of the sequence; zeros before it begins, and after its end."""
        valid = steps[: self.length - front]
        windows: list[Any] = [TransitionsModel(self.n, self.gamma).expand(s) for s in valid]
        for i, window in enumerate(windows):
            if not self.across and not same_bytes(window["next_obs"], observations[front + i + self.n]):
                raise AssertionError("within an episode the successors are the observations, n steps later")
        places = np.arange(self.length) - front
        fields: dict[str, Nested] = {"mask": (places >= 0) & (places < len(valid))}
        for name in windows[0]:
            if name in self.state or name == "obs":
                continue
            shown = [window[name] for window in windows]
            values = observations[self.n :] if name == "next_obs" else [_zeros(shown[0])] * self.length
            values[front : front + len(shown)] = shown
            fields[name] = stacked(values)
        return fields


@dataclass(frozen=True)
class WindowsModel:
    """The steps at some offsets from the anchor, by field: the model of `relive.Windows`.

    Attributes:
        offsets: The offsets of each field, by the names that lead to it.
        repeat: Whether the nearest step is shown where there is none; else zeros are.
        n: Longest window of a target; None: none.
        gamma: Discount per step.
        lookback: Rows before the anchor that the item needs, where its stream has them.
        starts: As in other models.
        older: Likewise.

    >>> WindowsModel({("obs",): (-1, 0), ("action",): (0, 1, 2)}, lookback=1).span
    3
    """

    offsets: Mapping[tuple[str, ...], tuple[int, ...]]
    repeat: bool = True
    n: int | None = None
    gamma: float = 0.99
    lookback: int = 0
    starts: int = 1
    older: int = 0
    grows = False

    @property
    def span(self) -> int:
        """Steps from the anchor on that have to be there."""
        return max([1 + max(offsets) for offsets in self.offsets.values()] + [self.n or 1])

    def expand(self, anchor: Anchor) -> dict[str, Nested] | None:
        """Return the windows around `anchor`, or None while some of their steps are to come."""
        if TransitionsModel(self.span, self.gamma).expand(anchor) is None:
            return None
        steps = anchor.episode.steps
        fields = _fields_of(anchor.step)
        if self.n is not None:
            fields |= TransitionsModel(self.n, self.gamma).expand(anchor) or {}
        flat, masks = dict(paths(fields)), dict[tuple[str, ...], Any]()
        for path, offsets in self.offsets.items():
            places = [anchor.position + offset for offset in offsets]
            near = [min(max(place, 0), len(steps) - 1) for place in places]
            pad = np.array(places) != near
            masks["pad", *path] = pad
            rows = [dict(paths(_fields_of(steps[place]))) for place in near]
            for keys in [keys for keys in flat if keys[: len(path)] == path]:
                values = [row[keys] for row in rows]
                if not self.repeat:
                    values = [_zeros(value) if gone else value for value, gone in zip(values, pad, strict=True)]
                flat[keys] = stacked(values)
        return nested([*flat.items(), *masks.items()])


def _fields_of(step: Step) -> dict[str, Nested]:
    return {"obs": step.obs, "action": step.action, **step.extras, "reward": step.reward}


def _previous(anchor: Anchor) -> Step | None:
    """Return the step before, in the same episode."""
    return anchor.episode.steps[anchor.position - 1] if anchor.position else None


def _zeros(value: Nested) -> Nested:
    """Make zeros of the same nest, shapes and dtypes."""
    return mapped(lambda part: np.zeros_like(np.asarray(part)), value)
