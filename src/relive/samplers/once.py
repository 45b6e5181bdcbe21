"""Items that were not drawn before."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np

from .._base import check
from .._base.arrays import ArraySpec, Memory
from .._base.frozen import Frozen
from .._base.journal import Journal
from .._base.types import Bool, Int64
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ._protocol import Draw, Index, Report, Sampler

_NONE = np.empty(0, np.int64)
_LATE = 1024  # ids that wait beside the others before they are put among them


class Once(Frozen, Sampler, kw_only=True):
    """Draw every item `uses` times and no more, in order: a queue.

    Args:
        uses: Draws of an item, from 1 to 255. They come in different batches.
        order: `"oldest"` or `"newest"` first. Of several lanes, the items of the same row come by lane.
        every: Only the items that start at a row whose number in its lane is a multiple of this, >= 1: of sequences
            `length`, so that each step comes once.

    Raises:
        ArgumentError: An argument outside these limits.

    A batch needs as many items as it is large; where too few are left, `sample` raises `NotEnoughData`, or waits, if
    the buffer has a `RateLimiter`. `stats().unused` counts items that were overwritten before they were drawn `uses`
    times, as far as a draw, a save or `stats()` saw them between. In a `Blend` it takes its share as far as there is
    something left. The generator is not used, weights are 1, and there is no `probability`.

    Draws are counted for each item, in saves and mapped files, too. A load with another capacity or item begins anew.
    An item whose draw is interrupted counts as drawn. Memory: a byte per row of capacity, 8 for each item that waits.

    >>> import numpy as np, relive
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> buffer = relive.ReplayBuffer(schema, 100, sampler=Once())
    >>> time, no = np.arange(5.0), np.zeros(5, bool)
    >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=no, truncated=no)
    >>> buffer.sample(3).ids.tolist(), buffer.sample(2).ids.tolist(), buffer.can_sample(1)
    ([0, 1, 2], [3, 4], False)
    """

    uses: int = 1
    order: str = "oldest"
    every: int = 1

    def __post_init__(self) -> None:
        uses = check.integer(self.uses, "Once(uses)", minimum=1)
        if uses > 255:
            raise ArgumentError(message("at most 255 uses, which a byte counts", f"`{uses}`", "Once(uses)"))
        object.__setattr__(self, "uses", uses)
        check.one_of(self.order, ("oldest", "newest"), "Once(order)")
        object.__setattr__(self, "every", check.integer(self.every, "Once(every)", minimum=1))

    @property
    def replacement(self) -> bool:
        """False."""
        return False

    @property
    def consumes(self) -> bool:
        """True."""
        return True

    @property
    def indivisible(self) -> str:
        """The order of all items."""
        return "no shard knows which items of the others come first; use `Once` in a buffer of its own"

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """Specify how often each item can still be drawn, how many were lost, and the ring's counters at a look."""
        return {
            "once.left": ArraySpec((lanes * rows,), np.dtype(np.uint8), "slots"),
            "once.unused": ArraySpec((1,), np.dtype(np.int64)),
            "once.seen": ArraySpec((lanes, 3), np.dtype(np.int64), "seen"),
        }

    def index(self, ring: Ring, memory: Memory) -> Index:
        """Return an index over the slots of `ring`."""
        return cast(Index, _Once(self, ring, memory))


class _Waiting(NamedTuple):
    """The items that wait to be drawn.

    Attributes:
        seen: The ring's counters at the last look; None: the rest is not known.
        main: Keys of items, ascending: ids, or for the newest first ids with the other sign. Those of items that are
            gone stay until they are met.
        late: Further ones, ascending, so that a new one need not be put among all others.
        items: How many can be drawn.
    """

    seen: Int64 | None = None
    main: Int64 = _NONE
    late: Int64 = _NONE
    items: int = 0


class _Once:
    """The draws that each item has left, at its slot, and the order of those that have some."""

    def __init__(self, settings: Once, ring: Ring, memory: Memory) -> None:
        self._ring, self._uses, self._every = ring, settings.uses, settings.every
        self._sign = 1 if settings.order == "oldest" else -1
        self._left, self._unused, self._seen = map(memory.host, ("once.left", "once.unused", "once.seen"))
        self._waiting = _Waiting()

    def refresh(self) -> int:
        """Take in what changed; return how many items can be drawn."""
        ring, waiting = self._ring, self._waiting
        changes = ring.changes(self._seen)
        if waiting.seen is None or not np.array_equal(waiting.seen, changes.seen):
            added, lost = changes.added, int(np.count_nonzero(self._left[changes.removed]))
            if self._every > 1:
                added = added[ring.ids(added) // ring.lanes % self._every == 0]
            with Journal() as journal:
                journal.put(self._left, changes.removed, 0)
                journal.put(self._left, added, self._uses)
                journal.put(self._unused, 0, self._unused[0] + lost)
                journal.put(self._seen, slice(None), changes.seen)
                journal.set(self, "_waiting", self._after(changes.seen, added, lost))
        return self._waiting.items

    def _after(self, seen: Int64, added: Int64, lost: int) -> _Waiting:
        """Return the items that wait after changes that brought some and took `lost` of them."""
        _, main, late, count = self._waiting
        if self._waiting.seen is None:
            main, late, added = _NONE, _NONE, np.flatnonzero(self._left)
            count, lost = 0, 0
        late = np.sort(np.concatenate((late, self._sign * self._ring.ids(added))), kind="stable")
        if len(late) > max(_LATE, len(main) // 8):
            main = np.sort(np.concatenate((main, late)), kind="stable")
            main, late = main[self._there(main)], _NONE
        return _Waiting(seen, main, late, count + len(added) - lost)

    def _there(self, keys: Int64) -> Bool:
        """Return which keys are of items that can be drawn."""
        ids = keys * self._sign
        rows, lanes = np.divmod(ids, self._ring.lanes)
        return np.asarray((rows >= self._seen[lanes, 0]) & (self._left[ids % self._ring.slots] > 0))

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Return the first `n` slots."""
        seen, main, late, count = self._waiting
        found, most = _NONE, n
        while len(found) < n:
            found = np.sort(np.concatenate((main[:most], late[:most])))[:most]
            found, most = found[self._there(found)][:n], 2 * most
        slots = found * self._sign % self._ring.slots
        self._waiting = _Waiting()  # until all is done
        self._left[slots] -= 1
        again = found[self._left[slots] > 0]
        main, late = (keys[np.searchsorted(keys, found[-1], "right") :] for keys in (main, late))
        self._waiting = _Waiting(seen, main, np.concatenate((again, late)), count - n + len(again))
        return Draw(slots, np.ones(n, np.float32))

    def give_back(self, slots: Int64) -> None:
        self._waiting = _Waiting()
        self._left[slots] += 1

    def report(self) -> Callable[[], Report]:
        unused = int(self._unused[0])
        return lambda: Report(unused=unused)
