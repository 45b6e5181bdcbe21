"""One shard: an ordinary buffer, and what its callers ask of it. Ray runs it as an actor, tests as an object."""

from __future__ import annotations

import logging
import os
import platform
import threading
from typing import Any, Protocol

import numpy as np

from .._base.types import Array, Float64, Int64
from .._buffer import drawing, stored
from .._buffer.writing import Value, put
from .._schema.step_parser import ParsedStep
from ..buffer import ReplayBuffer
from ..checkpoints._saved import Saved
from ..checkpoints.sharded import MANIFEST, write_json
from ..errors import NotEnoughData, ReliveError, StorageError, event, message
from ..samplers import Share
from ._blocks import followed, restored, stacks
from ._ids import Ids, lanes_in, most_lives
from ._keeping import Keeper, loaded
from ._wire import DrawnPart, ShardPlan, ShardStatus, StepBlock, packed

_LOG = logging.getLogger("relive")


class Ledger(Protocol):
    """Remembers each shard's life, and outlives the shard."""

    def get(self, shard: int) -> int | None:
        """Return the life that the shard began last; None if it was never started."""

    def put(self, shard: int, life: int) -> None:
        """Remember it."""


class Shard:
    """A part of the lanes, in a buffer of its own.

    Args:
        plan: What all shards are built from.
        number: Which one this is.
        ledger: Remembers its lives.

    Where it cannot be started, every call says why: an actor whose constructor fails would not come back.
    """

    def __init__(self, plan: ShardPlan, number: int, ledger: Ledger) -> None:
        self._plan, self._number = plan, number
        self._added = self._kept = self._stale = self._updated = self._written = 0
        self._largest = 0.0  # that other shards were heard to have
        # Of each writer, the last block that came; of each lane, the writer that wrote last.
        self._seen: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._owners: list[str | None] = []
        self._lock = threading.Lock()  # calls come one by one, and saves by the clock from a thread
        self._error: ReliveError | None = None
        self._saves: dict[str, Saved] = {}
        try:
            self._begin(ledger)
        except ReliveError as error:
            self._error = error

    def _begin(self, ledger: Ledger) -> None:
        plan, before = self._plan, ledger.get(self._number)
        self._keeper = Keeper(plan, self._number)
        again = before is not None
        found = None
        try:
            self._keeper.open(again)
            found = loaded(plan, self._number, again)
        except StorageError as error:
            if not again:
                raise
            _LOG.error("%s", event(f"Shard {self._number} begins empty: {error}", "relive.ray"))
        if found is None:
            life = 0 if before is None else before + 1
            buffer = ReplayBuffer(plan.schema, **self._choices())
            ids = Ids.new(lanes_in(self._number, plan.shards, plan.num_envs), plan.num_envs, life)
        else:
            buffer, ids, self._seen = found
            life = ids.life
            if again:
                life = max(life, before or 0) + 1
                ids = ids.reborn(life, stored.next_rows(buffer._core))
                buffer.cut()  # or a step without `next_obs` would become the successor of another one
        if life >= most_lives(plan.num_envs):
            what = f"fewer than {most_lives(plan.num_envs)} starts of a shard, which ids have room for"
            raise ReliveError(message(what, f"{life}", "Shards", "begin a new run"))
        ledger.put(self._number, life)
        self.buffer, self.ids, self._core = buffer, ids, buffer._core
        self._prioritizes = plan.sampler.prioritizes
        self._kept = self._added = len(buffer)
        self._owners = [None] * len(ids.lanes)
        self._keeper.keep(self.save_by_clock)
        if again:
            what = f"Shard {self._number} was started again, with {len(buffer)} steps of its last save"
            _LOG.warning("%s", event(what, "relive.ray"))

    def _choices(self) -> dict[str, Any]:
        plan = self._plan
        lanes = len(lanes_in(self._number, plan.shards, plan.num_envs))
        seed = np.random.default_rng([*plan.seed, self._number])
        choices = {"num_envs": lanes, "item": plan.item, "sampler": plan.sampler, "seed": seed}
        return {"capacity": plan.steps * lanes, "boundaries": plan.boundaries, **choices}

    def ready(self) -> tuple[ShardStatus, str, int]:
        """Return the shard's status, where it runs, and its process.

        Raises:
            ReliveError: It could not be started.
        """
        return self.share(0.0), platform.node(), os.getpid()

    def share(self, largest: float) -> ShardStatus:
        """Return the shard's status; `largest`: the largest priority that was set in any shard."""
        with self._call(largest):
            return self._status(drawing.share(self._core))

    def draw(
        self, fractions: Float64, largest: float, updates: tuple[Int64, Float64] | None = None
    ) -> tuple[DrawnPart | None, ShardStatus]:
        """Draw the items at these fractions of what the shard has now; None if it has none, or too few.

        Args:
            fractions: Numbers in [0, 1).
            largest: The largest priority that was set in any shard.
            updates: Ids and TD errors that are to be set before.
        """
        with self._call(largest):
            if updates is not None:
                self._update(*updates)
            try:
                batch, masses, share = drawing.draw_at(self._core, fractions)
            except NotEnoughData:
                return None, self._status(drawing.share(self._core))
            fields = packed(self._plan.item, dict(batch._fields))
            del fields["weights"]
            fields["ids"] = self.ids.outer(fields["ids"])
            if "step_ids" in fields:
                inner = fields["step_ids"]
                fields["step_ids"] = np.where(inner < 0, -1, self.ids.outer(np.maximum(inner, 0)))
            return DrawnPart(fields, masses), self._status(share)

    def update(self, ids: Int64, td_error: Float64, largest: float) -> tuple[int, ShardStatus]:
        """Set priorities; how many were applied. Ids of steps that were lost or overwritten are dropped."""
        with self._call(largest):
            applied = self._update(ids, td_error)
            return applied, self._status(drawing.share(self._core))

    def write(self, ids: Int64, values: list[Value], largest: float) -> tuple[int, ShardStatus]:
        """Write values back to steps; how many were written. Ids of steps that were lost or overwritten are dropped."""
        with self._call(largest):
            own, known = self.ids.inner(ids, stored.next_rows(self._core))
            ours = [value._replace(values=value.values[known]) for value in values]
            self._written += (written := put(self._core, own, ours) if len(own) else 0)
            return written, self._status(drawing.share(self._core))

    def _update(self, ids: Int64, td_error: Float64) -> int:
        own, known = self.ids.inner(ids, stored.next_rows(self._core))
        applied = self.buffer.update_priorities(own, td_error[known]) if len(own) else 0
        self._stale += len(ids) - applied
        self._updated += len(ids)
        return applied

    def add(self, writer: str, number: int, first: bool, dropped: int, block: StepBlock) -> bool:
        """Add a block.

        Args:
            writer: Names the writer.
            number: Its blocks count up from 1.
            first: Whether blocks before this one may be missing.
            dropped: How many steps the writer has dropped so far.
            block: The steps.

        Returns:
            False, and nothing was added, where a block before this one did not come: the writer has to send it first.
        """
        with self._call(0.0):
            last = self._seen.get(writer)
            if not first and (last is None or number > last + 1):
                return False
            if last is None or number > last:
                self._add(writer, block)
                self._seen[writer] = number
            self._dropped[writer] = dropped
            return True

    def _add(self, writer: str, block: StepBlock) -> None:
        local = self.ids.local(block.lanes)
        new = [lane for lane in local.tolist() if self._owners[lane] not in (writer, None)]
        cut = sorted({*self.ids.local(block.cut).tolist(), *new})
        if cut:
            self.buffer.cut(cut)
        for lane in local.tolist():
            self._owners[lane] = writer
        block = restored(block, stacks(self._plan.schema))
        successors = followed(block)
        every = bool((block.counts == block.counts[0]).all()) if len(local) else True
        for count in np.unique(block.counts).tolist():
            if count:
                chosen = slice(None) if every else np.flatnonzero(block.counts == count)
                self._extend(block, successors, count, chosen, local[chosen])
                self._added += count * len(local[chosen])

    def _extend(self, block: StepBlock, successors: list[Array], count: int, chosen: Any, lanes: Int64) -> None:
        def of(array: Array) -> Array:
            return np.ascontiguousarray(array[:count, chosen].swapaxes(0, 1))

        step = ParsedStep([*block.values], successors or None, block.terminated, block.truncated).mapped(of)
        self._core.writer.put(step, lanes, None if block.priority is None else of(block.priority))

    def counts(self, ids: Int64, largest: float) -> tuple[ShardStatus, int, int, Int64]:
        """Return the shard's status, cuts, bytes of its buffer when full, and the ages of its own of the ids."""
        with self._call(largest):
            ages = self._core.ring.ages(self.ids.inner(ids, stored.next_rows(self._core))[0])
            status = self._status(drawing.share(self._core))
            return status, self._core.ring.tally()["cuts"], self._core.nbytes, ages

    def save(self, path: str) -> None:
        """Begin to save into the shard's own part of the directory `path`; `saved` tells when it is done."""
        with self._call(0.0):
            self._saves[path] = self._keeper.save(path, self.buffer, self.ids, self._seen)

    def saved(self, path: str) -> tuple[int, int, int] | None:
        """Number, bytes written and bytes in all of the save that was begun last; None while it goes on.

        Raises:
            StorageError: It failed.
        """
        saved = self._saves[path]
        if not saved.done:
            return None
        del self._saves[path]
        saved.wait()
        return saved.number, saved.bytes_written, saved.bytes_total

    def note(self, path: str, facts: dict[str, Any]) -> None:
        """Write what all shards are."""
        with self._call(0.0):
            write_json(path, MANIFEST, facts)

    def save_by_clock(self) -> None:
        """Save into `save_dir` if anything changed, and wait for the end."""
        with self._lock:
            mark = (self._added, len(self.buffer), self._updated, self._written)
            saved = self._keeper.save_if_changed(mark, self.buffer, self.ids, self._seen)
        if saved is not None:
            saved.wait()
            self._keeper.saved(mark)

    def lane_steps(self, lanes: Int64) -> Int64:
        """Return the steps ever added to some lanes of the whole."""
        with self._call(0.0):
            return stored.lane_steps(self._core)[self.ids.local(lanes)]

    def _call(self, largest: float) -> threading.Lock:
        if self._error is not None:
            raise self._error
        if largest > self._largest and self._prioritizes:
            drawing.raise_priority(self._core, largest)
            self._largest = largest
        return self._lock

    def _status(self, share: Share) -> ShardStatus:
        counts = len(self.buffer), self._kept, self._added, self._stale, sum(self._dropped.values())
        return ShardStatus(share.total, share.count, share.smallest, share.largest, self.ids.life, *counts)
