"""What a question asks of a peer.

Methods that are timed over several calls hold their own loop, so that no adapter adds a call; `draw` and `update` are
one call each.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.workload import ACTION_SIZE, OBS_SIZE, Array, Step


@dataclass(frozen=True)
class Spec:
    """The buffer a question wants: `capacity` steps over `num_envs` lanes.

    Where it draws sequences, these have `length` steps and may start at every `starts`-th one.
    """

    capacity: int
    num_envs: int = 1
    prioritized: bool = False
    n_step: int = 1
    length: int = 1
    starts: int = 1
    sampler: str = ""  # one of relive's own, for the question that compares them
    obs_size: int = OBS_SIZE
    action_size: int = ACTION_SIZE


class Unsupported(Exception):
    """The peer has no such thing; the text stands in the table's notes."""


def resident() -> int | None:
    """Return the bytes of memory that this process holds, where the system says so."""
    with contextlib.suppress(OSError, AttributeError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def grown(before: int | None) -> float:
    """Return by how many bytes the process has grown; a page at least, since memory comes in pages."""
    after = resident()
    if before is None or after is None:
        raise Unsupported("the system does not say how much memory a process holds")
    return float(max(after - before, os.sysconf("SC_PAGE_SIZE")))


def high_water(*, anew: bool = False) -> int:
    """Return the most bytes of memory that this process has held; `anew` begins a new count with those of now."""
    try:
        if anew:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError as error:
        raise Unsupported("the system does not say") from error
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


class Peer:
    """One replay buffer library. An adapter overrides what its library can do."""

    name = ""
    package = ""  # the distribution whose version is reported
    module = ""  # what a user imports; `object_` is what they take from it
    object_ = ""
    prioritized = True  # the library has prioritized replay
    output = "numpy"  # the form `sample` returns

    def __init__(self) -> None:
        self.lib: Any = importlib.import_module(self.module) if self.module else None
        self.spec: Spec | None = None
        self.filled = 0
        self.sizes = (OBS_SIZE, ACTION_SIZE)  # of the buffer that stands

    def version(self) -> str:
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:  # imported from a source checkout
            return str(getattr(self.lib, "__version__", ""))

    def ensure(self, spec: Spec, fill: int = 0) -> None:
        """Make the buffer, or keep the one that stands if it is the same and as full."""
        if (spec, fill) == (self.spec, self.filled):
            return
        if spec.prioritized and not self.prioritized:
            raise Unsupported("no prioritized replay")
        self.drop()
        self.sizes = (spec.obs_size, spec.action_size)
        self.make(spec)
        if fill:
            self.fill(fill)
        self.spec, self.filled = spec, fill

    memory: float | None = None  # bytes a step, once weighed

    def weigh(self, spec: Spec) -> None:
        """Make and fill a buffer as `ensure` does, and note by how much the process grew for it.

        A small one comes first: what a library keeps for its first buffer, such as compiled code, is no step's.
        """
        self.ensure(replace(spec, capacity=min(4_000, spec.capacity // 2)), fill=min(4_000, spec.capacity // 2))
        self.drop()
        gc.collect()
        before = resident()
        self.ensure(spec, fill=spec.capacity)
        gc.collect()
        after = resident()
        self.memory = None if before is None or after is None else (after - before) / spec.capacity

    def drop(self) -> None:
        """Let go of the buffer, so that the next one does not stand beside it in memory."""
        self.spec, self.filled, self.buffer = None, 0, None

    buffer: Any = None

    def make(self, spec: Spec) -> None:
        raise Unsupported("no adapter")

    def fill(self, count: int) -> None:
        """Store `count` steps of the stream by whatever way is quick; not timed."""
        raise Unsupported("no way to fill it in reasonable time")

    def add(self, steps: Iterable[Step]) -> None:
        """Add one step a call."""
        raise Unsupported("no adding of one step")

    def add_without_next(self, steps: Iterable[Step]) -> None:
        """Add one step a call without its `next_obs`, where the library stores that only if it is given."""
        raise Unsupported("no adding without `next_obs`")

    def add_lanes(self, steps: Iterable[Step]) -> None:
        """Add one step of every lane a call."""
        raise Unsupported("no adding of several lanes")

    def sample(self, n: int, calls: int) -> None:
        """Draw `n` items a call, in the library's own form."""
        raise Unsupported("no sampling")

    def sample_torch(self, n: int, calls: int) -> None:
        """Draw `n` items a call and hand every field over as a PyTorch tensor."""
        raise Unsupported("no hand-over to PyTorch")

    def add_and_draw(self, n: int, steps: Iterable[Step]) -> None:
        """Add one step, then draw `n` items, once per entry of `steps`."""
        raise Unsupported("no drawing between adds")

    def draw(self, n: int) -> Any:
        """Draw `n` items with importance-sampling weights; return what `update` takes."""
        raise Unsupported("no prioritized replay")

    def update(self, drawn: Any, error: Any) -> None:
        """Write the priorities of the items that `draw` returned."""
        raise Unsupported("no prioritized replay")

    def cycle(self, n: int, errors: Iterable[Any]) -> None:
        """Draw `n` items, then write their priorities, once per entry of `errors`."""
        for error in errors:
            self.update(self.draw(n), error)

    def prepare_errors(self, errors: list[Array]) -> list[Any]:
        """Turn TD errors into the form in which this library's learner would have them; not timed."""
        return errors

    def prepare_steps(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Turn steps into the layout that an environment made for this library gives; not timed."""
        return steps
