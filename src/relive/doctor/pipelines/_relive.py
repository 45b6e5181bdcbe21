"""relive itself: behind the Recorder, and in a loop that adds every call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import relive
from relive._base.types import Float64

from .._draws import BATCH
from .._pipeline import Item
from .._world import Counter
from ._loops import Run, Runner, calls_of


class Recorded(Runner):
    """A `relive.ReplayBuffer` behind `relive.gymnasium.Recorder`; a subclass may have another `sampler`."""

    threads = True
    sampler: relive.samplers.Sampler = relive.Prioritized(alpha=1.0)

    def _made(self, run: Run) -> relive.ReplayBuffer:
        return relive.ReplayBuffer(**{**choices_of(run), "sampler": self.sampler})

    def _fill(self, run: Run) -> None:
        from relive.gymnasium import Recorder

        for _ in calls_of(run, lambda envs: Recorder(envs, self._buffer)):
            pass

    def items(self) -> Item:
        """Return every item that can be drawn."""
        return columns(self._buffer.read(self._buffer.ids()))

    def probability(self) -> Any:
        """Return the probability of each item."""
        return self._buffer.probability(self._buffer.ids())

    def sample(self, n: int) -> Item:
        """Draw items; a handle is an id."""
        return columns(self._buffer.sample(n))

    def update(self, handles: list[int], td_errors: Any) -> None:
        """Update priorities."""
        self._buffer.update_priorities(np.array(handles, np.int64), td_errors)

    def arrays(self) -> Mapping[str, Any]:
        """Copy the stored arrays: a draw is compared with what was there before it."""
        return {name: self._buffer.column(name) for name in ("obs", "action", "reward", "terminated", "truncated")}

    def choose(self, masses: Float64, n: int) -> Any:
        """Draw steps of a buffer in which they have these priorities."""
        buffer = weighed(masses)
        return np.concatenate([buffer.sample(BATCH).ids for _ in range(n // BATCH)])


class ByHand(Recorded):
    """The same buffer in a loop that adds every call, as if every autoreset mode were the same."""

    def _fill(self, run: Run) -> None:
        for call in calls_of(run):
            step = call._asdict()
            del step["after"], step["reset"]  # the loop says nothing of it
            self._buffer.add(**step)


class RecordedWindows(Recorded):
    """The same buffer with `Windows` of two observations and four actions, and n-step targets at the anchor."""

    def _made(self, run: Run) -> relive.ReplayBuffer:
        item = relive.Windows(obs=(-1, 0), action=range(4), n_step=run.n_step, gamma=run.gamma)
        return relive.ReplayBuffer(**{**choices_of(run), "item": item})

    def items(self) -> Item:
        """Return every item that can be drawn."""
        return at_anchors(super().items())

    def sample(self, n: int) -> Item:
        """Draw items; a handle is an id."""
        return at_anchors(super().sample(n))


def at_anchors(item: Item) -> Item:
    """Return items that show the newest observation of their windows alone."""
    return item._replace(obs=item.obs[:, -1])


def choices_of(run: Run) -> dict[str, Any]:
    """Return the arguments of a buffer for a run."""
    return {
        "schema": relive.Schema.from_spaces(Counter.observation_space, Counter.action_space),
        "capacity": run.size,
        "num_envs": run.num_envs,
        "item": relive.Transitions(n_step=run.n_step, gamma=run.gamma),
        "sampler": relive.Prioritized(alpha=1.0),
    }


def weighed(masses: Float64, make: Any = relive.ReplayBuffer, given: Any = np.asarray) -> Any:
    """Build a buffer of steps of which each has its position as its id and its share of the mass as its priority.

    Args:
        masses: One number for each step.
        make: The class of the buffer.
        given: Turns arrays into what the buffer takes.
    """
    lanes = 2**14
    # A device buffer takes priorities above 2**18 for equal.
    shares = np.pad(masses, (0, -len(masses) % lanes)) * (2**18 / masses.max())
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    sampler = relive.Prioritized(alpha=1.0, eps=0.0)
    buffer = make(schema, len(shares), num_envs=lanes, sampler=sampler, seed=0)
    obs, never = given(np.zeros(lanes, np.float32)), given(np.zeros(lanes, bool))
    for priority in shares.reshape(-1, lanes):
        step = {"obs": obs, "action": obs, "reward": obs, "next_obs": obs, "priority": given(priority)}
        buffer.add(**step, terminated=never, truncated=never)
    return buffer


def columns(batch: Any) -> Item:
    """Return the items of a batch of relive's."""
    return Item(batch.obs, batch.reward, batch.discount, batch.next_obs, batch.ids, batch.weights)
