"""A buffer's tie to the other processes at its arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from .._base.arrays import JointMemory
from .._base.frozen import Frozen
from .._base.generators import generator_of, state_of
from .._base.types import Array, Bool, Float32, Float64, Int64
from .._ring.lanes import CUTS, GONE, HEAD
from .._ring.ring import Ring
from ..errors import ReliveError, StaleId, StorageError, event
from ..items import Fields
from ..items._protocol import Expander
from ..samplers import Index
from ..storage._segment import CREATOR
from ._about import CHOICES, COUNTS, DRAWN, LAST_ID, OWNERS, REDRAWN, STALE, STATE, UPDATES, About, StateFile
from ._claims import Claims

if TYPE_CHECKING:
    from .._ring.plans import Window
    from ..schema import Schema
    from ._view import View

_ATTEMPTS, _LONGEST = 10_000, 30.0  # of redraws, and seconds of them
_NO_IDS = np.empty(0, np.int64)


@runtime_checkable
class Weighing(Protocol):
    """An index whose weights are divided by the largest of their batch."""

    def masses(self) -> Float64 | None:
        """What the items of the last draw were drawn in proportion to; None where weights are not divided so."""
        ...

    def beta(self) -> float:
        """The exponent of its weights."""
        ...


class Bound(Frozen):
    """A buffer's sampler and item, bound to its ring.

    Attributes:
        index: The sampler's.
        expander: The item's.
        ring: What both look at.
        replacement: Whether a batch may have an item twice.
    """

    index: Index
    expander: Expander
    ring: Ring
    replacement: bool


class Link:
    """What a process knows of the others: which lanes they write, and whether what was copied is whole.

    Args:
        memory: The arrays.
        lanes: How many there are.

    Attributes:
        fresh_sampler: Whether the sampler's arrays are new.
        shares_sampler: Whether others could write them, as children of this process could.
        forked: Whether this is such a child.
        view: The ring as this process's item sees it, where that is another one than its creator's.
        busy: Lanes that others were writing when the buffer was opened. Until `bind` nobody can claim the others.
    """

    def __init__(self, memory: JointMemory, lanes: int) -> None:
        self._memory, self.fresh_sampler, self.shares_sampler = memory, memory.fresh_sampler, memory.may_add
        self.forked = False
        self.view: View | None = None
        # What readers of their own draw is not the buffer's.
        counts = memory.host(COUNTS) if memory.may_add else np.zeros_like(memory.host(COUNTS))
        self._counts: Any = counts.data
        owners, self._held = memory.host(OWNERS), list[int]()
        for lane in () if memory.fresh else range(lanes):
            if memory.locks.take(lane + 1):
                owners[lane] = 0  # says that nobody writes it: who wants to may wait
                self._held.append(lane)
        self.busy: Sequence[int] = () if memory.fresh else sorted(set(range(lanes)) - set(self._held))

    def bind(self, ring: Ring) -> Claims:
        """Who may write the lanes of `ring`, which has been put right where nobody writes."""
        for lane in self._held:
            self._memory.locks.drop(lane + 1)
        lanes = range(ring.lanes) if self._memory.may_add else ()
        self.claims = Claims(ring, self._memory.locks, self._memory.host(OWNERS), lanes)
        return self.claims

    def draw(self, n: int, bound: Bound, rng: np.random.Generator, beta: float | None) -> Fields:
        """Draw items, and draw those again that a writer overwrote before they were copied.

        `look` has been called before the sampler's last `refresh`: what became ready after that is another row
        than the one that the sampler knows by its slot.

        Raises:
            ReliveError: That happened over and over.
        """
        index = bound.index
        slots, weights = index.draw(n, rng, beta)
        fields = bound.expander.expand(slots, rng)
        bad = self.overtaken(bound, fields["ids"])
        reference = None if bad is None else _least(index)  # nothing but the ring has changed since the draw
        attempts, since = 0, time.monotonic()
        while bad is not None:
            attempts += 1
            if attempts > _ATTEMPTS or time.monotonic() - since > _LONGEST:
                what = f"Writers overwrote items of {attempts} draws before they were copied"
                remedy = "give lanes more rows, or hold writers back with a `RateLimiter`"
                raise ReliveError(event(what, "ReplayBuffer.sample", remedy))
            if not bound.replacement:
                bad[:] = True  # or an item could be in the batch twice
            missing = int(np.count_nonzero(bad))
            self.look()
            if index.refresh() < (1 if bound.replacement else missing):
                continue  # rows are gone, and others not ready yet
            self._counts[REDRAWN] += missing
            slots, new = index.draw(missing, rng, beta)
            weights = _merged(weights, bad, new, reference, index)
            again = bound.expander.expand(slots, rng)
            _replace(fields, again, bad)
            still = self.overtaken(bound, again["ids"])
            bad = None if still is None else _spread(bad, still)
        if attempts and reference is not None:
            weights /= weights.max()
        self._counts[DRAWN] += n
        self._counts[LAST_ID] = fields["ids"].item(n // 2)
        fields["weights"] = weights
        return fields

    def seen_as(self, window: Window, schema: Schema, ring: Ring) -> Ring:
        """`ring`, as items with `window` see it."""
        self._seen = ring
        if window != ring.window:
            from ._view import View

            self.view = View(schema, window, ring, self._memory)
            self._seen = self.view.ring
        return self._seen

    def following(self, index: Index) -> Index:
        """A sampler's index that takes in first what others wrote, where it looks at a view of the ring."""
        return index if self.view is None else self.view.following(index)

    def refreshing(self, refresh: Callable[[], int]) -> Callable[[], int]:
        """`refresh` of a sampler, but in a child of its process."""
        return lambda: 0 if self.forked else refresh()

    def check(self, bound: Bound, ids: Int64) -> None:
        """Whether items that were read by their ids are whole.

        Raises:
            StaleId: One was overwritten meanwhile.
        """
        bad = self.overtaken(bound, ids)
        if bad is not None:
            what = f"Id {ids[bad][0]} was overwritten while it was read ({int(bad.sum())} of {len(ids)})"
            raise StaleId(event(what, "$.ids", "read sooner, or give lanes more rows"))

    def whole(self, bound: Bound, ids: Int64) -> bool:
        """Whether nothing was overwritten of the items that were just copied."""
        return self.overtaken(bound, ids) is None

    def overtaken(self, bound: Bound, ids: Int64) -> Bool | None:
        """Which of the items that were copied since `look` were overwritten meanwhile; None where none was."""
        self.take_in()
        return bound.ring.kernel.overtaken(ids)

    def take_in(self) -> None:
        """Let the view, where there is one, follow the ring to what it is now."""
        if self.view is not None:
            self.view.take_in()

    def look(self) -> None:
        """See the ring as it is now, and note which rows are ready, before items are chosen and copied."""
        self.take_in()
        self._seen.kernel.look()

    def gone(self, ids: Int64) -> Bool:
        """Which rows may have been written over before they were copied."""
        self._seen.kernel.overtaken(_NO_IDS)  # what is read below is not read before those copies
        first = self.claims.ring.counters[:, GONE].copy()  # of one moment for all rows of a lane
        rows, lanes = np.divmod(ids, len(first))
        return np.asarray(rows < first[lanes])

    def keeps(self, lowest: int) -> bool:
        """Whether no row from that id on may have been written over before it was copied."""
        self._seen.kernel.overtaken(_NO_IDS)
        counters = self.claims.ring.counters
        return lowest >= int(counters[:, GONE].max()) * len(counters)

    def known(self, ring: Ring, ids: Int64, keep: Bool | None) -> Bool | None:
        """Which of the drawable ids (`keep`; None: all) are of rows that the sampler knows by their slots.

        `look` and the sampler's `refresh` have been called before: a slot must not be given the priority of
        a row that is gone from it by then.
        """
        bad = ring.kernel.overtaken(ids)
        if bad is None:
            return keep
        return ~bad if keep is None else keep & ~bad

    def count(self, updates: int, stale: int) -> None:
        """Note an update of priorities, for whoever looks."""
        self._counts[UPDATES] += updates
        self._counts[STALE] += stale

    def keep(self, rng: np.random.Generator, counts: dict[str, int]) -> None:
        """Store what a buffer knows that is in no other array, and have everything written."""
        facts = {"counts": counts}
        if type(rng) is np.random.Generator and type(rng.bit_generator).__module__.startswith("numpy."):
            facts["rng"] = state_of(rng)
        StateFile(self._memory.host(STATE)).write(facts)
        self._memory.sync()

    def kept(self) -> tuple[np.random.Generator | None, dict[str, int]]:
        """What `keep` stored last: the generator and counts."""
        facts = StateFile(self._memory.host(STATE)).read() or {}
        state = facts.get("rng")
        return None if state is None else generator_of(state), facts.get("counts", {})

    def unmoved(self, counters: Int64) -> None:
        """Check that no other process has written to a lane since its counters were `counters`.

        Raises:
            ReliveError: One has.
        """
        now, seen = (of[:, [HEAD, CUTS]] for of in (self.claims.ring.counters, counters))
        moved = (now != seen).any(axis=1) & (self.claims.allowed == 0)
        if moved.any():
            lane = int(np.flatnonzero(moved)[0])
            what = f"Process {self._memory.host(OWNERS)[lane]} wrote to lane {lane} while the buffer was copied"
            remedy = "let its writers wait meanwhile; nothing was saved"
            raise ReliveError(event(what, "ReplayBuffer.save", remedy))

    def present(self) -> bool:
        """Whether the process that made the buffer has it open."""
        try:
            return self._memory.locks.taken(CREATOR)
        except StorageError:
            return False  # the file is gone

    def announce(self, about: About) -> None:
        """Let other processes open the buffer."""
        self._memory.announce(CHOICES, about.encoded())

    def close(self) -> None:
        """Let go of lanes, locks and names."""
        self.claims.release()
        self._memory.close()


