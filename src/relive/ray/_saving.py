"""Saving all shards, and what is known of those that were saved."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np

from .._base.frozen import Frozen
from .._base.generators import generator_of, state_of
from .._buffer.saved_as import built, described, not_given
from .._buffer.schemas import fields_of, schema_of
from .._ring.lanes import rows_of, sizes_in
from ..checkpoints.sharded import FORMATS, MANIFEST, count_in, read_json
from ..errors import CorruptionError, StorageError, event, message
from ._drawing import Drawer
from ._wire import ShardPlan, ShardUnavailable, Transport

_PAUSE = 0.02


class SavedShards(Frozen, kw_only=True):
    """The record of a save of shards.

    Attributes:
        path: The directory.
        numbers: The number of each shard's save in its own directory.
        bytes_written: Bytes that this save wrote.
        bytes_total: Bytes of all files that it consists of.
        seconds: How long it took.
    """

    path: str
    numbers: tuple[int, ...]
    bytes_written: int
    bytes_total: int
    seconds: float


def save(plan: ShardPlan, transport: Transport, drawer: Drawer, path: str, *, rows: bool = True) -> SavedShards:
    """Save each shard, then let the first one write the common manifest.

    Args:
        plan: What the shards are built from.
        transport: How to reach them.
        drawer: The generator and counts that are saved with them.
        path: The directory, where they run.
        rows: Whether to save steps; else only what they are.
    """
    begun = time.monotonic()
    drawer.health.look()
    drawer.settle()
    missing = np.flatnonzero(drawer.health.missing).tolist()
    if missing:
        remedy = "wait until they are back; earlier saves stay"
        raise StorageError(message("shards that all answer", f"none from {missing}", "Shards.save", remedy))
    results: list[Any] = []
    if rows:
        for promise in [transport.call(shard, "save", path) for shard in range(plan.shards)]:
            _waited(transport, promise)
        for shard in range(plan.shards):
            while (found := _waited(transport, transport.call(shard, "saved", path))) is None:
                time.sleep(_PAUSE)
            results.append(found)
    facts = {
        "format": FORMATS[0],
        "complete": rows,
        "shards": plan.shards,
        "num_envs": plan.num_envs,
        "rows": rows_of(plan.steps, plan.boundaries),
        "steps": plan.steps,
        "boundaries": plan.boundaries,
        "schema": fields_of(plan.schema),
        "item": described(plan.item),
        "sampler": described(plan.sampler),
        "draws": drawer.draws,
        "drawn": drawer.drawn,
    }
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # a generator of the user's own
        facts["rng"] = state_of(drawer.rng)
    _waited(transport, transport.call(0, "note", path, facts))
    numbers, written, total = zip(*results, strict=True) if results else ((), (), ())
    return SavedShards(
        path=path,
        numbers=tuple(numbers),
        bytes_written=sum(written),
        bytes_total=sum(total),
        seconds=time.monotonic() - begun,
    )


def _waited(transport: Any, promise: Any) -> Any:
    while not transport.wait([promise], 1.0)[0]:
        pass
    try:
        return transport.take(promise)
    except ShardUnavailable as error:
        raise StorageError(event(f"A shard died while it was saved ({error})", "Shards.save")) from None


class ShardsLoading:
    """The facts that a directory of shards has of itself.

    Args:
        path: The directory.
        facts: Its manifest.
        item: What a draw expands to, instead of what was saved.
        sampler: Which items are drawn, instead.
    """

    def __init__(self, path: str, facts: dict[str, Any], item: Any, sampler: Any) -> None:
        self.path = path
        try:
            self.shards, self.num_envs = count_in(facts), int(facts["num_envs"])
            _, steps, self.boundaries = sizes_in(facts)
            self.capacity, self.counts_rows = steps * self.num_envs, "steps" not in facts
            self.draws, self.drawn = int(facts["draws"]), int(facts["drawn"])
            self.schema = schema_of(facts["schema"])
            self.item = built("item", facts["item"]) if item is None else item
            self.sampler = built("sampler", facts["sampler"]) if sampler is None else sampler
            self._rng = facts.get("rng")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"Damaged ({type(error).__name__}: {error})"
            raise CorruptionError(event(what, f"{path}/{MANIFEST}")) from None
        for name, found in (("item", self.item), ("sampler", self.sampler)):
            if found is None:
                raise not_given(name, facts[name], f"Shards.load({name})")

    def generator(self) -> np.random.Generator:
        """Make the saved generator, or a fresh one."""
        try:
            return np.random.default_rng() if self._rng is None else generator_of(self._rng)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise CorruptionError(event(f"Damaged ({error})", f"{self.path}/{MANIFEST}")) from None


def loading(path: str, item: Any, sampler: Any) -> ShardsLoading:
    """Read what is to be loaded from `path`.

    Raises:
        StorageError: There is nothing.
        CorruptionError: It is damaged.
    """
    return ShardsLoading(path, read_json(path, MANIFEST), item, sampler)
