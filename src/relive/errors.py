"""The exceptions relive raises, and the two forms of their messages.

A wrong value reads ``Expected <what>, got <what> - at `<path>`: <remedy>``. The path says which argument is meant:
`obs.camera` inside the data of a call, `ReplayBuffer.sample` for a method, `Prioritized(alpha)`
for a constructor's argument. A refused call has changed nothing. An event (a recovery, a full disk, a damaged file)
reads ``<what happened> - at `<path>`: <remedy>``; its path is usually that of a file or directory.
"""

from __future__ import annotations


class ReliveError(Exception):
    """Base class of everything relive raises on purpose."""


class SchemaError(ReliveError, ValueError):
    """Data that does not fit the schema: a missing or unknown field, a wrong shape or dtype."""


class ArgumentError(ReliveError, ValueError):
    """An argument outside its legal values, or a combination of choices that makes no sense."""


class PriorityError(ReliveError, ValueError):
    """A priority or TD error that is NaN, infinite, negative where that is forbidden, or of the wrong length."""


class BufferClosed(ReliveError):
    """A call of a buffer or a writer that was closed, or whose maker is gone: for an actor, the end of the run."""


class NotEnoughData(ReliveError, RuntimeError):
    """A draw that the stored steps cannot serve yet."""


class RateLimitTimeout(ReliveError, TimeoutError):
    """A wait for a limiter that took longer than its `timeout`; nothing was added or drawn."""


class StaleId(ReliveError, LookupError):
    """An id whose item cannot be drawn: overwritten, dropped by a cut, not complete yet, or never issued."""


class StorageError(ReliveError, OSError):
    """A directory or a file that cannot be used: damaged, of another kind, in use by another writer, or full."""


class MissingSave(StorageError, FileNotFoundError):
    """A save, or a file of a buffer, that is not there."""


class CorruptionError(StorageError):
    """A file whose contents are not those that were written; the message names the file, and where in it."""


class MissingExtra(ReliveError, ImportError):
    """An optional dependency is not installed; the message names the command that installs it."""


class ReliveWarning(UserWarning):
    """Something legal that is probably not what was meant; given once of each kind per buffer."""


def message(expected: str, got: str, at: str, remedy: str | None = None) -> str:
    """Compose a message about a wrong value.

    >>> print(message("`float32` of shape `(3,)`", "`int64` of shape `(4,)`", "$.obs"))
    Expected `float32` of shape `(3,)`, got `int64` of shape `(4,)` - at `obs`
    """
    return event(f"Expected {expected}, got {got}", at, remedy)


def event(what: str, at: str, remedy: str | None = None) -> str:
    """Compose a message that says what happened, and what can be done or was done about it.

    >>> print(event("Could not write the file (No space left on device)", "runs/a", "free space, then call `flush()`"))
    Could not write the file (No space left on device) - at `runs/a`: free space, then call `flush()`
    """
    text = f"{what} - at `{at.removeprefix('$.')}`"
    return f"{text}: {remedy}" if remedy else text
