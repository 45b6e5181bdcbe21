"""Checks of settings and arguments; legal values are stored as plain Python values."""

from __future__ import annotations

import contextlib
import math
import operator
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from relive.errors import ArgumentError, MissingExtra, message


def integer(value: object, at: str, minimum: int) -> int:
    """Return an integer of at least `minimum` as an int; anything else is an ArgumentError."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < minimum:
        raise ArgumentError(message(f"an integer >= {minimum}", f"`{value!r}`", at))
    return number


def real(value: object, at: str, low: float = -math.inf, high: float = math.inf, **ends: float) -> float:
    """Return a finite number from `low` to `high`, or between `above` and `below`, as a float."""
    above, below = ends.get("above"), ends.get("below")
    wanted = "a finite number"
    wanted += f" > {above:g}" if above is not None else f" >= {low:g}" if low != -math.inf else ""
    wanted += f" and < {below:g}" if below is not None else f" and <= {high:g}" if high != math.inf else ""
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    inside = low <= number <= high and (above is None or number > above) and (below is None or number < below)
    if not (math.isfinite(number) and inside):
        raise ArgumentError(message(wanted, f"`{value!r}`", at))
    return number


def flag(value: object, at: str) -> None:
    """Refuse all but True and False."""
    if not isinstance(value, bool):
        raise ArgumentError(message("`True` or `False`", f"`{value!r}`", at))


def one_of(value: object, choices: Sequence[str], at: str) -> None:
    """Refuse all but one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(message("one of " + ", ".join(f"`{name!r}`" for name in choices), f"`{value!r}`", at))


def path(value: object, at: str) -> str:
    """Return a path as text; an empty one is an ArgumentError."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ArgumentError(message("a path", f"`{value!r}`", at))
    return text


@contextlib.contextmanager
def needs(extra: str, at: str) -> Iterator[None]:
    """Import optional packages inside this block; a missing one is a MissingExtra that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        remedy = f"pip install 'relive-lab[{extra}]'"
        raise MissingExtra(message(f"the package `{package}`", "none", at, remedy)) from error


def seconds_of(text: str) -> float | None:
    """Return the seconds of a time such as `1s`, `2.5min` or `1h`; None where it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h)", text)
    return None if found is None else float(found[1]) * {"s": 1.0, "min": 60.0, "h": 3600.0}[found[2]]


class Fields:
    """Checks the fields of one frozen dataclass.

    Args:
        owner: The object; NumPy's numbers in its fields become Python's, which JSON can write.
        name: What messages call it; None takes the name of its class.
    """

    def __init__(self, owner: Any, name: str | None = None) -> None:
        self._owner, self._name = owner, name or type(owner).__name__

    def at(self, field: str) -> str:
        """Return what a message calls a field."""
        return f"{self._name}({field})"

    def refusal(self, field: str, expected: str, remedy: str | None = None) -> ArgumentError:
        """Return the error that says what a field must be."""
        return ArgumentError(message(expected, f"`{getattr(self._owner, field)!r}`", self.at(field), remedy))

    def integers(self, *fields: str, minimum: int) -> None:
        """Refuse all but integers of at least `minimum`."""
        for field in fields:
            self._store(field, integer(getattr(self._owner, field), self.at(field), minimum))

    def numbers(self, *fields: str, low: float = -math.inf, high: float = math.inf, **ends: float) -> None:
        """Refuse all but finite numbers from `low` to `high`, or between `above` and `below`, which are left out."""
        for field in fields:
            self._store(field, real(getattr(self._owner, field), self.at(field), low, high, **ends))

    def rhythm(self, field: str) -> None:
        """Refuse all but a number of steps of at least 0, and a time of at least 0.1 s."""
        given = getattr(self._owner, field)
        if not isinstance(given, str):
            self.integers(field, minimum=0)
        elif (seconds_of(given) or 0.0) < 0.1:
            raise self.refusal(field, "a number of steps, or a time such as `1s`, `30s` or `5min`")

    def flags(self, *fields: str) -> None:
        """Refuse all but True and False."""
        for field in fields:
            flag(getattr(self._owner, field), self.at(field))

    def choice(self, field: str, *choices: str) -> None:
        """Refuse all but one of `choices`."""
        one_of(getattr(self._owner, field), choices, self.at(field))

    def widths(self, field: str, *, none_too: bool = False) -> None:
        """Refuse all but positive widths of layers; with `none_too` an empty tuple is legal."""
        sizes: Any = getattr(self._owner, field)
        try:
            plain = tuple(integer(size, self.at(field), 1) for size in sizes)
        except (ArgumentError, TypeError):
            plain = None
        if plain is None or not (plain or none_too):
            raise self.refusal(field, "one positive width for each hidden layer")
        self._store(field, plain)

    def pair(self, field: str, low: float) -> None:
        """Refuse all but two finite numbers of at least `low`, the smaller first."""
        try:
            first, second = getattr(self._owner, field)
        except (TypeError, ValueError):
            raise self.refusal(field, "two numbers, the smaller first") from None
        plain = tuple(real(value, self.at(field), low) for value in (first, second))
        if plain[1] < plain[0]:
            raise self.refusal(field, "two numbers, the smaller first")
        self._store(field, plain)

    def _store(self, field: str, value: object) -> None:
        object.__setattr__(self._owner, field, value)
