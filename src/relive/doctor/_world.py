"""The counter environment, and what is true of every step taken in it.

Its observations are numbers that name lane, episode and step, so the right n-step target of every stored item can be
computed from its observation alone. Nothing here uses relive's own arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from relive.errors import ArgumentError, message

_LANE, _EPISODE = 10_000, 100
# What later rewards have more than early ones, which are whole and below 128: float32 holds it, no smaller dtype does.
_FINE = 200.3125


class Course(NamedTuple):
    """The lengths and ends of episodes.

    Attributes:
        lengths: Their lengths, in turn.
        terminates: Whether all of them terminate, or none; None: every second one does.
        alone: Whether every environment is lane 0, since one alone is stepped; others are asked for their spaces.
    """

    lengths: tuple[int, ...] = (5, 3, 7, 4)
    terminates: bool | None = None
    alone: bool = False


COURSE = Course()


class Place(NamedTuple):
    """The lane, episode and step of an observation."""

    lane: int
    episode: int
    t: int
    course: Course = COURSE

    @property
    def code(self) -> int:
        """The observation."""
        return self.lane * _LANE + self.episode * _EPISODE + self.t

    @property
    def length(self) -> int:
        """The length of its episode without an early reset; of many lanes, some end at other times than others."""
        return self.course.lengths[(self.episode + self.lane // 3) % len(self.course.lengths)]

    @property
    def terminates(self) -> bool:
        """True if its episode ends in a terminal state; the others are truncated."""
        return self.episode % 2 == 1 if self.course.terminates is None else self.course.terminates

    @property
    def reward(self) -> float:
        """The reward of the step from here: of 8 successive episodes of all lanes each step has another one."""
        small = 1 + self.t + 8 * (self.episode % 8) + 64 * self.lane
        return small + _FINE if self.episode // 8 % 2 else small

    def later(self, steps: int) -> Place:
        """Return the place so many steps later in the same episode."""
        return Place(self.lane, self.episode, self.t + steps, self.course)

    @property
    def brief(self) -> str:
        """The place in few words."""
        return f"env {self.lane}, episode {self.episode}, step {self.t}"

    def __str__(self) -> str:
        end = "terminates" if self.terminates else "is truncated"
        at = f"step {self.t}" if self.t < self.length else "its final observation"
        return f"env {self.lane}, episode {self.episode} ({end} after {self.length} steps), {at}"


class Target(NamedTuple):
    """The right target of an item, `reward + bootstrap * V(next_obs)`."""

    steps: int
    reward: float
    bootstrap: float
    next_obs: float
    truncated: bool


class World:
    """The environments of one run, and a record of the steps taken in them.

    Args:
        course: When episodes end.
        gate: Called before each step of an environment, in the thread that takes it.
        before: The world of an earlier run into the same buffer; None: there was none.
    """

    def __init__(
        self, course: Course = COURSE, gate: Callable[[], None] = lambda: None, before: World | None = None
    ) -> None:
        self.course, self.gate = course, gate
        self.taken: dict[tuple[int, int], int] = dict(before.taken) if before else {}  # steps, by lane and episode
        self.since = 1 + max((episode for _, episode in self.taken), default=-1)
        self._lanes = 0

    def make_env(self) -> gymnasium.Env[Any, Any]:
        """Make the environment of the next lane."""
        self._lanes += 1
        return Counter(self, 0 if self.course.alone else self._lanes - 1)

    @property
    def steps(self) -> int:
        """Steps taken in all environments."""
        return sum(self.taken.values())

    def place(self, obs: float) -> Place | None:
        """Return the place of an observation; None if it was never made."""
        if not 0 <= obs < math.inf or obs != int(obs):
            return None
        code = int(obs)
        place = Place(code // _LANE, code % _LANE // _EPISODE, code % _EPISODE, self.course)
        return place if place.t <= self.taken.get(place[:2], -1) else None

    def number(self, place: Place) -> int:
        """Return how many steps were taken in the lane of a place before it."""
        return place.t + sum(n for (lane, at), n in self.taken.items() if lane == place.lane and at < place.episode)

    def lived(self, place: Place) -> int:
        """Return the steps taken in the episode of a place."""
        return self.taken[place[:2]]

    def target(self, place: Place, steps: int, gamma: float) -> Target:
        """Compute the target of `steps` steps from a place, none of which goes beyond the end of the episode."""
        reward = sum(gamma**k * place.later(k).reward for k in range(steps))
        last = place.later(steps)
        ended = last.t == place.length
        bootstrap = 0.0 if ended and place.terminates else gamma**steps
        return Target(steps, reward, bootstrap, float(last.code), ended and not place.terminates)


class Counter(gymnasium.Env[Any, Any]):
    """Observations count lane, episode and step; episodes go as the world's course says."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it
    observation_space: Any = gymnasium.spaces.Box(0.0, 1e7, (1,), np.float32)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def __init__(self, world: World, lane: int) -> None:
        self._world, self._place = world, Place(lane, world.since - 1, 0, world.course)
        self.observation_space = gymnasium.spaces.Box(0.0, 1e7, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def _obs(self) -> np.ndarray[Any, Any]:
        return np.array([self._place.code], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode; of two resets in a row the second changes nothing."""
        del seed, options  # nothing here is random
        lane, episode, t, course = self._place
        if t > 0 or episode < self._world.since:
            if episode + 1 >= _LANE // _EPISODE:
                at = "make_env().reset"
                raise ArgumentError(message("at most 100 episodes", "one more", at, "make `calls` steps, not more"))
            self._place = Place(lane, episode + 1, 0, course)
            self._world.taken[self._place[:2]] = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step; the action does not matter."""
        self._world.gate()
        before = self._place
        if before.episode < self._world.since or before.t >= before.length:
            remedy = "reset an environment before its first step, and after `terminated` or `truncated`"
            raise ArgumentError(message("an episode that goes on", "none", "make_env().step", remedy))
        self._place = before.later(1)
        self._world.taken[before[:2]] += 1
        ended = self._place.t == before.length
        return self._obs(), float(before.reward), ended and before.terminates, ended and not before.terminates, {}
