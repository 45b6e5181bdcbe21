"""Truncated steps without a final observation: seen on the device, told to the host when it need not wait."""

from __future__ import annotations

import torch
from torch import Tensor


class Lost:
    """One flag on the device, and what the host knows of it.

    Args:
        device: Where the flag is.
    """

    def __init__(self, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self._found = torch.zeros(1, dtype=torch.bool, device=device)
        self._seen = torch.zeros(1, dtype=torch.bool, pin_memory=cuda)
        # On other devices than CUDA's the copy may come later than it is looked at: the next one tells.
        self._copied = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]
        self._under_way = False

    def note(self, lost: Tensor) -> None:
        """A step was stored whose `lost` lanes, bool `[L]`, have none; the host will know when a copy has arrived."""
        self._found.logical_or_(lost.any())
        if not self._under_way:
            self._seen.copy_(self._found, non_blocking=True)
            if self._copied is not None:
                self._copied.record()
            self._under_way = True

    def known(self) -> bool:
        """Whether the host knows of one; False while a copy is under way."""
        arrived = self._copied is None or self._copied.query()  # type: ignore[no-untyped-call]
        if not self._under_way or not arrived:
            return False
        self._under_way = False
        return bool(self._seen.numpy()[0])
