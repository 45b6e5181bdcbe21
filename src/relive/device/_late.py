"""Errors that a device finds while the host is elsewhere: counted there, and raised by a later call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import NotEnoughData, PriorityError, StaleId, event
from ._state import EMPTY, NOT_FINITE, UNFIT, UNKNOWN

_WHY = "found on the device by an earlier call, and nothing was changed by it"
_ERRORS: dict[int, tuple[type[Exception], str, str]] = {
    UNKNOWN: (StaleId, "ids that no step ever had", "DeviceBuffer.update_priorities(ids)"),
    NOT_FINITE: (PriorityError, "TD errors that are not finite", "DeviceBuffer.update_priorities(td_error)"),
    EMPTY: (NotEnoughData, "draws from a buffer without items", "DeviceBuffer.sample"),
    UNFIT: (PriorityError, "priorities that are negative or not finite", "DeviceBuffer.add(priority)"),
}


class Late:
    """Looks at the counts of errors without waiting, as far as the device allows it.

    A CUDA device copies them to pinned memory behind an event, and a later call sees what has come. On the CPU they are
    there at once. Of any other device only `check` tells.
    """

    def __init__(self, flags: Tensor) -> None:
        self._flags, self._told = flags, [0] * len(flags)
        self._copy: Tensor | None = None
        self._event: Any = None

    def look(self) -> None:
        """Raise an error that has become known, once; nothing is waited for.

        Raises:
            PriorityError, StaleId, NotEnoughData: A call before this one found it.
        """
        kind = self._flags.device.type
        if kind == "cpu":
            if type(self._flags) is Tensor and not torch.compiler.is_compiling():
                self._raise(self._flags.tolist())
        elif kind == "cuda" and not torch.cuda.is_current_stream_capturing():
            if self._copy is None or self._event is None:
                self._copy = torch.empty(self._flags.shape, dtype=self._flags.dtype, pin_memory=True)
                self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            elif not self._event.query():
                return
            else:
                self._raise(self._copy.tolist())
            self._copy.copy_(self._flags, non_blocking=True)
            self._event.record()

    def check(self) -> list[int]:
        """Wait for the device; raise what it found. Returns the counts."""
        counts: list[int] = self._flags.cpu().tolist()
        self._raise(counts)
        return counts

    def _raise(self, counts: list[int]) -> None:
        told, self._told = self._told, counts
        for number, (error, what, at) in _ERRORS.items():
            if counts[number] > told[number]:
                raise error(event(f"{counts[number] - told[number]} {what}: {_WHY}", at))
