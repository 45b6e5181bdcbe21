"""Shards as Ray's actors: started, reached, ended. The only module that imports Ray, and only when it is used."""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._base.extras import needs
from .._ring.lanes import rows_of
from ..errors import ArgumentError, ReliveError, StorageError, event, message
from ._ids import lanes_in
from ._shard import Shard
from ._wire import ShardPlan, ShardUnavailable

_AT = "Shards(actor_options)"


def ray() -> Any:
    """Import Ray.

    Raises:
        MissingExtra: It is not installed.
    """
    with needs("ray", "relive.ray"):
        import ray as module
    return module


class KeyValues:
    """Each shard's life, in Ray's own store of keys, which lives as long as the cluster."""

    def __init__(self, run: str) -> None:
        self._run = run

    def get(self, shard: int) -> int | None:
        """Return the life that the shard began last."""
        from ray.experimental.internal_kv import _internal_kv_get

        found = _internal_kv_get(self._key(shard), namespace="relive")
        return None if found is None else int(found)

    def put(self, shard: int, life: int) -> None:
        """Remember it."""
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(self._key(shard), str(life), overwrite=True, namespace="relive")

    def forget(self) -> None:
        """Remove all lives of the run."""
        from ray.experimental.internal_kv import _internal_kv_del

        _internal_kv_del(f"{self._run}/", del_by_prefix=True, namespace="relive")

    def _key(self, shard: int) -> str:
        return f"{self._run}/{shard}"


class ShardActor(Shard):
    """A shard whose calls come as one argument each, since Ray serializes every argument by itself."""

    def call(self, call: tuple[str, tuple[Any, ...]]) -> Any:
        """Execute a call: a method's name, and its arguments."""
        method, arguments = call
        return getattr(self, method)(*arguments)


class Actors:
    """A transport to shards that are Ray's actors; it can be sent to other actors.

    Args:
        handles: Those of the actors.
    """

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = list(handles)

    def __reduce__(self) -> Any:
        return Actors, (self.handles,)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.handles)

    def call(self, shard: int, method: str, *arguments: Any) -> Any:
        """Call a method, as in `Transport`."""
        errors = ray().exceptions
        try:
            return self.handles[shard].call.remote((method, arguments))
        except (errors.RayActorError, errors.PendingCallsLimitExceeded) as error:
            return ShardUnavailable(_said(error), isinstance(error, errors.ActorDiedError))

    def store(self) -> float:
        """Return the bytes of the smallest object store, as in `Transport`."""
        nodes = [node["Resources"] for node in ray().nodes() if node["Alive"]]
        return min((float(node.get("object_store_memory", math.inf)) for node in nodes), default=math.inf)

    def clock(self) -> float:
        """Return seconds, as in `Transport`."""
        return time.monotonic()

    def at_end(self, end: Callable[[], None]) -> None:
        """Call `end` at the end, as in `Transport`; for actors `atexit` is too late: their connections go before."""
        atexit.unregister(end)  # what is registered last is called first: before Ray's own end
        atexit.register(end)
        worker = ray()._private.worker.global_worker
        actor = getattr(worker, "actors", {}).get(worker.actor_id)
        own = getattr(actor, "__ray_shutdown__", None)
        if actor is not None and getattr(own, "args", (None,))[0] is not end:
            actor.__ray_shutdown__ = functools.partial(_shut_down, end, own)

    def wait(self, promises: Sequence[Any], timeout: float) -> list[bool]:
        """Wait for promises, as in `Transport`."""
        open_ = [promise for promise in promises if not isinstance(promise, ShardUnavailable)]
        if open_:
            ready, _ = ray().wait(open_, num_returns=len(open_), timeout=timeout)
            found = set(ready)
        return [isinstance(promise, ShardUnavailable) or promise in found for promise in promises]

    def take(self, promise: Any) -> Any:
        """Return the result of a promise, as in `Transport`."""
        if isinstance(promise, ShardUnavailable):
            raise promise
        module = ray()
        try:
            return module.get(promise)
        except module.exceptions.RayTaskError as error:
            if isinstance(error.cause, ReliveError):
                raise error.cause from None
            raise
        except module.exceptions.RayError as error:
            raise ShardUnavailable(_said(error), isinstance(error, module.exceptions.ActorDiedError)) from None

    def end(self) -> None:
        """Kill all actors."""
        module = ray()
        if module.is_initialized():
            for handle in self.handles:
                with contextlib.suppress(Exception):  # it is dead, or the cluster is
                    module.kill(handle)


