"""The crew: how far actors may go, their weights, what they did, and what happens to one that dies."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from relive.errors import ReliveError, event
from relive_lab.agent import Agent, weights_of
from relive_lab.crew.actor import Job, Reply
from relive_lab.crew.backend import Backend, Died, Done, Failed

# Steps of each environment in a call, and calls that an actor has before it at a time.
ROUNDS, DEPTH = 16, 2
# How many steps actors may be ahead of the learner, at least, and in rounds of updates.
LEAD, LEAD_ROUNDS = 64, 4
# Seconds: the longest wait of a call, and between two looks.
PATIENCE, NAP = 0.1, 0.002
PUBLISH, PUBLISH_SHARE = 0.02, 0.05  # seconds between two versions of the weights, and the share of time they may take
GRACE, HASTE = 5.0, 0.5  # seconds that actors are given to end by themselves, and after an error
# Waits, of `PATIENCE` each, in which neither actors nor learner may go on, after which steps count as lost.
STALLS = 10
# Deaths of an actor without a reply in between after which it is given up; seconds without any reply after which that
# is said.
DEATHS, SILENCE = 3, 30.0
_LOG = logging.getLogger("relive")


@dataclasses.dataclass
class Calls:
    """An actor's calls that are not answered.

    Attributes:
        asked: How many steps each was to do.
        versions: Of the weights that each was given.
        deaths: How often the actor died since its last reply.
    """

    asked: deque[int] = dataclasses.field(default_factory=deque)
    versions: deque[int] = dataclasses.field(default_factory=deque)
    deaths: int = 0


class Crew:
    """A learner's actors, while it trains; a context manager.

    The learner asks each actor for a few steps at a time, with its newest weights, and never for more than it may be
    ahead. The replies say how many were done, and how episodes ended. There is nothing else to share: an actor that
    dies is started again, and the steps it was asked for are asked for anew.

    Args:
        backend: Where they run.
        job: What they are made from.
        agent: The learner's.
        buffer: Gives the actors their writers: a `Shared` buffer, or shards.
        step: Steps that are done.
        ended: Called with the run's step and the return of each episode that ends.

    Attributes:
        done: Steps that have been done, in all.
    """

    def __init__(
        self, backend: Backend, job: Job, agent: Agent, buffer: Any, step: int, ended: Callable[[int, float], None]
    ) -> None:
        self._backend, self._job, self._buffer, self._ended = backend, job, buffer, ended
        self._weights, c = weights_of(agent), job.config
        self._lead = max(LEAD, LEAD_ROUNDS * c.update_every, DEPTH * ROUNDS * c.lanes)
        self.done = self._asked = self._step = step
        self._calls = [Calls() for _ in range(c.actors)]
        self._published, self._every, self._version = 0.0, PUBLISH, 0
        self._heard, self._told, self._starts = time.monotonic(), False, 0
        self._lost = self._stalls = 0  # steps that did not come to the buffer; waits in which nobody could go on
        self._acted = self._waited = 0.0  # seconds that actors acted, and that the learner waited
        self._seen = 0  # the newest version that an actor has used
        self._mark = (time.monotonic(), step, 0.0, 0.0)

    def __enter__(self) -> Crew:
        self._publish()
        try:
            for number in range(self._job.config.actors):
                self._start(number)
        except BaseException:
            self._backend.end(0.0)
            raise
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self._backend.end(GRACE if kind is None else HASTE)

    def wait(self, step: int, allowed: int | None = None) -> int:
        """Wait until actors have done `step` steps in all, or for a moment; return how many they have.

        Args:
            step: As above.
            allowed: How many they may do; None: somewhat more than that.

        Raises:
            ReliveError: An actor failed, or dies again and again.
        """
        most = max(step, self._step + self._lead) if allowed is None else allowed + self._lost
        most = min(most, self._job.config.total_steps)
        begun = time.monotonic()
        self._take(0.0)
        self._ask(most)
        while self.done < step and time.monotonic() < begun + PATIENCE:
            self._take(NAP)
            self._ask(most)
        self._waited += time.monotonic() - begun
        self._note_stall(step)
        self._step = min(step, self.done)
        return self.done

    def publish(self) -> None:
        """Give actors the weights as they are, unless they were given some a moment ago."""
        if time.monotonic() - self._published > self._every:
            self._publish()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause all actors, with all of their steps in the buffer."""
        while any(calls.asked for calls in self._calls):
            self._take(NAP)
        self._backend.flush()
        yield

    def scalars(self, step: int) -> dict[str, float]:
        """Return what a TensorBoard entry says of the actors, since the last one; the learner has done `step` steps."""
        now = (time.monotonic(), self.done, self._acted, self._waited)
        seconds, steps, acted, waited = (one - before for one, before in zip(now, self._mark, strict=True))
        self._mark, seconds = now, max(seconds, 1e-9)
        return {
            "actors/steps_per_second": steps / seconds,
            "actors/waiting_share": max(0.0, 1.0 - acted / seconds / len(self._calls)),
            "actors/learner_waiting_share": min(1.0, waited / seconds),
            "actors/weights_behind": float(self._version - self._seen),
            "actors/steps_ahead": float(self.done - step),
        }

    def _publish(self) -> None:
        begun = time.monotonic()
        self._backend.publish(self._weights)
        self._version += 1
        self._published = time.monotonic()
        self._every = max(PUBLISH, (self._published - begun) / PUBLISH_SHARE)

    def _start(self, number: int) -> None:
        c = self._job.config
        # An actor that takes the place of another one lives through other episodes.
        state = np.random.SeedSequence((c.seed, self._step + self._starts, 1 + number)).generate_state(1)
        own: dict[str, Any] = {"actors": 0, "cluster": None, "shards": 1, "device": "cpu", "torch_threads": 1}
        config = dataclasses.replace(c, **own, seed=int(state[0]), log_dir=None)
        lanes = list(range(number * c.num_envs, (number + 1) * c.num_envs))
        self._starts += 1
        self._backend.start(number, dataclasses.replace(self._job, config=config), self._buffer.writer(lanes))

    def _ask(self, allowed: int) -> None:
        """Ask the actors with the fewest calls before them for steps, up to `allowed` in all."""
        lanes = self._job.config.num_envs
        while self._asked < allowed:
            number = min(range(len(self._calls)), key=lambda each: len(self._calls[each].asked))
            calls = self._calls[number]
            if len(calls.asked) >= DEPTH:
                return
            rounds = min(ROUNDS, -(-(allowed - self._asked) // lanes))
            self._backend.ask(number, self.done, rounds)
            calls.asked.append(rounds * lanes)
            calls.versions.append(self._version)
            self._asked += rounds * lanes

    def _take(self, seconds: float) -> None:
        """Take in what actors did; wait for it for some seconds.

        Raises:
            ReliveError: An actor failed, or dies again and again.
        """
        heard = self._backend.hear(seconds)
        if heard:
            self._heard = time.monotonic()
        elif any(calls.asked for calls in self._calls):
            self._complain(time.monotonic() - self._heard)
        else:
            self._heard = time.monotonic()
        for each in heard:
            if isinstance(each, Failed):
                raise self._failure(each)
            if isinstance(each, Died):
                self._replace(each)
            else:
                self._count(each, each.reply)

    def _count(self, done: Done, reply: Reply) -> None:
        calls = self._calls[done.number]
        calls.deaths = 0
        self._asked += reply.steps - calls.asked.popleft()
        self._seen = max(self._seen, calls.versions.popleft())
        self.done += reply.steps
        self._acted += reply.seconds
        for value in reply.returns:
            self._ended(self.done, value)

    def _failure(self, failed: Failed) -> ReliveError:
        error = ReliveError(event(f"Actor {failed.number} failed with {failed.what}", "actors"))
        error.add_note(failed.trace)
        return error

    def _replace(self, died: Died) -> None:
        """Start an actor again that died with its process or node."""
        number, calls = died.number, self._calls[died.number]
        if calls.deaths >= DEATHS:
            what = f"Actor {number} died {DEATHS + 1} times in a row ({died.how})"
            raise ReliveError(event(what, "actors", "its steps are in the buffer; `train` goes on with new actors"))
        _LOG.warning("%s", event(f"Actor {number} died and is started again ({died.how})", "actors"))
        self._asked -= sum(calls.asked)
        self._calls[number] = Calls(deaths=calls.deaths + 1)
        self._start(number)

    def _note_stall(self, step: int) -> None:
        """Allow some more steps where nobody may act and the learner waits: a limiter counts those that came to it.

        Steps that an actor held when it died never do. Those that others hold are less than the limiter's band.
        """
        stalled = self.done < step and not any(calls.asked for calls in self._calls)
        self._stalls = self._stalls + 1 if stalled else 0
        if self._stalls >= STALLS:
            self._stalls = 0
            self._lost += ROUNDS * self._job.config.num_envs

    def _complain(self, silent: float) -> None:
        if silent > SILENCE and not self._told:
            self._told = True
            what = f"No actor has answered for {silent:.0f} s"
            _LOG.warning("%s", event(what, "actors", self._backend.silence()))
