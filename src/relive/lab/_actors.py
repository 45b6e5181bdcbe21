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
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

import relive
from relive._terminal import children_ignore_interrupts
from relive.errors import ArgumentError, ReliveError, event, message
from relive.lab._config import TrainerConfig
from relive.lab._env import MakeEnv
from relive.lab._outbox import Judge, Outbox
from relive.lab._threads import one_thread_each
from relive.lab._weights import SharedWeights

if TYPE_CHECKING:
    from relive.lab._algorithm import Algorithm
    from relive.lab._log import Log

# How many steps actors may be ahead of the learner, at least; in rounds of updates, and in steps of each environment.
LEAD, LEAD_ROUNDS, LEAD_STEPS = 64, 4, 4
# Seconds: between two looks at the pipes; the longest wait of a call; between two looks of an actor that waits; that
# actors are given to end by themselves, and then to be terminated.
HEAR, PATIENCE, NAP, GRACE = 0.02, 0.1, 0.002, 5.0
PUBLISH, PUBLISH_SHARE = 0.02, 0.05  # seconds between two versions of the weights, and the share of time they may take

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


class Acting(Protocol):
    """What an actor process asks of a trainer; see `Algorithm` and `Trainer`."""

    step: int

    def _acting(self) -> list[Tensor]: ...
    def _item(self) -> Any: ...
    def _judgement(self) -> Judge | None: ...
    def _sampler(self) -> relive.Uniform | relive.Prioritized: ...
    def _reset(self) -> npt.NDArray[Any]: ...
    def _interact(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]: ...
    def close(self) -> None: ...


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


class Crew:
    """The learner's actors, while it trains; a context manager.

    Args:
        trainer: The learner, with its buffer.
        log: The learner's.
        make: Makes an actor of settings, `make_env`, what gives it a buffer, and its log.
        make_env: Builds an actor's environment; None: what the settings say.
    """

    def __init__(
        self, trainer: Algorithm[Any], log: Log, make: Callable[..., Acting], make_env: MakeEnv | None
    ) -> None:
        self._trainer, self._log, self._make, self._make_env = trainer, log, make, make_env
        self._tensors, c = trainer._acting(), trainer.config
        self._lead = max(LEAD, LEAD_ROUNDS * c.update_every, LEAD_STEPS * c.num_envs * c.actors)
        self._weights = SharedWeights.of(self._tensors)
        self._board = Board(c.actors, trainer.step)
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._heard = self._published = 0.0
        self._waited = 0.0  # seconds that the learner waited for steps
        self._mark: tuple[float, ...] = (time.monotonic(), 0, 0, 0)
        self._pauses, self._every = 0, PUBLISH

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

    def __exit__(self, kind: object, *exception: object) -> None:
        self._end(GRACE if kind is None else 0.5)

    def wait(self, step: int, allowed: int | None = None) -> int:
        """Wait until actors have done `step` steps in all, or for a moment; return how many they have.

        Args:
            step: As above.
            allowed: How many they may do; None: somewhat more than that.

        Raises:
            ReliveError: An actor failed or was killed.
        """
        total = self._trainer.config.total_steps
        most = max(step, self._trainer.step + self._lead) if allowed is None else allowed
        self._board.learner[_ALLOWED] = min(most, total)
        begin = time.monotonic()
        while (steps := self._board.steps) < step and time.monotonic() < begin + PATIENCE:
            self._hear(NAP / 4)
        self._waited += time.monotonic() - begin
        if time.monotonic() - self._heard > HEAR:
            self._hear(0.0)
        return steps

    def publish(self) -> None:
        """Give actors the weights as they are, unless they were given some a moment ago."""
        now = time.monotonic()
        if now - self._published > self._every:
            self._weights.publish(self._tensors)
            self._published = time.monotonic()
            self._every = max(PUBLISH, (self._published - now) / PUBLISH_SHARE)

    def scalars(self) -> dict[str, float]:
        """What a TensorBoard entry says of the actors, since the last one."""
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
        trainer, context = self._trainer, multiprocessing.get_context("spawn")
        c = trainer.config
        own = {
            "seed": seed_of(c, trainer.step, number),
            "actors": 0,
            "device": "cpu",
            "torch_threads": 1,
            "log_dir": None,
        }
        lanes = range(number * c.num_envs, (number + 1) * c.num_envs)
        ours, theirs = context.Pipe(duplex=False)
        job = Job(
            self._make, dataclasses.replace(c, **own), self._make_env, trainer.buffer.writer(list(lanes)),
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


def acting(
    make: Callable[..., Acting],
    config: TrainerConfig,
    make_env: MakeEnv | None,
    writer: Any,
    log: Any,
) -> tuple[Acting, Outbox | None]:
    """Make an actor whose steps go to `writer`, and what holds them back until it has judged them, if anything does.

    Args:
        make: Makes an actor of settings, `make_env`, what gives it a buffer, and its log.
        config: The actor's settings.
        make_env: Builds an environment; None: what the settings say.
        writer: A `relive.Writer`, or one of shards.
        log: Where returns of episodes go.
    """
    outbox: list[Outbox] = []

    def into(actor: Acting) -> Any:
        sampler, judge = actor._sampler(), actor._judgement()
        if judge is None or not isinstance(sampler, relive.Prioritized):
            return writer
        outbox.append(Outbox(writer, actor._item(), sampler.eps, judge))
        return outbox[0]

    return make(config, make_env, into, log), outbox[0] if outbox else None


def seed_of(config: TrainerConfig, step: int, number: int) -> int:
    """The seed of an actor that begins when `step` steps were done."""
    return int(np.random.SeedSequence((config.seed, step, 1 + number)).generate_state(1)[0])


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
