"""`relive.DeviceBuffer` in a loop over a simulator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

import relive
from relive._base.extras import needs
from relive._base.types import Float64

from .._draws import BATCH
from .._pipeline import Item
from .._tensors import TensorEnvs
from ._relive import columns, weighed

# So many draws for each step that an item is missing from all of them once in 10^15 times.
_EACH = 40


class Device:
    """A prioritized `relive.DeviceBuffer`.

    Args:
        device: Where its tensors are; None: on a GPU if there is one.
    """

    modes, lanes, batch = (AutoresetMode.SAME_STEP,), 4, 512

    def __init__(self, device: str | None = None) -> None:
        with needs("torch", "relive.doctor"):
            import torch
        self._torch = torch
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._kind = relive.DeviceBuffer
        self._buffer: Any = None
        self._capacity: int | None = None

    def run(
        self,
        make_env: Any,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: AutoresetMode,
        capacity: int | None = None,
        reset_at: Collection[int] = (),
    ) -> None:
        """Fill the buffer; where `capacity` is that of the run before, the buffer of that run is overwritten."""
        torch, envs = self._torch, TensorEnvs(make_env, num_envs, self._device)
        if self._buffer is None or capacity is None or capacity != self._capacity:
            env = make_env()
            self._buffer = self._kind(
                relive.Schema.from_spaces(env.observation_space, env.action_space),
                capacity or 2 * num_envs * calls,
                num_envs=num_envs,
                item=relive.Transitions(n_step=n_step, gamma=gamma),
                sampler=relive.Prioritized(alpha=1.0),
                device=self._device,
                seed=0,
            )
        self._capacity = capacity
        action = torch.zeros(num_envs, dtype=torch.int64, device=self._device)
        obs = envs.reset()
        for number in range(calls):
            if number in reset_at:
                obs = envs.reset()
            next_obs, reward, terminated, truncated, extras = envs.step(action)
            step = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs}
            flags = {"terminated": terminated, "truncated": truncated}
            self._buffer.add(**step, **flags, final_obs=extras["final_obs"])
            obs = next_obs

    def items(self) -> Item:
        """Every item: what many draws have given."""
        drawn = self.sample(_EACH * len(self._buffer))
        _, first = np.unique(drawn.handle.cpu().numpy(), return_index=True)
        at = self._torch.as_tensor(first, device=self._device)
        return Item(*(column[at] for column in drawn))

    def sample(self, n: int) -> Item:
        """Draw items; a handle is an id."""
        return columns(self._buffer.sample(n))

    def update(self, handles: list[int], td_errors: Float64) -> None:
        """Update priorities, and wait for what the device says of them."""
        ids = self._torch.tensor(handles, dtype=self._torch.int64, device=self._device)
        self._buffer.update_priorities(ids, self._torch.tensor(td_errors, dtype=self._torch.float32, device=ids.device))
        self._buffer.check()

    def arrays(self) -> Mapping[str, Any]:
        """What an ordinary buffer made of it has stored."""
        host = self._buffer.host()
        return {name: host.column(name) for name in ("obs", "action", "reward", "terminated", "truncated")}

    def choose(self, masses: Float64, n: int) -> Any:
        """Draw steps of a buffer in which they have these priorities."""
        torch, device = self._torch, self._device
        buffer = weighed(masses, partial(self._kind, device=device), partial(torch.as_tensor, device=device))
        return torch.cat([buffer.sample(BATCH).ids for _ in range(n // BATCH)])
