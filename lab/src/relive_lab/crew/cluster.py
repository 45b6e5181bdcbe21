"""Actors on a Ray cluster, which write to the learner's shards: calls are Ray's, weights lie in its object store."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from relive_lab.checks import needs
from relive_lab.config import TrainerConfig
from relive_lab.crew.actor import Actor, Job, Reply
from relive_lab.crew.backend import Died, Done, Failed
from relive_lab.crew.weights import Floats, flattened, restore

with needs("ray", "relive_lab"):
    import ray

FLUSH = 60.0  # seconds for actors to send what they hold
LOCAL = {"include_dashboard": False, "object_store_memory": 200_000_000}


class RemoteActor:
    """An actor as Ray runs it; `Actor` has the arguments."""

    def __init__(self, job: Job, writer: Any) -> None:
        self._actor, self._writer, self._version = Actor(job, writer), writer, 0

    def act(self, weights: Floats, version: int, step: int, rounds: int) -> Reply:
        """Act with the learner's weights, by `flattened`, of a version; see `Actor.act`."""
        if version != self._version:
            restore(self._actor.weights, weights)
            self._version = version
        return self._actor.act(step, rounds)

    def flush(self) -> int:
        """Send all steps to the shards; return the number still missing there."""
        self._actor.flush()
        missing: int = self._writer.flush(timeout=FLUSH)
        return missing

    def close(self) -> None:
        """End with all steps in the shards."""
        self.flush()
        self._actor.close()


class Cluster:
    """A backend; see `Backend`. The settings' cluster is joined, unless this process is in one.

    With `local` the cluster is this process's own: room for every actor, whatever the number of cores.

    Attributes:
        handles: The actors, by number.
    """

    def __init__(self, config: TrainerConfig) -> None:
        self._joined = not ray.is_initialized()
        if self._joined:
            cores = max(os.cpu_count() or 1, config.actors + 1)
            own = {**LOCAL, "num_cpus": cores} if config.cluster == "local" else {}
            ray.init(address=config.cluster, logging_level="WARNING", log_to_driver=False, **own)
        self.handles: dict[int, Any] = {}
        self._calls: dict[int, list[Any]] = {}
        self._weights: Any = None
        self._version = 0

    def start(self, number: int, job: Job, writer: Any) -> None:
        """Start an actor, as `Backend` says."""
        if (before := self.handles.get(number)) is not None:
            with contextlib.suppress(Exception):  # it may be cut off, and not dead
                ray.kill(before)
        kind = ray.remote(RemoteActor).options(num_cpus=1, max_restarts=0, max_task_retries=0)
        self.handles[number], self._calls[number] = kind.remote(job, writer), []

    def publish(self, weights: Sequence[Tensor]) -> None:
        """Publish weights, as `Backend` says. Only the newest are held here; older ones go with their last call."""
        self._weights, self._version = ray.put(flattened(weights)), self._version + 1

    def ask(self, number: int, step: int, rounds: int) -> None:
        """Ask an actor for steps, as `Backend` says."""
        call = self.handles[number].act.remote(self._weights, self._version, step, rounds)
        self._calls[number].append(call)

    def hear(self, seconds: float) -> list[Done | Died | Failed]:
        """Hear of actors, as `Backend` says."""
        open_calls = [call for calls in self._calls.values() for call in calls]
        if not open_calls:
            time.sleep(seconds)  # the actors wait for the learner
            return []
        if not ray.wait(open_calls, num_returns=1, timeout=seconds)[0]:
            return []
        answered = set(ray.wait(open_calls, num_returns=len(open_calls), timeout=0)[0])
        heard: list[Done | Died | Failed] = []
        for number, calls in self._calls.items():
            while calls and calls[0] in answered:
                heard.append(self._outcome(number, calls.pop(0)))
                if isinstance(heard[-1], Died):
                    calls.clear()
        return heard

    def _outcome(self, number: int, call: Any) -> Done | Died | Failed:
        try:
            return Done(number, ray.get(call))
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if getattr(error, "cause", None) is not None else error
            trace = "".join(traceback.format_exception_only(error))
            return Failed(number, f"{type(cause).__name__}: {cause}", trace)
        except ray.exceptions.RayActorError as error:
            lines = str(error).strip().split("\n")
            if error.actor_init_failed:  # its constructor raised
                return Failed(number, lines[-1], str(error))
            return Died(number, lines[0])

    def flush(self) -> None:
        """Flush all actors, as `Backend` says."""
        flushes = [handle.flush.remote() for handle in self.handles.values()]
        ray.wait(flushes, num_returns=len(flushes), timeout=2 * FLUSH)

    def silence(self) -> str:
        """Explain a silence, as `Backend` says."""
        free, there = ray.available_resources().get("CPU", 0), ray.cluster_resources().get("CPU", 0)
        return (
            f"{free:g} of the cluster's {there:g} CPUs are free; each actor needs one, and some seconds to start; "
            "see `ray status`"
        )

    def end(self, grace: float) -> None:
        """End all actors, as `Backend` says."""
        ends = [handle.close.remote() for handle in self.handles.values()]
        if ends and grace:
            with contextlib.suppress(Exception):
                ray.wait(ends, num_returns=len(ends), timeout=grace)
        for handle in self.handles.values():
            with contextlib.suppress(Exception):  # it is dead, or the cluster is
                ray.kill(handle)
        self.handles.clear()
        self._calls.clear()

    def close(self) -> None:
        """Leave a cluster that was joined."""
        if self._joined:
            ray.shutdown()
