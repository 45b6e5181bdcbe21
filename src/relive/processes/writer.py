"""Adding to a buffer of another process."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .._base import forks
from .._base.check import lanes_of
from .._base.forks import importing
from .._base.system import require_linux
from .._base.types import Int64
from .._buffer.adding import Adding
from .._buffer.notices import Notices
from .._buffer.wiring import ring_of
from .._flow.call_lock import CallLock
from .._flow.limit import Limit
from .._ring.lanes import STEPS
from ..errors import ArgumentError, BufferClosed, ReliveError, StorageError, message
from ..storage import Joint, Storage
from ..storage.mapped import Mapped
from ..storage.shared import Shared, require_native
from ._description import CHOICES, BufferDescription
from .joint import JointAccess

if TYPE_CHECKING:
    from .._flow.limiter import RateLimiter
    from ..schema import Schema

_Self = TypeVar("_Self", bound="Writer")


class Writer:
    """Adds to some lanes of a `Shared` or `Mapped` buffer of another process.

    Args:
        name: The buffer's name, or the path of its file.
        env_ids: The lanes to claim; None: all that are free.

    Attributes:
        schema: The fields of a step.
        env_ids: The lanes, in the order in which `add` takes their steps.
        gaps: How often steps were lost on their way: never, unlike those of a writer to shards.

    No other writer can have the lanes until this one is closed, or its process ends. A lane with an earlier writer
    is cut: its last step can be drawn, and no item runs from it into the new writer's steps. Priorities that are given
    with `add(..., priority=...)` are kept for readers that draw by priority.

    Raises:
        StorageError: There is no such buffer, or the file is not one.
        ArgumentError: Another writer has one of the lanes, or none is free.

    >>> import relive
    >>> schema = relive.Schema(obs=relive.Field((2,)), action=relive.Field())
    >>> buffer = relive.ReplayBuffer(schema, 1000, num_envs=3, storage=relive.Shared("writers-example"))
    >>> with relive.Writer("writers-example", env_ids=[0, 2]) as writer:
    ...     ids = writer.add(
    ...         obs=[[0, 0], [1, 1]], action=[0, 0], reward=[1, 1], next_obs=[[1, 1], [2, 2]],
    ...         terminated=[False, False], truncated=[False, False],
    ...     )
    >>> ids.tolist(), len(buffer)
    ([0, 2], 2)
    >>> buffer.close()
    """

    gaps = 0

    def __init__(self, name: str | os.PathLike[str], env_ids: Any = None) -> None:
        self._begin(file_of(name), env_ids)
        self._open()

    @classmethod
    def _later(cls, file: str, env_ids: Any) -> Writer:
        """Make a writer that claims its lanes on its first use."""
        made = cls.__new__(cls)
        made._begin(file, env_ids)
        return made

    def _begin(self, file: str, env_ids: Any) -> None:
        self._file, self._wanted = file, env_ids
        self._opened: _Opened | None = None
        self._closed = False
        self._opening = threading.Lock()
        forks.tell(self)

    def _forked(self) -> None:
        """Start afresh in a child: no thread is about to claim lanes."""
        self._opening = threading.Lock()

    @property
    def schema(self) -> Schema:
        """The schema of a step."""
        return self._open().about.schema

    @property
    def limiter(self) -> RateLimiter | None:
        """The rules by which it waits; None: it never does."""
        return self._open().about.limiter

    @property
    def env_ids(self) -> tuple[int, ...]:
        """The lanes, in the order in which `add` takes their steps."""
        return tuple(self._open().lanes.tolist())

    @property
    def num_envs(self) -> int:
        """The number of lanes that it writes. Lanes given by number are not claimed for this."""
        return len(self._open().lanes if self._wanted is None or self._opened else self._wanted)

    def add(self, *, env_ids: Any = None, **step: Any) -> Int64:
        """Add one step of each of the writer's lanes, or of `env_ids` among them; see `ReplayBuffer.add`."""
        opened = self._opened or self._open()
        return opened.add(env_ids=opened.default if env_ids is None else env_ids, **step)

    def extend(self, *, env_ids: Any = None, **steps: Any) -> Int64:
        """Add several steps of each of the writer's lanes, or of `env_ids` among them; see `ReplayBuffer.extend`."""
        opened = self._opened or self._open()
        return opened.extend(env_ids=opened.default if env_ids is None else env_ids, **steps)

    def cut(self, env_ids: Any = None) -> None:
        """End the streams of the writer's lanes, or of `env_ids` among them; see `ReplayBuffer.cut`."""
        opened = self._open()
        opened.adding.cut(opened.lanes if env_ids is None else opened.adding.lanes(env_ids))

    def lane_steps(self) -> Int64:
        """Return the steps ever given to each of the writer's lanes, int64 `[L]`, in the order of `env_ids`.

        Items of `Sequences(starts=k)` start at the steps whose number in their lane is a multiple of k.
        """
        opened = self._open()
        return np.asarray(opened.counters[opened.lanes, STEPS])

    def close(self) -> None:
        """Give the lanes back. A second call does nothing; others raise a `ReliveError`."""
        opened, self._opened, self._closed = self._opened, None, True
        if opened is not None:
            if opened.limit is not None:
                opened.limit.over = True
            opened.access.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_opened", None) is not None:
            self.close()

    def __reduce__(self) -> Any:
        if self._opened is not None:
            remedy = "send a new one, `buffer.writer(env_ids)`, and use it where it arrives"
            raise ReliveError(message("a writer that has not claimed its lanes", f"`{self!r}`", "pickle", remedy))
        return Writer._later, (self._file, self._wanted)

    def __repr__(self) -> str:
        lanes = "closed" if self._closed else f"env_ids={self._wanted if self._opened is None else self.env_ids}"
        return f"Writer({self._file!r}, {lanes})"

    def _open(self) -> _Opened:
        with self._opening:
            if self._closed:
                raise BufferClosed(message("an open writer", "one that was closed", "Writer"))
            if self._opened is None:
                self._opened = _Opened(self._file, self._wanted)
            return self._opened


