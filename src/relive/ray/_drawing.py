"""Requests in flight to shards: draws, batches asked for ahead, and updates of priorities, for one caller."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .._base.capabilities import completed
from .._base.types import Bool, Float64, Int64, UInt32
from .._buffer.writing import Value
from .._flow.transform import Transform
from ..batch import Batch
from ..errors import NotEnoughData, StorageError, event, message
from ..samplers import Sampler
from ._health import Health
from ._joining import Answers, Joiner
from ._law import allotted, divided, points
from ._pace import Pace
from ._wire import DrawnPart, ShardPlan, Transport, packed

# Seconds that a draw waits for a shard before others are asked: at least; as many times what draws usually take; but
# not more than this, or draws would not go on within 2 s of a loss; unless they usually take more than half of it.
DEADLINE, PATIENCE, LONGEST = 0.5, 10, 1.0
# Seconds it waits where there is no other shard to ask, and none is known to be dead; and after which that is said.
ALONE, STALL = 30.0, 5.0
_LOOK = 0.02
_RECENT, _UPDATES, _ROUNDS = 32, 16, 100
IN_LINE = 100_000  # bytes of a reply, above which it goes through Ray's object store
_AT = "Shards.sample"
_LOG = logging.getLogger("relive")


class AskedShard(NamedTuple):
    """The request to one shard: the places in the batch, the promise, and how many updates went with it."""

    shard: int
    places: Int64
    promise: Any
    updates: int


class Request(NamedTuple):
    """A batch that was asked for, and how likely each shard was."""

    n: int
    beta: float
    q: Float64
    parts: list[AskedShard]


class Drawer:
    """Draws batches by one law over all shards, as fast as its limiter allows.

    Args:
        plan: What the shards are built from.
        transport: How to reach them.
        rng: The generator.

    Attributes:
        lock: Held during a call.
        pace: The limiter, or None.
        prefetching: How many prefetches are open.
        clock: The transport's.
        health: What is known of the shards.
        rng: As above; may be replaced.
        drawn: Items handed out.
        draws: Batches asked for: the clock of an `Anneal`.
        beta: The exponent of the last of them.
        late: Batches for which a part did not come in time.
        stale: Updates dropped here, as their shard did not answer.
    """

    def __init__(self, plan: ShardPlan, transport: Transport, rng: np.random.Generator) -> None:
        self._plan, self._transport, self.clock = plan, transport, transport.clock
        self.rng, self.health = rng, Health(transport, self.clock)
        self.lock, self.prefetching = threading.RLock(), 0
        self.pace: Pace | None = None
        self._joiner, self._sampler = Joiner(plan), completed(plan.sampler, Sampler)
        self.drawn = self.draws = self.late = self.stale = 0
        self.beta = 0.0
        self._took: deque[float] = deque(maxlen=_RECENT)
        self._held: dict[int, list[tuple[Int64, Float64]]] = {}  # by shard, the updates that wait for a draw

    def check_store(self, batch: Batch, depth: int) -> None:
        """Say so where `depth` such batches take more than a quarter of Ray's object store on some node."""
        fields = packed(self._plan.item, dict(batch._fields)).values()
        nbytes = depth * sum(array.nbytes for array in fields)
        if nbytes < depth * self._transport.shards * IN_LINE:
            return
        store = self._transport.store()
        if nbytes > store / 4:
            what = f"{depth} batches in flight take {nbytes / 1e6:.0f} MB of an object store of {store / 1e6:.0f} MB"
            remedy = (
                "above a quarter it may spill to disk: lower `depth` or `batch_size`, or raise `object_store_memory` "
                "of `ray start` or `ray.init`"
            )
            _LOG.warning("%s", event(what, "Shards.prefetch", remedy))

    def draw(self, n: int, beta: float | None) -> Batch:
        """Draw a batch, as `Shards.sample` returns it."""
        with self.lock:
            self.wait(n, _AT)
            return self.collect(self.ask(n, beta))

    def wait(self, n: int, at: str) -> None:
        """Wait until the limiter allows a draw of `n` items."""
        if self.pace is not None:
            self.pace.wait(n, at)

    @property
    def last(self) -> tuple[Int64, Float64, int]:
        """The ids of the last batch, their probabilities, and how many items there were."""
        return self._joiner.last

    def may(self, n: int) -> bool:
        """Return whether the limiter allows a draw of `n` items now."""
        return self.pace is None or self.pace.may(n)

    # Asking.

    def ask(self, n: int, beta: float | None, alone: float = ALONE) -> Request:
        """Ask the shards for a batch; `collect` waits for it.

        Args:
            n: Items.
            beta: The exponent; None: the sampler's.
            alone: Seconds to wait for a sign of life, where no shard has answered of late.

        Raises:
            NotEnoughData: No shard has anything to draw, or, without replacement, all together have too little.
            StorageError: None answers.
        """
        q, parts = self._ask(n, np.arange(n), self._believed(n, alone))
        self.health.look([part.shard for part in parts])
        beta = self._sampler.beta_at(self.draws) if beta is None else beta
        self.draws, self.beta = self.draws + 1, beta
        return Request(n, beta, q, parts)

    def look_for(self, n: int) -> None:
        """Raise if a draw of `n` items could not be asked for.

        Raises:
            NotEnoughData, StorageError: As in `ask`.
        """
        self.health.look()
        self._believed(n, 0.0)

    def _believed(self, n: int, alone: float) -> Float64:
        """Return what each shard has, as far as is known, once that is enough for a draw of `n`."""
        for heard in (False, True):
            if heard:
                self.health.hear_all(self.deadline, alone)
            masses = self.health.masses()
            if masses.sum() > 0 and self.health.counts().sum() >= self._least(n):
                return masses
        if self.health.missing.all():
            raise self._no_answer()
        counts = int(self.health.counts().sum())
        least, found = self._least(n), counts if masses.sum() > 0 else 0
        remedy = "wait until writers have added more; `writer.flush()` sends what they hold back"
        if counts >= least:
            remedy = f"all {counts} items have priority 0"
        missing = np.flatnonzero(self.health.missing).tolist()
        remedy += f"; shards {missing} do not answer" if missing else ""
        raise NotEnoughData(message(f"at least {least} drawable item{'s' * (least > 1)}", f"{found}", _AT, remedy))

    def _least(self, n: int) -> int:
        return 1 if self._plan.sampler.replacement else n

    def _no_answer(self) -> StorageError:
        shards = np.flatnonzero(self.health.missing).tolist()
        what = f"None of the shards {shards} answers"
        remedy = "they come back by themselves if their actors may restart; see `stats()` and Ray's dashboard"
        return StorageError(event(what, _AT, remedy))

    def _ask(self, n: int, places: Int64, totals: Float64) -> tuple[Float64, list[AskedShard]]:
        """Ask for the items at some places of a batch; return how likely each shard was, and the parts."""
        sampler, q = self._sampler, totals / totals.sum()
        if sampler.replacement:
            shards, fractions = allotted(points(self.rng.random(len(places)), sampler.stratified), totals)
        else:
            shards = divided(len(places), totals.astype(np.int64), self.rng)
            fractions = self.rng.random(len(places))
        parts = []
        for shard in np.unique(shards).tolist():
            chosen = np.flatnonzero(shards == shard)
            updates = self._held.pop(shard, [])
            joined = (_joined(updates),) if updates else ()
            promise = self._transport.call(shard, "draw", fractions[chosen], self.health.largest, *joined)
            parts.append(AskedShard(shard, places[chosen], promise, sum(len(ids) for ids, _ in updates)))
        return q, parts

    # Collecting.

    @property
    def deadline(self) -> float:
        """Seconds that a shard has to answer, where there are others."""
        usual = float(np.median(self._took)) if self._took else 0.0
        return max(DEADLINE, min(PATIENCE * usual, LONGEST), 2 * usual)

    def collect(self, request: Request) -> Batch:
        """Wait for a batch. What a shard does not give in time is drawn from the others.

        Raises:
            StorageError: No shard answers.
            NotEnoughData: Those that do have too little.
        """
        n, q, parts = request.n, request.q, request.parts
        answers, left, until = Answers(n, len(q)), 1.0, self.clock() + ALONE
        for _ in range(_ROUNDS):
            silent, places = self._await(parts, answers, until)
            answers.chances += left * np.where(silent, 0.0, q)
            if not len(places):
                self.drawn += n
                batch = self._joiner.batch(answers, self.health.statuses, request.beta)
                if self.pace is not None:
                    self.pace.drawn(n)
                return batch
            self.late += 1
            left *= float(q[silent].sum())
            if not self._plan.sampler.replacement:  # begin again: a second draw could repeat items of the first one
                answers, left, places = Answers(n, len(q)), 1.0, np.arange(n)
            masses = self.health.masses()
            if not masses.sum() > 0 or self.health.counts().sum() < self._least(n):
                masses = self._believed(n, until - self.clock())
            q, parts = self._ask(n, places, masses)
        raise self._no_answer()

    def _await(self, parts: list[AskedShard], answers: Answers, until: float) -> tuple[Bool, Int64]:
        """Take the parts that come in time; return the shards that gave none, and the places that are left."""
        silent = np.zeros(self._transport.shards, bool)
        left: list[Int64] = []
        begun = self.clock()
        ready = self._kept([part.promise for part in parts], [part.shard for part in parts], until)
        took = self.clock() - begun
        self._took.append(took)
        for part, done in zip(parts, ready, strict=True):
            drawn = self._taken(part, done, took)
            if drawn is None:
                silent[part.shard] = True
                left.append(part.places)
            else:
                answers.take(part.shard, part.places, drawn, self.health.statuses[part.shard].total)
        return silent, np.sort(np.concatenate(left)) if left else np.zeros(0, np.int64)

    def _kept(self, promises: list[Any], shards: list[int], until: float) -> list[bool]:
        """Wait for some promises, one of each of some shards; return which are kept or broken.

        A missing shard is not waited for twice, and one among others not long. Without any others one
        that is slow is better than none, and it is waited for until it answers, or is known to be dead.
        """
        health, limit, begun, said = self.health, self.deadline, self.clock(), False
        there = [promise for promise, shard in zip(promises, shards, strict=True) if not health.missing[shard]]
        ready = self._transport.wait(there or promises, limit)
        if len(ready) < len(promises):
            ready = self._transport.wait(promises, 0.0)
        others = health.masses()
        others[shards] = 0.0
        if any(ready) or others.any():
            return ready
        while not any(ready) and self.clock() < until:
            ready = self._transport.wait(promises, _LOOK)
            if not said and self.clock() - begun > STALL:
                said = True
                what = f"A draw has waited for {STALL:.0f} s for shards {shards}; there are no others"
                _LOG.warning("%s", event(what, _AT, f"it waits {ALONE:.0f} s; the shards are slow or stopped"))
        # On a machine where all are slow, the second one comes soon after the first.
        return self._transport.wait(promises, DEADLINE) if any(ready) else ready

    def _taken(self, part: AskedShard, done: bool, took: float) -> DrawnPart | None:
        reply = self.health.taken(part.shard, part.promise, done, f"a draw took more than {took:.1f} s")
        if reply is None:
            self.stale += part.updates * done  # of a shard that is late they may still be applied
            return None
        return None if reply[0] is None else DrawnPart(*reply[0])

    # Priorities.

    def update(self, ids: Int64, td_error: Float64, wait: bool) -> int | None:
        """Set priorities; return how many were applied, if that is waited for. Else they go with the next draws."""
        shards = ids % self._plan.num_envs % self._plan.shards
        for shard in np.unique(shards).tolist():
            chosen = shards == shard
            if self.health.missing[shard]:
                self.stale += int(chosen.sum())
            else:
                self._held.setdefault(shard, []).append((ids[chosen], td_error[chosen]))
        if wait:
            return self._applied(self._sent(), ALONE, stale=True)
        if any(len(updates) > _UPDATES for updates in self._held.values()):
            self.settle()
        return None

    def settle(self) -> None:
        """Send the updates that wait for a draw, and wait for them."""
        self._applied(self._sent(), 0.0, stale=True)

    def write(self, ids: Int64, values: list[Value]) -> int:
        """Write values back to steps; return how many were written."""
        shards, sent = ids % self._plan.num_envs % self._plan.shards, []
        for shard in np.unique(shards).tolist():
            chosen = shards == shard
            if not self.health.missing[shard]:
                parts = [value._replace(values=value.values[chosen]) for value in values]
                promise = self._transport.call(shard, "write", ids[chosen], parts, self.health.largest)
                sent.append((shard, int(chosen.sum()), promise))
        return self._applied(sent, ALONE, stale=False)

    def _sent(self) -> list[tuple[int, int, Any]]:
        """Send the updates that wait; return shard, how many, and the promise of each."""
        sent = []
        for shard, updates in self._held.items():
            ids, errors = _joined(updates)
            promise = self._transport.call(shard, "update", ids, errors, self.health.largest)
            sent.append((shard, len(ids), promise))
        self._held.clear()
        return sent

    def _applied(self, sent: list[tuple[int, int, Any]], alone: float, stale: bool) -> int:
        """Return how many were applied of what was sent; `stale`: count what was not."""
        shards, promises = [shard for shard, _, _ in sent], [promise for _, _, promise in sent]
        ready, applied = self._kept(promises, shards, self.clock() + alone) if sent else [], 0
        for (shard, count, promise), done in zip(sent, ready, strict=True):
            reply = self.health.taken(shard, promise, done, "an update took too long")
            if reply is None:
                self.stale += count * stale
            else:
                applied += reply[0]
        return applied


