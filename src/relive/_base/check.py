"""Checks of plain arguments, so that every constructor and method refuses in the same words."""

from __future__ import annotations

import contextlib
import math
import operator
import os
from collections.abc import Iterable
from itertools import chain
from types import ModuleType
from typing import Any, Protocol, TypeGuard

import numpy as np

from ..errors import ArgumentError, PriorityError, ReliveError, message
from .forks import importing
from .narrow import as_array, kind_of
from .types import Float64, Int64

_DEEPEST = 64  # lists in lists that NumPy takes for an array
# Compared by identity on the hot path: comparing dtypes costs more than a small kernel.
_FLOAT64, _INT64 = np.dtype(np.float64), np.dtype(np.int64)


class Prioritizing(Protocol):
    """A sampler, of which it is asked if it has priorities."""

    @property
    def prioritizes(self) -> bool: ...


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
        whole = isinstance(value, float) and 1000 <= value < 2**63 and value.is_integer()
        raise ArgumentError(message(wanted, f"`{value!r}`", at, f"write `{int(value):_}`" if whole else None))  # type: ignore[call-overload]
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


def generator(seed: Any, at: str = "ReplayBuffer(seed)") -> np.random.Generator:
    """Make the generator of a `seed`: an integer, a generator, or None."""
    if isinstance(seed, np.random.Generator):
        return seed
    if seed is None:
        return np.random.default_rng()
    return np.random.default_rng(integer(seed, at, minimum=0, unbounded=True))


def source(value: Any, at: str) -> np.random.Generator:
    """Return `value` if it is an object that `rng.random(n)` can be asked of: a generator, or one of the caller's."""
    if isinstance(value, type | ModuleType) or not callable(getattr(value, "random", None)):
        remedy = "make one by `numpy.random.default_rng(seed)`"
        raise ArgumentError(message("a `numpy.random.Generator`", f"`{value!r}`", at, remedy))
    found: np.random.Generator = value
    return found


def integers(value: Any, at: str, remedy: str | None = None) -> Int64:
    """Return `[n]` integers, or refuse the value."""
    if type(value) is np.ndarray and value.dtype is _INT64 and value.ndim == 1 and value.flags.carray:
        return value
    unmasked(value, at, ArgumentError)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        array = np.empty(0, object)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        if array.shape == (0,) and array.dtype.kind == "f":
            return np.empty(0, np.int64)  # an empty list
        got = f"`{array.dtype}` of shape `{array.shape}`"
        raise ArgumentError(message("integers of shape `(n,)`", got, at, remedy))
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ArgumentError(message("integers below 2**63", f"`{array.max()}`", at))
    return array.astype(np.int64, "C", copy=not array.flags.aligned)


def lanes_of(env_ids: Any, num_envs: int) -> Int64:
    """Return the lane numbers of a call that is not about all lanes."""
    lanes = integers(env_ids, "$.env_ids")
    if len(lanes) <= 64:  # NumPy takes a microsecond for each look at them
        few = lanes.tolist()
        good = 0 < len(few) == len(set(few)) and min(few) >= 0 and max(few) < num_envs
    else:
        good = lanes.min() >= 0 and lanes.max() < num_envs and len(distinct(lanes)) == len(lanes)
    if not good:
        outside = (lanes < 0) | (lanes >= num_envs)
        got = f"`{lanes[outside][0]}`" if outside.any() else f"`{lanes.tolist()}`"
        raise ArgumentError(message(f"distinct lanes from 0 to {num_envs - 1}", got, "$.env_ids"))
    return lanes


def distinct(numbers: Int64) -> Int64:
    """Return the small numbers, >= 0, that occur in an array, in order.

    `np.unique` lets go of the interpreter inside of C++: a daemon thread that is in it when a process ends aborts that.
    """
    return np.flatnonzero(np.bincount(numbers.astype(np.intp, copy=False))).astype(np.int64, copy=False)


def numbers(value: Any, at: str) -> Float64:
    """Return numbers as float64, or refuse the value."""
    if type(value) is not np.ndarray:
        unmasked(value, at, PriorityError)
        try:
            value = as_array(value)
        except (ValueError, TypeError, RuntimeError) as error:
            got = f"`{type(value).__name__}`"
            raise PriorityError(message("an array of numbers", got, at, str(error).split("\n")[0])) from None
    if value.dtype is _FLOAT64 and value.flags.c_contiguous and value.flags.aligned:
        return np.asarray(value)
    if kind_of(value.dtype) not in "iuf":
        raise PriorityError(message("an array of numbers", f"`{value.dtype}`", at))
    return np.asarray(value.astype(np.float64, order="C"))


def raw_priorities(priority: Any, shape: tuple[int, ...], sampler: Prioritizing | None) -> Float64 | None:
    """Return raw priorities of new steps, finite and not negative; a single number is the priority of each of them.

    `sampler`: the one that draws; None: any may.
    """
    if priority is None:
        return None
    raw = numbers(priority, "$.priority")
    if raw.shape not in ((), shape, shape[1:] if shape[0] == 1 else shape):
        got = f"shape `{raw.shape}`"
        raise PriorityError(message(f"priorities of shape `{shape}`, one per step", got, "$.priority"))
    raw = np.broadcast_to(raw, shape)
    if sampler is not None and not sampler.prioritizes:
        raise no_priorities(sampler, "$.priority")
    with importing:
        from .priorities import check_given  # most buffers are given none

    check_given(raw)
    return np.ascontiguousarray(raw)


def no_priorities(sampler: object, at: str) -> ArgumentError:
    """Compose the error of a call about priorities, of which the sampler knows none."""
    got = f"`{type(sampler).__name__}()`"
    return ArgumentError(message("a sampler with priorities", got, at, "use `Prioritized()`"))


def one_length(item: Any, at: str) -> None:
    """Refuse an item whose batches cannot be joined, since each has a length of its own.

    Raises:
        ArgumentError: It is one.
    """
    if getattr(item, "trim", False):
        remedy = "leave out `trim`, and cut the batch where no item has a step: `batch.mask`"
        raise ArgumentError(message("an item whose batches all have one length", f"`{item!r}`", at, remedy))
