"""Access to stored steps without a sampler: walks, columns, epochs, statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base import check
from .._base.check import integers
from .._base.types import Array, Bool, Float64, Int64
from .._ring.kernels import active
from .._ring.lanes import HEAD, LOST, STEP, STEPS, TERMINATED, TRUNCATED, anchors_in, first_rows
from .._ring.plans import Followed, State
from .._ring.ring import Ring
from ..batch import Batch
from ..errors import ArgumentError, StaleId, message
from ..samplers._protocol import Draw
from ..schema import Schema
from .arguments import ids_of, readable, stale
from .core import CLOSED, Core
from .drawing import unweighted
from .stats import Stats, snapshot
from .tally import Tally

if TYPE_CHECKING:
    from .._ring.kernel_types import OrderedKernel

_FOLLOW = "ReplayBuffer.follow"
_NO_WEIGHTS = np.empty(0, np.float32)


def shown(core: Core) -> str:
    """Implement `repr(buffer)`."""
    if core is CLOSED:
        return "ReplayBuffer(closed)"
    limiter = None if core.limit is None else core.limit.limiter
    choices = ", ".join(map(repr, filter(None, (core.item, core.sampler, core.storage, limiter))))
    steps = f"{stored(core)} of {core.ring.lanes * core.choices.steps} steps, num_envs={core.ring.lanes}"
    return f"ReplayBuffer({steps}, {choices}, {readable(core.nbytes)} when full)"


def stored(core: Core) -> int:
    """Implement `len(buffer)`."""
    if not core.lock.taken():
        with core.lock.reentrant:
            core.access.mend()
            core.access.take_in()
    return core.ring.stored


def stats(core: Core) -> Stats:
    """Implement `ReplayBuffer.stats`."""
    nested = core.lock.taken()
    with core.lock.reentrant:
        if not nested:
            core.access.mend()
        missing = 0 if nested else core.access.missing(core.refresh())
        tally = core.tally
        counts = {"nbytes": core.nbytes, **tally.counts(), "slow_adds": core.slow_adds}
        limiter = None if core.limit is None else core.limit.report()
        compute = snapshot(
            core.ring,
            missing,
            core.index.report(),
            tally.last_ids,
            tally.last_weights,
            counts,
            limiter,
            None if tally.autosave is None else tally.autosave.stats(),
            None if nested else _chances(core, tally.last_ids),
        )
    return compute()


def _chances(core: Core, ids: Int64) -> Float64 | None:
    """Return the present probabilities of those of the ids that can be drawn; None: the sampler does not know."""
    if core.index.probability is None or not len(ids):
        return None
    slots, states = core.ring.locate(ids)
    found = slots if states is None else slots[states == State.DRAWABLE]
    return core.index.probability(found) if len(found) else None


def follow(core: Core, ids: Any, steps: Any) -> Followed:
    """Implement `ReplayBuffer.follow`."""
    checked = ids_of(ids, _FOLLOW)
    wanted = _steps_of(steps, len(checked))
    with core.lock.alone():
        while True:
            core.access.look()
            followed = core.ring.kernel.follow(checked, wanted)
            unknown = followed.ids < 0
            if unknown.any():
                _, states = core.ring.locate(checked)
                raise stale(checked, np.asarray(states), unknown, _FOLLOW, "stored steps")
            gone = core.access.gone(np.minimum(checked, followed.ids))
            if gone is None or not gone.any():
                return followed


def column(core: Core, path: str) -> Array:
    """Implement `ReplayBuffer.column`."""
    with core.lock.alone():
        core.access.look()
        places = _Places(core.ring, core.schema)
        found = places.column(path)
        gone = core.access.gone(places.ids)
        if gone is not None:  # rows that were overwritten before they were copied
            found[gone] = -1 if path == "ids" else 0
    found.setflags(write=False)
    return found


def batches(core: Core, batch_size: int, shuffle: bool, drop_last: bool) -> Iterator[Batch]:
    """Implement `ReplayBuffer.batches`."""
    at = "ReplayBuffer.batches"
    size = check.integer(batch_size, f"{at}(batch_size)", minimum=1)
    check.flag(shuffle, f"{at}(shuffle)")
    check.flag(drop_last, f"{at}(drop_last)")
    with core.lock.alone():
        core.access.look()
        ids = core.ring.kernel.drawable()
        if core.ring.lanes > 1:
            ids.sort()
        order = active().shuffled(ids, check.uniforms(core.tally.rng, len(ids))) if shuffle else None
    return _parts(core, ids, order, size, len(ids) // size * size if drop_last else len(ids))


def _parts(core: Core, ids: Int64, order: OrderedKernel | None, size: int, end: int) -> Iterator[Batch]:
    at, ids = np.zeros(1, np.int64), (ids if order is None else order.ids)[:end]
    draw = _drawing(core, ids, size, at)
    for begin in range(0, end, size):
        at[0] = begin
        if order is not None:
            order.upto(begin + size)
        try:
            batch = draw(min(size, end - begin))
        except StaleId:  # all were overwritten meanwhile
            continue
        if core.tally.keeping is not None:
            core.tally.keeping.drew(core, batch)
        yield batch


def _drawing(core: Core, ids: Int64, size: int, at: Int64) -> Callable[[int], Batch]:
    """Return what draws a batch of the ids from the place `at[0]` on, natively where nothing hinders it."""

    def draw(n: int) -> Batch:
        part = ids[at[0] : at[0] + n]

        def choose() -> Draw:
            """Choose those of the ids that can still be drawn."""
            core.access.look()
            slots, states = core.ring.locate(part)
            if states is not None:
                slots = slots[states == State.DRAWABLE]
                if not len(slots):
                    raise stale(part, states, states != State.DRAWABLE, "ReplayBuffer.batches")
            return Draw(slots, _NO_WEIGHTS)

        with core.lock.alone():
            return unweighted(core.access.copied(core, choose).fields)

    kernels, expansion = active(), getattr(core.expander, "kernel", None)
    chooser = kernels.listed(core.ring.kernel, ids, at, size) if core.access.alone else None
    if chooser is None or expansion is None:
        return draw
    tally, none = Tally(core.tally.rng), np.zeros(2, np.int64)
    lock, numbers = core.lock.reentrant, tally.numbers
    return kernels.sampling(lock, chooser, expansion, tally, numbers, none, -1, core.most, Batch, draw, None, draw)


def next_rows(core: Core) -> Int64:
    """Return the row that each lane writes next, `[L]`: ids of lane l, now and later, are `row * num_envs + l`."""
    with core.lock.reentrant:
        return core.ring.counters[:, HEAD].copy()


def lane_steps(core: Core) -> Int64:
    """Return the steps ever added to each lane, `[L]`: `Sequences(starts=k)` start at those of a multiple of k."""
    with core.lock.reentrant:
        return core.ring.counters[:, STEPS].copy()


def numbers(core: Core, ids: Int64) -> Int64:
    """Return the numbers of stored steps in their lanes, modulo the `starts` of the buffer's item."""
    with core.lock.reentrant:
        places = _Places(core.ring, core.schema)
        return np.asarray(places.numbers()[ids % core.ring.lanes, ids // core.ring.lanes % core.ring.rows])


def clear(core: Core) -> None:
    """Implement `ReplayBuffer.clear`."""
    with core.lock.alone():
        core.writer.clear()
        if core.limit is not None:
            core.limit.begin(0)


def _steps_of(steps: Any, count: int) -> Int64:
    at = f"{_FOLLOW}(steps)"
    if getattr(steps, "ndim", None) == 0 or not hasattr(steps, "__len__"):
        return np.full(count, check.integer(steps, at, minimum=-(2**63)))
    each = integers(steps, at)
    if each.shape != (count,):
        raise ArgumentError(message(f"one number of steps for each of {count} ids", f"{len(each)}", at))
    return each


class _Places:
    """Every place `[L, R]` of a ring: which row it has, and whether that is a stored step."""

    def __init__(self, ring: Ring, schema: Schema) -> None:
        self._ring, self._schema = ring, schema
        self._lanes, self._head = np.arange(ring.lanes)[:, None], ring.counters[:, [HEAD]]
        self._ahead = (np.arange(ring.rows) - self._head) % ring.rows  # how many stored rows are older
        self._rows = self._head - ring.rows + self._ahead
        self._at = ring.storage(self._rows, self._lanes)
        self._marks = ring.marks.reshape(-1)[self._at]
        first = first_rows(ring.counters, ring.rows)[:, None]
        self._steps: Bool = ((self._marks & STEP) > 0) & (self._rows >= first)

    @property
    def ids(self) -> Int64:
        """The id of the row at each place; negative where no row was written yet."""
        return np.asarray(self._rows * self._ring.lanes + self._lanes)

    def column(self, path: str) -> Array:
        """Return the array of `ReplayBuffer.column`."""
        ring, flags = self._ring, {"terminated": TERMINATED, "truncated": TRUNCATED}
        fields = {".".join(column.keys): number for number, column in enumerate(self._schema.columns)}
        check.one_of(path, [*fields, *flags, "ids"], "ReplayBuffer.column")
        if path == "ids":
            return np.where(self._steps, self.ids, -1)
        if path in flags:
            return self._steps & ((self._marks & flags[path]) > 0)
        every = self._schema.columns[fields[path]].field.every
        if every is None:
            kept, at = self._steps, self._at
        else:
            kept = self._steps & (self.numbers() % every == 0)
            at = ring.state_rows(self.ids, every)
        found: Array = ring.columns[fields[path]][np.where(kept, at, 0)]
        found[~kept] = 0
        return found

    def numbers(self) -> Int64:
        """Number the stored steps of each lane, modulo `starts`; steps that a cut dropped count."""
        starts, steps = self._ring.window.starts or 1, self._ring.counters[:, [STEPS]]
        by_age = (self._head + np.arange(self._ring.rows)) % self._ring.rows  # the place of the oldest row first
        counted = np.take_along_axis((self._marks & (STEP | LOST)) > 0, by_age, axis=1)
        later = np.take_along_axis(counted[:, ::-1].cumsum(axis=1)[:, ::-1], self._ahead, axis=1)  # from each row on
        # The counter may be of a later moment than the marks, where another process writes; START is one of these.
        anchors = anchors_in(self._marks)
        since = np.where(anchors, later, self._ring.rows + 1).min(axis=1, keepdims=True)
        steps = np.where(anchors.any(axis=1, keepdims=True), since, steps)
        return np.asarray((steps - later) % starts)
