"""Actors of this process: a backend whose calls are executed when somebody waits for them, and that dies at will."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from relive_lab.crew.actor import Actor, Job
from relive_lab.crew.backend import Died, Done, Failed
from relive_lab.crew.weights import flattened, restore


class Local:
    """A backend.

    Attributes:
        actors: By number; the present ones.
        started: How often each number was started.
        most: The largest number of calls that an actor had before it.
        silent: Whether nothing is executed.
        doomed: Numbers whose actors die at their first call.
    """

    def __init__(self) -> None:
        self.actors: dict[int, Actor] = {}
        self.started: dict[int, int] = {}
        self.most, self.silent, self.published = 0, False, 0
        self.doomed: set[int] = set()
        self._calls: dict[int, deque[Any]] = {}
        self._dead: set[int] = set()
        self._turn = 0

    def start(self, number: int, job: Job, writer: Any) -> None:
        if number in self.actors:
            self.actors.pop(number)._writer.close()
        self.actors[number], self._calls[number] = Actor(job, writer), deque()
        self.started[number] = self.started.get(number, 0) + 1
        self._dead.discard(number)
        if number in self.doomed:
            self.kill(number)

    def kill(self, number: int) -> None:
        """Let the actor die, with the steps that it holds back."""
        self._dead.add(number)

    def publish(self, weights: Sequence[Tensor]) -> None:
        self.weights = flattened(weights)
        self.published += 1

    def ask(self, number: int, step: int, rounds: int) -> None:
        self._calls[number].append((self.weights, step, rounds))
        self.most = max(self.most, len(self._calls[number]))

    def hear(self, seconds: float) -> list[Done | Died | Failed]:
        numbers = [number for number, calls in self._calls.items() if calls]
        if not numbers or self.silent:
            return []
        self._turn += 1
        number = numbers[self._turn % len(numbers)]
        if number in self._dead:
            self._calls[number].clear()
            return [Died(number, "was killed by a test")]
        weights, step, rounds = self._calls[number].popleft()
        actor = self.actors[number]
        restore(actor.weights, weights)
        try:
            return [Done(number, actor.act(step, rounds))]
        except Exception as error:
            return [Failed(number, f"{type(error).__name__}: {error}", traceback.format_exc())]

    def flush(self) -> None:
        for actor in self.actors.values():
            actor.flush()

    def silence(self) -> str:
        return "a test wants it"

    def end(self, grace: float) -> None:
        for actor in self.actors.values():
            actor.close()

    def close(self) -> None:
        pass
