"""All that a buffer is: its wired parts, and their access to arrays that other processes share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from .._base.arrays import Section
from .._base.forks import importing
from .._base.frozen import Frozen
from .._base.types import Bool, Float64, Int64
from .._flow.call_lock import CallLock
from .._ring.plans import Window
from .._ring.ring import Ring
from ..errors import BufferClosed, ReliveError, message
from ..items import Expander, Fields, Item
from ..samplers import Index, Sampler
from ..samplers._protocol import Draw
from ..schema import Schema
from ..storage import Storage
from .adding import Adding, LaneClaims
from .arguments import choice
from .choices import Choices
from .notices import Notices
from .tally import Tally

if TYPE_CHECKING:
    import numpy as np

    from .._flow.limit import Limit
    from .._ring.kernel_types import RingKernel
    from .reading import Reader

# Items that stay bound to a buffer's steps.
_MOST = 8
Add = Callable[..., Int64]
Choose = Callable[[], Draw]


class ChosenItems(NamedTuple):
    """Chosen items, and their fields without `weights`."""

    draw: Draw
    fields: Fields


class Access:
    """The access of a buffer to its arrays; this one is that of the only process that has them.

    `processes/joint.py` has that of one of several processes.

    Attributes:
        window: The window under which the ring says which steps are drawable.
        keeps: What the ring records for every row.
        busy: Lanes that other processes were writing when the buffer was opened.
        alone: Whether no other process writes to the arrays.
        shares_sampler: Whether a forked child would write the sampler's arrays, too.
        forked: Whether this process is such a child.
    """

    busy: Sequence[int] = ()
    alone = True
    shares_sampler = forked = False

    def __init__(self, window: Window, keeps: Sequence[str]) -> None:
        self.window, self.keeps = window, keeps

    @property
    def joint(self) -> tuple[RingKernel, Int64, Access, int] | None:
        """The needs of calls without a Python frame; None: there are no other processes, or Python makes the calls."""
        return None

    @property
    def may_write(self) -> bool:
        """True where this process may change the values of stored steps."""
        return True

    def shared(self, lanes: Int64) -> Bool:
        """Return which of the lanes a `Writer` has, of another process or of this one, which writes meanwhile."""
        return lanes < 0

    def bind(self, ring: Ring) -> LaneClaims | None:
        """Return the lanes of `ring` that this process may write; None: all."""
        return None

    def seen(self, window: Window, ring: Ring) -> Ring:
        """Return `ring` as items with `window` see it."""
        return ring

    def following(self, index: Index) -> Index:
        """Return a sampler's index that takes in first what other processes wrote."""
        return index

    def refreshing(self, refresh: Callable[[], int]) -> Callable[[], int]:
        """Return the sampler's `refresh` as a draw calls it: rows that are ready are noted first, for `overtaken`."""
        return refresh

    def again(self, refresh: Callable[[], int]) -> int:
        """Refresh a sampler once more in a call, or for an update: it takes in few rows, but lets go of all others."""
        return refresh()

    def updating(self, update: Callable[[object, object], bool] | None) -> Callable[[object, object], bool] | None:
        """Return the sampler's short way to update priorities, after a look at what other processes wrote."""
        return update

    def draw(self, core: Core, n: int, beta: float | None, first: Draw | None = None) -> Fields:
        """Draw `n` items by the sampler, weights included; the core's `refresh` has been called.

        Args:
            core: Of the buffer.
            n: How many.
            beta: The exponent of the weights for this call; None: the sampler's own.
            first: What the sampler chose already for this draw.
        """
        rng = core.tally.rng
        draw = core.index.draw(n, rng, beta)
        fields = core.expander.expand(draw.slots, rng)
        fields["weights"] = draw.weights
        return fields

    def copied(self, core: Core, choose: Choose) -> ChosenItems:
        """Copy the items that `choose` returns; while other processes overwrite some of them, refresh and repeat."""
        draw = choose()
        return ChosenItems(draw, core.expander.expand(draw.slots, core.tally.rng))

    def look(self) -> None:
        """See the ring as it is now, and note which rows are ready."""

    def take_in(self) -> None:
        """See the ring as it is now."""

    def mend(self) -> None:
        """Put lanes right whose writer was killed in the middle of a call."""

    def overtaken(self, ids: Int64) -> Bool | None:
        """Return which of the items that were copied since the last look were overwritten meanwhile; None: none."""
        return None

    def unknown(self, ids: Int64) -> Bool | None:
        """Return which items the sampler cannot know: overwritten since the last look, or not taken in; None: none."""
        return None

    def missing(self, items: int) -> int:
        """Return how many items that could be drawn a sampler with so many `items` has not taken in."""
        return 0

    def gone(self, ids: Int64) -> Bool | None:
        """Return which rows that were read since the last look were overwritten meanwhile; None: none."""
        return None

    def count(self, updates: int, stale: int) -> None:
        """Count an update of priorities for monitors in other processes."""

    def keep(self, rng: np.random.Generator, counts: dict[str, int]) -> None:
        """Store what is in no array, and have all arrays written to the disk."""

    def still(self, take: Callable[[], Int64 | None]) -> None:
        """Call `take` while no other process writes, perhaps several times.

        What it returns is how far each lane may go then, int64 `[L]`, until `release`; None: as far as before.
        """
        take()

    def release(self) -> None:
        """Let other processes write as they like."""

    def unmoved(self, counters: Int64) -> None:
        """Check that no other process wrote what must not change for a save: since its counters were `counters`.

        Raises:
            ReliveError: One has.
        """

    def present(self) -> bool:
        """Tell if the process that made the buffer still has it open."""
        return True

    def close(self) -> None:
        """Release lanes, locks and names."""


