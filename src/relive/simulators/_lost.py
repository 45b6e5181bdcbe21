"""Truncated steps without a final observation: seen on the device, told to the host when it need not wait."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Lost:
    """One flag on the device, and what the host knows of it.

    A CUDA device copies it to pinned memory behind an event. On the CPU it is there at once. Other devices do not tell.

    Args:
        device: Where the flag is.
    """

    def __init__(self, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self._tells = cuda or device.type == "cpu"
        self._found = torch.zeros(1, dtype=torch.bool, device=device)
        self._seen = torch.zeros(1, dtype=torch.bool, pin_memory=cuda)
        self._copied: Any = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]
        self._under_way = False

    def note(self, lost: Tensor) -> None:
        """A step was stored whose `lost` lanes, bool `[L]`, have none; the host will know when a copy has arrived."""
        self._found.logical_or_(lost.any())
        if self._tells and not self._under_way:
            self._seen.copy_(self._found, non_blocking=True)
            if self._copied is not None:
                self._copied.record()
            self._under_way = True

    def known(self) -> bool:
        """Whether the host knows of one; False while a copy is under way."""
        if not self._under_way or (self._copied is not None and not self._copied.query()):
            return False
        self._under_way = False
        return bool(self._seen.numpy()[0])
