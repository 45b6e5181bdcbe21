"""Actor processes: they step environments with a learner's weights, and write to its buffer.

Learner and actors share a few counters (`Board`), the weights (`SharedWeights`) and the buffer, none of which has a
lock that a process could keep. Returns of episodes, and what went wrong, come through one pipe for each actor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import numpy as np

import relive
from relive._base.terminal import children_ignore_interrupts
from relive.errors import ArgumentError, ReliveError, event, message
from relive.lab._config import TrainerConfig
from relive.lab._crew import NAP, PATIENCE, Acting, AnyCrew, acting
from relive.lab._env import MakeEnv
from relive.lab._threads import one_thread_each
from relive.lab._weights import SharedWeights

if TYPE_CHECKING:
    from relive.lab._algorithm import Algorithm
    from relive.lab._log import Log

LEAD_STEPS = 4  # of each environment, that actors may be ahead of the learner at least
HEAR = 0.02  # seconds between two looks at the pipes

_ALLOWED, _STOP, _PAUSE = range(3)  # the learner's line
_STEPS, _PAUSED, _WAITED, _VERSION = range(4)  # an actor's line; nanoseconds that it waited for the learner


class Board:
    """Counters that learner and actors share: a cache line for each, written by its owner alone.

    Args:
        actors: How many.
        begun: Steps that were done before.
        memory: What another process made; None makes it.
    """

    def __init__(self, actors: int, begun: int, memory: Any = None) -> None:
        self._of = actors, begun
        self._memory = (
            multiprocessing.get_context("spawn").RawArray("q", 8 * (1 + actors)) if memory is None else memory
        )
        lines = np.frombuffer(self._memory, np.int64).reshape(1 + actors, 8)
        self.learner, self.actors = lines[0], lines[1:]

    def __reduce__(self) -> Any:
        return Board, (*self._of, self._memory)

    @property
    def steps(self) -> int:
        """Environment steps that all actors did, and those before them."""
        return self._of[1] + int(self.actors[:, _STEPS].sum())


@dataclasses.dataclass(frozen=True)
class Job:
    """What an actor gets."""

    make: Callable[..., Acting]
    config: TrainerConfig
    make_env: MakeEnv | None
    writer: relive.Writer
    weights: SharedWeights
    board: Board
    number: int
    reports: Connection
    learner: int


class Crew(AnyCrew):
    """The learner's actors, in processes of this machine; see `AnyCrew`."""

    def __init__(
        self, trainer: Algorithm[Any], log: Log, make: Callable[..., Acting], make_env: MakeEnv | None
    ) -> None:
        super().__init__(trainer, log, make, make_env, LEAD_STEPS)
        self._weights = SharedWeights.of(self._tensors)
        self._board = Board(trainer.config.actors, trainer.step)
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._heard = 0.0
        self._waited = 0.0  # seconds that the learner waited for steps
        self._mark: tuple[float, ...] = (time.monotonic(), 0, 0, 0)
        self._pauses = 0

    def __enter__(self) -> Crew:
        self._board.learner[_ALLOWED] = self._trainer.step
        try:
            with children_ignore_interrupts(), one_thread_each():
                for number in range(self._trainer.config.actors):
                    self._start(number)
        except BaseException:
            self._end(0.0)
            raise
        return self

    def wait(self, step: int, allowed: int | None = None) -> int:
        """As in `AnyCrew`."""
        self._board.learner[_ALLOWED] = self._most(step, allowed)
        begin = time.monotonic()
        while (steps := self._board.steps) < step and time.monotonic() < begin + PATIENCE:
            self._hear(NAP / 4)
        self._waited += time.monotonic() - begin
        if time.monotonic() - self._heard > HEAR:
            self._hear(0.0)
        return steps

    def scalars(self) -> dict[str, float]:
        """As in `AnyCrew`."""
        lines = self._board.actors
        now = (time.monotonic(), int(lines[:, _STEPS].sum()), int(lines[:, _WAITED].sum()) / 1e9, self._waited)
        seconds, steps, actors, learner = (one - before for one, before in zip(now, self._mark, strict=True))
        self._mark, seconds = now, max(seconds, 1e-9)
        return {
            "actors/steps_per_second": steps / seconds,
            "actors/waiting_share": actors / seconds / len(lines),
            "actors/learner_waiting_share": learner / seconds,
            "actors/weights_behind": float(self._weights.version - lines[:, _VERSION].mean()),
            "actors/steps_ahead": float(self._board.steps - self._trainer.step),
        }

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Have no actor act, with all of their steps in the buffer."""
        self._pauses += 1
        self._board.learner[_PAUSE] = self._pauses
        while (self._board.actors[:, _PAUSED] != self._pauses).any():
            self._hear(NAP)
        try:
            yield
        finally:
            self._board.learner[_PAUSE] = 0

    def _start(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        config, lanes = self._of(number, self._trainer.step)
        ours, theirs = context.Pipe(duplex=False)
        job = Job(
            self._make, config, self._make_env, self._trainer.buffer.writer(lanes),
            self._weights, self._board, number, theirs, os.getpid(),
        )  # fmt: skip
        process = context.Process(target=serve, args=(job,), name=f"actor {number}", daemon=True)
        self._pipes.append(ours)
        try:
            process.start()
        except (AttributeError, TypeError, ValueError) as error:  # what pickling raises
            wanted, remedy = "what a new process can import", "define `make_env` at the top of a module"
            raise ArgumentError(message(wanted, f"`{self._make_env!r}` ({error})", "make_env", remedy)) from error
        finally:
            theirs.close()  # so that the end of the process closes the pipe
        self._processes.append(process)

    def _hear(self, seconds: float) -> None:
        """Take in what actors said; wait for it for some seconds.

        Raises:
            ReliveError: An actor failed or was killed.
        """
        gone = self._drain(seconds)
        if gone:
            raise self._gone(gone[0])
        self._heard = time.monotonic()

    def _drain(self, seconds: float) -> list[int]:
        """Take in what actors said; return the numbers of those that are gone."""
        gone = []
        ready = wait(self._pipes, seconds)
        for number, pipe in enumerate(self._pipes):
            try:
                while pipe in ready and pipe.poll():
                    self._take(number, pipe.recv())
            except (EOFError, OSError):
                gone.append(number)
        return gone

    def _take(self, number: int, report: tuple[Any, Any]) -> None:
        step, value = report
        if not isinstance(step, str):
            self._log.episode(step, value)
            return
        error = ReliveError(event(f"Actor {number} failed with {step}", f"{type(self._trainer).__name__}.train"))
        error.add_note(value)
        raise error

    def _gone(self, number: int) -> ReliveError:
        process = self._processes[number]
        process.join(1.0)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        remedy = "its steps are in the buffer; call `train` again to go on with a new one"
        return ReliveError(event(f"Actor {number} (process {process.pid}) {how}", "actors", remedy))

    def _give_weights(self) -> None:
        self._weights.publish(self._tensors)

    def _end(self, grace: float) -> None:
        self._board.learner[_STOP] = 1
        deadline = time.monotonic() + grace
        while any(each.is_alive() for each in self._processes) and time.monotonic() < deadline:
            with contextlib.suppress(ReliveError):
                self._drain(0.0)  # or an actor whose pipe is full would never end
            time.sleep(NAP)
        for each in self._processes:
            each.kill()
        for each in self._processes:
            each.join()
            each.close()
        for pipe in self._pipes:
            pipe.close()


class Reports:
    """Stands for the log of an actor: sends to the learner's."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def episode(self, step: int, value: float) -> None:
        """As in `Log`."""
        self._pipe.send((step, value))

    def close(self) -> None:
        """As in `Log`; the end of the process closes the pipe."""