class Readers:
    """The items under which a buffer's steps were read lately.

    Args:
        item: The buffer's own.
        schema: The fields of a step.
        ring: As that item sees it.
    """

    def __init__(self, item: Item, schema: Schema, ring: Ring) -> None:
        self._own, self._schema, self._ring = item, schema, ring
        self._known: list[Reader] = []

    def of(self, item: Item, at: str) -> Reader:
        """Return the reader of an item; make it where there is none.

        Raises:
            ArgumentError: It is no item, or does not fit.
        """
        choice(item, self._own, "item", at)
        for reader in self._known:
            if reader.item is item or reader.item == item:
                return reader
        with importing:
            from .reading import Reader

        self._known = [*self._known[1 - _MOST :], Reader(item, self._schema, self._ring, at)]
        return self._known[-1]


class Core(Frozen):
    """The parts of a buffer, wired. It has no verbs: functions work on it, in the module of their subject.

    Attributes:
        choices: What it was built from.
        schema: The fields of a step.
        item: What one draw expands to.
        sampler: Which items are drawn.
        storage: Where the bytes live.
        memory: The arrays of the sampler.
        ring: The steps, as item and sampler see them.
        index: The sampler, bound to the ring.
        update: The index's method to set priorities; None: the sampler has none.
        refresh: Lets the index take in what changed, as a draw needs it.
        try_update: The index's short way to update priorities; None: it has none.
        expander: The item, bound to the ring.
        readers: Other items, bound to the ring.
        writer: What writes to the ring.
        native: Its `add` and `extend`, as fast as the kernels have them.
        calls: The same behind the rate limiter, as the buffer has them.
        access: How draws and writes meet other processes.
        lock: Lets one thread at a time into a call.
        notices: Warnings that are due.
        limit: The rate limiter at work; None: nothing waits.
        tally: What is in none of the arrays.
        nbytes: Bytes of the full ring.
        most: Items of the largest batch that fits in memory.
    """

    choices: Choices
    schema: Schema
    item: Item
    sampler: Sampler
    storage: Storage
    memory: Section
    ring: Ring
    index: Index
    update: Callable[[Int64, Float64, Bool | None], None] | None
    refresh: Callable[[], int]
    try_update: Callable[[object, object], bool] | None
    expander: Expander
    readers: Readers
    writer: Adding
    native: tuple[Add, Add]
    calls: tuple[Add, Add]
    access: Access
    lock: CallLock
    notices: Notices
    limit: Limit | None
    tally: Tally
    nbytes: int
    most: int

    @property
    def slow_adds(self) -> int:
        """Calls of `add` and `extend` in which Python had to read a value."""
        return self.writer.slow


class _Closed:
    """Stands for the core of a buffer that was closed."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise BufferClosed(message("an open buffer", "one that was closed", "ReplayBuffer"))


CLOSED = cast(Core, _Closed())


class _ParentsSampler:
    """Stands for a sampler whose arrays are those of the parent process."""

    def __init__(self, process: int) -> None:
        self._process = process

    def __getattr__(self, name: str) -> NoReturn:
        wanted = f"process {self._process}, which made the buffer"
        remedy = "draw in a child process with `relive.open(name)`; adding is possible"
        raise ReliveError(message(wanted, f"its child {os.getpid()}", "ReplayBuffer", remedy))


def forked(core: Core) -> Core:
    """Return the core for a forked child: it may add, but not draw, since both would write the sampler's arrays."""
    core.access.forked = True
    if core.limit is not None:
        core.limit.present = core.access.present
    absent: Any = _ParentsSampler(os.getppid())
    changes = {"index": absent, "try_update": None, "refresh": lambda: absent.refresh()}
    return core.__replace__(**changes)
