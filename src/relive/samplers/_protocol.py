"""What every sampler promises.

A *slot* is an integer in `[0, ring.slots)` that stands for one row of a lane, `id % ring.slots`. The ring never calls a
sampler: an index asks the ring what changed since it last looked. State that has to last is in arrays that the storage
opened, so that it survives together with the ring.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from .._base.arrays import ArraySpec, Memory
from .._base.frozen import Frozen
from .._base.types import Array, Bool, Float32, Float64, Int64
from .._ring.ring import Ring

if TYPE_CHECKING:
    from .._ring.kernel_types import ChooserKernel


class Draw(NamedTuple):
    """A draw of an index.

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
    """A sampler's part of a buffer's statistics; see `Stats`."""

    priority_quantiles: tuple[float, ...] = ()
    beta: float = 0.0
    unused: int = 0


class Carried(NamedTuple):
    """Saved priorities, as another sampler receives them.

    Attributes:
        raw: A raw priority for each item, float64 `[n]`.
        largest: The largest that was ever set; 0 if there was none.
    """

    raw: Float64
    largest: float


class Share(Frozen):
    """One buffer's part in a draw over several; see `share` in `_buffer/drawing.py`.

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
    """A sampler bound to one buffer's ring.

    `refresh`, `draw` and `report` are required. Each of the others is a capability: a method, or None where the index
    does not have it. A class that inherits from `Index` has these defaults; for other classes they are filled in.
    """

    @abstractmethod
    def refresh(self) -> int:
        """Take in what changed in the ring; return how many slots a draw can return.

        Where `ring.cleared(seen)`, also forget what earlier priorities have left, such as the largest of them.
        All or nothing: a call that raises has changed nothing.
        """

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Draw `n` slots, using at most one call of `rng.random`; the last `refresh` has returned at least 1."""

    @abstractmethod
    def report(self) -> Callable[[], Report]:
        """Take what the statistics need; the function that is returned computes them, outside of the buffer's lock."""

    @property
    def update(self) -> Callable[[Int64, Float64, Bool | None], None] | None:
        """`update(slots, td_error, keep)` sets the priorities of those `slots` that `keep` marks (None: all).

        Required of a sampler with priorities. `refresh` has been called before. All TD errors are checked first: where
        one is not finite, it raises `PriorityError` and changes nothing. The last of several for one slot wins.
        """
        return None

    @property
    def try_update(self) -> Callable[[object, object], bool] | None:
        """`try_update(ids, td_error)`: as `update`, for plain arrays of drawable ids; False, and no change, for others.

        It is what `update_priorities` calls first, without `refresh`.
        """
        return None

    @property
    def chooser(self) -> ChooserKernel | None:
        """The native `sample`'s own way to `refresh`, `draw` and `update`; None: it calls these methods."""
        return None

    @property
    def priorities(self) -> Callable[[Int64], Float64] | None:
        """`priorities(slots)` returns the raw priorities. Required of a sampler with priorities."""
        return None

    @property
    def probability(self) -> Callable[[Int64], Float64] | None:
        """`probability(slots)` returns the probability of drawable items in a draw of one; `refresh` was called before.

        Exact, and the same for every storage and kernel. Required of a member of a `Blend` that does not `consume`.
        """
        return None

    @property
    def give_back(self) -> Callable[[Int64], None] | None:
        """`give_back(slots)` takes back a draw of items that were overwritten before they were copied.

        Required of a sampler that `consumes`; `refresh` was not called since.
        """
        return None

    @property
    def share(self) -> Callable[[], Share] | None:
        """`share()` says how much there is to draw. With `draw_at` the buffer can be a shard, or one of several."""
        return None

    @property
    def draw_at(self) -> Callable[[Float64], tuple[Int64, Float64]] | None:
        """`draw_at(fractions)` returns the slots at these fractions of the total, and the mass of each.

        It uses no generator, moves no clock, and covers slots in one order, each as wide as its mass.
        """
        return None

    @property
    def masses_of(self) -> Callable[[Float64], Float64] | None:
        """`masses_of(raw)` returns what new items that come with these priorities are drawn in proportion to.

        NaN stands for none given; items are in the order of their lanes and rows. It is asked for items that `refresh`
        has not taken in, where writers of other processes outrun it; without it such a draw raises.
        """
        return None

    @property
    def raise_priority(self) -> Callable[[float], None] | None:
        """`raise_priority(raw)` makes the largest priority ever set at least this. Shards with priorities need it."""
        return None

    @property
    def adopt(self) -> Callable[[Int64, Float64, float], None] | None:
        """`adopt(slots, raw, largest)` sets raw priorities, and the largest that was ever set.

        `relive.load` calls it where the save is of another sampler, or of other rows; `refresh` has been called before.
        """
        return None


class Sampler(Protocol):
    """The frozen description of a sampler. `replacement` and `index` are required, the others have defaults.

    A class that inherits from `Sampler` has these defaults. Other classes need `prioritizes` and `spec`, too.
    """

    @property
    @abstractmethod
    def replacement(self) -> bool:
        """True if a draw may repeat an item."""

    @abstractmethod
    def index(self, ring: Ring, memory: Memory) -> Index:
        """Return an index over the slots of `ring`, whose arrays `memory.host` has under the names of `spec`."""

    @property
    def prioritizes(self) -> bool:
        """True if it has priorities; then its index has `update` and `priorities`, and the ring keeps given ones."""
        return False

    @property
    def consumes(self) -> bool:
        """True if draws use items up; where a limiter is, a draw then waits for new ones."""
        return False

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """Return the arrays that an index over `lanes` of `rows` each keeps in the buffer's storage, by name."""
        return {}

    @property
    def stratified(self) -> bool:
        """True if a draw over shards takes one item from each of `batch_size` equal slices of the total."""
        return False

    @property
    def weights(self) -> str | None:
        """The divisor of the weights `(N * P)**-beta`: `"batch"`, `"buffer"`, `"none"`; None: weights are 1."""
        return None

    def beta_at(self, call: int) -> float:
        """Return the exponent of the weights at the `call`-th draw, counted from 0."""
        return 1.0

    @property
    def eps(self) -> float:
        """The number added to the absolute TD error."""
        return 0.0

    @property
    def indivisible(self) -> str | None:
        """The reason why draws cannot be divided among shards; None if they can (by the index's `share`, `draw_at`)."""
        return (
            None if self.replacement else "a draw would depend on what all shards drew before; use `replacement=True`"
        )

    # `slots` and `whole` below are what was saved of the arrays of `spec`: those with one entry a slot, and the others.

    @property
    def carried(self) -> Callable[[Mapping[str, Array], Mapping[str, Array]], Carried] | None:
        """`carried(slots, whole)` returns saved priorities, which another sampler's index can `adopt`."""
        return None

    @property
    def masses(self) -> Callable[[int, Mapping[str, Array]], Float64] | None:
        """`masses(n, slots)` returns what each of `n` saved items is drawn in proportion to, for `relive inspect`.

        Here `slots` also has an `"age"`: how many items of its lane are newer than each.
        """
        return None

    def sound(self, slots: Mapping[str, Array], whole: Mapping[str, Array], anchors: Int64) -> bool:
        """Check that these can be the sampler's arrays; `anchors`: the slots that can be drawn."""
        return True