def serve(job: Job) -> None:
    """Act until the learner says stop, or is gone: what an actor process does."""
    # A batch system sends it to all processes of a job; the learner says what follows.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with contextlib.suppress(BrokenPipeError):
            _act(job)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            job.reports.send((said, traceback.format_exc()))


def _act(job: Job) -> None:
    board, line, learner = job.board, job.board.actors[job.number], job.board.learner
    actor, outbox = acting(job.make, job.config, job.make_env, job.writer, Reports(job.reports))
    tensors, version, obs = actor._acting(), 0, None
    try:
        while not learner[_STOP] and os.getppid() == job.learner:
            pause = int(learner[_PAUSE])
            if pause or board.steps >= learner[_ALLOWED]:
                if pause != line[_PAUSED]:
                    if outbox is not None:
                        outbox.flush()
                    line[_PAUSED] = pause
                begin = time.monotonic_ns()
                time.sleep(NAP)
                line[_WAITED] += time.monotonic_ns() - begin
                continue
            line[_VERSION] = version = job.weights.read(tensors, version)
            actor.step = board.steps
            obs = actor._interact(actor._reset() if obs is None else obs)
            line[_STEPS] += len(obs)
        if outbox is not None:
            outbox.flush()
    finally:
        actor.close()
        job.writer.close()
