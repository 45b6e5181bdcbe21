"""RLlib's episode replay buffers, as its new API stack uses them, on relive's.

>>> from ray.rllib.algorithms.dqn import DQNConfig
>>> from relive.ray.rllib import PrioritizedEpisodeReplayBuffer
>>> choices = {"type": PrioritizedEpisodeReplayBuffer, "capacity": 50_000, "alpha": 0.6, "beta": 0.4}
>>> config = DQNConfig().environment("CartPole-v1").training(n_step=3, replay_buffer_config=choices)
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._adapters.saves import opened, packed
from ..._base import check
from ..._base.extras import needs
from ..._base.nests import paths
from ..._base.types import Int64
from ...batch import Batch
from ...buffer import ReplayBuffer
from ...errors import ArgumentError, NotEnoughData, message
from ...items import Sequences, Transitions
from ...samplers import Prioritized, Uniform
from ._chunks import Chunk, Items, by_agent, chunk_of
from ._laid import Laid, Waiting
from ._sequences import STATE, Slices, drawn

with needs("rllib", "relive.ray.rllib"):
    from ray.rllib.utils import replay_buffers

__all__ = ["EpisodeReplayBuffer", "PrioritizedEpisodeReplayBuffer"]

_STATE = (
    "_drawn",
    "_num_timesteps_added",
    "_num_episodes_evicted",
    "sampled_timesteps",
    "_spaces",
    "_shortest",
    "_outputs",
)


class _Named(ABCMeta):
    """Lets a class stand where RLlib looks for a name.

    Its DQN asks for `"EpisodeReplayBuffer" in type`, and its SAC whether `type` is in a list of names (Ray 2.60).
    """

    def __contains__(cls, name: object) -> bool:
        return isinstance(name, str) and name in cls.__name__

    def __eq__(cls, other: object) -> bool:
        return cls.__name__ == other if isinstance(other, str) else cls is other

    __hash__ = ABCMeta.__hash__


class EpisodeReplayBuffer(replay_buffers.EpisodeReplayBuffer, metaclass=_Named):
    """RLlib's `EpisodeReplayBuffer` on relive's: uniform draws of one-step or n-step transitions, or of sequences.

    An episode under way has a lane, so that windows run on from chunk to chunk. A window that an episode's end cuts
    short has its own length as `n_step`, and the steps near the end are drawn like all others.

    Chunks wait in a list until the first `sample`, which says `n_step` and `gamma`.

    Args:
        capacity: Steps that it holds. Each lane has an equal share of them, and rows for final observations on top.
        batch_size_B: Items that `sample()` draws by default.
        batch_length_T: Steps of the slices that `sample()` draws by default; 0 and 1: transitions.
        metrics_num_episodes_for_smoothing: RLlib's, for its metrics.
        num_envs: Lanes: how many episodes may be under way at a time, over all env-runners; None: as many as there
            were before the first `sample`.
        extra_model_outputs: Names of the model's outputs that are stored; `"state_out"` is where there is one.
        seed: An integer, a `numpy.random.Generator`, or None for fresh entropy.
        **others: None; RLlib passes on all of its `replay_buffer_config`.

    Attributes:
        relive: The buffer behind it, a `relive.ReplayBuffer`; None before the first `sample`.

    Raises:
        ArgumentError: An argument outside its limits, or one that this buffer does not have.

    >>> from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    >>> rows = dict(observations=[0.0, 1.0, 2.0, 3.0], actions=[0, 1, 0], rewards=[1.0, 1.0, 1.0])
    >>> buffer = EpisodeReplayBuffer(1000, seed=0)
    >>> buffer.add(SingleAgentEpisode(**rows, terminated=True, len_lookback_buffer=0))
    >>> items = buffer.sample(64, n_step=2, gamma=0.5)
    >>> sorted({(float(each.observations[0]), float(each.rewards[0])) for each in items})
    [(0.0, 1.5), (1.0, 1.5), (2.0, 1.0)]
    """

    def __init__(
        self,
        capacity: int = 10_000,
        *,
        batch_size_B: int = 16,
        batch_length_T: int = 1,
        metrics_num_episodes_for_smoothing: int = 100,
        num_envs: int | None = None,
        extra_model_outputs: Sequence[str] = (),
        seed: int | np.random.Generator | None = None,
        **others: Any,
    ) -> None:
        at = type(self).__name__
        if others:
            remedy = "`PrioritizedEpisodeReplayBuffer` has priorities" if {"alpha", "beta"} & others.keys() else None
            raise ArgumentError(message("arguments of this buffer", f"`{', '.join(others)}`", at, remedy))
        # Its own `__init__` alone: that of RLlib's prioritized buffer would make trees of its own.
        replay_buffers.EpisodeReplayBuffer.__init__(
            self,
            check.integer(capacity, f"{at}(capacity)", minimum=1),
            batch_size_B=check.integer(batch_size_B, f"{at}(batch_size_B)", minimum=1),
            batch_length_T=check.integer(batch_length_T, f"{at}(batch_length_T)", minimum=0),
            metrics_num_episodes_for_smoothing=metrics_num_episodes_for_smoothing,
        )
        self._lanes = None if num_envs is None else check.integer(num_envs, f"{at}(num_envs)", minimum=1)
        self._outputs, self._seed = tuple(extra_model_outputs), seed
        self._sampler: Uniform | Prioritized = Uniform()
        self._kept: Waiting | Laid = Waiting(self.capacity)
        self._like: Chunk | None = None  # a chunk of one step
        self._spaces: dict[str, Any] = {}
        self._drawn = 0  # items so far
        self._shortest = 1  # windows, where their lengths are drawn
        self._last_ids: Int64 | None = None

    # Adding -----------------------------------------------------------------------------------------------------------

    def add(self, episodes: Any, weight: float | None = None) -> None:
        """Store episodes, or chunks of them.

        Args:
            episodes: A `SingleAgentEpisode`, or a list. Chunks with the same `id_` are one episode; they come in order.
            weight: Raw priority of these steps, for the prioritized buffer; None: the largest so far.

        Raises:
            SchemaError: An episode that holds other fields than the first one; those before it in the list are stored.
            ArgumentError: An episode of several agents, or without a model's output that is to be stored.
        """
        listed = list(episodes) if isinstance(episodes, list | tuple) else [episodes]
        if self._like is None and any(STATE in getattr(each, "extra_model_outputs", ()) for each in listed):
            self._outputs = tuple(dict.fromkeys((*self._outputs, STATE)))
        chunks = [chunk_of(each, self._outputs, weight) for each in listed if len(each)]
        if self._like is None and chunks:
            self._like = chunks[0].first_step()
            spaces = {name: getattr(listed[0], name) for name in ("observation_space", "action_space")}
            self._spaces = {name: space for name, space in spaces.items() if space is not None}
        before = self._kept.episodes, self._kept.steps
        new, steps = sum(map(self._kept.add, chunks)), sum(len(each.reward) for each in chunks)
        self._num_timesteps_added += steps
        gone = before[0] + new - self._kept.episodes, before[1] + steps - self._kept.steps
        self._num_episodes_evicted += gone[0]
        whole = {"num_episodes_added": new, "num_episodes_evicted": gone[0]}
        self._update_add_metrics(
            **whole, num_env_steps_added=steps, num_env_steps_evicted=gone[1],
            **by_agent(**whole, num_steps_added=steps, num_steps_evicted=gone[1]),
        )  # fmt: skip

    # Drawing ----------------------------------------------------------------------------------------------------------

    def sample(
        self,
        num_items: int | None = None,
        *,
        batch_size_B: int | None = None,
        batch_length_T: int | None = None,
        n_step: int | tuple[int, int] | None = None,
        beta: float | None = None,
        gamma: float = 0.99,
        include_infos: bool = False,
        include_extra_model_outputs: bool = False,
        sample_episodes: bool = True,
        to_numpy: bool = True,
        lookback: int = 0,
        min_batch_length_T: int = 0,
        **others: Any,
    ) -> Any:
        """Draw transitions, each as a `SingleAgentEpisode` of one step whose arrays are NumPy's, or slices of episodes.

        Args:
            num_items: How many; None: `batch_size_B`. Of slices it is their steps, and one more for each.
            batch_size_B: The same.
            batch_length_T: Steps of a slice, fewer at an episode's end; 0 and 1: transitions.
            n_step: Longest window; None is 1, as slices have it. A pair `(low, high)` draws each item's, below `high`.
            beta: Exponent of the weights, where there are priorities; None: the buffer's.
            gamma: Discount per step within a window.
            include_infos: False; infos are not stored.
            include_extra_model_outputs: Whether the stored outputs of the model come along.
            sample_episodes: True.
            to_numpy: Taken; it is done in any case.
            lookback: Steps in front of a slice, 0 or 1; an episode's first step has none.
            min_batch_length_T: Slices have more steps than this.
            **others: Taken, as RLlib's does.

        Returns:
            A list of `SingleAgentEpisode`. Of each, the observations are those before and after the window, the reward
            is its discounted sum, and `extra_model_outputs` has its length as `n_step`, and `weights`. Slices are those
            of `SingleAgentEpisode.slice`, with all stored outputs of the model.

        Raises:
            ArgumentError: Something that this buffer does not have, or another `n_step` or `gamma` than before.
            NotEnoughData: No window is complete yet.
        """
        at = f"{type(self).__name__}.sample"
        length = self._length(batch_length_T, lookback, n_step, at)
        if include_infos or not sample_episodes:
            got = "`include_infos=True`" if include_infos else "`sample_episodes=False`"
            raise ArgumentError(message("what is stored, as episodes", got, at, "RLlib's own buffer has that"))
        if include_extra_model_outputs and not self._outputs:
            remedy = '`extra_model_outputs=["action_logp"]` has the buffer store them'
            raise ArgumentError(message("outputs of the model that are stored", "none", at, remedy))
        count = (num_items if batch_size_B is None else batch_size_B) or self.batch_size_B
        buffer = self._opened(n_step, gamma, length, at)
        if length > 1:
            return self._slices(buffer, count, lookback, min_batch_length_T)
        with buffer.hold():
            batch = buffer.sample(count, beta=beta if self._sampler.prioritizes else None)
            if self._shortest < buffer.item.n_step:  # type: ignore[attr-defined]
                self._shorten(buffer, batch)
        self._last_ids = batch.ids
        made = Items(self._like, self._spaces).episodes(batch, self._drawn, include_extra_model_outputs)  # type: ignore[arg-type]
        self._drawn += count
        self.sampled_timesteps += count
        self._report_sample(count, batch.ids, batch["episode"], float(batch.steps.mean()))
        return made

    def _slices(self, buffer: ReplayBuffer, count: int, lookback: int, shortest: int) -> list[Any]:
        """Draw slices of `count` steps in all."""
        maker, made = Slices(self._like, self._spaces, lookback), list[Any]()  # type: ignore[arg-type]
        found = drawn(buffer, count, shortest)
        for batch, rows in found:
            made += maker.episodes(batch, rows, self._drawn + len(made))
        self._drawn += len(made)
        self.sampled_timesteps += count
        ids, numbers = zip(*((batch.ids[rows], batch["episode"][rows, 0]) for batch, rows in found), strict=True)
        self._report_sample(count, np.concatenate(ids), np.concatenate(numbers), 1.0)
        return made

    def _opened(self, n_step: Any, gamma: float, length: int, at: str) -> ReplayBuffer:
        """The buffer, which the first call makes."""
        shortest, longest = (n_step[0], n_step[1] - 1) if isinstance(n_step, tuple | list) else (n_step or 1,) * 2
        if not 1 <= shortest <= longest:
            raise ArgumentError(message("`n_step` >= 1, or a pair `(low, high)`, low < high", f"`{n_step}`", at))
        item: Any = Sequences(length + 1, gamma=gamma) if length > 1 else Transitions(n_step=longest, gamma=gamma)
        if self.relive is None:
            waiting, self._kept = self._kept, self._build(item, at)
            self._num_episodes_evicted += waiting.episodes - self._kept.episodes
            self._shortest = shortest
            return self._kept.buffer
        if self.relive.item != item or self._shortest != shortest:
            wanted = f"the first call's windows, `{self.relive.item!r}`"
            raise ArgumentError(message(wanted, f"`{item!r}`", at, "a buffer has one item for its life"))
        return self.relive

    def _build(self, item: Any, at: str) -> Laid:
        waiting = self._kept
        if self._like is None or not isinstance(waiting, Waiting):
            raise NotEnoughData(message("at least 1 drawable item", "0", at))
        lanes = self._lanes or waiting.under_way()
        window = item.window(self._like.schema())
        steps = max(self.capacity // lanes, window.span + window.lookback)
        # As many rows for final observations as for steps: no episode is too short, and RLlib stores final ones, too.
        choices: dict[str, Any] = {"item": item, "sampler": self._sampler, "seed": self._seed, "boundaries": 1.0}
        laid = Laid(ReplayBuffer(self._like.schema(), lanes * steps, num_envs=lanes, **choices), type(self).__name__)
        for chunk in waiting.chunks:
            laid.add(chunk)
        return laid

    def _shorten(self, buffer: ReplayBuffer, batch: Batch) -> None:
        """Give every item a length of its own."""
        longest: int = buffer.item.n_step  # type: ignore[attr-defined]
        whole = dict(paths(batch))
        lengths = buffer.rng.integers(self._shortest, longest + 1, size=len(batch.ids))
        for length in range(self._shortest, longest):
            rows = np.flatnonzero(lengths == length)
            item = Transitions(n_step=length, gamma=buffer.item.gamma)  # type: ignore[attr-defined]
            for path, array in paths(buffer.read(batch.ids[rows], item=item)):
                if path != ("weights",):
                    whole[path][rows] = array

    def _report_sample(self, count: int, ids: Int64, episodes: Int64, length: float) -> None:
        steps = len(np.unique(ids))
        whole = {"num_episodes_per_sample": len(np.unique(episodes)), "num_resamples": 0, "sampled_n_step": length}
        self._update_sample_metrics(
            **whole, num_env_steps_sampled=count, num_env_steps_per_sample=steps,
            **by_agent(**whole, num_steps_sampled=count, num_steps_per_sample=steps),
        )  # fmt: skip

    def _length(self, length: int | None, lookback: int, n_step: Any, at: str) -> int:
        """Steps of an item; 0 or 1: it is a transition."""
        length = self.batch_length_T if length is None else length
        if length > 1 and self._sampler.prioritizes:
            remedy = "RLlib's own draws none by priority, either; `EpisodeReplayBuffer` has them"
            raise ArgumentError(message("items of one transition", f"sequences (`{length}`)", at, remedy))
        if length > 1 and n_step not in (None, 1):
            raise ArgumentError(message("`n_step=1` with sequences, as RLlib has it", f"`{n_step}`", at))
        if not 0 <= lookback <= (length > 1):
            raise ArgumentError(message("a lookback of 0, or of 1 with sequences", f"`{lookback}`", at))
        return length

    # Counts and states ------------------------------------------------------------------------------------------------

    @property
    def relive(self) -> ReplayBuffer | None:
        """The buffer behind it; None before the first `sample`."""
        return self._kept.buffer if isinstance(self._kept, Laid) else None

    def get_num_episodes(self, module_id: Any = None) -> int:
        """The number of episodes that have steps in the buffer."""
        return self._kept.episodes

    def get_num_timesteps(self, module_id: Any = None) -> int:
        """The number of stored steps."""
        return self._kept.steps

    def get_state(self) -> dict[str, Any]:
        """Return all of it, for `set_state`: steps, priorities, generator and counts, as arrays and plain values."""
        kept = self._kept
        state = {name: getattr(self, name) for name in _STATE} | {"like": self._like and tuple(self._like)}
        if isinstance(kept, Waiting):
            return state | {"waiting": [tuple(chunk) for chunk in kept.chunks]}
        lists = {name: [list(each) for each in getattr(kept, name)] for name in ("ends", "leads")}
        return state | {"relive": packed(kept.buffer), "numbers": kept.numbers, **lists}

    def set_state(self, state: Any) -> None:
        """Go on as the buffer whose `get_state` this was; episodes that were under way there end with a cut.

        Raises:
            CorruptionError: Arrays are missing or damaged.
        """
        if "waiting" in state:
            self._kept = Waiting(self.capacity, (Chunk(*each) for each in state["waiting"]))
        else:
            buffer = opened(state["relive"])
            buffer.cut()
            self._kept = Laid(buffer, type(self).__name__, *(state[name] for name in ("numbers", "ends", "leads")))
        for name in _STATE:
            setattr(self, name, state[name])
        self._like, self._last_ids = state["like"] and Chunk(*state["like"]), None


class PrioritizedEpisodeReplayBuffer(EpisodeReplayBuffer, replay_buffers.PrioritizedEpisodeReplayBuffer):
    """RLlib's `PrioritizedEpisodeReplayBuffer` on relive's: draws in proportion to `priority**alpha`.

    Weights are `(N P(i))**-beta`, divided by the largest in the buffer. An update is for the items of the last
    `sample`, as in RLlib. Steps that have been overwritten since are left out.

    Args:
        capacity: Steps that it holds.
        alpha: Exponent of the priorities; 0 draws uniformly.
        beta: Exponent of the weights; `sample(beta=...)` replaces it for a batch.
        eps: Added to TD errors.
        **choices: Those of `EpisodeReplayBuffer`.

    Raises:
        ArgumentError: As in `EpisodeReplayBuffer`.

    >>> from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    >>> rows = dict(observations=[0.0, 1.0, 2.0, 3.0], actions=[0, 1, 0], rewards=[1.0, 1.0, 1.0])
    >>> buffer = PrioritizedEpisodeReplayBuffer(1000, eps=0.0, seed=0)
    >>> buffer.add(SingleAgentEpisode(**rows, terminated=True, len_lookback_buffer=0))
    >>> items = buffer.sample(32)
    >>> buffer.update_priorities([float(each.observations[0] == 1.0) for each in items])
    >>> {float(each.observations[0]) for each in buffer.sample(32)}
    {1.0}
    """

    def __init__(
        self, capacity: int = 10_000, *, alpha: float = 1.0, beta: float = 0.4, eps: float = 1e-6, **choices: Any
    ) -> None:
        super().__init__(capacity, **choices)
        self._sampler = Prioritized(alpha=alpha, beta=beta, eps=eps, weights="buffer", stratified=False)

    def update_priorities(self, priorities: Any, module_id: Any = None) -> None:
        """Set the priorities of the items that `sample` returned last.

        Args:
            priorities: Their TD errors, `[B]`, of either sign.
            module_id: Taken; there is one module.

        Raises:
            ArgumentError: There is no last sample, or it was updated before.
            PriorityError: Another number of errors than items, or one that is not finite. Nothing has changed.
        """
        if self.relive is None or self._last_ids is None:
            remedy = "call `sample` before each update"
            raise ArgumentError(message("items to update", "none", "update_priorities", remedy))
        self.relive.update_priorities(self._last_ids, priorities)
        self._last_ids = None
