"""All that a buffer is, and the one place that wires it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from .._base.arrays import ArraySpec, Memory, Section
from .._base.capabilities import completed
from .._base.forks import importing
from .._base.frozen import Frozen
from .._base.memory import Arena, available_bytes
from .._base.types import Bool, Float32, Float64, Int64
from .._flow.call_lock import CallLock
from .._ring.ring import TOUCHED, Ring
from ..errors import ArgumentError, ReliveError, message
from ..items import Expander, Item
from ..samplers import Index, Sampler
from ..schema import Schema
from ..storage import Joint, Ram, Storage
from .access import Access, Alone
from .adding import Adding
from .choices import Choices
from .notices import ALL, Notices
from .reading import Readers

if TYPE_CHECKING:
    from .._flow.limit import Limit
    from ..checkpoints._saving import Saver
    from ..checkpoints.autosave import Autosave

Add = Callable[..., Int64]
Fill = Callable[[Mapping[str, ArraySpec], Memory], bool]


class Tally:
    """What a buffer knows that is in none of its arrays.

    Attributes:
        rng: The generator of its draws.
        numbers: `drawn`, `updates` and `stale`, int64 `[3]`, which a native kernel counts in.
        written: Values of steps that were written back by this process.
        last: The ids of the last batch, int64, and behind them its weights, float32.
        identity: Names the buffer and its copies in directories of saves.
        saver: Writes these saves; None: there is none yet.
        autosave: Saves by itself; None: nothing does.
    """

    __slots__ = ("autosave", "identity", "last", "numbers", "rng", "saver", "written")

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.numbers: Int64 = np.zeros(3, np.int64)
        self.last, self.written = b"", 0
        self.renew()

    @property
    def drawn(self) -> int:
        """Items drawn."""
        return int(self.numbers[0])

    @property
    def updates(self) -> int:
        """Priorities that `update_priorities` was given."""
        return int(self.numbers[1])

    def count(self, drawn: int = 0, updates: int = 0, stale: int = 0) -> None:
        """Count items drawn, priorities given, and those of them whose item was gone."""
        self.numbers += drawn, updates, stale

    def note(self, ids: Int64, weights: Float32) -> None:
        """Keep the ids and weights of a batch as the last one's."""
        self.last = ids.tobytes() + weights.tobytes()

    @property
    def last_ids(self) -> Int64:
        """The ids of the last batch."""
        return np.frombuffer(self.last, np.int64, self._last_items)

    @property
    def last_weights(self) -> Float32:
        """The weights of the last batch."""
        return np.frombuffer(self.last, np.float32, offset=8 * self._last_items)

    @property
    def _last_items(self) -> int:
        return len(self.last) // 12

    def renew(self) -> None:
        """Be another buffer than that whose saves this one was loaded from."""
        self.identity = os.urandom(16).hex()
        self.saver: Saver | None = None
        self.autosave: Autosave | None = None

    def counts(self) -> dict[str, int]:
        """What was drawn and updated, by the names that saves have."""
        return dict(zip(("drawn", "updates", "stale_updates"), self.numbers.tolist(), strict=True))

    def restore(self, counts: Mapping[str, int]) -> None:
        """Continue the counts of another buffer."""
        self.numbers[:] = [counts.get(name, 0) for name in self.counts()]


class Core(Frozen):
    """The parts of a buffer, wired. It has no verbs: functions work on it, in the module of their subject.

    Attributes:
        choices: What it was built from.
        schema: The fields of a step.
        item: What one draw expands to.
        sampler: Which items are drawn.
        storage: Where the bytes live.
        memory: The arrays of the sampler.
        ring: The steps, as item and sampler see them.
        index: The sampler, bound to the ring.
        update: The index's method to set priorities; None: the sampler has none.
        refresh: Lets the index take in what changed, as a draw needs it.
        try_update: The index's short way to update priorities; None: it has none.
        expander: The item, bound to the ring.
        readers: Other items, bound to the ring.
        writer: What writes to the ring.
        native: Its `add` and `extend`, as fast as the kernels have them.
        calls: The same behind the rate limiter, as the buffer has them.
        access: How draws and writes meet other processes.
        lock: Lets one thread at a time into a call.
        notices: Warnings that are due.
        limit: The rate limiter at work; None: nothing waits.
        tally: What is in none of the arrays.
        nbytes: Bytes of the full ring.
        most: Items of the largest batch that fits in memory.
    """

    choices: Choices
    schema: Schema
    item: Item
    sampler: Sampler
    storage: Storage
    memory: Section
    ring: Ring
    index: Index
    update: Callable[[Int64, Float64, Bool | None], None] | None
    refresh: Callable[[], int]
    try_update: Callable[[object, object], bool] | None
    expander: Expander
    readers: Readers
    writer: Adding
    native: tuple[Add, Add]
    calls: tuple[Add, Add]
    access: Access
    lock: CallLock
    notices: Notices
    limit: Limit | None
    tally: Tally
    nbytes: int
    most: int

    @property
    def slow_adds(self) -> int:
        """Calls of `add` and `extend` in which Python had to read a value."""
        return self.writer.slow


