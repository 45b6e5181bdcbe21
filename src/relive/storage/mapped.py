"""A preallocated file."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .._base import check
from .._base.arrays import ArraySpec
from .._base.frozen import Frozen
from .._base.system import require_linux
from ._segment import Segment


class Mapped(Frozen):
    """Keep the steps in a file: more of them than fit in memory, and a kill of the process loses none.

    The system writes the file back as it sees fit; `buffer.sync()` and `close()` have it written. A later process goes
    on with `relive.open(path)`. Like those of a `Shared` buffer, its lanes can be written by other processes.

    Args:
        path: The file, which must not exist. All of its bytes are reserved when the buffer is built. Its owner alone
            may read it. It is never deleted by relive. It belongs on a local disk.

    Raises:
        ArgumentError: `path` is not a path, or the system is not Linux.

    A loss of power may tear what was not synced; `ReplayBuffer.save` is what survives that.

    >>> import os, relive, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "ring")
    >>> schema = relive.Schema(obs=relive.Field((3,)), action=relive.Field())
    >>> step = dict(obs=[0.0] * 3, action=0.0, reward=1.0, next_obs=[1.0] * 3, terminated=False, truncated=False)
    >>> with relive.ReplayBuffer(schema, 1000, storage=relive.Mapped(path)) as buffer:
    ...     ids = buffer.add(**step)
    >>> with relive.open(path) as buffer:
    ...     len(buffer), buffer.add(**step).tolist()
    (1, [2])
    """

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", os.path.abspath(check.path(self.path, "Mapped(path)")))

    @property
    def address(self) -> str:
        """The address for `relive.Writer` and `relive.open`: the path."""
        return str(self.path)

    @property
    def file(self) -> str:
        """The file."""
        return str(self.path)

    def open(self, spec: Mapping[str, ArraySpec], identity: bytes) -> Segment:
        """Return zeroed arrays for every name of `spec`; see `Storage.open`."""
        require_linux("Mapped")
        remedy = "open that buffer with `relive.open(path)`, or delete the file"
        return Segment.create(self.file, spec, identity, remedy)
