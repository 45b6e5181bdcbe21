"""`relive.DeviceBuffer` in a loop over a simulator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode

import relive
from relive._base.extras import needs
from relive._base.types import Float64

from .._draws import BATCH
from .._pipeline import Item
from ._loops import Run, Runner, tensor_calls_of
from ._relive import choices_of, columns, weighed

if TYPE_CHECKING:
    from torch import Tensor

# So many draws for each step that an item is missing from all of them once in 10^15 times.
_EACH = 40


class Device(Runner):
    """A prioritized `relive.DeviceBuffer`.

    Args:
        device: Where its tensors are; None: on a GPU if there is one.
    """

    modes, lanes, batch = (AutoresetMode.SAME_STEP,), 4, 512

    def __init__(self, device: str | None = None) -> None:
        super().__init__()
        with needs("torch", "relive.doctor"):
            import torch
        self._torch = torch
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._kind = relive.DeviceBuffer

    def _made(self, run: Run) -> relive.DeviceBuffer:
        return self._kind(**choices_of(run), device=self._device, seed=0)

    def _fill(self, run: Run) -> None:
        for call in tensor_calls_of(run, self._device):
            step = {"obs": call.obs, "action": call.action, "reward": call.reward, "next_obs": call.after}
            flags = {"terminated": call.terminated, "truncated": call.truncated}
            self._buffer.add(**step, **flags, final_obs=call.next_obs)

    def items(self) -> Item:
        """Return every item that many draws have given."""
        drawn = self.sample(_EACH * len(self._buffer))
        _, first = np.unique(drawn.handle.cpu().numpy(), return_index=True)
        at = self._torch.as_tensor(first, device=self._device)
        return Item(*(column[at] for column in drawn))

    def probability(self) -> Any:
        """Return the probability of each item."""
        return self._buffer.probability(self.items().handle)

    def sample(self, n: int) -> Item:
        """Draw items; a handle is an id."""
        return columns(self._buffer.sample(n))

    def update(self, handles: list[int], td_errors: Float64) -> None:
        """Update priorities, and wait for what the device says of them."""
        ids = self._torch.tensor(handles, dtype=self._torch.int64, device=self._device)
        self._buffer.update_priorities(ids, self._torch.tensor(td_errors, dtype=self._torch.float32, device=ids.device))
        self._buffer.check()

    def arrays(self) -> Mapping[str, Any]:
        """Return the columns of an ordinary buffer made of it."""
        host = self._buffer.host()
        return {name: host.column(name) for name in ("obs", "action", "reward", "terminated", "truncated")}

    def choose(self, masses: Float64, n: int) -> Any:
        """Draw steps of a buffer in which they have these priorities."""
        torch, device = self._torch, self._device
        buffer = weighed(masses, partial(self._kind, device=device), partial(torch.as_tensor, device=device))
        drawn: Tensor = torch.cat([buffer.sample(BATCH).ids for _ in range(n // BATCH)])
        return drawn
