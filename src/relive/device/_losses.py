"""Notices about steps that a device buffer cannot keep."""

from __future__ import annotations

import math
import warnings

from .._disk.device_counts import SHUNNED
from ..errors import ReliveWarning, event
from ._ring import LanesRing


class Losses:
    """Tells of stacks that could not be stored, and once of steps that short episodes cost."""

    def __init__(self) -> None:
        self._told, self._short = 0, False

    def tell(self, ring: LanesRing, boundaries: float) -> None:
        """Warn of losses that are new; wait for the device."""
        shunned = int(ring.counts[SHUNNED])
        if shunned > self._told:
            what = f"{shunned - self._told} steps were left out, since stored frames cannot show their stacks"
            remedy = "a stream begins with a padded stack, and each stack continues in the next one"
            warnings.warn(event(what, "DeviceBuffer.add", remedy), ReliveWarning, stacklevel=4)
            self._told = shunned
        kept, calls = len(ring.calls()), min((int(ring.next) - int(ring.cleared)) // ring.lanes, ring.steps)
        if kept < calls and not self._short:
            self._short = True
            share = min(boundaries * calls / max(kept, 1), 1.0)
            what = f"An environment keeps {kept} of {calls} steps, since final observations overwrite each other"
            remedy = f"`boundaries={math.ceil(100 * share) / 100:g}` keeps enough of them"
            warnings.warn(event(what, "DeviceBuffer(capacity)", remedy), ReliveWarning, stacklevel=4)
