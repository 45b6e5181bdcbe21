"""Optional packages: imported where they are needed; a missing one is named, with the command that installs it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from relive.errors import MissingExtra, message


@contextlib.contextmanager
def needs(extra: str, at: str) -> Iterator[None]:
    """Import optional packages inside this block.

    Args:
        extra: The extra of relive that installs them.
        at: What needs them.

    Raises:
        MissingExtra: One of them is not installed. A package that is installed but broken raises its own error.

    >>> with needs("train", "relive.lab"):
    ...     import no_such_package
    Traceback (most recent call last):
        ...
    relive.errors.MissingExtra: Expected the package `no_such_package`, got none - at `relive.lab`: pip install ...
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise MissingExtra(message(f"the package `{package}`", "none", at, f"pip install 'relive[{extra}]'")) from error
