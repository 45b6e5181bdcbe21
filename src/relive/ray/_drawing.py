"""Draws over all shards, and updates of their priorities, for one caller: its generator, its beta, its counts."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .._base.capabilities import completed
from .._base.types import Bool, Float64, Int64
from .._buffer.writing import Value
from ..batch import Batch
from ..errors import NotEnoughData, StorageError, event, message
from ..samplers import Sampler
from ._health import Health
from ._joining import Joiner
from ._law import allotted, divided, points, probabilities, weights
from ._wire import DrawnPart, ShardPlan, ShardStatus, ShardUnavailable, Transport, packed

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


class AskedShard:
    """What one shard was asked for: the places in the batch, the promise, and how many updates went with it."""

    __slots__ = ("places", "promise", "shard", "updates")

    def __init__(self, shard: int, places: Int64, promise: Any, updates: int) -> None:
        self.shard, self.places, self.promise, self.updates = shard, places, promise, updates


class Request:
    """A batch that was asked for."""

    __slots__ = ("beta", "n", "parts", "q")

    def __init__(self, n: int, beta: float, q: Float64, parts: list[AskedShard]) -> None:
        self.n, self.beta, self.q, self.parts = n, beta, q, parts


class Answers:
    """The parts that came.

    Attributes:
        chances: With which probability a place of the batch went to each shard, given who answered.
        shards: Of each item.
        totals: Of its shard, at the moment of its draw.
        masses: Of each item.
        parts: Places and fields.
    """

    def __init__(self, n: int, shards: int) -> None:
        self.chances = np.zeros(shards)
        self.shards, self.totals, self.masses = np.zeros(n, np.int64), np.ones(n), np.ones(n)
        self.parts: list[tuple[Int64, dict[str, Any]]] = []

    def take(self, part: AskedShard, drawn: DrawnPart, total: float) -> None:
        """Put a part in its places."""
        self.shards[part.places], self.totals[part.places] = part.shard, total
        self.masses[part.places] = drawn.masses
        self.parts.append((part.places, drawn.fields))


class Drawer:
    """Draws batches by one law over all shards.

    Args:
        plan: What the shards are built from.
        transport: How to reach them.
        rng: The generator.
        clock: Seconds.

    Attributes:
        clock: As above.
        health: What is known of the shards.
        rng: As above; may be replaced.
        drawn: Items handed out.
        draws: Batches asked for: the clock of an `Anneal`.
        beta: The exponent of the last of them.
        late: Batches for which a part did not come in time.
        stale: Updates dropped here, as their shard did not answer.
    """

    def __init__(
        self,
        plan: ShardPlan,
        transport: Transport,
        rng: np.random.Generator,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan, self._transport, self.clock = plan, transport, clock
        self.rng, self.health = rng, Health(transport, clock)
        self._joiner, self._sampler = Joiner(plan.schema, plan.item), completed(plan.sampler, Sampler)
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
        beta = self._beta() if beta is None else beta
        self.draws, self.beta = self.draws + 1, beta
        return Request(n, beta, q, parts)

    def look_for(self, n: int) -> None:
        """Whether a draw of `n` items could be asked for.

        Raises:
            NotEnoughData, StorageError: As in `ask`.
        """
        self.health.look()
        self._believed(n, 0.0)

    def _believed(self, n: int, alone: float) -> Float64:
        """What each shard has, as far as is known, and known to be enough for a draw of `n`."""
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

    def _beta(self) -> float:
        return self._sampler.beta_at(self.draws)

    def _ask(self, n: int, places: Int64, totals: Float64) -> tuple[Float64, list[AskedShard]]:
        """Ask for the items at some places of a batch; how likely each shard was, and the parts."""
        sampler, q = self._sampler, totals / totals.sum()
        if sampler.replacement:
            stratified = sampler.stratified
            shards, fractions = allotted(points(self.rng.random(len(places)), stratified), totals)
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
                return self._batch(request, answers)
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
        """Take the parts that come in time; the shards that gave none, and the places that are left."""
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
                answers.take(part, drawn, self.health.statuses[part.shard].total)
        return silent, np.sort(np.concatenate(left)) if left else np.zeros(0, np.int64)

    def _kept(self, promises: list[Any], shards: list[int], until: float) -> list[bool]:
        """Wait for some promises, one of each of some shards; which are kept or broken.

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
        if not done:
            self.health.miss(part.shard, f"a draw took more than {took:.1f} s")
            return None
        try:
            drawn, status = self._transport.take(part.promise)
        except ShardUnavailable as error:
            self.health.miss(part.shard, str(error), error.final)
            self.stale += part.updates
            return None
        self.health.hear(part.shard, status)
        return drawn if drawn is None else DrawnPart(*drawn)

    def _batch(self, request: Request, answers: Answers) -> Batch:
        fields = self._joiner.joined(request.n, answers.parts)
        chance = probabilities(answers.chances, answers.shards, answers.masses, answers.totals)
        there, statuses = answers.chances > 0, self.health.statuses
        scale = self._sampler.weights
        if scale is not None:
            items = sum(float(w.items) for w, t in zip(statuses, there, strict=True) if t)
        else:  # by these weights a batch is as one of fresh totals, whose weights are 1
            items, scale = sum(w.total for w, t in zip(statuses, there, strict=True) if t), "none"
            chance = chance / answers.masses
        least = min(_least(c, w) for c, w in zip(answers.chances.tolist(), statuses, strict=True))
        fields["weights"] = weights(chance, max(items, 1), request.beta, scale, least)
        return Batch(fields)

    # Priorities.

    def update(self, ids: Int64, td_error: Float64, wait: bool) -> int | None:
        """Set priorities; how many were applied, if that is waited for. Else they go with the next draws."""
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
        """Write values back to steps; how many were written."""
        shards, sent = ids % self._plan.num_envs % self._plan.shards, []
        for shard in np.unique(shards).tolist():
            chosen = shards == shard
            if not self.health.missing[shard]:
                parts = [value._replace(values=value.values[chosen]) for value in values]
                promise = self._transport.call(shard, "write", ids[chosen], parts, self.health.largest)
                sent.append((shard, int(chosen.sum()), promise))
        return self._applied(sent, ALONE, stale=False)

    def _sent(self) -> list[tuple[int, int, Any]]:
        """The updates that wait, sent: shard, how many, and the promise."""
        sent = []
        for shard, updates in self._held.items():
            ids, errors = _joined(updates)
            promise = self._transport.call(shard, "update", ids, errors, self.health.largest)
            sent.append((shard, len(ids), promise))
        self._held.clear()
        return sent

    def _applied(self, sent: list[tuple[int, int, Any]], alone: float, stale: bool) -> int:
        """How many were applied of what was sent; `stale`: what was not is counted."""
        shards, promises = [shard for shard, _, _ in sent], [promise for _, _, promise in sent]
        ready, applied = self._kept(promises, shards, self.clock() + alone) if sent else [], 0
        for (shard, count, promise), done in zip(sent, ready, strict=True):
            try:
                if not done:
                    raise ShardUnavailable("an update took too long")
                number, status = self._transport.take(promise)
                self.health.hear(shard, status)
                applied += number
            except ShardUnavailable as error:
                self.health.miss(shard, str(error), error.final)
                self.stale += count * stale
        return applied


def _joined(updates: list[tuple[Int64, Float64]]) -> tuple[Int64, Float64]:
    """Ids and TD errors, the latest last."""
    if len(updates) == 1:
        return updates[0]
    return np.concatenate([ids for ids, _ in updates]), np.concatenate([errors for _, errors in updates])


def _least(chance: float, status: ShardStatus) -> float:
    """The smallest positive probability of an item of one shard."""
    return chance * status.smallest / status.total if chance > 0 and status.total > 0 else np.inf
