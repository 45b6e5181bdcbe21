"""What is imported where it is needed: optional packages, of which a missing one is named, and parts of relive."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from relive._base.forks import importing
from relive.errors import MissingExtra, message


@contextlib.contextmanager
def needs(extra: str, at: str) -> Iterator[None]:
    """Import optional packages inside this block.

    Args:
        extra: The extra of relive that installs them.
        at: What needs them.

    Raises:
        MissingExtra: One of them is not installed. A package that is installed but broken raises its own error.

    >>> with needs("cli", "relive"):
    ...     import no_such_package
    Traceback (most recent call last):
        ...
    relive.errors.MissingExtra: Expected the package `no_such_package`, got none - at `relive`: pip install ...
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise MissingExtra(message(f"the package `{package}`", "none", at, f"pip install 'relive[{extra}]'")) from error


def later(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package that loads some of its names when they are asked for.

    Args:
        package: The package's name.
        where: The modules that have these names, such as `.prioritized`.
    """

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module `{package}` has no attribute `{name}`", name=name, obj=sys.modules[package])
        with importing:
            value = getattr(importlib.import_module(where[name], package), name)
        setattr(sys.modules[package], name, value)  # so that it is asked for once
        return value

    return load
