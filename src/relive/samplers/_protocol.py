"""What every sampler promises.

A *slot* is an integer in `[0, capacity)` that stands for one stored step, `id % capacity`. The ring never calls a
sampler: an index asks the ring what changed since it last looked. State that has to last is in arrays that the storage
opened, so that it survives together with the ring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from .._base.arrays import ArraySpec, Memory
from .._base.frozen import Frozen
from .._base.types import Array, Bool, Float32, Float64, Int64
from .._ring.ring import Ring


class Draw(NamedTuple):
    """What an index has drawn.

    Attributes:
        slots: int64 `[B]`.
        weights: The importance-sampling weights of their items, float32 `[B]`.
        masses: What the items were drawn in proportion to, float64 `[B]`; None where no weight depends on the others
            of its batch.
        beta: The exponent of the weights.
    """

    slots: Int64
    weights: Float32
    masses: Float64 | None = None
    beta: float = 0.0


class Report(Frozen):
    """What a sampler adds to a buffer's statistics; see `Stats`."""

    priority_quantiles: tuple[float, ...] = ()
    beta: float = 0.0


class Carried(NamedTuple):
    """What another sampler is given of saved priorities.

    Attributes:
        raw: A raw priority for each item, float64 `[n]`.
        order: The larger, the later it was set, int64 `[n]`.
        largest: The largest that was ever set; 0 if there was none.
    """

    raw: Float64
    order: Int64
    largest: float


class Share(Frozen):
    """What one buffer's part is in a draw over several; see `ReplayBuffer.share`.

    Attributes:
        total: The sum of what items are drawn in proportion to: `priority**alpha`, or 1 for each item, or each episode,
            of a uniform sampler.
        count: Items that can be drawn, those of priority 0 included.
        smallest: The smallest positive `priority**alpha`; infinity if there is none.
        largest: The largest raw priority that was ever set; 0 if there was none.
    """

    total: float
    count: int
    smallest: float
    largest: float


class Index(Protocol):
    """A sampler bound to one buffer's ring."""

    def refresh(self) -> int:
        """Take in what changed in the ring; return how many slots a draw can return.

        Where `ring.cleared(seen)`, also forget what earlier priorities have left, such as the largest of them.
        All or nothing: a call that raises has changed nothing.
        """
        ...

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Draw `n` slots, using one call of `rng.random(n)`; the last `refresh` has returned at least 1."""
        ...

    def report(self) -> Callable[[], Report]:
        """Take what the statistics need; the function that is returned computes them, outside of the buffer's lock."""
        ...


class Prioritizing(Index, Protocol):
    """The index of a sampler with priorities."""

    def update(self, slots: Int64, td_error: Float64, keep: Bool | None) -> None:
        """Set the priorities of those `slots` that `keep` marks (None: all); `refresh` has been called before.

        All TD errors are checked first; the last of several for one slot wins.

        Raises:
            PriorityError: A TD error is not finite; nothing has changed.
        """
        ...

    def priorities(self, slots: Int64) -> Float64:
        """The raw priorities at `slots`."""
        ...


@runtime_checkable
class Divisible(Index, Protocol):
    """An index whose buffer can be one of several that are drawn from as if they were one."""

    def share(self) -> Share:
        """What there is to draw; `refresh` has been called before."""
        ...

    def draw_at(self, fractions: Float64) -> tuple[Int64, Float64]:
        """The slots at these fractions of the total, and what they are drawn in proportion to, without a generator."""
        ...

    def raise_priority(self, raw: float) -> None:
        """Let the largest raw priority ever set be at least this."""
        ...


@runtime_checkable
class Adopting(Protocol):
    """An index that takes over the priorities of a saved one of another sampler, or over other rows."""

    def adopt(self, slots: Int64, raw: Float64, largest: float) -> None:
        """Set raw priorities, the earliest set first, and the largest ever set; `refresh` has been called before."""
        ...


class Sampler(Protocol):
    """The frozen description of a sampler; one that is `Carrying`, too, hands its priorities on."""

    @property
    def replacement(self) -> bool:
        """Whether a draw may repeat an item."""
        ...

    @property
    def prioritizes(self) -> bool:
        """Whether it has priorities; then its index is `Prioritizing`."""
        ...

    @property
    def keeps(self) -> tuple[str, ...]:
        """What the ring records for every row: `"given"` priorities, `"arrival"` (when the row became ready)."""
        ...

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """The arrays that an index over `lanes` of `rows` each keeps in the buffer's storage, by name."""
        ...

    def index(self, ring: Ring, memory: Memory) -> Index:
        """Return an index over the slots of `ring`, whose arrays `memory.host` has under the names of `spec`."""
        ...


@runtime_checkable
class Carrying(Sampler, Protocol):
    """A sampler whose saved priorities another one can take over.

    `slots` and `whole` are what was saved of the arrays of `spec`: those with an entry for each slot, and the others.
    """

    def carried(self, slots: Mapping[str, Array], whole: Mapping[str, Array]) -> Carried:
        """The raw priorities of the slots."""
        ...

    def sound(self, slots: Mapping[str, Array], whole: Mapping[str, Array], anchors: Int64) -> bool:
        """Whether these can be the sampler's arrays; `anchors`: which of the slots can be drawn."""
        ...
