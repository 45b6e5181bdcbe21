"""cpprb's own buffers, one a lane, since its n-step code knows one stream."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base.extras import needs
from relive._base.types import Float64

from .._draws import BATCH
from .._pipeline import Item
from ._loops import calls_of


class CpprbLoop:
    """`PrioritizedReplayBuffer` in a loop over a Gymnasium vector environment; `done` is `terminated`."""

    either = False
    next_of = False
    check_for_update = False
    _names_gamma = False  # of one-step targets, too

    def __init__(self) -> None:
        with needs("cpprb", "relive.doctor"):
            import cpprb
        self._kinds: Any = cpprb  # where its classes are
        self._buffers: list[Any] = []
        self._capacity: int | None = None
        self._n_step, self._gamma = 1, 0.0
        self._rng = np.random.default_rng(0)

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
        """Fill the buffers; where `capacity` is that of the run before, the buffers of that run are overwritten."""
        self._n_step, self._gamma = n_step, gamma
        if not self._buffers or capacity is None or capacity != self._capacity:
            self._buffers = [self._buffer((capacity or 2 * num_envs * calls) // num_envs) for _ in range(num_envs)]
        self._capacity = capacity
        for call in calls_of(make_env, num_envs, calls, autoreset_mode, reset_at):
            for lane, buffer in enumerate(self._buffers):
                ended = bool(call.terminated[lane] or call.truncated[lane])
                done = ended if self.either else bool(call.terminated[lane])
                fields = {"obs": call.obs[lane], "act": call.action[lane], "rew": call.reward[lane]}
                buffer.add(**fields, next_obs=call.next_obs[lane], done=done)
                if ended:
                    buffer.on_episode_end()

    def _buffer(self, size: int) -> Any:
        fields: dict[str, Any] = {"obs": {}, "act": {}, "rew": {}, "done": {}}
        choices: dict[str, Any] = {"next_of": "obs"} if self.next_of else {}
        if not self.next_of:
            fields["next_obs"] = {}
        if self._n_step > 1 or self._names_gamma:
            choices["Nstep"] = {"size": self._n_step, "gamma": self._gamma, "rew": "rew", "next": "next_obs"}
        choices |= {"alpha": 1.0, "check_for_update": self.check_for_update}
        return self._kinds.PrioritizedReplayBuffer(size, fields, **choices)

    def items(self) -> Iterable[Item]:
        """Every item."""
        return [item for buffer in self._buffers for item in self._items(buffer.get_all_transitions())]

    def sample(self, n: int) -> list[Item]:
        """Draw as many items from each lane's buffer; a handle is the lane and the slot."""
        drawn = []
        for lane, buffer in enumerate(self._buffers):
            batch = buffer.sample(n // len(self._buffers))
            rows = zip(self._items(batch), batch["indexes"], batch["weights"], strict=True)
            drawn += [item._replace(handle=(lane, int(slot)), weight=weight) for item, slot, weight in rows]
        return drawn

    def update(self, handles: list[tuple[int, int]], td_errors: Any) -> None:
        """Update priorities, of each lane's buffer."""
        for lane, buffer in enumerate(self._buffers):
            mine = [number for number, handle in enumerate(handles) if handle[0] == lane]
            if mine:
                buffer.update_priorities(np.array([handles[number][1] for number in mine]), td_errors[mine])

    def choose(self, masses: Float64, n: int) -> Any:
        """Draw rows of a buffer of nothing else, which have these priorities."""
        buffer = self._kinds.PrioritizedReplayBuffer(len(masses), {"obs": {}}, alpha=1.0, eps=0.0)
        buffer.add(obs=np.zeros(len(masses)), priorities=masses)
        # It uses the memory of indexes again.
        return np.concatenate([np.array(buffer.sample(BATCH)["indexes"]) for _ in range(n // BATCH)])

    def _items(self, batch: Any) -> list[Item]:
        # It gives no discount with its n-step rewards; its documentation has the power of the longest window.
        bootstrap = self._gamma**self._n_step * (1 - batch["done"].reshape(-1))
        columns = (batch["obs"], batch["rew"], bootstrap, batch["next_obs"])
        return [Item(*values) for values in zip(*columns, strict=True)]


class DoneEither(CpprbLoop):
    """The same with `done = terminated or truncated`, as in its examples for the old Gym."""

    either = True


class NextOf(CpprbLoop):
    """The same with `next_of="obs"`; one-step targets only."""

    next_of = True


class Checked(CpprbLoop):
    """The same with `check_for_update=True`."""

    check_for_update = True
