"""The runner of buffers of states in a row, here of two, to which latents are written back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .._pipeline import Item
from ._loops import OneLane, Run, calls_of
from ._stand_ins import Pair, State


class Latents(OneLane):
    """A pipeline whose buffer has `add(state)`, `pairs()`, `sample(n)` and `update(handle, latent)`."""

    def _fill(self, run: Run) -> None:
        for state in states_of(run):
            self._buffer.add(state)

    def items(self) -> list[Item]:
        """Return every item that can be drawn."""
        return self._items(self._buffer.pairs())

    def values(self) -> list[float]:
        """Return the latents of `items`."""
        return [float(one["latent"]) for _, one, two in self._buffer.pairs() if not two["is_first"]]

    def sample(self, n: int) -> list[Item]:
        """Draw items, some of twice as many pairs."""
        return self._items(self._buffer.sample(2 * n))

    def _items(self, pairs: Iterable[Pair]) -> list[Item]:
        """Leave out what runs into the next episode, as `is_first` tells a learner."""
        return [
            Item(float(one["obs"]), float(two["reward"]), self._gamma * (not two["is_terminal"]), float(two["obs"]), at)
            for at, one, two in pairs
            if not two["is_first"]
        ]

    def write(self, handles: list[Any], values: list[float]) -> None:
        """Write latents back."""
        for handle, value in zip(handles, values, strict=True):
            self._buffer.update(handle, value)


def states_of(run: Run) -> Iterator[State]:
    """Yield each observation with the reward before it; the last one of an episode is a state, too."""
    reward, first = 0.0, True
    for call in calls_of(run):
        first |= call.reset
        state = {"obs": call.obs[0].item(), "reward": 0.0 if first else reward, "is_first": first}
        yield {**state, "is_terminal": False, "latent": 0.0}
        reward, first = call.reward[0].item(), call.ends
        if call.ends:
            state = {"obs": call.next_obs[0].item(), "reward": reward, "is_first": False}
            yield {**state, "is_terminal": bool(call.terminated[0]), "latent": 0.0}
