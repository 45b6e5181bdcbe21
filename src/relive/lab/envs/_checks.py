"""Checks shared by the environment's parts: arguments in relive's error grammar, and optional dependencies."""

from __future__ import annotations

import importlib
import math
import numbers
from typing import Any

from relive.errors import ArgumentError, MissingExtra, message

ENV = "PairsTrading-v0"


def refuse(expected: str, got: object, name: str, remedy: str | None = None) -> ArgumentError:
    """Build the error for argument `name` of the environment; the caller raises it."""
    return ArgumentError(message(expected, f"`{got!r}`", f"{ENV}({name})", remedy))


def check_number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, above: bool = False, below: bool = False
) -> None:
    """Refuse anything but a finite number in [low, high]; `above` / `below` leave the ends out.

    Raises:
        ArgumentError: not a number (booleans are not), not finite, or outside the interval.
    """
    left, right = "(" if above or low == -math.inf else "[", ")" if below or high == math.inf else "]"
    legal = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if legal:
        legal = (value > low if above else value >= low) and (value < high if below else value <= high)
    if not legal:
        raise refuse(f"a finite number in {left}{low:g}, {high:g}{right}", value, name)


def check_count(name: str, value: Any, low: int) -> None:
    """Refuse anything but an integer of at least `low`.

    Raises:
        ArgumentError: not an integer (booleans are not), or too small.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < low:
        raise refuse(f"an integer of at least {low}", value, name)


def check_interval(name: str, value: Any, low: float) -> None:
    """Refuse anything but an ordered pair of finite numbers, `low` <= first <= second.

    Raises:
        ArgumentError: not two numbers, not finite, too small, or in the wrong order.
    """
    try:
        first, second = value
    except (TypeError, ValueError):
        raise refuse("two numbers, the smaller first", value, name) from None
    check_number(name, first, low)
    check_number(name, second, low)
    if second < first:
        raise refuse("two numbers, the smaller first", value, name)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse anything but one of the words in `choices`.

    Raises:
        ArgumentError: any other value.
    """
    if not isinstance(value, str) or value not in choices:
        raise refuse("one of " + ", ".join(f"`{choice}`" for choice in choices), value, name)


def require(module: str, extra: str, at: str) -> Any:
    """Import an optional dependency when the part that needs it is used.

    Raises:
        MissingExtra: the package is not installed; the message names the command that installs it.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A broken installation of the package itself must show its own traceback.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        text = message(f"the package `{package}`", "no such module", at, f"pip install 'relive[{extra}]'")
        raise MissingExtra(text) from error