class _Closed:
    """Stands for the core of a buffer that was closed."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ReliveError(message("an open buffer", "one that was closed", "ReplayBuffer"))


CLOSED = cast(Core, _Closed())


class _ParentsSampler:
    """Stands for a sampler whose arrays are those of the parent process."""

    def __init__(self, process: int) -> None:
        self._process = process

    def __getattr__(self, name: str) -> NoReturn:
        wanted = f"process {self._process}, which made the buffer"
        remedy = "draw in a child process with `relive.open(name)`; adding is possible"
        raise ReliveError(message(wanted, f"its child {os.getpid()}", "ReplayBuffer", remedy))


def forked(core: Core) -> Core:
    """The core in a forked child: it may add, and has no sampler, whose arrays both processes would write."""
    core.access.forked = True
    if core.limit is not None:
        core.limit.present = core.access.present
    absent: Any = _ParentsSampler(os.getppid())
    changes = {"index": absent, "try_update": None, "refresh": lambda: absent.refresh()}
    return core.__replace__(**changes)


def opened(choices: Choices, storage: Storage, rng: np.random.Generator, fill: Fill | None = None) -> Core:
    """The core of a buffer whose arrays `storage` opens.

    Args:
        choices: What it is built from.
        storage: Where the bytes live.
        rng: The generator of its draws.
        fill: Fills the new arrays before anything reads them; returns whether they still count as new ones, and not as
            those of an earlier buffer.
    """
    if type(storage) is Ram or not isinstance(storage, Joint):
        keeps = (*choices.sampler.keeps, TOUCHED)
        spec = choices.spec(choices.window, keeps)
        memory = storage.open(spec, choices.identity)
        fresh = None if fill is None else fill(spec, memory)
        return assemble(choices, storage, memory, Alone(choices.window, keeps), rng, fresh)
    with importing:
        from ..processes.joint import founded

    return founded(choices, storage, rng, fill)


def assemble(
    choices: Choices,
    storage: Storage,
    memory: Memory,
    access: Access,
    rng: np.random.Generator,
    fresh: bool | None = None,
) -> Core:
    """Wire the core of a buffer over arrays that a storage has opened.

    Args:
        choices: What it is built from.
        storage: Where the bytes live.
        memory: The arrays.
        access: How draws and writes meet other processes.
        rng: The generator of its draws.
        fresh: Whether the arrays count as new and zero; None: as `memory` says.
    """
    schema, sampler, lock = choices.schema, choices.sampler, CallLock()
    notices = Notices(lock)
    written = ring_of(schema, choices.rows, choices.steps, memory, access, notices, fresh)
    claims = access.bind(written)
    ring = access.seen(choices.window, written)
    fresh_sampler = getattr(memory, "fresh_sampler", memory.fresh) if fresh is None else fresh
    of_sampler = Section(memory, "sampler/", fresh_sampler)
    index = access.following(completed(sampler.index(ring, of_sampler), Index))
    if sampler.prioritizes and (index.update is None or index.priorities is None):
        got = f"`{type(sampler).__name__}`, whose index has no `{'priorities' if index.update else 'update'}`"
        raise ArgumentError(message("an index that has the methods of a sampler with priorities", got, "$.sampler"))
    refresh = access.refreshing(index.refresh)
    limit = None
    if choices.limiter is not None:
        with importing:
            from .._flow.limit import Limit

        limit = Limit(choices.limiter, written.counters, memory, held=lock.reentrant.held)
    writer = Adding(schema, written, refresh, sampler, notices, lock, claims)
    native = writer.call(several=False), writer.call(several=True)
    arrays = choices.ring_spec(access.window, access.keeps)
    return Core(
        choices=choices,
        schema=schema,
        item=choices.item,
        sampler=sampler,
        storage=storage,
        memory=of_sampler,
        ring=ring,
        index=index,
        update=index.update if sampler.prioritizes else None,
        refresh=refresh,
        try_update=access.updating(index.try_update),
        expander=choices.item.bind(schema, ring, Arena()),
        readers=Readers(choices.item, schema, ring),
        writer=writer,
        native=native,
        calls=native if limit is None else (limit.before(native[0], False), limit.before(native[1], True)),
        access=access,
        lock=lock,
        notices=notices,
        limit=limit,
        tally=Tally(rng),
        nbytes=sum(wanted.nbytes for wanted in arrays.values()),
        most=available_bytes() // schema.nbytes,
    )


def ring_of(
    schema: Schema, rows: int, steps: int, memory: Memory, access: Access, notices: Notices, fresh: bool | None = None
) -> Ring:
    """The ring that this process writes to: lanes of `rows` rows that keep `steps` steps."""
    arrays = Section(memory, "ring/", fresh)
    ring = Ring(schema, access.window, rows, steps, arrays, access.keeps, notices.note, access.busy)
    ring.kernel.watched = ALL
    return ring
