"""Actors in processes of this machine: calls and replies go through a pipe each, weights through shared memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from torch import Tensor

from relive.errors import ArgumentError, message
from relive_lab.children import children_ignore_interrupts, one_thread_each
from relive_lab.crew.actor import Actor, Job, Reply
from relive_lab.crew.backend import Died, Done, Failed
from relive_lab.crew.weights import SharedWeights

NAP = 0.002  # seconds between two looks
FLUSH = None  # stands for a call: add what is held back


class Processes:
    """A backend; see `Backend`.

    Attributes:
        processes: The actors' processes, by number.
        weights: The learner's newest; None before the first.
    """

    def __init__(self) -> None:
        self.processes: dict[int, Any] = {}
        self.weights: SharedWeights | None = None
        self._pipes: dict[int, Connection] = {}
        self._reported: list[Died | Failed] = []  # found where nothing was asked for

    def start(self, number: int, job: Job, writer: Any) -> None:
        """Start an actor, as `Backend` says."""
        self._bury(number)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (job, writer, self.weights, theirs)
        process = context.Process(target=serve, args=arguments, name=f"actor {number}", daemon=True)
        self._pipes[number], self.processes[number] = ours, process
        try:
            with children_ignore_interrupts(), one_thread_each():
                process.start()
        except (AttributeError, TypeError, ValueError) as error:  # what pickling raises
            wanted, remedy = "what a new process can import", "define `make_env` at the top of a module"
            raise ArgumentError(message(wanted, f"`{job.make_env!r}` ({error})", "make_env", remedy)) from error
        finally:
            theirs.close()  # so that the end of the process closes the pipe

    def publish(self, weights: Sequence[Tensor]) -> None:
        """Publish weights, as `Backend` says; an actor takes the newest when it begins a call."""
        if self.weights is None:
            self.weights = SharedWeights.of(weights)
        else:
            self.weights.publish(weights)

    def ask(self, number: int, step: int, rounds: int) -> None:
        """Ask an actor for steps, as `Backend` says."""
        self._send(number, (step, rounds))

    def hear(self, seconds: float) -> list[Done | Died | Failed]:
        """Hear of actors, as `Backend` says."""
        heard: list[Done | Died | Failed] = [*self._reported]
        self._reported.clear()
        ready = wait(list(self._pipes.values()), 0.0 if heard else seconds)
        for number in [number for number, pipe in self._pipes.items() if pipe in ready]:
            heard += self._drained(number)
        return heard

    def _drained(self, number: int) -> Iterator[Done | Died | Failed]:
        pipe = self._pipes[number]
        try:
            while pipe.poll():
                said = pipe.recv()
                if isinstance(said, Reply):
                    yield Done(number, said)
                elif said is not FLUSH:
                    yield Failed(number, *said)
        except (EOFError, OSError):
            yield self._gone(number)

    def flush(self) -> None:
        """Flush all actors, as `Backend` says."""
        for number in self._pipes:
            self._send(number, FLUSH)
        for number, pipe in list(self._pipes.items()):
            try:
                said = pipe.recv()
            except (EOFError, OSError):
                self._reported.append(self._gone(number))
            else:
                if said is not FLUSH:
                    self._reported.append(Failed(number, *said))

    def silence(self) -> str:
        """Explain a silence, as `Backend` says."""
        return "the environments may take that long, or wait for something"

    def end(self, grace: float) -> None:
        """End all actors, as `Backend` says: they end when their pipes are closed."""
        for pipe in self._pipes.values():
            pipe.close()
        deadline = time.monotonic() + grace
        while any(each.is_alive() for each in self.processes.values()) and time.monotonic() < deadline:
            time.sleep(NAP)
        self._pipes.clear()
        for number in list(self.processes):
            self._bury(number)
        self._reported.clear()

    def close(self) -> None:
        """Do nothing: nothing was taken."""

    def _send(self, number: int, call: tuple[int, int] | None) -> None:
        with contextlib.suppress(OSError):  # its end shows where replies are read
            self._pipes[number].send(call)

    def _gone(self, number: int) -> Died:
        """Return how the actor ended, and forget its pipe."""
        self._pipes.pop(number).close()
        process = self.processes[number]
        process.join(1.0)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        return Died(number, f"process {process.pid} {how}")

    def _bury(self, number: int) -> None:
        if (pipe := self._pipes.pop(number, None)) is not None:
            pipe.close()
        if (process := self.processes.pop(number, None)) is not None and process.pid is not None:
            process.kill()
            process.join()
            process.close()


def serve(job: Job, writer: Any, weights: SharedWeights, pipe: Connection) -> None:
    """Act when asked, until the learner closes the pipe or is gone: what an actor's process does."""
    # A batch system sends it to all processes of a job; the learner says what follows.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with contextlib.suppress(EOFError, ConnectionError):
            _serve(Actor(job, writer), weights, pipe)
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send((f"{type(error).__name__}: {error}", traceback.format_exc()))


def _serve(actor: Actor, weights: SharedWeights, pipe: Connection) -> None:
    version = 0
    try:
        while True:
            call = pipe.recv()
            if call is FLUSH:
                actor.flush()
                pipe.send(FLUSH)
            else:
                version = weights.read(actor.weights, version)
                pipe.send(actor.act(*call))
    finally:
        actor.close()
