"""A number that changes with every draw."""

from __future__ import annotations

from .._base import check
from .._base.frozen import Frozen


class Anneal(Frozen):
    """Go linearly from `start` to `end` over the first `over` calls of `sample`, then stay.

    The first call uses `start` itself. The clock counts calls, not items; several updates per step therefore move it
    faster.

    Args:
        start: Value at the first call.
        end: Value from call number `over` on.
        over: Number of calls (>= 1); keyword or third argument.

    Raises:
        ArgumentError: `start` or `end` is not a finite number, or `over` is not a positive integer.

    >>> beta = Anneal(0.4, 1.0, over=4)
    >>> [round(beta.at(call), 2) for call in range(6)]
    [0.4, 0.55, 0.7, 0.85, 1.0, 1.0]
    """

    start: float
    end: float
    over: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", check.real(self.start, "Anneal(start)"))
        object.__setattr__(self, "end", check.real(self.end, "Anneal(end)"))
        object.__setattr__(self, "over", check.integer(self.over, "Anneal(over)", minimum=1))

    def at(self, call: int) -> float:
        """Return the value at the `call`-th call of `sample`, counted from 0."""
        if call >= self.over:
            return self.end
        return self.start + (self.end - self.start) * (call / self.over)
