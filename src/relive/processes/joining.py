"""Drawing from a buffer of another process, and going on with a mapped one."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from .._base import memory
from .._base.arrays import Locks
from .._base.check import generator
from .._base.types import Array
from .._buffer.arguments import identity
from .._buffer.choices import Choices
from .._buffer.core import Core
from .._buffer.saved_as import not_given
from .._buffer.wiring import assemble
from ..items import Item
from ..samplers import Sampler
from ..storage import Storage
from ..storage._segment import CREATOR, Segment
from ..storage.mapped import Mapped
from ..storage.shared import FOLDER, PREFIX, Shared, is_segment, require_native
from ._description import CHOICES, BufferDescription
from .joint import JointAccess
from .writer import attached, file_of


def joined(
    name: str | os.PathLike[str],
    item: Item | None,
    sampler: Sampler | None,
    seed: int | np.random.Generator | None,
) -> Core:
    """Wire the core of a buffer that another process made; the arguments are those of `relive.open`."""
    file = file_of(name)
    segment = attached(file)
    about = BufferDescription.decoded(segment.raw(CHOICES), file)
    for what, ours, theirs in (("item", item, about.item), ("sampler", sampler, about.sampler)):
        if ours is None and theirs is None:
            raise not_given(what, about.unknown[what], f"open({what})", where="buffer")
    storage: Storage = Shared(file.removeprefix(f"{FOLDER}/{PREFIX}")) if is_segment(file) else Mapped(file)
    takes_over = isinstance(storage, Mapped) and segment.locks.take(CREATOR)
    if not takes_over:
        require_native("open")
    item, sampler = about.item if item is None else item, about.sampler if sampler is None else sampler
    limiter = about.limiter if takes_over else None
    choices = Choices.checked(
        about.schema, about.lanes * about.steps, about.lanes, item, sampler, limiter, about.boundaries
    )
    access = JointAccess(_joined(segment, about, choices, takes_over), about)
    core = assemble(choices, storage, access.memory, access, generator(seed))
    if takes_over:
        rng, counts = access.kept()
        core.tally.restore(counts)
        if seed is None and rng is not None:
            core.tally.rng = rng
    return core


def _joined(segment: Segment, about: BufferDescription, choices: Choices, takes_over: bool) -> Joined:
    """Join the arrays of a segment with a sampler's own, if the segment has none for it."""
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
        """Return the array that was asked for as `name`."""
        return self._own[name] if name in self._own else self._segment.host(name)

    def announce(self, name: str, value: bytes) -> None:
        """Do nothing: the arrays are known already."""
