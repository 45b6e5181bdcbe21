"""What of a buffer is there for other processes, and how it ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

from .. import storage as storages
from .._base import forks
from .._base.arrays import Memory
from ..errors import ArgumentError, ReliveError, message

if TYPE_CHECKING:
    import numpy as np

    from ..processes._about import About
    from ..processes._link import Bound, Link
    from ..processes.writer import Writer
    from ..samplers import Index
    from ..storage import Storage
    from .adding import Adding
    from .turn import Turn

# What `close` lets go of.
_PARTS = ["_ring", "_index", "_prioritizing", "_try_update", "_expander", "_adding", "_add", "_extend", "_link"]
_PARTS += ["_of_sampler", "_bound", "_savers", "_calls", "_limit"]
_Self = TypeVar("_Self", bound="Shareable")


class _Absent:
    """Stands for a sampler that belongs to another process."""

    def __init__(self, process: int) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        wanted = f"process {self._process}, which made the buffer"
        remedy = "draw in a child process with `relive.open(name)`; adding is possible"
        raise ReliveError(message(wanted, f"its child {os.getpid()}", "ReplayBuffer", remedy))


# A buffer in this process's own memory loads nothing of `processes`.


def about_of(buffer: Any, rows: int, steps: int) -> About | None:
    """What other processes are to know of a buffer with lanes of that size; None where its storage has no others."""
    if type(buffer.storage) is storages.Ram or not isinstance(buffer.storage, storages.Joint):
        return None
    from ..processes._about import About

    known: About | None = getattr(buffer.storage, "about", None)
    if known is not None:
        return known
    window = buffer.item.window(buffer.schema)
    lanes, limiter = (buffer.num_envs, rows, steps, buffer.boundaries), buffer.limiter
    return About(buffer.schema, *lanes, window, buffer.item, buffer.sampler, limiter)


def link_of(memory: Memory, lanes: int) -> Link:
    """A buffer's tie to the other processes at `memory`."""
    from ..processes._link import Link

    return Link(memory, lanes)  # type: ignore[arg-type]  # what a `Joint` storage opens


def share(buffer: Any, about: About) -> Bound:
    """Let other processes open a buffer that is complete now."""
    from ..processes._link import Bound

    forks.tell(buffer)
    buffer._link.announce(about)
    return Bound(buffer._index, buffer._expander, buffer._ring, buffer.sampler.replacement)


class Shareable:
    """The part of `ReplayBuffer` that other processes take part in."""

    storage: Storage
    rng: np.random.Generator
    _adding: Adding
    _index: Index
    _turn: Turn
    _drawn: int
    _stale: int
    _updates: int
    _link: Link | None

    def writer(self, env_ids: Any = None) -> Writer:
        """A `relive.Writer` for another process: it can be pickled, and claims its lanes when it is first used there.

        Args:
            env_ids: Its lanes; None: all that are free then.

        Raises:
            ArgumentError: Other processes cannot open the buffer's storage, or `env_ids` are not distinct lanes.

        >>> import multiprocessing, relive
        >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
        >>> def act(writer):
        ...     with writer:
        ...         writer.add(obs=0.0, action=0.0, reward=1.0, next_obs=1.0, terminated=True, truncated=False)
        >>> with relive.ReplayBuffer(schema, 1000, num_envs=2, storage=relive.Shared()) as buffer:
        ...     process = multiprocessing.get_context("fork").Process(target=act, args=(buffer.writer([1]),))
        ...     process.start()
        ...     process.join()
        ...     buffer.sample(1).reward
        array([1.], dtype=float32)
        """
        from ..processes.writer import Writer
        from ..storage import Joint

        if not isinstance(self.storage, Joint):
            remedy = "build the buffer with `storage=relive.Shared(name)` or `relive.Mapped(path)`"
            raise ArgumentError(message("a storage of several processes", f"`{self.storage!r}`", "writer", remedy))
        lanes = None if env_ids is None else self._adding.lanes(env_ids).tolist()
        return Writer._later(self.storage.file, lanes)

    def sync(self) -> None:
        """Have a `Mapped` buffer's steps, priorities and generator written to the disk; nothing for other storages."""
        with self._turn.alone():
            if self._link is not None:
                self._index.refresh()
                self._link.keep(
                    self.rng, {"drawn": self._drawn, "updates": self._updates, "stale_updates": self._stale}
                )

    def close(self) -> None:
        """End the buffer: its memory is freed, a shared segment is removed, a mapped file is synced.

        Other processes that have a shared buffer open keep their memory of it until they close it, too. Further calls
        of this buffer raise a `ReliveError`, a second `close()` does nothing.
        """
        if "_ring" not in vars(self):
            return
        if self._link is not None and not self._link.forked:
            self.sync()
        forks.forget(self)
        with self._turn.alone():
            if self._link is not None:
                self._link.close()
            if self._limit is not None:
                self._limit.over = True
            for name in (*_PARTS, "add", "extend"):
                vars(self).pop(name, None)

    def _forked(self) -> None:
        """A child must not draw with the sampler of its parent, whose arrays both would write; it may add."""
        link = vars(self).get("_link")  # None of a buffer that another thread closes
        if link is not None and link.shares_sampler:
            absent = _Absent(os.getppid())
            vars(self).update(_index=absent, _prioritizing=absent, _try_update=None, can_sample=lambda _: False)
            link.forked = True
            if self._limit is not None:
                self._limit.present = link.present

    def _take_over(self, resume: bool) -> None:
        """Go on from what the last `sync` of another process knew; with its generator, if `resume`."""
        if self._link is None:
            return
        rng, counts = self._link.kept()
        self._drawn, self._stale = counts.get("drawn", 0), counts.get("stale_updates", 0)
        self._updates = counts.get("updates", 0)
        if resume and rng is not None:
            self.rng = rng

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in _PARTS and "_turn" in vars(self):
            raise ReliveError(message("an open buffer", "one that was closed", type(self).__name__))
        raise AttributeError(f"`{type(self).__name__}` has no attribute `{name}`")
