"""Arrays that an adapter hands out as copies: read-only, with an error that names the call that writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._base.types import Array
from ..errors import ArgumentError, message

Write = Callable[[Any, Any], bool]


def no_assignment(at: str, written: str | None) -> ArgumentError:
    """Compose the error of an assignment to a copy.

    Args:
        at: The name of the copy.
        written: What makes a buffer whose rewards `relive.write` may change; None: nothing of it can be written.
    """
    remedy = "steps come in by `add`, and stay as they are"
    if written is not None:
        remedy = f"`buffer.relive.write(ids, reward=...)` changes stored rewards, in a buffer of {written}"
    return ArgumentError(message("no assignment to a copy of what is stored", "one", at, remedy))


class ReadOnly(np.ndarray[Any, Any]):
    """A read-only array whose slices are read-only, too, and whose computed results are plain arrays."""

    _at = "copy"
    _written: str | None = None
    _write: Write | None = None

    @classmethod
    def of(cls, array: Array, at: str, written: str | None = None, write: Write | None = None) -> ReadOnly:
        """Make an array read-only.

        Args:
            array: A new array.
            at: Its name in errors.
            written: As in `no_assignment`.
            write: Called with key and value of an assignment to the array itself; True: it has been dealt with.
        """
        array.flags.writeable = False
        found = array.view(cls)
        found._at, found._written, found._write = at, written, write
        return found

    def __array_finalize__(self, source: Any) -> None:
        self._at, self._written = getattr(source, "_at", ReadOnly._at), getattr(source, "_written", None)

    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **kwargs: Any) -> Any:
        for target in (*(kwargs.get("out") or ()), *(inputs[:1] if method == "at" else ())):
            if isinstance(target, ReadOnly):
                target._check()
        if "out" in kwargs:
            kwargs["out"] = tuple(map(_plain, kwargs["out"]))
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def _check(self) -> None:
        if not self.flags.writeable:
            raise no_assignment(self._at, self._written)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._write is None or not self._write(key, value):
            self._check()
            super().__setitem__(key, value)

    def fill(self, value: Any) -> None:
        """Refuse it, as every assignment to a copy."""
        self._check()
        super().fill(value)

    def put(self, *arguments: Any, **choices: Any) -> None:
        """Refuse it, likewise."""
        self._check()
        super().put(*arguments, **choices)

    def sort(self, *arguments: Any, **choices: Any) -> None:
        """Refuse it, likewise."""
        self._check()
        super().sort(*arguments, **choices)

    def partition(self, *arguments: Any, **choices: Any) -> None:
        """Refuse it, likewise."""
        self._check()
        super().partition(*arguments, **choices)


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, ReadOnly) else value
