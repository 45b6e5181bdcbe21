"""What every sampler promises.

A *slot* is an integer in `[0, capacity)` that stands for one stored step, `id % capacity`. A sampler is told nothing:
its index asks the ring what changed since it last looked. Whatever it must not forget lies in arrays that the storage
opened, so that it survives where the ring does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from .._arrays import ArraySpec, Memory
from .._ring import Ring
from .._types import Bool, Float32, Float64, Int64


class Draw(NamedTuple):
    """Drawn slots, int64 `[B]`, and the importance-sampling weights of their items, float32 `[B]`."""

    slots: Int64
    weights: Float32


@dataclass(frozen=True)
class Report:
    """What a sampler adds to a buffer's statistics; see `Stats`."""

    priority_quantiles: tuple[float, ...] = ()
    effective_sample_size: float = 0.0
    beta: float = 0.0


class Index(Protocol):
    """A sampler at work on one buffer: it knows which slots can be drawn."""

    def refresh(self) -> int:
        """Take in what changed in the ring; return how many slots a draw can return.

        All or nothing: a call that is interrupted has changed nothing.
        """
        ...

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Draw `n` slots as of the last `refresh`, using one call of `rng.random(n)`; at least one can be drawn."""
        ...

    def report(self) -> Report:
        """What the sampler adds to a buffer's statistics."""
        ...


class Prioritizing(Index, Protocol):
    """The index of a sampler that knows priorities."""

    def update(self, slots: Int64, td_error: Float64, keep: Bool | None) -> None:
        """Set the priorities of those `slots` that `keep` marks (None: all), once `refresh` has been called.

        All TD errors are checked first; the last of several for one slot wins.

        Raises:
            PriorityError: A TD error is not finite; nothing has changed.
        """
        ...

    def priorities(self, slots: Int64) -> Float64:
        """The raw priorities at `slots`."""
        ...


class Sampler(Protocol):
    """The frozen description of a sampler."""

    @property
    def replacement(self) -> bool:
        """Whether a draw may repeat an item."""
        ...

    @property
    def prioritizes(self) -> bool:
        """Whether priorities mean anything to it: then its index is `Prioritizing`."""
        ...

    @property
    def keeps(self) -> tuple[str, ...]:
        """Bookkeeping that the ring is asked for: `"given"` priorities, `"arrival"` (when rows became ready)."""
        ...

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """The arrays that an index over `lanes` of `rows` each keeps in the buffer's storage, by name."""
        ...

    def index(self, ring: Ring, memory: Memory) -> Index:
        """Return an index over the slots of `ring`, whose arrays `memory.host` has under the names of `spec`."""
        ...
