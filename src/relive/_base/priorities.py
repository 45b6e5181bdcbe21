"""Numbers that may be priorities, and the errors about those that may not."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..errors import ArgumentError, PriorityError, message
from .check import first, unmasked
from .narrow import as_array, kind_of
from .types import Array, Bool, Float64

_INFINITE_BITS = 0x7FF0000000000000
# Compared by identity on the hot path: comparing dtypes costs more than a small kernel.
_FLOAT64 = np.dtype(np.float64)


class Prioritizing(Protocol):
    """A sampler, of which it is asked if it has priorities."""

    @property
    def prioritizes(self) -> bool: ...


def valid(priorities: Array) -> Bool:
    """Which numbers are finite and not negative."""
    return np.asarray(np.isfinite(priorities) & (priorities >= 0))


def falling(values: Float64) -> Float64:
    """Map positive numbers to the reverse order, exactly, and back; 0 stays, and infinity becomes 0."""
    return np.where(values > 0, (_INFINITE_BITS - np.asarray(values).view(np.int64)).view(np.float64), 0.0)


def check_given(values: Array, at: str = "$.priority", what: str = "priority") -> None:
    """Refuse raw priorities, or other numbers of which the same is asked, that are not finite or negative."""
    bad = ~valid(values)
    if bad.any():
        where, got = first(bad, values)
        raise PriorityError(message(f"a finite {what} >= 0", got, at + where))


def check_errors(td_error: Float64, eps: float) -> None:
    """Refuse TD errors whose priority `|td_error| + eps` is not finite."""
    if not np.isfinite(_priorities(td_error, eps)).all():
        raise unfit(td_error, eps)


def unfit(td_error: Float64, eps: float) -> PriorityError:
    """The error about TD errors of which `check_errors`, or a kernel, found that some are not finite."""
    where, got = first(~np.isfinite(_priorities(td_error, eps)), td_error)
    return PriorityError(message("a finite TD error", got, f"$.td_error{where}", "check the loss"))


def _priorities(td_error: Float64, eps: float) -> Float64:
    with np.errstate(over="ignore"):  # a finite error can have an infinite priority
        return np.asarray(np.abs(td_error) + eps)


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
    check_given(raw)
    return np.ascontiguousarray(raw)


def no_priorities(sampler: object, at: str) -> ArgumentError:
    """Compose the error of a call about priorities, of which the sampler knows none."""
    got = f"`{type(sampler).__name__}()`"
    return ArgumentError(message("a sampler with priorities", got, at, "use `Prioritized()`"))
