"""As much of Ray as a learner's crew uses, in this process: calls are executed when somebody waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from local import local_shards
from ray import exceptions

import relive.ray
from relive_lab import run
from relive_lab.crew import cluster


class Ref:
    """The immediate return value of a call."""

    def __init__(self, handle: Handle, call: Callable[[Any], Any]) -> None:
        self.handle, self.call, self.done, self.value, self.error = handle, call, False, None, None
        handle.queue.append(self)


class Handle:
    """An actor; `make` is called before its first call is executed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.made, self.dead = make, None, False
        self.queue: list[Ref] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Ref:
            values = [each.value if isinstance(each, Ref) else each for each in arguments]
            return Ref(self, lambda made: getattr(made, name)(*values))

        return type("Method", (), {"remote": staticmethod(remote)})

    def die(self) -> None:
        self.dead = True
        for ref in self.queue:
            ref.done, ref.error = True, exceptions.ActorDiedError()
        self.queue.clear()

    def step(self) -> None:
        """Execute the first call."""
        ref = self.queue.pop(0)
        ref.done = True
        try:
            if self.dead:
                raise exceptions.ActorDiedError()
            if self.made is None:
                self.made = self.make()
            ref.value = ref.call(self.made)
        except exceptions.RayError as error:
            ref.error = error
        except Exception as error:
            ref.error = exceptions.RayTaskError("act", "the trace", error)


class FakeRay:
    """Stands for the module.

    Attributes:
        handles: Every actor that was started, in order.
        most: The largest number of calls that an actor had before it.
    """

    exceptions = exceptions

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self.most = self.published = self.turn = 0

    def is_initialized(self) -> bool:
        return True

    def put(self, value: Any) -> Any:
        self.published += 1
        return value

    def remote(self, kind: type) -> Any:
        outer = self

        class Kind:
            def options(self, **options: Any) -> Kind:
                return self

            def remote(self, *arguments: Any) -> Handle:
                outer.handles.append(Handle(lambda: kind(*arguments)))
                return outer.handles[-1]

        return Kind()

    def get(self, ref: Ref) -> Any:
        if ref.error is not None:
            raise ref.error
        return ref.value

    def kill(self, handle: Handle) -> None:
        handle.die()

    def wait(self, refs: Sequence[Ref], num_returns: int, timeout: float) -> tuple[list[Ref], list[Ref]]:
        self.most = max([self.most, *(len(handle.queue) for handle in self.handles)])
        while sum(ref.done for ref in refs) < num_returns and timeout > 0:
            waiting = [ref for ref in refs if not ref.done]
            if not waiting:
                break
            self.turn += 1
            waiting[self.turn % len(waiting)].handle.step()
        if timeout and not any(ref.done for ref in refs):
            time.sleep(timeout)
        return [ref for ref in refs if ref.done], [ref for ref in refs if not ref.done]

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 0.0}

    cluster_resources = available_resources


def played(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Put this in the place of Ray, and objects of this process in that of shards; every round is reported."""
    ray = FakeRay()
    monkeypatch.setattr(run, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(cluster, "ray", ray)
    monkeypatch.setattr(relive.ray, "Shards", lambda *of, **choices: local_shards(*of, **choices)[0])
    return ray
