"""What a buffer does with all that it stores, without a sampler: count, follow, show, go through, forget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base import check
from .._base.types import Array, Bool, Float32, Int64
from .._ring.lanes import HEAD, LOST, START, STEP, STEPS, TERMINATED, TRUNCATED, first_rows
from .._ring.plans import Followed, State
from .._ring.ring import Ring
from ..batch import Batch
from ..errors import ArgumentError, message
from ..samplers import Index, Sampler
from ..schema import Schema
from .arguments import ids_of, integers, readable, stale
from .stats import Stats, snapshot
from .turn import Turn

if TYPE_CHECKING:
    from .._flow.limit import Limit
    from .._flow.limiter import RateLimiter
    from ..items import Expander, Fields, Item
    from ..processes._link import Bound, Link
    from ..storage import Storage

_FOLLOW = "ReplayBuffer.follow"


class Stored:
    """The part of `ReplayBuffer` that neither writes steps nor draws items by a sampler."""

    schema: Schema
    num_envs: int
    item: Item
    sampler: Sampler
    storage: Storage
    limiter: RateLimiter | None
    rng: Any
    _ring: Ring
    _index: Index
    _turn: Turn
    _nbytes: int
    _drawn: int
    _updates: int
    _stale: int
    _last_ids: Int64
    _last_weights: Float32
    _slow_adds: Callable[[], int]
    _limit: Limit | None
    _link: Link | None
    _bound: Bound
    _expander: Expander

    @property
    def capacity(self) -> int:
        """The most steps that are stored: `num_envs * (capacity // num_envs)`."""
        capacity: int = self._ring.lanes * self._ring.steps
        return capacity

    def __len__(self) -> int:
        """Steps stored now, at most `capacity`."""
        if self._link is not None and not self._turn.taken():
            with self._turn.lock:
                self._link.take_in()
        return self._ring.stored

    def stats(self) -> Stats:
        """Return a snapshot of counts, priorities and ages. Cost: O(capacity) for `Prioritized` and `Ranked`.

        A signal handler may call it at any time; in the middle of another call some counts are those before it.
        """
        nested = self._turn.taken()
        with self._turn.lock:
            if not nested:
                self._index.refresh()
            counts = {"nbytes": self._nbytes, "drawn": self._drawn, "updates": self._updates}
            counts["stale_updates"] = self._stale
            counts["slow_adds"] = self._slow_adds()
            limiter = None if self._limit is None else self._limit.report()
            compute = snapshot(self._ring, self._index.report(), self._last_ids, self._last_weights, counts, limiter)
        return compute()

    def __repr__(self) -> str:
        choices = ", ".join(map(repr, filter(None, (self.item, self.sampler, self.storage, self.limiter))))
        steps = f"{len(self)} of {self.capacity} steps, num_envs={self.num_envs}"
        return f"ReplayBuffer({steps}, {choices}, {readable(self._nbytes)} when full)"

    def follow(self, ids: Any, steps: Any) -> Followed:
        """Walk from stored steps to later or earlier ones of the same stream.

        A walk ends early at the step that ends its episode or comes before a cut, at the newest stored step, and, going
        back, at the first step of the stream that is still stored. Items that run across episodes change nothing about
        that. As many steps back as were made lead to `ids` again.

        Args:
            ids: Ids of stored steps, `[B]`. They need not be drawable: a step whose window is not complete yet can be
                left and reached.
            steps: How many steps on, an int or integers `[B]`; negative ones go back.

        Returns:
            `Followed(ids, steps)`, two int64 arrays `[B]`: where each walk ended, and how many steps it made, negative
            where it went back.

        Raises:
            StaleId: An id names no stored step: overwritten, dropped by a cut, or never issued.
            ArgumentError: `ids` are not one-dimensional integers, or `steps` are neither an int nor one integer per id.

        >>> import numpy as np, relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100)
        >>> time, ends = np.arange(6.0), np.arange(6) == 3  # the fourth step ends an episode
        >>> ids = buffer.extend(
        ...     obs=time, action=time, reward=time, next_obs=time + 1, terminated=ends, truncated=ends & False
        ... )
        >>> ids.tolist()  # id 4 is the final observation
        [0, 1, 2, 3, 5, 6]
        >>> last, steps = buffer.follow(ids, len(buffer))
        >>> last.tolist(), steps.tolist()
        ([3, 3, 3, 3, 6, 6], [3, 2, 1, 0, 1, 0])
        """
        checked = ids_of(ids, _FOLLOW)
        wanted = _steps_of(steps, len(checked))
        with self._turn.alone():
            while True:
                self._look()
                followed = self._ring.kernel.follow(checked, wanted)
                lowest = int(followed.ids.min()) if len(checked) else 0
                if lowest < 0:
                    unknown = followed.ids < 0
                    _, states = self._ring.locate(checked)
                    raise stale(checked, np.asarray(states), unknown, _FOLLOW, "stored steps")
                if self._link is None or not len(checked) or self._link.keeps(min(lowest, int(checked.min()))):
                    return followed
                if not self._link.gone(np.minimum(checked, followed.ids)).any():
                    return followed

    def column(self, path: str) -> Array:
        """A field of all stored steps, by lane and place: for code that keeps arrays of its own in step with a buffer.

        The step with the id `i` is at `[i % num_envs, i // num_envs % R]`, where `R = column.shape[1]`. Places
        that hold no step (not written yet, cleared, or the row of a final observation) are zeros, False, and -1 in
        `"ids"`.

        Args:
            path: A field by its path in the schema, such as `"reward"` or `"obs.camera"`; `"terminated"` or
                `"truncated"`; or `"ids"`, which tells where there are steps.

        Returns:
            A read-only copy `[L, R, ...]` in the field's dtype. It shows the buffer at the moment of the call and does
            not follow later ones, since rows lie in blocks in memory. Of a stacked field it has the newest frame; a
            field with `every=k` is zero at the steps that do not keep it.

        Raises:
            ArgumentError: The schema has no such field.

        >>> import numpy as np, relive
        >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
        >>> buffer = relive.ReplayBuffer(schema, 6, num_envs=2, boundaries=0)
        >>> for t in range(4):
        ...     step = dict(obs=[t, t], action=[0.0, 0.0], reward=[t, 10 + t], next_obs=[t + 1, t + 1])
        ...     ids = buffer.add(**step, terminated=[False, False], truncated=[False, False])
        >>> buffer.column("reward")
        array([[ 3.,  1.,  2.],
               [13., 11., 12.]], dtype=float32)
        >>> buffer.column("ids")
        array([[6, 2, 4],
               [7, 3, 5]])
        """
        with self._turn.alone():
            self._look()
            places = _Places(self._ring, self.schema)
            found = places.column(path)
            if self._link is not None:
                places.leave_out(found, self._link.gone(places.ids), path)
        found.setflags(write=False)
        return found

    def batches(self, batch_size: int, *, shuffle: bool = True, drop_last: bool = False) -> Iterator[Batch]:
        """Go through every drawable item once: an epoch, for offline data and supervised learning.

        The items are those that can be drawn now, whatever their priorities. Items that are overwritten meanwhile are
        left out of the batches that come after. Weights are 1 and no statistic moves.

        Args:
            batch_size: Items in a batch, >= 1; the last batch may have fewer.
            shuffle: In random order, by one call of the buffer's generator; otherwise in the order of ids, oldest
                first.
            drop_last: Leave out a last batch that has fewer.

        Returns:
            An iterator over batches as `sample` returns them.

        Raises:
            ArgumentError: `batch_size` is not a positive integer, or a flag is no bool.

        >>> import numpy as np, relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100, seed=0)
        >>> time, no = np.arange(5.0), np.zeros(5, bool)
        >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=no, truncated=no)
        >>> [batch.ids.tolist() for batch in buffer.batches(2)]
        [[3, 2], [1, 0], [4]]
        """
        at = "ReplayBuffer.batches"
        size = check.integer(batch_size, f"{at}(batch_size)", minimum=1)
        check.flag(shuffle, f"{at}(shuffle)")
        check.flag(drop_last, f"{at}(drop_last)")
        with self._turn.alone():
            self._look()
            slots = self._ring.changes(np.zeros((self._ring.lanes, 3), np.int64)).come
            ids = np.sort(self._ring.ids(slots))
            if shuffle:
                ids = ids[np.argsort(check.uniforms(self.rng, len(ids)), kind="stable")]
        return self._parts(ids, size, len(ids) // size * size if drop_last else len(ids))

    def _parts(self, ids: Int64, size: int, end: int) -> Iterator[Batch]:
        for begin in range(0, end, size):
            with self._turn.alone():
                batch = self._stored_of(ids[begin : begin + size])
            if batch is not None:
                yield batch

    def _stored_of(self, ids: Int64) -> Batch | None:
        """The items of those `ids` that can still be drawn; None where none can. The caller has the turn."""
        while True:
            self._look()
            slots, states = self._ring.locate(ids)
            if states is not None:
                kept = states == State.DRAWABLE
                ids, slots = ids[kept], slots[kept]
            if not len(ids):
                return None
            fields = self._expander.expand(slots, self.rng)
            bad = None if self._link is None else self._link.overtaken(self._bound, fields["ids"])
            if bad is None:
                return _unweighted(fields)
            ids = ids[~bad]  # the others are copied again, as a batch's arrays are made whole

    def _batch(self, slots: Int64) -> Batch:
        """The items that start at `slots`, none of which may be overwritten meanwhile; the caller has the turn."""
        fields = self._expander.expand(slots, self.rng)
        if self._link is not None:
            self._link.check(self._bound, fields["ids"])
        return _unweighted(fields)

    def _look(self) -> None:
        """Take in what other processes have written, before something is read."""
        if self._link is not None:
            self._link.look()

    def clear(self) -> None:
        """Forget all steps. The buffer goes on as a new one would, but that ids are never used again.

        Open streams end; the next steps begin new ones, without a comparison with what came before. Priorities and the
        largest of them are as in a new buffer. The generator, the clock of an `Anneal` and the counts in `stats()`
        (`added`, `drawn`, `cuts`, ...) go on; a limiter counts from 0 again. Ids from before are stale: overwritten.
        The memory stays.

        >>> import relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100)
        >>> step = dict(obs=0.0, action=0.0, reward=0.0, next_obs=1.0, terminated=False, truncated=False)
        >>> ids = buffer.add(**step)
        >>> buffer.clear()
        >>> len(buffer), buffer.can_sample(1), buffer.add(**step).tolist()
        (0, False, [1])
        """
        with self._turn.alone():
            if self._link is not None:
                self._link.claims.before(np.arange(self._ring.lanes))
            self._ring.clear()
            if self._limit is not None:
                self._limit.begin(0)

    def _drawable(self, ids: Any, at: str) -> Int64:
        checked = ids_of(ids, at)
        self._look()
        slots, states = self._ring.locate(checked)
        if states is not None:
            raise stale(checked, states, states != State.DRAWABLE, at)
        return slots


def _unweighted(fields: Fields) -> Batch:
    fields["weights"] = np.ones(len(fields["ids"]), np.float32)
    return Batch(fields)


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

    @staticmethod
    def leave_out(found: Array, gone: Bool, path: str) -> None:
        """Empty the places of a column whose rows were written over before they were copied."""
        found[gone] = -1 if path == "ids" else 0

    def column(self, path: str) -> Array:
        """The array of `ReplayBuffer.column`."""
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
            kept = self._steps & (self._numbers() % every == 0)
            at = ring.state_rows(self.ids, every)
        found: Array = ring.columns[fields[path]][np.where(kept, at, 0)]
        found[~kept] = 0
        return found

    def _numbers(self) -> Int64:
        """The number of each stored step in its lane, modulo `starts`; those that a cut dropped count."""
        starts, steps = self._ring.window.starts, self._ring.counters[:, [STEPS]]
        by_age = (self._head + np.arange(self._ring.rows)) % self._ring.rows  # the place of the oldest row first
        counted = np.take_along_axis((self._marks & (STEP | LOST)) > 0, by_age, axis=1)
        later = np.take_along_axis(counted[:, ::-1].cumsum(axis=1)[:, ::-1], self._ahead, axis=1)  # from each row on
        # The counter may be of a later moment than the marks, where another process writes; START is one of these.
        anchors = (self._marks & (STEP | START)) == STEP | START
        since = np.where(anchors, later, self._ring.rows + 1).min(axis=1, keepdims=True)
        steps = np.where(anchors.any(axis=1, keepdims=True), since, steps)
        return np.asarray((steps - later) % starts)