def _shut_down(end: Callable[[], None], own: Callable[[], Any] | None) -> None:
    end()
    if own is not None:
        own()


def _said(error: Exception) -> str:
    """Return the first line of what Ray says."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}"[:200]


def options_of(given: Any, plan: ShardPlan) -> list[dict[str, Any]]:
    """Return the options of each actor: Ray's own names, from one dict for all or a list with one for each.

    Raises:
        ArgumentError: Neither, or a combination that does not work.
    """
    several = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given] * plan.shards
    if len(several) != plan.shards or not all(each is None or isinstance(each, Mapping) for each in several):
        raise ArgumentError(message(f"a dict, or a list of {plan.shards} dicts", f"`{given!r}`", _AT))
    return [_options(dict(each or {}), plan, shard) for shard, each in enumerate(several)]


def _options(given: dict[str, Any], plan: ShardPlan, shard: int) -> dict[str, Any]:
    strategy = given.get("scheduling_strategy")
    if given.get("lifetime") == "detached" and type(strategy).__name__ == "PlacementGroupSchedulingStrategy":
        remedy = "such an actor cannot be started again once the group is gone; leave one of them out"
        raise ArgumentError(message("a detached actor, or one in a placement group", "both", _AT, remedy))
    rows = rows_of(plan.steps, plan.boundaries) * len(lanes_in(shard, plan.shards, plan.num_envs))
    spare = 64 << 20  # the process itself
    defaults = {
        "num_cpus": 0,  # it waits for calls nearly all the time; many shards fit a small machine
        "memory": rows * (plan.schema.nbytes + 24) + spare,
        "scheduling_strategy": "SPREAD",
        "max_restarts": -1,
        "max_task_retries": 0,  # a call that is repeated behind our back could add steps twice
    }
    return defaults | given


def started(plan: ShardPlan, options: Any, timeout: float) -> Actors:
    """Start the actors, and wait until all of them run.

    Raises:
        ArgumentError: The options are none.
        StorageError: A shard cannot use its directory.
        ReliveError: Ray did not start all of them in time.
    """
    module, chosen = ray(), options_of(options, plan)
    if not module.is_initialized():
        module.init()
    actor, ledger = module.remote(ShardActor), KeyValues(plan.run)
    actors = Actors([])
    try:
        for shard, each in enumerate(chosen):
            actors.handles.append(actor.options(**each).remote(plan, shard, ledger))
        promises = [actors.call(shard, "ready") for shard in range(plan.shards)]
        ready, deadline = [False] * plan.shards, time.monotonic() + timeout
        while not all(ready) and time.monotonic() < deadline:
            ready = actors.wait(promises, min(1.0, max(0.0, deadline - time.monotonic())))
            for promise, done in zip(promises, ready, strict=True):
                if done:
                    actors.take(promise)
        if not all(ready):
            raise _unplaced(module, [shard for shard, done in enumerate(ready) if not done], chosen, timeout)
    except BaseException as error:
        actors.end()
        if isinstance(error, ShardUnavailable):
            raise StorageError(event(f"A shard could not be started ({error})", "Shards")) from None
        raise
    return actors


def _unplaced(module: Any, shards: list[int], options: list[dict[str, Any]], timeout: float) -> ReliveError:
    names = ("num_cpus", "num_gpus", "memory", "resources")
    wanted = {name: options[shards[0]][name] for name in names if options[shards[0]].get(name)}
    there = {name: amount for name, amount in module.cluster_resources().items() if not name.startswith("node:")}
    what = f"Shards {shards} were not started within {timeout:g} s; each needs {wanted}, the cluster has {there}"
    return ReliveError(event(what, "Shards", "lower `capacity`, use more shards, or set `actor_options`"))
