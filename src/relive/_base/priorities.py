"""Numbers that may be priorities, and the errors about those that may not."""

from __future__ import annotations

import numpy as np

from ..errors import PriorityError, message
from .narrow import first
from .types import Array, Bool, Float64

_INFINITE_BITS = 0x7FF0000000000000


def valid(priorities: Array) -> Bool:
    """Mark the numbers that are finite and not negative."""
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
    """Make the error about TD errors of which `check_errors`, or a kernel, found some not finite."""
    where, got = first(~np.isfinite(_priorities(td_error, eps)), td_error)
    return PriorityError(message("a finite TD error", got, f"$.td_error{where}", "check the loss"))


def _priorities(td_error: Float64, eps: float) -> Float64:
    with np.errstate(over="ignore"):  # a finite error can have an infinite priority
        return np.asarray(np.abs(td_error) + eps)
