"""Drawing from a buffer of another process, and going on with a mapped one."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from .._base import memory
from .._base.arrays import Locks
from .._base.generators import generator
from .._base.types import Array
from .._buffer.arguments import identity
from .._buffer.choices import Choices
from .._buffer.core import assemble
from ..buffer import ReplayBuffer
from ..checkpoints._saved_as import not_given
from ..items import Item
from ..samplers import Sampler
from ..storage import Storage
from ..storage._segment import CREATOR, Segment
from ..storage.mapped import Mapped
from ..storage.shared import FOLDER, PREFIX, Shared, require_native
from ._description import CHOICES, BufferDescription
from .joint import Joint
from .writer import attached, file_of


def open(  # `relive.open`, as `gzip.open`
    name: str | os.PathLike[str],
    *,
    item: Item | None = None,
    sampler: Sampler | None = None,
    seed: int | np.random.Generator | None = None,
) -> ReplayBuffer:
    """Open a `Shared` or `Mapped` buffer that another process made, or a `Mapped` one that no process has open.

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
        ArgumentError: A choice that does not fit, or one that has to be given, because no class is `saved_as` its name.

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
    about = BufferDescription.decoded(segment.raw(CHOICES), file)
    for what, ours, theirs in (("item", item, about.item), ("sampler", sampler, about.sampler)):
        if ours is None and theirs is None:
            raise not_given(what, about.unknown[what], f"open({what})", where="buffer")
    storage: Storage = Shared(file.removeprefix(f"{FOLDER}/{PREFIX}")) if _is_shared(file) else Mapped(file)
    takes_over = isinstance(storage, Mapped) and segment.locks.take(CREATOR)
    if not takes_over:
        require_native("open")
    item, sampler = about.item if item is None else item, about.sampler if sampler is None else sampler
    limiter = about.limiter if takes_over else None
    choices = Choices.checked(
        about.schema, about.lanes * about.steps, about.lanes, item, sampler, limiter, about.boundaries
    )
    access = Joint(_joined(segment, about, choices, takes_over), about)
    core = assemble(choices, storage, access.memory, access, generator(seed))
    if takes_over:
        rng, counts = access.kept()
        core.tally.restore(counts)
        if seed is None and rng is not None:
            core.tally.rng = rng
    return ReplayBuffer._of(core)


def _is_shared(file: str) -> bool:
    return file.startswith(f"{FOLDER}/{PREFIX}")


def _joined(segment: Segment, about: BufferDescription, choices: Choices, takes_over: bool) -> Joined:
    """The arrays of a segment, with a sampler's own where the segment has none for it."""
    whole = False
    if about.sampler is not None:
        whole = choices.identity == identity(
            about.schema, about.lanes, about.rows, about.steps, about.window, about.sampler
        )
    mine = takes_over and whole
    spec, kept = choices.spec(about.window, about.keeps), about.ring_spec() | about.spec()
    if mine:
        kept |= {name: each for name, each in spec.items() if name.startswith("sampler/")}
    segment.typed(kept)
    own = {name: memory.zeros(each.shape, each.dtype) for name, each in spec.items() if name not in kept}
    return Joined(segment, own, takes_over, not mine)


class Joined:
    """The arrays of a segment, and those of a sampler in this process's own memory; a `JointMemory`."""

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
