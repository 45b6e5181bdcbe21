"""Actors on a Ray cluster: they step environments with a learner's weights, and write to its shards (Ape-X).

The learner asks each actor for a few steps at a time, with its newest weights, and never for more than it may be ahead.
The replies say how many were done, and how episodes ended. There is nothing else to share: an actor that dies is
started again, and the steps it was asked for are asked for anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import torch

from relive._base.extras import needs
from relive.errors import ReliveError, event
from relive.lab._config import TrainerConfig
from relive.lab._crew import NAP, PATIENCE, Acting, AnyCrew, acting
from relive.lab._env import MakeEnv
from relive.lab._nets import Floats
from relive.lab._weights import flattened, restore
from relive.ray import Shards
from relive.ray import Writer as ShardWriter

if TYPE_CHECKING:
    from relive.lab._algorithm import Algorithm
    from relive.lab._log import Log

with needs("ray", "relive.lab"):
    import ray

# Steps of each environment in a call, and calls that an actor has before it at a time.
ROUNDS, DEPTH = 16, 2
# Waits, of `PATIENCE` each, in which neither actors nor learner may go on, after which steps count as lost.
STALLS = 10
# Deaths of an actor without a reply in between after which it is given up; seconds without any reply after which that
# is said; seconds for actors to send what they hold.
DEATHS, SILENCE, FLUSH = 3, 30.0, 60.0
LOCAL = {"include_dashboard": False, "object_store_memory": 200_000_000}
_LOG = logging.getLogger("relive")


def join(config: TrainerConfig) -> bool:
    """Join the cluster that the settings name, unless this process is in one; return whether it did.

    With `local` the cluster is this process's own: room for every actor, whatever the number of cores.
    """
    if ray.is_initialized():
        return False
    own = {**LOCAL, "num_cpus": max(os.cpu_count() or 1, config.actors + 1)} if config.cluster == "local" else {}
    ray.init(address=config.cluster, logging_level="WARNING", log_to_driver=False, **own)
    return True


def leave() -> None:
    """Leave the cluster."""
    ray.shutdown()


class Actor:
    """What runs on the cluster: environments, the learner's nets, and a writer of its lanes.

    Args:
        make: Makes an actor of settings, `make_env`, what gives it a buffer, and its log.
        config: The actor's own settings.
        make_env: Builds an environment; None: what the settings say.
        writer: Of the actor's lanes.
    """

    def __init__(
        self, make: Callable[..., Acting], config: TrainerConfig, make_env: MakeEnv | None, writer: ShardWriter
    ) -> None:
        torch.set_num_threads(1)
        self._writer, self._returns = writer, list[float]()
        self._actor, self._outbox = acting(make, config, make_env, writer, self)
        self._tensors, self._version = self._actor._acting(), 0
        self._obs: Any = None
        self._closed = False

    def episode(self, step: int, value: float) -> None:
        """As in `Log`: kept for the next reply."""
        self._returns.append(value)

    def act(self, weights: Floats, version: int, step: int, rounds: int) -> tuple[int, list[float]]:
        """Step all environments `rounds` times.

        Args:
            weights: The learner's, by `flattened`.
            version: Their number.
            step: Steps that all actors have done.
            rounds: How many.

        Returns:
            Steps done, and the returns of episodes that ended.
        """
        if version != self._version:
            restore(self._tensors, weights)
            self._version = version
        done, actor = 0, self._actor
        for _ in range(rounds):
            actor.step = step + done
            self._obs = actor._interact(actor._reset() if self._obs is None else self._obs)
            done += len(self._obs)
        returns, self._returns = self._returns, []
        return done, returns

    def flush(self) -> int:
        """Have all steps in the shards; return how many are not."""
        if self._outbox is not None:
            self._outbox.flush()
        return self._writer.flush(timeout=FLUSH)

    def close(self) -> None:
        """End with all steps in the shards. As in `Log`, too, whose end is not the actor's."""
        if not self._closed:
            self._closed = True
            self.flush()
            self._actor.close()
            self._writer.close()


@dataclasses.dataclass
class Line:
    """The learner's line to one actor.

    Attributes:
        handle: Ray's.
        calls: Calls that are not answered, and how many steps each was to do.
        deaths: How often it died since its last reply.
    """

    handle: Any
    calls: dict[Any, int] = dataclasses.field(default_factory=dict)
    deaths: int = 0


