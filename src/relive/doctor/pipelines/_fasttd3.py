"""A stand-in for FastTD3's buffer of tensors, and its loop over a simulator.

Their class is on no package index, and several projects have copies of it, Holosoma's FastSAC among them. This one does
the same in other words: tensors `[lanes, rows]`, the next observation stored beside each, flags as integers, windows of
n steps folded by cumulative products when they are drawn. Each of its mistakes can be repaired.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from relive._base.extras import needs
from relive._base.types import Float64

from .._pipeline import Item
from .._tensors import TensorEnvs

if TYPE_CHECKING:
    from torch import Tensor

# The mistakes, each with what its repair does.
REPAIRS = {
    "final observation": "stores what the simulator gives as `final_obs`, not the observation of the next episode",
    "write head": "ends windows at the newest step: behind it in the ring is the oldest one",
    "reset": "marks the step before a reset in mid-episode, as after an evaluation, as truncated",
    "write while drawing": "marks the newest step as truncated in a copy, not in the stored flags",
    "late priorities": "drops priorities of rows that have been overwritten since the draw",
    "float32 sums": "sums masses in float64, and draws as many random bits",
}


class FastTD3:
    """The buffer, drawn from uniformly, and the loop; without the repairs it is as theirs.

    Args:
        device: Where the tensors are; None: on a GPU if there is one.
        repaired: Those of the mistakes, names of `REPAIRS`, that are not made.
    """

    modes, lanes, batch = (AutoresetMode.SAME_STEP,), 4, 512

    def __init__(self, device: str | None = None, repaired: Collection[str] = ()) -> None:
        with needs("torch", "relive.doctor"):
            import torch
        self._torch, self._repaired = torch, frozenset(repaired)
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._rng = torch.Generator(self._device).manual_seed(0)
        self._stored: dict[str, Tensor] = {}
        self._rows = self._pointer = 0

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
        self._n_step, self._gamma = n_step, gamma
        if not self._stored or capacity is None or capacity // num_envs != self._rows:
            self._allocate(num_envs, (capacity or 2 * num_envs * calls) // num_envs)
        torch, envs = self._torch, TensorEnvs(make_env, num_envs, self._device)
        obs = envs.reset()
        for number in range(calls):
            if number in reset_at:  # after an evaluation in the same simulator
                obs = envs.reset()
                if "reset" in self._repaired:
                    self._cut()
            next_obs, reward, terminated, truncated, extras = envs.step()
            done = (terminated | truncated).long()
            # The loop asks its wrapper for the observation before the reset; on Isaac Lab it gets the one after it.
            last = extras["final_obs"] if "final observation" in self._repaired else next_obs
            last = torch.where(done[:, None] > 0, last, next_obs)
            self._extend(obs=obs, reward=reward, done=done, truncated=truncated.long(), next_obs=last)
            obs = next_obs

    def _allocate(self, lanes: int, rows: int) -> None:
        torch, shape = self._torch, (lanes, rows)
        kinds = {"obs": torch.float32, "next_obs": torch.float32, "reward": torch.float32}
        kinds |= {"done": torch.int64, "truncated": torch.int64}
        self._rows, self._pointer = rows, 0
        self._stored = {
            name: torch.zeros((*shape, 1) if "obs" in name else shape, dtype=kind, device=self._device)
            for name, kind in kinds.items()
        }

    def _extend(self, **step: Tensor) -> None:
        for name, values in step.items():
            self._stored[name][:, self._pointer % self._rows] = values
        self._pointer += 1

    def _cut(self) -> None:
        newest = (self._pointer - 1) % self._rows
        done, truncated = (self._stored[name][:, newest] for name in ("done", "truncated"))
        truncated |= 1 - done
        done |= 1

    @property
    def _full(self) -> bool:
        return self._pointer >= self._rows

    @property
    def _starts(self) -> int:
        """Rows that windows may start in: while the buffer fills, those of which all n steps are stored."""
        return self._rows if self._full else max(1, self._pointer - self._n_step + 1)

    def items(self) -> Item:
        """Every item that can be drawn."""
        lanes, device = len(self._stored["obs"]), self._device
        lane = self._torch.arange(lanes, device=device).repeat_interleave(self._starts)
        return self._windows(lane, self._torch.arange(self._starts, device=device).repeat(lanes))

    def sample(self, n: int) -> Item:
        """Draw from each lane as many items."""
        lanes, device = len(self._stored["obs"]), self._device
        row = self._torch.randint(self._starts, (n // lanes * lanes,), device=device, generator=self._rng)
        return self._windows(self._torch.arange(lanes, device=device).repeat(n // lanes), row)

    def arrays(self) -> Mapping[str, Any]:
        """The tensors."""
        return self._stored

    def _windows(self, lane: Tensor, row: Tensor) -> Item:
        """The items that start in these rows, as its learner uses them."""
        torch, n, truncated = self._torch, self._n_step, self._stored["truncated"]
        newest = (self._pointer - 1) % self._rows
        marks, kept = n > 1 and self._full, truncated[:, newest].clone()
        if marks:
            # As Stable-Baselines3: windows shall end at the newest step, so for the time of the draw it is truncated.
            if "write while drawing" in self._repaired:
                truncated = truncated.clone()
            truncated[:, newest] = (self._stored["done"][:, newest] == 0).long()
            if "write head" in self._repaired:
                truncated[:, newest] |= kept
        steps = torch.arange(n, device=self._device)
        lane, rows = lane[:, None], (row[:, None] + steps) % self._rows
        done, over = self._stored["done"][lane, rows], truncated[lane, rows]
        # Rewards behind an end do not count, but it sees no end where a step is truncated and not done.
        ends = done | over if "write head" in self._repaired else done
        counts = torch.cumprod(1.0 - torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1), 1)
        reward = (self._stored["reward"][lane, rows] * counts * self._gamma**steps).sum(1)
        stops = (done | over) > 0
        at = torch.where(stops.any(1), stops.int().argmax(1), n - 1)[:, None]
        last = rows.gather(1, at)[:, 0]
        lane = lane[:, 0]
        done, over = self._stored["done"][lane, last], truncated[lane, last]
        bootstrap = ((over > 0) | (done == 0)) * self._gamma ** counts.sum(1)
        if marks:
            truncated[:, newest] = kept
        return Item(self._stored["obs"][lane, row], reward, bootstrap, self._stored["next_obs"][lane, last])


class PrioritizedFastTD3(FastTD3):
    """The same with priorities: a tensor of masses, summed anew for each draw."""

    def _allocate(self, lanes: int, rows: int) -> None:
        super()._allocate(lanes, rows)
        self._masses = self._torch.zeros((lanes, rows), device=self._device)
        self._written = self._torch.zeros((lanes, rows), dtype=self._torch.int64, device=self._device)
        self._largest = self._torch.ones((), device=self._device)

    def _extend(self, **step: Tensor) -> None:
        row = self._pointer % self._rows
        self._masses[:, row], self._written[:, row] = self._largest, self._pointer
        super()._extend(**step)

    def sample(self, n: int) -> Item:
        """Draw items by their masses; a handle is a lane, a row, and the number of the step in it."""
        at = self._positions(self._masses[:, : self._starts].reshape(-1), n)
        lane, row = at // self._starts, at % self._starts
        masses = self._masses[:, : self._starts]
        weight = masses.sum() / masses.count_nonzero() / masses[lane, row]
        handle = self._torch.stack([lane, row, self._written[lane, row]], 1)
        return self._windows(lane, row)._replace(handle=handle, weight=weight)

    def update(self, handles: list[list[int]], td_errors: Float64) -> None:
        """Give items their TD errors; those that are not finite change nothing."""
        torch = self._torch
        lane, row, number = torch.tensor(handles, device=self._device).T
        given = torch.tensor(td_errors, dtype=torch.float32, device=self._device).abs() + 1e-6
        fine = torch.isfinite(given)
        if "late priorities" in self._repaired:
            fine &= self._written[lane, row] == number
        self._masses[lane, row] = torch.where(fine, given, self._masses[lane, row])
        self._largest = torch.maximum(self._largest, torch.where(fine, given, 0.0).max())

    def choose(self, masses: Float64, n: int) -> Tensor:
        """Draw positions as `sample` does."""
        return self._positions(self._torch.tensor(masses, dtype=self._torch.float32, device=self._device), n)

    def _positions(self, masses: Tensor, n: int) -> Tensor:
        torch = self._torch
        kind = torch.float64 if "float32 sums" in self._repaired else torch.float32
        sums = masses.to(kind).cumsum(0)
        shares = torch.rand(n, dtype=kind, device=self._device, generator=self._rng)
        at: Tensor = torch.searchsorted(sums, shares * sums[-1], right=True).clamp(max=len(sums) - 1)
        return at
