"""Several processes at one buffer: who writes which lane, what a draw may trust, writers, further readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import storage as storages
from .._arrays import Memory

if TYPE_CHECKING:
    from ._about import About
    from ._link import Bound, Link

# A buffer in this process's own memory loads none of this.


def about_of(buffer: Any, rows: int) -> About | None:
    """What other processes are to know of a buffer with `rows` rows a lane; None where its storage has no others."""
    if type(buffer.storage) is storages.Ram or not isinstance(buffer.storage, storages.Joint):
        return None
    from ._about import About

    known: About | None = getattr(buffer.storage, "about", None)
    if known is not None:
        return known
    window = buffer.item.window(buffer.schema)
    return About(buffer.schema, buffer.num_envs, rows, window, buffer.item, buffer.sampler)


def link_of(memory: Memory, lanes: int) -> Link:
    """A buffer's tie to the other processes at `memory`."""
    from ._link import Link

    return Link(memory, lanes)  # type: ignore[arg-type]  # what a `Joint` storage opens


def share(buffer: Any, about: About) -> Bound:
    """Let other processes open a buffer that is complete now."""
    from ._link import Bound
    from ._shareable import _joint

    _joint.add(buffer)
    buffer._link.announce(about)
    view = buffer._link.view
    take_in = None if view is None else view.take_in
    return Bound(buffer._index, buffer._expander, buffer._ring, buffer.sampler.replacement, take_in)
