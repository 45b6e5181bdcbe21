"""Truncated steps without a final observation: seen on the device, told to the host when it need not wait."""

from __future__ import annotations

import torch
from torch import Tensor

from ..device._seen import DeviceNumbers


class Lost:
    """One flag on the device, and what the host knows of it.

    Args:
        device: Where the flag is.
    """

    def __init__(self, device: torch.device) -> None:
        self._found = torch.zeros(1, dtype=torch.bool, device=device)
        self._seen = DeviceNumbers(self._found)

    def note(self, lost: Tensor) -> None:
        """Note a stored step, whose `lost` lanes, bool `[L]`, have no final observation."""
        self._found.logical_or_(lost.any())

    def known(self) -> bool:
        """Return True once the host knows of one."""
        found = self._seen.look()
        return found is not None and bool(found[0])
