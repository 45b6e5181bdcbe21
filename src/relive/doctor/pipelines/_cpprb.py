"""cpprb's own buffers, one a lane, since its n-step code knows one stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relive._base.extras import needs
from relive._base.types import Float64

from .._draws import BATCH
from .._pipeline import Item
from ._loops import Run, Runner, calls_of


class CpprbLoop(Runner):
    """`PrioritizedReplayBuffer` in a loop over a Gymnasium vector environment; `done` is `terminated`."""

    either = False
    next_of = False
    check_for_update = False

    def __init__(self) -> None:
        super().__init__()
        with needs("cpprb", "relive.doctor"):
            import cpprb
        self._cpprb: Any = cpprb

    def _made(self, run: Run) -> list[Any]:
        return [self._made_for_a_lane(run.size // run.num_envs) for _ in range(run.num_envs)]

    def _fill(self, run: Run) -> None:
        for call in calls_of(run):
            for lane, buffer in enumerate(self._buffer):
                ended = bool(call.terminated[lane] or call.truncated[lane])
                done = ended if self.either else bool(call.terminated[lane])
                fields = {"obs": call.obs[lane], "act": call.action[lane], "rew": call.reward[lane]}
                buffer.add(**fields, next_obs=call.next_obs[lane], done=done)
                if ended:
                    buffer.on_episode_end()

    def _made_for_a_lane(self, size: int) -> Any:
        fields: dict[str, Any] = {"obs": {}, "act": {}, "rew": {}, "done": {}}
        choices: dict[str, Any] = {"next_of": "obs"} if self.next_of else {}
        if not self.next_of:
            fields["next_obs"] = {}
        if self._n_step > 1:
            choices["Nstep"] = {"size": self._n_step, "gamma": self._gamma, "rew": "rew", "next": "next_obs"}
        choices |= {"alpha": 1.0, "check_for_update": self.check_for_update}
        return self._cpprb.PrioritizedReplayBuffer(size, fields, **choices)

    def items(self) -> Item:
        """Return every item."""
        return self._items([buffer.get_all_transitions() for buffer in self._buffer])

    def sample(self, n: int) -> Item:
        """Draw as many items from each lane's buffer; a handle is the lane and the slot."""
        drawn = [buffer.sample(n // len(self._buffer)) for buffer in self._buffer]
        handles = [(lane, slot) for lane, batch in enumerate(drawn) for slot in batch["indexes"].tolist()]
        return self._items(drawn)._replace(handle=handles, weight=np.concatenate([batch["weights"] for batch in drawn]))

    def update(self, handles: list[tuple[int, int]], td_errors: Any) -> None:
        """Update priorities, of each lane's buffer."""
        for lane, buffer in enumerate(self._buffer):
            mine = [number for number, handle in enumerate(handles) if handle[0] == lane]
            if mine:
                buffer.update_priorities(np.array([handles[number][1] for number in mine]), td_errors[mine])

    def choose(self, masses: Float64, n: int) -> Any:
        """Draw rows of a buffer of nothing else, which have these priorities."""
        buffer = self._cpprb.PrioritizedReplayBuffer(len(masses), {"obs": {}}, alpha=1.0, eps=0.0)
        buffer.add(obs=np.zeros(len(masses)), priorities=masses)
        # It uses the memory of indexes again.
        return np.concatenate([np.array(buffer.sample(BATCH)["indexes"]) for _ in range(n // BATCH)])

    def _items(self, batches: Sequence[Any]) -> Item:
        names = ("obs", "rew", "done", "next_obs")
        obs, reward, done, after = (np.concatenate([batch[name] for batch in batches]) for name in names)
        # It gives no discount with its n-step rewards; its documentation has the power of the longest window.
        return Item(obs, reward, self._gamma**self._n_step * (1 - done), after)


class DoneEither(CpprbLoop):
    """The same with `done = terminated or truncated`, as in its examples for the old Gym."""

    either = True


class NextOf(CpprbLoop):
    """The same with `next_of="obs"`; one-step targets only."""

    next_of = True


class Checked(CpprbLoop):
    """The same with `check_for_update=True`."""

    check_for_update = True
