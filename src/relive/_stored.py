"""What a buffer does with the steps it stores, whichever of them can be drawn: count, follow, show, forget."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _check
from ._arguments import ids_of, integers, readable, stale
from ._lanes import HEAD, LOST, STEP, STEPS, TERMINATED, TRUNCATED
from ._plans import Followed, State
from ._ring import Ring
from ._turn import Turn
from ._types import Array, Bool, Float32, Int64
from .errors import ArgumentError, message
from .samplers import Index, Sampler
from .schema import Schema
from .stats import Stats, snapshot

if TYPE_CHECKING:
    from ._limiter import Limit, RateLimiter
    from .items import Item
    from .storage import Storage

_FOLLOW = "ReplayBuffer.follow"


class Stored:
    """The part of `ReplayBuffer` that neither writes steps nor draws items."""

    schema: Schema
    num_envs: int
    item: Item
    sampler: Sampler
    storage: Storage
    limiter: RateLimiter | None
    _ring: Ring
    _index: Index
    _turn: Turn
    _nbytes: int
    _drawn: int
    _stale: int
    _last_ids: Int64
    _last_weights: Float32
    _slow_adds: Callable[[], int]
    _limit: Limit | None

    @property
    def capacity(self) -> int:
        """Rows over all lanes: `num_envs * (capacity // num_envs)`."""
        return self._ring.capacity

    def __len__(self) -> int:
        """Steps stored now; boundary rows do not count."""
        return self._ring.stored

    def stats(self) -> Stats:
        """Return a snapshot of counts, priorities and ages. Cost: O(capacity) for `Prioritized` and `Ranked`.

        A signal handler may call it at any time; in the middle of another call some counts are those before it.
        """
        nested = self._turn.taken()
        with self._turn.lock:
            if not nested:
                self._index.refresh()
            counts = {"nbytes": self._nbytes, "drawn": self._drawn, "stale_updates": self._stale}
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
            followed = self._ring.kernel.follow(checked, wanted)
            unknown = followed.ids < 0
            if unknown.any():
                _, states = self._ring.locate(checked)
                raise stale(checked, np.asarray(states), unknown, _FOLLOW, "stored steps")
            return followed

    def column(self, path: str) -> Array:
        """A field of all stored steps, by lane and place: for code that keeps arrays of its own in step with a buffer.

        The step with the id `i` is at `[i % num_envs, i // num_envs % R]`, where `R = capacity // num_envs`. Places
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
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 6, num_envs=2)
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
            found = _Places(self._ring, self.schema).column(path)
        found.setflags(write=False)
        return found

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
            self._ring.clear()
            if self._limit is not None:
                self._limit.begin(0)

    def _drawable(self, ids: Any, at: str) -> Int64:
        checked = ids_of(ids, at)
        slots, states = self._ring.locate(checked)
        if states is not None:
            raise stale(checked, states, states != State.DRAWABLE, at)
        return slots


def _steps_of(steps: Any, count: int) -> Int64:
    at = f"{_FOLLOW}(steps)"
    if getattr(steps, "ndim", None) == 0 or not hasattr(steps, "__len__"):
        return np.full(count, _check.integer(steps, at, minimum=-(2**63)))
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
        self._steps: Bool = (self._marks & STEP) > 0

    def column(self, path: str) -> Array:
        """The array of `ReplayBuffer.column`."""
        ring, flags = self._ring, {"terminated": TERMINATED, "truncated": TRUNCATED}
        fields = {".".join(column.keys): number for number, column in enumerate(self._schema.columns)}
        _check.one_of(path, [*fields, *flags, "ids"], "ReplayBuffer.column")
        if path == "ids":
            return np.where(self._steps, self._rows * ring.lanes + self._lanes, -1)
        if path in flags:
            return self._steps & ((self._marks & flags[path]) > 0)
        every = self._schema.columns[fields[path]].field.every
        if every is None:
            kept, at = self._steps, self._at
        else:
            kept = self._steps & (self._numbers() % every == 0)
            at = ring.state_rows(self._rows * ring.lanes + self._lanes, every)
        found: Array = ring.columns[fields[path]][np.where(kept, at, 0)]
        found[~kept] = 0
        return found

    def _numbers(self) -> Int64:
        """How many steps the lane had before each of those stored; those that a cut dropped count."""
        by_age = (self._head + np.arange(self._ring.rows)) % self._ring.rows  # the place of the oldest row first
        counted = np.take_along_axis((self._marks & (STEP | LOST)) > 0, by_age, axis=1)
        later = counted[:, ::-1].cumsum(axis=1)[:, ::-1]  # from each row on
        return np.asarray(self._ring.counters[:, [STEPS]] - np.take_along_axis(later, self._ahead, axis=1))