def _least(index: Index) -> float | None:
    masses = index.masses() if isinstance(index, Weighing) else None
    return None if masses is None else float(masses.min())


def _merged(weights: Float32, bad: Bool, new: Float32, reference: float | None, index: Index) -> Float32:
    """The weights of a batch some of whose items were drawn again; `reference`: the mass by which it was divided."""
    merged = weights.copy()
    if reference is None or not isinstance(index, Weighing):
        merged[bad] = new
        return merged
    least = _least(index)
    merged[bad] = new * (reference / (least or reference)) ** index.beta()
    return merged


def _replace(fields: dict[str, Any], again: dict[str, Any], bad: Bool) -> None:
    """Put the items of another batch in the place of the `bad` ones of this one."""
    for name, value in again.items():
        if isinstance(value, dict):
            _replace(fields[name], value, bad)
        elif len(bad) == np.count_nonzero(bad):
            fields[name] = value
        else:
            _set(fields[name], value, bad)


def _set(array: Array, value: Array, bad: Bool) -> None:
    """The batch's axis is the one in which the two differ."""
    axis = next(
        axis for axis, (ours, theirs) in enumerate(zip(array.shape, value.shape, strict=True)) if ours != theirs
    )
    np.moveaxis(array, axis, 0)[bad] = np.moveaxis(value, axis, 0)


def _spread(bad: Bool, still: Bool) -> Bool:
    """Which items of the batch are still bad, given which of those that were drawn again are."""
    spread = np.zeros(len(bad), bool)
    spread[np.flatnonzero(bad)[still]] = True
    return spread
