"""A buffer whose arrays other processes open, too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._base.arrays import JointMemory
from .._base.forks import importing
from .._base.generators import generator_of, state_of
from .._base.nests import zipped
from .._base.types import Array, Bool, Float32, Int64
from .._buffer.choices import Choices
from .._buffer.core import Access, Choose, ChosenItems, Core
from .._buffer.wiring import Fill, assemble
from .._ring.lanes import CUTS, GONE, HEAD
from .._ring.plans import Window
from .._ring.ring import Ring
from ..errors import ReliveError, StorageError, event
from ..items import Fields
from ..samplers import Index
from ..samplers._protocol import Draw
from ..storage import Storage
from ..storage._segment import CREATOR
from ._backlog import FEW, Backlog
from ._claims import Claims
from ._description import (
    CHOICES,
    COUNTS,
    DRAWN,
    LAST_ID,
    LIMITS,
    OWNERS,
    RARITY,
    REDRAWN,
    STALE,
    STATE,
    UPDATES,
    BufferDescription,
    StateFile,
)
from ._hold import Hold

if TYPE_CHECKING:
    from .._ring.kernel_types import RingKernel
    from ._view import ReaderView

_ATTEMPTS, _LONGEST = 10_000, 30.0  # of redraws, and seconds of them
_LOOKS = 16  # draws, of which one is looked at for monitors in other processes
_PATIENCE = 3  # redraws of what the sampler knows before rows are drawn that writers have just written
_NO_IDS = np.empty(0, np.int64)


def founded(choices: Choices, storage: Storage, rng: np.random.Generator, fill: Fill | None) -> Core:
    """Build the core of a new buffer that other processes can open; see `opened`."""
    about = BufferDescription.of(choices)
    spec = choices.spec(about.window, about.keeps) | about.spec()
    memory = cast(JointMemory, storage.open(spec, choices.identity))
    fresh = None if fill is None else fill(spec, memory)
    core = assemble(choices, storage, memory, JointAccess(memory, about), rng, fresh)
    memory.announce(CHOICES, about.encoded())
    return core


class JointAccess(Access):
    """The access of one of several processes: it knows which lanes the others write, and whether a copy is whole.

    Args:
        memory: The arrays.
        about: What the buffer was built from.

    Attributes:
        memory: As above.
        hold: What writers wait for while the buffer is saved; None: they do not.
        window, keeps, busy, shares_sampler, forked: As in `Access`. Until `bind` no other process can claim the lanes
            that are not busy.
    """

    def __init__(self, memory: JointMemory, about: BufferDescription) -> None:
        super().__init__(about.window, about.keeps)
        self.alone = False
        self.memory, self.shares_sampler = memory, memory.may_add
        self.hold: Hold | None = None
        self._waits = about.waits
        self._view: ReaderView | None = None
        # What readers of their own draw is not the buffer's.
        counts = memory.host(COUNTS) if memory.may_add else np.zeros_like(memory.host(COUNTS))
        self._counts: Any = counts.data
        self._counted = counts
        self._draws = 0
        owners, self._held = memory.host(OWNERS), list[int]()
        for lane in () if memory.fresh else range(about.lanes):
            if memory.locks.take(lane + 1):
                owners[lane] = 0  # without an owner: another process that wants the lane waits
                self._held.append(lane)
        self.busy: Sequence[int] = () if memory.fresh else sorted(set(range(about.lanes)) - set(self._held))

    @property
    def may_write(self) -> bool:
        """Act as `Access` says."""
        return self.memory.may_add and not self.forked

    def shared(self, lanes: Int64) -> Bool:
        """Act as `Access` says."""
        owners = self.memory.host(OWNERS)[lanes]
        return np.asarray((owners != 0) & (self.claims.allowed[lanes] == 0))

    def bind(self, ring: Ring) -> Claims:
        """Bind as `Access` does; lanes that no other process writes have been repaired."""
        for lane in self._held:
            self.memory.locks.drop(lane + 1)
        lanes = range(ring.lanes) if self.memory.may_add else ()
        self.claims = Claims(ring, self.memory.locks, self.memory.host(OWNERS), lanes)
        if self._waits and ring.touched is not None:
            self.hold = Hold(ring, ring.touched, self.memory.host(LIMITS), self.memory.locks)
            self.hold.free()
        return self.claims

    def seen(self, window: Window, ring: Ring) -> Ring:
        """Act as `Access` says."""
        self._seen = ring
        if window.__replace__(actions=ring.window.actions) != ring.window:
            with importing:
                from ._view import ReaderView

            self._view = ReaderView(window, ring)
            self._seen = self._view.ring
        self._backlog = Backlog(self._seen)
        return self._seen

    @property
    def joint(self) -> tuple[RingKernel, Int64, Access, int] | None:
        """The needs of native calls, as in `Access`; None for a view of other rows, which Python takes in."""
        return (self._seen.kernel, self._counted, self, FEW) if self._view is None else None

    def following(self, index: Index) -> Index:
        """Act as `Access` says."""
        return index if self._view is None else self._view.following(index)

    def refreshing(self, refresh: Callable[[], int]) -> Callable[[], int]:
        """Wrap `refresh` as `Access` does; in a forked child the sampler is the parent's, and is left alone."""

        def look_and_refresh() -> int:
            if not self.forked:
                return self._backlog.take_in(refresh, self.look)
            self.look()
            return 0

        return look_and_refresh

    def again(self, refresh: Callable[[], int]) -> int:
        """Act as `Access` says."""
        return self._backlog.again(refresh, self.look)

    def updating(self, update: Callable[[object, object], bool] | None) -> Callable[[object, object], bool] | None:
        """Act as `Access` says."""
        if update is None:
            return None
        short = update

        def look_and_update(ids: object, td_error: object) -> bool:
            return self._backlog.again(lambda: short(ids, td_error), self.look)

        return look_and_update

    def draw(self, core: Core, n: int, beta: float | None, first: Draw | None = None) -> Fields:
        """Act as `Access` says. Items that were overwritten before they were copied are drawn again, one by one.

        So small rings with fast writers come to an end, too. Without replacement all are drawn again, or an item could
        be in the batch twice. Where that does not help, the batch is drawn from the newest rows: see `draw_newest`.
        """
        index, rng, redrawn = core.index, core.tally.rng, self._counts[REDRAWN]
        replacement = core.sampler.replacement
        draw, fields = self._whole(core, lambda count: index.draw(count, rng, beta), n, replacement, first)
        self._counts[DRAWN] += n
        self._counts[LAST_ID] = fields["ids"].item(n // 2)
        self._draws += 1
        chance_of = core.index.probability
        # Items of the newest rows, drawn instead of overwritten ones, may be the index's no more: it may be empty.
        if self._draws % _LOOKS == 1 and chance_of is not None and self._counts[REDRAWN] == redrawn:
            chance = chance_of(draw.slots[:1]).item() * core.ring.drawable
            self._counts[RARITY] = int(1e9 * math.log(chance)) if chance > 0 else 0
        fields["weights"] = draw.weights
        return fields

    def copied(self, core: Core, choose: Choose) -> ChosenItems:
        """Act as `Access` says."""
        return self._whole(core, lambda _: choose(), 0, replacement=False)

    def _whole(
        self, core: Core, choose: Callable[[int], Draw], n: int, replacement: bool, first: Draw | None = None
    ) -> ChosenItems:
        """Choose items and copy them, and choose those again that were overwritten before they were copied.

        Args:
            core: Of the buffer.
            choose: Chooses so many items; it is called after a look at the ring.
            n: Items to choose from what the sampler can draw; 0: `choose` decides.
            replacement: Whether some items alone may be chosen again.
            first: What was chosen already.

        Raises:
            ReliveError: Items were overwritten over and over.
        """
        rng = core.tally.rng
        draw = choose(n) if first is None else first
        fields = core.expander.expand(draw.slots, rng)
        bad = self.overtaken(fields["ids"])
        give_back = core.index.give_back if n else None
        if bad is not None and give_back is not None:
            give_back(draw.slots[bad] if replacement else draw.slots)
        weights, scale = draw.weights, _least(draw)  # what the weights are divided by
        attempts, since, from_newest = 0, time.monotonic(), False
        while bad is not None:
            attempts += 1
            if attempts > _ATTEMPTS or time.monotonic() - since > _LONGEST:
                what = f"Writers overwrote items of {attempts} draws before they were copied"
                remedy = "give lanes more rows, or hold writers back with a `RateLimiter`"
                raise ReliveError(event(what, "ReplayBuffer.sample", remedy))
            if not replacement:
                bad[:] = True
            missing = int(np.count_nonzero(bad))
            again = None
            if n and attempts > _PATIENCE:
                again = self._newest(core, missing if from_newest else n, draw)
            if again is not None and not from_newest:  # the whole batch is of one law
                from_newest, missing, scale, bad = True, n, _least(again), np.ones(n, bool)
            if again is None:
                known = core.refresh() if attempts > _PATIENCE else self.again(core.index.refresh)
                if known < (1 if replacement else min(n, missing)):
                    continue  # rows are gone, and others not ready yet
                again = choose(missing)
            self._counts[REDRAWN] += missing
            copies = core.expander.expand(again.slots, rng)
            if replacement:
                weights = _merged(weights, bad, again, scale)
                fields = zipped(lambda ours, theirs, bad=bad: _replaced(ours, theirs, bad), fields, copies)
            else:
                draw, weights, fields = again, again.weights, copies
            still = self.overtaken(copies["ids"])
            if still is not None and give_back is not None:
                give_back(again.slots[still] if replacement else again.slots)
            bad = None if still is None else still if len(still) == len(fields["ids"]) else _spread(bad, still)
        if attempts and scale is not None:
            weights /= weights.max()
        return ChosenItems(Draw(draw.slots, weights, draw.masses, draw.beta), fields)

    def _newest(self, core: Core, n: int, draw: Draw) -> Draw | None:
        """Draw `n` items of the newest rows, instead of `draw`'s; return None if there are too few, or no masses."""
        masses_of = core.index.masses_of
        if masses_of is None:
            return None
        with importing:
            from ._margin import draw_newest

        return draw_newest(self._seen, self.look, core.sampler, masses_of, n, core.tally.rng, draw.beta)

    def overtaken(self, ids: Int64) -> Bool | None:
        """Act as `Access` says."""
        self.take_in()
        return self._seen.kernel.overtaken(ids)

    def unknown(self, ids: Int64) -> Bool | None:
        """Act as `Access` says."""
        late, gone = self._backlog.unknown(ids), self.overtaken(ids)
        return late if gone is None else gone if late is None else late | gone

    def missing(self, items: int) -> int:
        """Act as `Access` says."""
        return self._backlog.missing(items)

    def take_in(self) -> None:
        """Act as `Access` says."""
        if self._view is not None:
            self._view.take_in()

    def mend(self) -> None:
        """Act as `Access` says."""
        self.claims.mend()

    def look(self) -> None:
        """Act as `Access` says."""
        self.take_in()
        self._seen.kernel.look()

    def gone(self, ids: Int64) -> Bool | None:
        """Act as `Access` says."""
        self._seen.kernel.overtaken(_NO_IDS)  # a fence: what is read below is read after those copies
        first = self.claims.ring.counters[:, GONE].copy()  # of one moment for all rows of a lane
        if not len(ids) or int(ids.min()) >= int(first.max()) * len(first):
            return None
        rows, lanes = np.divmod(ids, len(first))
        return np.asarray(rows < first[lanes])

    def count(self, updates: int, stale: int) -> None:
        """Act as `Access` says."""
        self._counts[UPDATES] += updates
        self._counts[STALE] += stale

    def keep(self, rng: np.random.Generator, counts: dict[str, int]) -> None:
        """Act as `Access` says."""
        facts: dict[str, Any] = {"counts": counts}
        if type(rng) is np.random.Generator and type(rng.bit_generator).__module__.startswith("numpy."):
            facts["rng"] = state_of(rng)
        StateFile(self.memory.host(STATE)).write(facts)
        self.memory.sync()

    def kept(self) -> tuple[np.random.Generator | None, dict[str, int]]:
        """Return the generator and counts that `keep` stored last."""
        facts = StateFile(self.memory.host(STATE)).read() or {}
        state = facts.get("rng")
        return None if state is None else generator_of(state), facts.get("counts", {})

    def still(self, take: Callable[[], Int64 | None]) -> None:
        """Act as `Access` says."""
        if self.hold is None:
            take()
        else:
            self.hold.still(take)

    def release(self) -> None:
        """Act as `Access` says."""
        if self.hold is not None:
            self.hold.release()

    def unmoved(self, counters: Int64) -> None:
        """Act as `Access` says."""
        if self.hold is None:
            now, seen = (of[:, [HEAD, CUTS]] for of in (self.claims.ring.counters, counters))
            moved = (now != seen).any(axis=1)
        else:
            moved = self.hold.passed()
        moved &= self.claims.allowed == 0
        if moved.any():
            lane = int(np.flatnonzero(moved)[0])
            what = f"Process {self.memory.host(OWNERS)[lane]} wrote to lane {lane} while the buffer was copied"
            remedy = "let its writers wait meanwhile; nothing was saved"
            raise ReliveError(event(what, "ReplayBuffer.save", remedy))

    def present(self) -> bool:
        """Act as `Access` says."""
        try:
            return self.memory.locks.taken(CREATOR)
        except StorageError:
            return False  # the file is gone

    def close(self) -> None:
        """Act as `Access` says."""
        self.claims.release()
        self.memory.close()


def _least(draw: Draw) -> float | None:
    return None if draw.masses is None else float(draw.masses.min())


def _merged(weights: Float32, bad: Bool, again: Draw, scale: float | None) -> Float32:
    """Merge the weights of a batch with those of items that were drawn again.

    Args:
        weights: Of the batch.
        bad: Its items that were drawn again.
        again: That draw.
        scale: The mass of the item whose weight is 1 in the batch; None: weights are not divided by the largest.
    """
    merged = weights.copy()
    least = None if scale is None else _least(again)
    merged[bad] = again.weights if scale is None else again.weights * (scale / (least or scale)) ** again.beta
    return merged


def _replaced(array: Array, again: Array, bad: Bool) -> Array:
    """Replace the `bad` items in a field of a batch by those of another draw."""
    if array.shape == again.shape:
        return again
    # The batch's axis is the one in which the two differ.
    axis = next(axis for axis, (ours, theirs) in enumerate(zip(array.shape, again.shape)) if ours != theirs)  # noqa: B905
    changed = array if array.flags.writeable else array.copy()
    np.moveaxis(changed, axis, 0)[bad] = np.moveaxis(again, axis, 0)
    if not array.flags.writeable:
        changed.flags.writeable = False
    return changed


def _spread(bad: Bool, still: Bool) -> Bool:
    """Mark the items of the batch that are still bad, given the bad ones of those drawn again."""
    spread = np.zeros(len(bad), bool)
    spread[np.flatnonzero(bad)[still]] = True
    return spread