class ClusterCrew(AnyCrew):
    """The learner's actors, on a cluster; see `AnyCrew`. Its buffer are `Shards`."""

    def __init__(
        self, trainer: Algorithm[Any], log: Log, make: Callable[..., Acting], make_env: MakeEnv | None
    ) -> None:
        super().__init__(trainer, log, make, make_env, DEPTH * ROUNDS)
        self._done = self._asked = trainer.step
        self._mark = time.monotonic(), self._done
        self._lines: list[Line] = []
        self._weights: Any = None
        self._version = 0
        self._heard, self._told, self._starts = time.monotonic(), False, 0
        self._lost = self._stalls = 0  # steps that did not come to the shards; waits in which nobody could go on

    def __enter__(self) -> ClusterCrew:
        self._publish()
        try:
            for number in range(self._trainer.config.actors):
                self._lines.append(Line(self._start(number)))
        except BaseException:
            self._end(0.0)
            raise
        return self

    def wait(self, step: int, allowed: int | None = None) -> int:
        """As in `AnyCrew`."""
        most = self._most(step, None if allowed is None else allowed + self._lost)
        deadline = time.monotonic() + PATIENCE
        self._hear(0.0)
        self._ask(most)
        while self._done < step and time.monotonic() < deadline:
            self._hear(NAP)
            self._ask(most)
        self._note_stall(step)
        return self._done

    def _note_stall(self, step: int) -> None:
        """Allow some more steps where nobody may act and the learner waits: a limiter counts those that came to it.

        Steps that an actor held when it died never do. Those that others hold are less than the limiter's band.
        """
        stalled = self._done < step and not any(line.calls for line in self._lines)
        self._stalls = self._stalls + 1 if stalled else 0
        if self._stalls >= STALLS:
            self._stalls = 0
            self._lost += ROUNDS * self._trainer.config.num_envs

    def scalars(self) -> dict[str, float]:
        """As in `AnyCrew`."""
        (before, steps), self._mark = self._mark, (time.monotonic(), self._done)
        return {
            "actors/steps_per_second": (self._done - steps) / max(self._mark[0] - before, 1e-9),
            "actors/steps_ahead": float(self._done - self._trainer.step),
        }

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Have no actor act, with all of their steps in the shards."""
        while any(line.calls for line in self._lines):
            self._hear(NAP)
        flushes = [line.handle.flush.remote() for line in self._lines]
        ray.wait(flushes, num_returns=len(flushes), timeout=2 * FLUSH)
        yield

    def _give_weights(self) -> None:
        # Only the newest are held here; older ones go with the last call that has them.
        self._weights, self._version = ray.put(flattened(self._tensors)), self._version + 1

    def _start(self, number: int) -> Any:
        config, lanes = self._of(number, self._trainer.step + self._starts, cluster=None, shards=1)
        self._starts += 1
        shards = cast(Shards, self._trainer.buffer)
        kind = ray.remote(Actor).options(num_cpus=1, max_restarts=0, max_task_retries=0)
        return kind.remote(self._make, config, self._make_env, shards.writer(lanes))

    def _ask(self, allowed: int) -> None:
        """Ask the actors with the fewest calls before them for steps, up to `allowed` in all."""
        lanes = self._trainer.config.num_envs
        while self._asked < allowed:
            line = min(self._lines, key=lambda each: len(each.calls))
            if len(line.calls) >= DEPTH:
                return
            rounds = min(ROUNDS, -(-(allowed - self._asked) // lanes))
            call = line.handle.act.remote(self._weights, self._version, self._done, rounds)
            line.calls[call] = rounds * lanes
            self._asked += rounds * lanes

    def _hear(self, seconds: float) -> None:
        """Take in replies; wait for one for some seconds.

        Raises:
            ReliveError: An actor failed, or dies again and again.
        """
        flying = [call for line in self._lines for call in line.calls]
        if not flying:
            time.sleep(seconds)
            return
        ready, _ = ray.wait(flying, num_returns=1, timeout=seconds)
        if not ready:
            self._complain(time.monotonic() - self._heard)
            return
        answered = set(ray.wait(flying, num_returns=len(flying), timeout=0)[0])
        self._heard = time.monotonic()
        for number, line in enumerate(self._lines):
            for call in [each for each in line.calls if each in answered]:
                if call in line.calls:  # not those of an actor that has just been replaced
                    self._take(number, line, call)

    def _take(self, number: int, line: Line, call: Any) -> None:
        try:
            done, returns = ray.get(call)
        except ray.exceptions.RayTaskError as error:
            raise self._failure(number, error) from None
        except ray.exceptions.RayActorError as error:
            self._replace(number, line, error)
            return
        line.deaths = 0
        self._asked += done - line.calls.pop(call)
        self._done += done
        for value in returns:
            self._log.episode(self._done, value)

    def _failure(self, number: int, error: Any) -> ReliveError:
        cause = error.cause if getattr(error, "cause", None) is not None else error
        said = f"{type(cause).__name__}: {cause}"
        failure = ReliveError(event(f"Actor {number} failed with {said}", f"{type(self._trainer).__name__}.train"))
        failure.add_note("".join(traceback.format_exception_only(error)))
        return failure

    def _replace(self, number: int, line: Line, error: Any) -> None:
        """Start an actor again that died with its node or process."""
        lines = str(error).strip().split("\n")
        if error.actor_init_failed:  # its constructor raised
            failure = ReliveError(event(f"Actor {number} could not be made: {lines[-1]}", "actors"))
            failure.add_note(str(error))
            raise failure
        said = lines[0]
        if line.deaths >= DEATHS:
            raise ReliveError(event(f"Actor {number} died {DEATHS + 1} times in a row ({said})", "actors"))
        _LOG.warning("%s", event(f"Actor {number} died and is started again ({said})", "actors"))
        with contextlib.suppress(Exception):  # it may be cut off, and not dead
            ray.kill(line.handle)
        self._asked -= sum(line.calls.values())
        self._lines[number] = Line(self._start(number), deaths=line.deaths + 1)
        line.calls.clear()

    def _complain(self, silent: float) -> None:
        if silent > SILENCE and not self._told:
            self._told = True
            free, there = ray.available_resources().get("CPU", 0), ray.cluster_resources().get("CPU", 0)
            what = f"No actor has answered for {silent:.0f} s; {free:g} of the cluster's {there:g} CPUs are free"
            _LOG.warning(
                "%s", event(what, "actors", "each actor needs one, and some seconds to start; see `ray status`")
            )

    def _end(self, grace: float) -> None:
        ends = [line.handle.close.remote() for line in self._lines]
        if ends and grace:
            with contextlib.suppress(Exception):
                ray.wait(ends, num_returns=len(ends), timeout=grace)
        for line in self._lines:
            with contextlib.suppress(Exception):  # it is dead, or the cluster is
                ray.kill(line.handle)
        self._lines.clear()
