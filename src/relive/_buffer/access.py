"""How a buffer's draws and writes meet other processes at its arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .._base.types import Bool, Int64
from .._ring.plans import Window
from .._ring.ring import Ring
from ..samplers import Index
from ..samplers._protocol import Draw

if TYPE_CHECKING:
    import numpy as np

    from ..items import Fields
    from .adding import Claims
    from .core import Core

Choose = Callable[[], Draw]


class Drawn(NamedTuple):
    """Chosen items, and their fields without `weights`."""

    draw: Draw
    fields: Fields


class Access(Protocol):
    """How a buffer is opened: by one process, or together with others.

    Attributes:
        window: The window under which the ring says which steps are drawable.
        keeps: What the ring records for every row.
        busy: Lanes that other processes were writing when the buffer was opened.
        alone: Whether no other process writes to the arrays.
        shares_sampler: Whether a forked child would write the sampler's arrays, too.
        forked: Whether this process is such a child.
        may_write: Whether this process may change the values of stored steps.
    """

    window: Window
    keeps: Sequence[str]
    busy: Sequence[int]
    alone: bool
    shares_sampler: bool
    forked: bool

    @property
    def may_write(self) -> bool: ...

    def shared(self, lanes: Int64) -> Bool:
        """Which of the lanes a `Writer` has, of another process or of this one, which writes meanwhile."""
        ...

    def bind(self, ring: Ring) -> Claims | None:
        """Which lanes of `ring` this process may write; None: all."""
        ...

    def seen(self, window: Window, ring: Ring) -> Ring:
        """`ring` as items with `window` see it."""
        ...

    def following(self, index: Index) -> Index:
        """A sampler's index that takes in first what other processes wrote."""
        ...

    def refreshing(self, refresh: Callable[[], int]) -> Callable[[], int]:
        """The sampler's `refresh` as a draw calls it: rows that are ready are noted first, for `overtaken`."""
        ...

    def updating(self, update: Callable[[object, object], bool] | None) -> Callable[[object, object], bool] | None:
        """The sampler's short way to update priorities, behind a look at what other processes wrote."""
        ...

    def draw(self, core: Core, n: int, beta: float | None) -> Fields:
        """Draw `n` items by the sampler, weights included; the core's `refresh` has been called."""
        ...

    def copied(self, core: Core, choose: Choose) -> Drawn:
        """Copy the items that `choose` returns; while other processes overwrite some of them, refresh and repeat."""
        ...

    def look(self) -> None:
        """See the ring as it is now, and note which rows are ready."""
        ...

    def take_in(self) -> None:
        """See the ring as it is now."""
        ...

    def mend(self) -> None:
        """Put lanes right whose writer was killed in the middle of a call."""
        ...

    def overtaken(self, ids: Int64) -> Bool | None:
        """Which of the items that were copied since the last look were overwritten meanwhile; None: none."""
        ...

    def gone(self, ids: Int64) -> Bool | None:
        """Which rows that were read since the last look were overwritten meanwhile; None: none."""
        ...

    def count(self, updates: int, stale: int) -> None:
        """Count an update of priorities for monitors in other processes."""
        ...

    def keep(self, rng: np.random.Generator, counts: dict[str, int]) -> None:
        """Store what is in no array, and have all arrays written to the disk."""
        ...

    def still(self, take: Callable[[], Int64 | None]) -> None:
        """Call `take` while no other process writes, perhaps several times.

        What it returns is how far each lane may go then, int64 `[L]`, until `release`; None: as far as before.
        """
        ...

    def release(self) -> None:
        """Let other processes write as they like."""
        ...

    def unmoved(self, counters: Int64) -> None:
        """Check that no other process wrote what must not change for a save: since its counters were `counters`.

        Raises:
            ReliveError: One has.
        """
        ...

    def present(self) -> bool:
        """Whether the process that made the buffer still has it open."""
        ...

    def close(self) -> None:
        """Release lanes, locks and names."""
        ...


class Alone:
    """The access of the only process that has the arrays: nothing changes between a look and a copy."""

    busy: Sequence[int] = ()
    alone = True
    shares_sampler = forked = False
    may_write = True

    def __init__(self, window: Window, keeps: Sequence[str]) -> None:
        self.window, self.keeps = window, keeps

    def shared(self, lanes: Int64) -> Bool:
        return lanes < 0

    def bind(self, ring: Ring) -> Claims | None:
        return None

    def seen(self, window: Window, ring: Ring) -> Ring:
        return ring

    def following(self, index: Index) -> Index:
        return index

    def refreshing(self, refresh: Callable[[], int]) -> Callable[[], int]:
        return refresh

    def updating(self, update: Callable[[object, object], bool] | None) -> Callable[[object, object], bool] | None:
        return update

    def draw(self, core: Core, n: int, beta: float | None) -> Fields:
        rng = core.tally.rng
        draw = core.index.draw(n, rng, beta)
        fields = core.expander.expand(draw.slots, rng)
        fields["weights"] = draw.weights
        return fields

    def copied(self, core: Core, choose: Choose) -> Drawn:
        draw = choose()
        return Drawn(draw, core.expander.expand(draw.slots, core.tally.rng))

    def look(self) -> None: ...

    def take_in(self) -> None: ...

    def mend(self) -> None: ...

    def overtaken(self, ids: Int64) -> Bool | None:
        return None

    def gone(self, ids: Int64) -> Bool | None:
        return None

    def count(self, updates: int, stale: int) -> None: ...

    def keep(self, rng: np.random.Generator, counts: dict[str, int]) -> None: ...

    def still(self, take: Callable[[], Int64 | None]) -> None:
        take()

    def release(self) -> None: ...

    def unmoved(self, counters: Int64) -> None: ...

    def present(self) -> bool:
        return True

    def close(self) -> None: ...
