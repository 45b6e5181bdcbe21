"""Checks of plain arguments, so that every constructor and method refuses in the same words."""

from __future__ import annotations

import contextlib
import math
import operator
import os
from collections.abc import Iterable
from itertools import chain
from typing import TypeGuard

import numpy as np

from ..errors import ArgumentError, ReliveError, message
from .types import Array, Bool, Float64

_DEEPEST = 64  # lists in lists that NumPy takes for an array


def integer(value: object, at: str, *, minimum: int | None = None, unbounded: bool = False) -> int:
    """Return `value` as an int that 64 bits can hold; a bool, a float or anything below `minimum` is refused.

    `unbounded` is for seeds, which may have 128 bits and more.
    """
    wanted = "an integer" if minimum is None else f"an integer >= {minimum}"
    if isinstance(value, np.ndarray):
        unmasked(value, at, ArgumentError)
    try:
        number = None if isinstance(value, bool) else int(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or (minimum is not None and number < minimum):
        raise ArgumentError(message(wanted, f"`{value!r}`", at))
    if number >= 2**63 and not unbounded:
        raise ArgumentError(message(f"{wanted}{' and' if minimum is not None else ''} < 2**63", f"`{number}`", at))
    return number


def real(
    value: object,
    at: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """Return `value` as a finite float in `[low, high]`, `> above` and `< below` where these are given."""
    wanted = "a finite number"
    if above is not None:
        wanted += f" > {above:g}"
    elif low != -math.inf:
        wanted += f" >= {low:g}"
    if below is not None:
        wanted += f" and < {below:g}"
    elif high != math.inf:
        wanted += f" and <= {high:g}"
    if isinstance(value, np.ndarray):
        unmasked(value, at, ArgumentError)
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    inside = low <= number <= high and (above is None or number > above) and (below is None or number < below)
    if not (math.isfinite(number) and inside):
        raise ArgumentError(message(wanted, f"`{value!r}`", at))
    return number


def path(value: object, at: str) -> str:
    """Return `value`, text or a `PathLike` of text, as text that the system takes for a path.

    Nothing is no path, though `os.path.abspath` takes it for the current directory: it comes of a variable not set.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if isinstance(text, str) and text and "\0" not in text:
        with contextlib.suppress(UnicodeEncodeError):  # half a character
            os.fsencode(text)
            return str.__str__(text)
    raise ArgumentError(message("a path", f"`{value!r}`", at))


def is_name(value: object) -> TypeGuard[str]:
    """Return True if `value` is text that can name a file: not empty, and without lone surrogates."""
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:  # a lone surrogate
        return False


def flag(value: object, at: str) -> bool:
    """Return `value` if it is a bool; truthy things of other types are refused."""
    if not isinstance(value, bool):
        raise ArgumentError(message("`True` or `False`", f"`{value!r}`", at))
    return value


def one_of(value: object, choices: Iterable[str], at: str) -> str:
    """Return `value` as plain text if it is one of `choices`."""
    names = list(choices)
    if not isinstance(value, str) or value not in names:
        raise ArgumentError(message("one of " + ", ".join(f"`{name!r}`" for name in names), f"`{value!r}`", at))
    return str.__str__(value)


def unmasked(value: object, at: str, error: type[ReliveError]) -> None:
    """Refuse a masked array, or a list of some: as a plain one it has values that its owner took for missing."""
    if type(value) is np.ndarray:
        return
    held: Iterable[object] = value if isinstance(value, list | tuple) else (value,)
    kinds = set(map(type, held))
    for _ in range(_DEEPEST):
        if not kinds or not kinds <= {list, tuple}:
            break
        held = list(chain.from_iterable(held))  # type: ignore[arg-type]
        kinds = set(map(type, held))
    if any(kind is not np.ndarray and issubclass(kind, np.ndarray) for kind in kinds) and any(
        isinstance(each, np.ma.MaskedArray) and np.ma.is_masked(each) for each in held
    ):
        raise error(message("an array without masked elements", "a masked array", at, "fill them"))


def uniforms(rng: np.random.Generator, shape: int | tuple[int, ...]) -> Float64:
    """Draw numbers in [0, 1) by one call of `rng.random(shape)`; check them unless `rng` is NumPy's own generator."""
    if type(rng) is np.random.Generator:
        return rng.random(shape)
    at = "ReplayBuffer.rng"
    try:
        given = rng.random(shape)
    except TypeError as error:  # Python's own takes no argument
        raise ArgumentError(message("a generator with `random(size)`", f"`{rng!r}`"[:60], at)) from error
    unmasked(given, at, ArgumentError)
    size = (shape,) if isinstance(shape, int) else shape
    try:
        values = np.asarray(given)
        outside = ~((values >= 0) & (values < 1)) if values.dtype.kind in "biuf" else np.ones(values.shape, bool)
        if values.shape == size and not outside.any():
            return np.ascontiguousarray(values, np.float64)
        got = f"`{values[outside][0]}`" if values.shape == size else f"shape `{values.shape}`"
    except (TypeError, ValueError):  # lists of different lengths
        got = f"`{given!r}`"[:60]
    raise ArgumentError(message(f"{math.prod(size)} uniforms in [0, 1)", got, at))


def first(bad: Bool, values: Array) -> tuple[str, str]:
    """Return the first bad value's subscript, and its text with the number of bad values."""
    flat = bad.reshape(-1)
    first = int(flat.argmax())
    got = f"`{values.reshape(-1)[first]}`"
    if values.ndim == 0:
        return "", got
    position = ", ".join(str(int(i)) for i in np.unravel_index(first, values.shape))
    return f"[{position}]", f"{got} ({int(flat.sum())} of {flat.size})"