class _Opened:
    """A writer that has its lanes."""

    def __init__(self, file: str, wanted: Any) -> None:
        segment = attached(file)
        require_native("Writer")
        self.about = about = BufferDescription.decoded(segment.raw(CHOICES), file)
        segment.typed(about.ring_spec() | about.spec())
        self.access = access = JointAccess(segment, about)
        lock = CallLock()
        notices = Notices(lock)
        ring = ring_of(about.schema, about.rows, about.steps, segment, access, notices)
        claims = access.bind(ring)
        if wanted is None:
            self.lanes = claims.take_free()
        else:
            self.lanes = lanes_of(wanted, ring.lanes)
            claims.before(self.lanes)
        if not len(self.lanes):
            remedy = "close a writer, or make the buffer with more lanes (`num_envs`)"
            raise ArgumentError(message("a free lane", f"none of {ring.lanes}", file, remedy))
        claims.confine(self.lanes)
        self.counters = ring.counters
        self.adding = Adding(about.schema, ring, _take_nothing_in, None, notices, lock, claims)
        if access.hold is not None:
            self.adding.watch(access.hold)
        self.limit: Limit | None = None
        if about.limiter is not None:
            self.limit = Limit(about.limiter, ring.counters, segment, access.present)
        self.add, self.extend = self.adding.call(False, self.limit), self.adding.call(True, self.limit)
        self.default = None if len(self.lanes) == ring.lanes and (np.diff(self.lanes) == 1).all() else self.lanes


def writer_of(storage: Storage, lanes: list[int] | None) -> Writer:
    """Implement `ReplayBuffer.writer` for a buffer in `storage`."""
    if not isinstance(storage, Joint):
        remedy = "build the buffer with `storage=relive.Shared(name)` or `relive.Mapped(path)`"
        raise ArgumentError(message("a storage of several processes", f"`{storage!r}`", "writer", remedy))
    return Writer._later(storage.file, lanes)


def _take_nothing_in() -> int:
    """Return 0, as the `refresh` of a writer, which has no sampler."""
    return 0


def file_of(name: str | os.PathLike[str]) -> str:
    """Return the file of a buffer, given its name or its path: a path has a slash, or is no text."""
    if isinstance(name, str) and "/" not in name:
        shared = Shared(name)
        if os.path.exists(shared.file) or not os.path.exists(name):
            return shared.file
    return str(Mapped(name).path)


def attached(file: str) -> Any:
    """Attach to the segment in a file."""
    require_linux(file)
    with importing:
        from ..storage._segment import Segment

    if os.path.isdir(file):
        remedy = "a save is loaded by `relive.load`"
        raise StorageError(message("a shared or mapped buffer", "a directory", file, remedy))
    return Segment.attach(
        file, "make it with `ReplayBuffer(..., storage=relive.Shared(name))`, or `relive.Mapped(path)`"
    )
