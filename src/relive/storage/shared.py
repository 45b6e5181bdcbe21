"""Memory that processes of one machine share."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path

from .._base import forks
from .._base.arrays import ArraySpec
from .._base.frozen import Frozen
from .._base.system import require_linux
from .._ring import kernels
from ..errors import ArgumentError, message
from ._segment import Segment

FOLDER, PREFIX = "/dev/shm", "relive-"
_IN_USE = "choose another name, draw from that buffer with `relive.open(name)`, or remove what a killed process left "
_IN_USE += "with `relive shm clean`"


class Shared(Frozen):
    """Keep the steps in shared memory, where processes of this machine add to them and draw from them.

    This process draws; others add to lanes of their own through `relive.Writer(name)`, and more of them may draw
    through `relive.open(name)`. No process waits for a lock of another, and a process that dies in the middle of a step
    leaves nothing half written that could be drawn.

    Args:
        name: Letters, digits, `.`, `_` and `-`; no two buffers of a machine share it at a time. None: a random one.

    All bytes are reserved when the buffer is built. They are freed when it is closed or dropped, and when its process
    ends, however it ends.

    Raises:
        ArgumentError: Another kind of name, another system than Linux, or the NumPy kernels, which cannot order what
            processes see.

    >>> import relive
    >>> schema = relive.Schema(obs=relive.Field((3,)), action=relive.Field())
    >>> with relive.ReplayBuffer(schema, 1000, num_envs=2, storage=relive.Shared()) as buffer:
    ...     with relive.Writer(buffer.storage.name, env_ids=[1]) as writer:
    ...         ids = writer.add(
    ...             obs=[0] * 3, action=0, reward=1, next_obs=[1] * 3, terminated=False, truncated=False
    ...         )
    ...     ids.tolist(), len(buffer)
    ([1], 1)
    """

    name: str | None = None

    def __post_init__(self) -> None:
        name = f"{os.getpid()}-{os.urandom(6).hex()}" if self.name is None else self.name
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", name):
            wanted = "a name of letters, digits, `.`, `_` and `-`"
            raise ArgumentError(message(wanted, f"`{self.name!r}`", "Shared(name)"))
        object.__setattr__(self, "name", name)

    @property
    def address(self) -> str:
        """The address for `relive.Writer` and `relive.open`: the name."""
        return str(self.name)

    @property
    def file(self) -> str:
        """The segment's file."""
        return f"{FOLDER}/{PREFIX}{self.name}"

    def open(self, spec: Mapping[str, ArraySpec], identity: bytes) -> Segment:
        """Return zeroed arrays for every name of `spec`; see `Storage.open`."""
        require_linux("Shared")
        require_native("Shared")
        made = Segment.create(self.file, spec, identity, _IN_USE)
        _clean_up(made)
        return made


def require_native(at: str) -> None:
    """Refuse to share a ring with other processes on the NumPy kernels.

    Raises:
        ArgumentError: The native kernels are not there.
    """
    if not kernels.is_native():
        remedy = "install relive where a C++ compiler is, and unset RELIVE_KERNELS"
        raise ArgumentError(message("the native kernels, which publish steps in order", "those of NumPy", at, remedy))


def segments() -> list[str]:
    """List the files of all shared buffers of this machine, of every user."""
    with contextlib.suppress(OSError):
        return sorted(str(path) for path in Path(FOLDER).iterdir() if is_segment(str(path)) and not path.is_dir())
    return []


def is_segment(file: str) -> bool:
    """Return True if a shared buffer's file could have this absolute path."""
    return os.path.dirname(file) == FOLDER and os.path.basename(file).startswith(PREFIX)


def _clean_up(segment: Segment) -> None:
    """Remove the file of `segment` when that is gone, or this process is."""
    file = f"{os.stat(segment.path).st_ino} {segment.path}"
    _Sweeper.of_this_process().tell(f"+ {file}")
    segment.removal = weakref.finalize(segment, _remove, file, os.getpid())


def _remove(file: str, owner: int) -> None:
    if os.getpid() != owner:  # a forked child's copy
        return
    inode, _, path = file.partition(" ")
    with contextlib.suppress(OSError):
        if os.stat(path, follow_symlinks=False).st_ino == int(inode):
            os.unlink(path)
    _Sweeper.of_this_process().tell(f"- {file}")


class _Sweeper:
    """A process that removes what this one leaves behind when it is killed.

    Not `multiprocessing.resource_tracker`: child processes have its pipe, too, so it waits for the last of them.
    """

    _running: _Sweeper | None = None

    def __init__(self) -> None:
        import socket

        theirs, ours = socket.socketpair()  # not a pipe: writing to one that is gone can end this process
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_sweep.py"))]
        with theirs, ours:
            standard = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
            child = os.posix_spawn(command[0], command, os.environ, file_actions=standard, setsid=True)
            # Its end is that of the process: Python would say of a socket that nobody has closed it.
            self._fd = ours.detach()
        # Its own child does the work: this process must not have one that it knows nothing of.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        forks.tell(self)

    @classmethod
    def of_this_process(cls) -> _Sweeper:
        if cls._running is None:
            cls._running = cls()
        return cls._running

    def tell(self, line: str) -> None:
        import socket

        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, fileno=self._fd) as whole:
            try:
                whole.sendall(f"{line}\n".encode(), socket.MSG_NOSIGNAL)
            finally:
                whole.detach()

    def _forked(self) -> None:
        """Close the pipe in a child, so that it does not keep its parent's sweeper waiting."""
        with contextlib.suppress(OSError):
            os.close(self._fd)
        _Sweeper._running = None
