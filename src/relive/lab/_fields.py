"""Checks of the fields of frozen dataclasses; legal values are stored as plain Python values."""

from __future__ import annotations

import math
from typing import Any

from relive._base import check
from relive.errors import ArgumentError, message


class Fields:
    """Checks the fields of one object.

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
            self._store(field, check.integer(getattr(self._owner, field), self.at(field), minimum=minimum))

    def numbers(self, *fields: str, low: float = -math.inf, high: float = math.inf, **ends: float) -> None:
        """Refuse all but finite numbers from `low` to `high`, or between `above` and `below`, which are left out."""
        for field in fields:
            self._store(field, check.real(getattr(self._owner, field), self.at(field), low=low, high=high, **ends))

    def flags(self, *fields: str) -> None:
        """Refuse all but True and False."""
        for field in fields:
            check.flag(getattr(self._owner, field), self.at(field))

    def choice(self, field: str, *choices: str) -> None:
        """Refuse all but one of `choices`."""
        check.one_of(getattr(self._owner, field), choices, self.at(field))

    def widths(self, field: str, *, none_too: bool = False) -> None:
        """Refuse all but positive widths of layers; with `none_too` an empty tuple is legal."""
        sizes: Any = getattr(self._owner, field)
        try:
            plain = tuple(check.integer(size, self.at(field), minimum=1) for size in sizes)
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
        plain = tuple(check.real(value, self.at(field), low=low) for value in (first, second))
        if plain[1] < plain[0]:
            raise self.refusal(field, "two numbers, the smaller first")
        self._store(field, plain)

    def _store(self, field: str, value: object) -> None:
        object.__setattr__(self._owner, field, value)