def _joined(updates: list[tuple[Int64, Float64]]) -> tuple[Int64, Float64]:
    """Join ids and TD errors, the latest last."""
    if len(updates) == 1:
        return updates[0]
    return np.concatenate([ids for ids, _ in updates]), np.concatenate([errors for _, errors in updates])


class ShardBatches(Iterator[Batch]):
    """Batches of shards, `depth` of which are always asked for: an iterator, and a context manager.

    No thread is needed: the shards work while the learner does. Batches come in the order in which they were asked for.

    Args:
        drawer: The handle's.
        size: Items of a batch.
        depth: How many are asked for ahead.
        beta: As in `Shards.sample`.
        transform: What a caller makes of them.
        convert: What is made of these.
    """

    def __init__(
        self,
        drawer: Drawer,
        size: int,
        depth: int,
        beta: float | None,
        transform: Transform,
        convert: Callable[[Batch], Batch],
    ) -> None:
        self._drawer, self._size, self._depth, self._beta = drawer, size, depth, beta
        self._transform, self._convert = transform, convert
        self._requests: deque[tuple[Request, UInt32]] = deque()  # and the number that `rng` starts from
        self._begun = self._closed = self._looked = False

    def __iter__(self) -> ShardBatches:
        return self

    def __next__(self) -> Batch:
        if self._closed:
            raise StopIteration
        self._begin()
        try:
            batch, seed = self._next()
            if not self._looked:
                self._looked = True
                self._drawer.check_store(batch, self._depth)
            return self._convert(self._transform(batch, seed))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ShardBatches:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        """Close, and send the updates that would have gone with the next draw."""
        self.close()
        with self._drawer.lock:
            self._drawer.settle()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Drop what was asked for. May be called twice."""
        if self._begun and not self._closed:
            self._drawer.prefetching -= 1
        self._closed = True
        self._requests.clear()

    def _begin(self) -> None:
        if not self._begun and not self._closed:
            self._begun = True
            self._drawer.prefetching += 1

    def _next(self) -> tuple[Batch, UInt32]:
        """Return the batch that was asked for first, with its seed, and ask for others in its place."""
        with self._drawer.lock:
            if not self._requests:
                self._drawer.wait(self._size, "Shards.prefetch")
                self._ask(ALONE)
            self._fill()
            request, seed = self._requests.popleft()
            batch = self._drawer.collect(request)
            self._fill()
            return batch, seed

    def _fill(self) -> None:
        """Request up to `depth` batches. Errors wait until none is left."""
        while len(self._requests) < self._depth and self._drawer.may(self._size * (len(self._requests) + 1)):
            try:
                self._ask(0.0)
            except (NotEnoughData, StorageError):
                return

    def _ask(self, alone: float) -> None:
        seed = self._transform.seed(self._drawer.rng)
        self._requests.append((self._drawer.ask(self._size, self._beta, alone), seed))
