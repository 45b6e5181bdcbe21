"""What travels between a shard and its callers: few objects a call, of contiguous arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .._base.capabilities import completed
from .._base.frozen import Frozen
from .._base.nests import paths
from .._base.types import Array, Bool, Float64, Int64
from ..items import Item
from ..samplers import Sampler, Share
from ..schema import Schema

if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from .._base.frozen import Record


class ShardUnavailable(Exception):
    """A shard that did not answer a call: it died, or is being started again. The call may have been executed.

    Args:
        what: What its transport says.
        final: Whether it will never come back.
    """

    def __init__(self, what: str, final: bool = False) -> None:
        super().__init__(what)
        self.final = final


class Transport(Protocol):
    """A way to reach shards: Ray's actors, or, in tests, objects of this process."""

    @property
    def shards(self) -> int:
        """The number of shards."""

    def call(self, shard: int, method: str, *arguments: Any) -> Any:
        """Call a shard's method; return at once, with a promise. Calls of one caller keep their order."""

    def store(self) -> float:
        """Return the bytes of the smallest store that large replies travel through; infinity if there is none."""

    def clock(self) -> float:
        """Return seconds since some moment."""

    def at_end(self, end: Callable[[], None]) -> None:
        """Call `end` when this process ends by itself, as long as calls can be made."""

    def wait(self, promises: Sequence[Any], timeout: float) -> list[bool]:
        """Wait until all are kept or broken, at most so many seconds; return which of them are."""

    def take(self, promise: Any) -> Any:
        """Return the result of a promise that is kept; raise the error of one that is broken.

        Raises:
            ShardUnavailable: The shard did not answer.
            ReliveError: What its method raised.
        """


class ShardStatus(Record):
    """The state of a shard, which comes with every reply.

    Attributes:
        total, items, smallest, largest: Its buffer's `Share`.
        life: How often it was started before.
        size: Steps stored.
        kept: Steps that it began this life with.
        added: Steps ever added, by its own count.
        stale: Updates that it dropped.
        dropped: Steps that writers dropped, as far as they said.
    """

    total: float
    items: int
    smallest: float
    largest: float
    life: int
    size: int
    kept: int
    added: int
    stale: int
    dropped: int

    @property
    def share(self) -> Share:
        """Its buffer's share."""
        return Share(*self[:4])


class DrawnPart(Record):
    """The items that a shard drew.

    Attributes:
        fields: Contiguous arrays by path, `ids` of the whole among them.
        masses: What each item was drawn in proportion to, float64 `[B]`.
    """

    fields: dict[str, Array]
    masses: Float64


class StepBlock(Record):
    """Steps of some lanes, in time order: arrays `[T, L', ...]`.

    Attributes:
        lanes: Lanes of the whole, `[L']`.
        counts: How many steps there are of each, `[L']`; those behind are arbitrary.
        values: The schema's columns; of stacks the newest frames.
        older: The other frames of stacks, `[N, k - 1, ...]`, of the steps `led`.
        led: The steps whose older frames are not those of the step before, as positions in `[T * L']`.
        next_values: The next observations' columns, `[N, ...]`, of the steps `apart`; or None.
        apart: The steps whose next observation is not that of the next step here, as positions in `[T * L']`; or None.
        terminated: Ends.
        truncated: Ends from outside.
        priority: Raw priorities, or None.
        cut: Lanes of the whole that are cut before.
    """

    lanes: Int64
    counts: Int64
    values: list[Array]
    older: list[Array]
    led: Int64
    next_values: list[Array] | None
    apart: Int64 | None
    terminated: Bool
    truncated: Bool
    priority: Float64 | None
    cut: Int64


class ShardPlan(Frozen, kw_only=True):
    """The choices that all shards are built from; small, so that an actor can start again whatever was evicted.

    Attributes:
        schema: The fields of a step.
        steps: Steps that each lane keeps.
        boundaries: The share of rows that is reserved for final observations.
        num_envs: Lanes of the whole.
        shards: How many shards there are.
        item: What one draw expands to.
        sampler: Which items are drawn.
        seed: For items that choose something at random.
        run: Names this set of shards.
        save_dir: Where shards save themselves; None: nowhere.
        save_every: After how many seconds; None: only when they are asked to.
        source: Where they are loaded from when they are first started; None: they begin empty.
    """

    schema: Schema
    steps: int
    boundaries: float
    num_envs: int
    shards: int
    item: Item
    sampler: Sampler
    seed: tuple[int, ...]
    run: str
    save_dir: str | None = None
    save_every: float | None = None
    source: str | None = None


def packed(item: Item, fields: dict[str, Any]) -> dict[str, Array]:
    """Return the fields of a batch by path, as contiguous arrays, without views of others."""
    flat, views = {".".join(path): array for path, array in paths(fields)}, completed(item, Item).views
    for path in list(flat):
        root, dot, rest = path.partition(".")
        whole = flat.get(views[root].whole + dot + rest) if root in views else None
        if whole is not None and np.may_share_memory(flat[path], whole):
            del flat[path]
    return {path: np.ascontiguousarray(array) for path, array in flat.items()}


def sliced(positions: Int64) -> Int64 | slice:
    """Return ascending positions as a slice, where they are equally far apart: a copy then needs no index."""
    steps = np.diff(positions)
    if len(positions) and (steps == steps[:1]).all():
        return slice(int(positions[0]), int(positions[-1]) + 1, int(steps[0]) if len(steps) else 1)
    return positions
