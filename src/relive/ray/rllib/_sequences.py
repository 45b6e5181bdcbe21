"""Sequences of steps as RLlib's episodes: for modules with a state, which begin from the state before the first step.

RLlib asks for a slice of an episode and for one step in front of it, whose `state_out` is the state to begin with. So
an item has a step more than the slice, and a stand-in lies in front of each episode's first step.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from ..._base.extras import needs
from ..._base.nests import mapped, zipped
from ..._base.types import Int64
from ...batch import Batch
from ...buffer import ReplayBuffer
from ...errors import NotEnoughData, message
from ._chunks import Chunk, second

with needs("rllib", "relive.ray.rllib"):
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

STATE = "state_out"  # RLlib's name of what a module with a state hands to itself
_ROUNDS = 100  # draws of which no sequence is long enough, before that is an error


def led(chunk: Chunk) -> Chunk:
    """Prepend a stand-in to a chunk that begins an episode: the first observation, and zeros."""

    def longer(array: Any) -> Any:
        return np.concatenate([np.zeros_like(array[:1]), array])

    obs = mapped(lambda array: np.concatenate([array[:1], array]), chunk.obs)
    own = {name: mapped(longer, getattr(chunk, name)) for name in ("action", "reward", "outputs")}
    return chunk._replace(first=-1, obs=obs, **own)


def drawn(buffer: ReplayBuffer, steps: int, shortest: int) -> list[tuple[Batch, Int64]]:
    """Draw sequences of `steps` steps in all, as RLlib counts them: one more for each.

    Args:
        buffer: Its items are a step longer than a slice.
        steps: As above.
        shortest: Slices have more steps than this, or at least one.

    Returns:
        Batches, and which of their items to take.

    Raises:
        NotEnoughData: No stored sequence is long enough.
    """
    found: list[tuple[Batch, Int64]] = []
    count, misses = 0, 0
    while count < steps:
        batch = buffer.sample(-(-(steps - count) // buffer.item.steps))  # type: ignore[attr-defined]
        lengths = batch["mask"].sum(axis=1) - 1
        rows = np.flatnonzero(lengths > max(shortest, 0))
        misses = 0 if len(rows) else misses + 1
        if misses == _ROUNDS:
            raise NotEnoughData(message(f"a sequence of more than {max(shortest, 1)} steps", "none", "sample"))
        found.append((batch, rows))
        count += int(lengths[rows].sum()) + len(rows)
    return found


class Slices:
    """Makes RLlib's episodes of several steps out of batches.

    Args:
        like: A chunk: how observations, actions and outputs are nested.
        spaces: `observation_space` and `action_space` of the episodes; may be empty.
        lookback: Steps in front of each, 0 or 1; an episode's first step has none.
    """

    def __init__(self, like: Chunk, spaces: Mapping[str, Any], lookback: int) -> None:
        self._like, self._spaces, self._lookback = like, spaces, lookback

    def episodes(self, batch: Batch, rows: Int64, first: int) -> list[SingleAgentEpisode]:
        """Return the items `rows` of `batch`; `first` is the number of the first one, its id."""
        like, made = self._like, []
        obs, action = zipped(second, like.obs, batch["all_obs"]), zipped(second, like.action, batch["action"])
        outputs = zipped(second, like.outputs, batch["outputs"]) if like.outputs else {}
        ends = batch["mask"].sum(axis=1)
        for number, i in enumerate(rows.tolist()):
            before, end = int(batch["step"][i, 0]), int(ends[i])
            lookback = self._lookback if before >= 0 else 0
            begin, count = 1 - lookback, end - 1

            def kept(data: Any, lookback: int = lookback) -> InfiniteLookbackBuffer:
                return InfiniteLookbackBuffer(data, lookback=lookback)

            steps = itemgetter((i, slice(begin, end)))
            extra = mapped(steps, outputs)
            extra |= {"n_step": np.ones(lookback + count, np.int64), "weights": np.ones(lookback + count)}
            episode = SingleAgentEpisode(
                id_=f"{first + number}",
                observations=kept(mapped(itemgetter((i, slice(begin, end + 1))), obs)),
                actions=kept(mapped(steps, action)),
                rewards=kept(batch.reward[i, begin:end]),
                infos=kept([{} for _ in range(lookback + count + 1)]),
                extra_model_outputs={name: kept(data) for name, data in extra.items()},
                terminated=bool(batch.terminated[i, end - 1]),
                truncated=bool(batch.truncated[i, end - 1]),
                t_started=before + 1,
                len_lookback_buffer=lookback,
                **self._spaces,
            )
            made.append(episode)
        return made
