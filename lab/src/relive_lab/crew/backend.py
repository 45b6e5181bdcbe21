"""Where actors run: what a crew asks of it, and what it hears of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from relive_lab.crew.actor import Job, Reply


@dataclasses.dataclass(frozen=True)
class Done:
    """An actor did what it was asked for first."""

    number: int
    reply: Reply


@dataclasses.dataclass(frozen=True)
class Died:
    """An actor is gone, as when its process was killed; `how` says how, for instance `was killed by signal 9`."""

    number: int
    how: str


@dataclasses.dataclass(frozen=True)
class Failed:
    """An actor raised an error, or could not be made; `what` says which, `trace` where."""

    number: int
    what: str
    trace: str


class Backend(Protocol):
    """Starts actors, by number, and carries calls to them; calls of one actor are answered in their order."""

    def start(self, number: int, job: Job, writer: Any) -> None:
        """Start an actor in the place of an earlier one with this number, if there was one, whose calls are forgotten.

        Raises:
            ArgumentError: The job cannot be sent.
        """

    def publish(self, weights: Sequence[Tensor]) -> None:
        """Give all calls from now on these weights."""

    def ask(self, number: int, step: int, rounds: int) -> None:
        """Ask an actor to step its environments `rounds` times; `step` is how many steps all actors have done."""

    def hear(self, seconds: float) -> list[Done | Died | Failed]:
        """Return what has come; wait for something for some seconds."""

    def flush(self) -> None:
        """Let every actor add all of its steps; for a moment in which no call is open."""

    def silence(self) -> str:
        """Return what may be the reason where no actor answers."""

    def end(self, grace: float) -> None:
        """End all actors; give them some seconds to do so by themselves."""

    def close(self) -> None:
        """Give back what was taken before the first actor."""
