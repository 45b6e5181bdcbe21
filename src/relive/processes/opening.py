"""Drawing from a buffer of another process, and going on with a mapped one."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from .._base import memory
from .._base.arrays import ArraySpec, Locks
from .._base.types import Array
from .._buffer.arguments import identity
from ..buffer import ReplayBuffer
from ..errors import ArgumentError, message
from ..items import Item
from ..samplers import Sampler
from ..storage import Storage
from ..storage._segment import CREATOR, Segment
from ..storage.mapped import Mapped
from ..storage.shared import FOLDER, PREFIX, Shared, require_native
from ._about import CHOICES, About
from .writer import attached, file_of


def open(  # `relive.open`, as `gzip.open`
    name: str | os.PathLike[str],
    *,
    item: Item | None = None,
    sampler: Sampler | None = None,
    seed: int | np.random.Generator | None = None,
) -> ReplayBuffer:
    """Open a `Shared` or `Mapped` buffer that another process made, or a `Mapped` one that nobody has open any more.

    While its creator lives, this is one more process that draws: with a sampler, priorities and a generator of its
    own. It can save the buffer, and cannot add to it; `relive.Writer` can. A limiter does not keep it waiting.

    A mapped buffer without a creator is taken over: steps and priorities are those that were left, and adding goes on,
    with the streams cut.

    Args:
        name: The buffer's name, or the path of its file.
        item: What a draw expands to; None: as its creator says.
        sampler: Which items are drawn; None: as its creator says, with priorities of its own.
        seed: None: fresh entropy, or the generator as of the last `sync()` or `close()` where a buffer is taken over.

    Raises:
        StorageError: There is no such buffer, or the file is not one that relive wrote, or another version of it did.
        ArgumentError: A choice that does not fit, or one that has to be given, because it is a class of the user's own.

    >>> import relive
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> step = dict(obs=0.0, action=0.0, reward=1.0, next_obs=1.0, terminated=True, truncated=False)
    >>> with relive.ReplayBuffer(schema, 1000, storage=relive.Shared("open-example")) as buffer:
    ...     ids = buffer.add(**step)
    ...     with relive.open("open-example", sampler=relive.Prioritized(), seed=0) as reader:
    ...         reader.sample(2).reward.tolist(), reader.update_priorities(ids, [3.0])
    ([1.0, 1.0], 1)
    """
    file = file_of(name)
    segment = attached(file)
    about = About.decoded(segment.raw(CHOICES), file)
    for what, ours, theirs in (("item", item, about.item), ("sampler", sampler, about.sampler)):
        if ours is None and theirs is None:
            got = "a class of its creator's own"
            raise ArgumentError(message(f"a known {what}", got, file, f"give `{what}=`"))
    storage: Storage = Shared(file.removeprefix(f"{FOLDER}/{PREFIX}")) if _is_shared(file) else Mapped(file)
    joined = Joined(segment, about, takes_over=isinstance(storage, Mapped) and segment.locks.take(CREATOR))
    if not joined.takes_over:
        require_native("open")
    buffer = ReplayBuffer(
        about.schema,
        about.lanes * about.steps,
        num_envs=about.lanes,
        item=about.item if item is None else item,
        sampler=about.sampler if sampler is None else sampler,
        storage=joined,
        limiter=about.limiter if joined.takes_over else None,
        seed=seed,
        boundaries=about.boundaries,
    )
    buffer.storage = storage
    if joined.takes_over:
        buffer._take_over(resume=seed is None)
    return buffer


def _is_shared(file: str) -> bool:
    return file.startswith(f"{FOLDER}/{PREFIX}")


class Joined:
    """A storage that opens what another buffer made.

    Attributes:
        file: Its file.
        takes_over: Whether this process goes on with it in the place of its creator.
        about: What it was built from.
    """

    def __init__(self, segment: Segment, about: About, takes_over: bool) -> None:
        self.file, self.takes_over = segment.path, takes_over
        self._segment, self.about = segment, about

    @property
    def address(self) -> str:
        """As in `Joint`."""
        return self.file

    def open(self, spec: Mapping[str, ArraySpec], wanted: bytes) -> _Memory:
        """As in `Storage`."""
        about = self.about
        whole = False
        if about.sampler is not None:
            sizes = (about.lanes, about.rows, about.steps)
            whole = wanted == identity(about.schema, *sizes, about.window, about.sampler)
        mine = self.takes_over and whole
        kept = about.ring_spec() | about.spec()
        if mine:
            kept |= {name: each for name, each in spec.items() if name.startswith("sampler/")}
        self._segment.typed(kept)
        own = {name: memory.zeros(each.shape, each.dtype) for name, each in spec.items() if name not in kept}
        return _Memory(self._segment, own, self.takes_over, not mine)


class _Memory:
    """Arrays of a segment, and a sampler's in this process's own memory, unless it takes over those that are there."""

    fresh = False

    def __init__(self, segment: Segment, own: Mapping[str, Array], may_add: bool, fresh_sampler: bool) -> None:
        self._segment, self._own, self.may_add, self.fresh_sampler = segment, own, may_add, fresh_sampler
        self.locks: Locks = segment.locks
        self.sync, self.close = segment.sync, segment.close

    def host(self, name: str) -> Array:
        """As in `Memory`."""
        return self._own[name] if name in self._own else self._segment.host(name)

    def announce(self, name: str, value: bytes) -> None:
        """The arrays are known already."""
