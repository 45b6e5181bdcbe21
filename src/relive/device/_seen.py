"""Numbers of a device, as the host comes to know them without waiting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class DeviceNumbers:
    """Looks at a few numbers that calls on the device change.

    A CUDA device copies them to pinned memory behind an event, and a later look sees what has come. On the CPU they are
    there at once. Other devices do not tell.

    Args:
        numbers: What is looked at; it stays where it is.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers
        self._copy: Tensor | None = None
        self._event: Any = None

    def look(self) -> list[int] | None:
        """Return the numbers as they were a while ago; None if none came since the last look."""
        kind, found = self._numbers.device.type, None
        if kind == "cpu":
            if type(self._numbers) is Tensor and not torch.compiler.is_compiling():
                found = self._numbers.tolist()
        elif kind == "cuda" and not torch.cuda.is_current_stream_capturing():
            if self._copy is None:
                self._copy = torch.empty(self._numbers.shape, dtype=self._numbers.dtype, pin_memory=True)
                self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            elif not self._event.query():
                return None
            else:
                found = self._copy.tolist()
            self._copy.copy_(self._numbers, non_blocking=True)
            self._event.record()
        return found
