"""Errors that a device finds while the host is elsewhere: counted there, and raised by a later call."""

from __future__ import annotations

from torch import Tensor

from .._disk.device_counts import BETA, DRAWS, MISPLACED, NOT_FINITE, SERVED, UNFIT, UNKNOWN, UNWRITTEN
from ..errors import ArgumentError, NotEnoughData, PriorityError, StaleId, event
from ._seen import DeviceNumbers

_CALL = "found on the device by an earlier call"
_NOTHING = f"{_CALL}, and nothing was changed by it"
_STORED = f"{_CALL}, which stored its steps with the largest priority so far"
_ERRORS: dict[int, tuple[type[Exception], str, str]] = {
    UNKNOWN: (StaleId, "ids that no step ever had", "DeviceBuffer.update_priorities(ids)"),
    NOT_FINITE: (PriorityError, "TD errors that are not finite", "DeviceBuffer.update_priorities(td_error)"),
    SERVED: (NotEnoughData, "draws from a buffer without items", "DeviceBuffer.sample"),
    UNWRITTEN: (StaleId, "ids that no step ever had", "DeviceBuffer.write(ids)"),
    MISPLACED: (ArgumentError, "ids of steps at which a field is not kept", "DeviceBuffer.write(ids)"),
    BETA: (ArgumentError, "exponents that are negative or not finite, for which 0 served", "DeviceBuffer.sample(beta)"),
    UNFIT: (PriorityError, "priorities that are negative or not finite", "DeviceBuffer.add(priority)"),
}


class Late:
    """Raises what the counts of errors say, once; of a device that does not tell by itself only in `check`.

    Args:
        flags: The counts, int64 `[n]`.
    """

    def __init__(self, flags: Tensor) -> None:
        self._flags, self._seen, self._told = flags, DeviceNumbers(flags), [0] * len(flags)

    def look(self) -> None:
        """Raise an error that has become known; nothing is waited for.

        Raises:
            PriorityError, StaleId, NotEnoughData, ArgumentError: A call before this one found it.
        """
        counts = self._seen.look()
        if counts is not None:
            self._raise(_errors(counts))

    def check(self) -> None:
        """Wait for the device; raise what it found."""
        self._raise(_errors(self._flags.cpu().tolist()))

    def forget(self) -> None:
        """Count errors from now on; wait for the device."""
        self._told = _errors(self._flags.cpu().tolist())

    def _raise(self, counts: list[int]) -> None:
        told, self._told = self._told, counts
        for number, (error, what, at) in _ERRORS.items():
            if counts[number] > told[number]:
                why = _STORED if number == UNFIT else _NOTHING
                raise error(event(f"{counts[number] - told[number]} {what}: {why}", at))


def _errors(counts: list[int]) -> list[int]:
    """Return the counts, with the draws that found no items in the place of those that did."""
    return [*counts[:SERVED], counts[DRAWS] - counts[SERVED], *counts[SERVED + 1 :]]
