"""RLlib's episodes: chunks of them as steps of a buffer, and drawn items as episodes of one step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ..._base.extras import needs
from ..._base.nests import mapped, nested, paths, zipped
from ..._base.types import Array
from ...batch import Batch
from ...errors import ArgumentError, message
from ...schema import Field, Schema

with needs("rllib", "relive.ray.rllib"):
    from gymnasium import spaces
    from ray.rllib.core import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
    from ray.rllib.utils.spaces.space_utils import batch as stacked


_REWARDS = spaces.Box(-np.inf, np.inf, (), np.float32)


class Chunk(NamedTuple):
    """Steps of one episode that follow each other, as RLlib nests them: arrays `[T, ...]`.

    Attributes:
        episode: RLlib's id.
        first: Steps of the episode before these.
        obs: `[T + 1, ...]`, the observation after the last step included.
        action: Actions taken.
        reward: `[T]`.
        outputs: The model's outputs that are stored.
        terminated: Whether the last step ended the episode in a terminal state.
        truncated: Whether it was ended from outside there.
        priority: Of each of these steps; None: the largest so far.
    """

    episode: str
    first: int
    obs: Any
    action: Any
    reward: Array
    outputs: dict[str, Any]
    terminated: bool
    truncated: bool
    priority: float | None

    @property
    def ended(self) -> bool:
        """True if the episode has no further steps."""
        return self.terminated or self.truncated

    def steps(self, number: int) -> dict[str, Any]:
        """Return the fields of `ReplayBuffer.extend`; `number` is the episode's."""
        count = len(self.reward)
        last = np.arange(count) == count - 1
        fields = {
            "obs": _named(self.obs, lambda a: a[:-1]),
            "next_obs": _named(self.obs, lambda a: a[1:]),
            "action": _named(self.action, lambda a: a),
            "reward": self.reward,
            "terminated": last & self.terminated,
            "truncated": last & self.truncated,
            "episode": np.full(count, number),
            "step": self.first + np.arange(count),
        }
        if self.outputs:
            fields["outputs"] = _named(self.outputs, lambda a: a)
        return fields if self.priority is None else {**fields, "priority": np.full(count, self.priority)}

    def first_step(self) -> Chunk:
        """Return the first of these steps, by itself."""

        def first(value: Any, count: int) -> Any:
            return mapped(lambda array: np.array(np.asarray(array)[:count]), value)

        own = {name: first(getattr(self, name), 1) for name in ("action", "reward", "outputs")}
        return self._replace(obs=first(self.obs, 2), **own)

    def schema(self) -> Schema:
        """Derive the schema of a step of such a chunk from the arrays' shapes and dtypes."""

        def field(array: Array) -> Field:
            return Field(array.shape[1:], array.dtype)

        own: dict[str, Any] = {"episode": Field((), "int64"), "step": Field((), "int64")}
        if self.outputs:
            own["outputs"] = _named(self.outputs, field)
        return Schema(obs=_named(self.obs, field), action=_named(self.action, field), **own)


def chunk_of(episode: Any, outputs: Sequence[str], priority: float | None) -> Chunk:
    """Read an episode of RLlib's, or a chunk of one.

    Raises:
        ArgumentError: An episode of several agents, or a model's output that it does not have.
    """
    if not isinstance(episode, SingleAgentEpisode):
        remedy = "RLlib's own `MultiAgentEpisodeReplayBuffer` stores episodes of several agents"
        raise ArgumentError(message("a `SingleAgentEpisode`", f"`{type(episode).__name__}`", "add", remedy))
    count = len(episode)
    missing = [name for name in outputs if name not in episode.extra_model_outputs]
    if missing:
        got = f"`{', '.join(episode.extra_model_outputs)}`"
        raise ArgumentError(message(f"a model that gives `{missing[0]}`", got, "extra_model_outputs"))
    steps = slice(0, count)
    return Chunk(
        str(episode.id_),
        int(episode.t_started),
        _arrays(episode.get_observations(slice(0, count + 1))),
        _arrays(episode.get_actions(steps)),
        np.asarray(episode.get_rewards(steps), np.float32).reshape(count),
        {name: _arrays(episode.get_extra_model_outputs(name, steps)) for name in outputs},
        bool(episode.is_terminated),
        bool(episode.is_truncated),
        priority,
    )


class Items:
    """Makes RLlib's episodes of one step out of batches.

    Args:
        like: A chunk: how observations, actions and outputs are nested.
        spaces: `observation_space` and `action_space` of the episodes; may be empty.
    """

    def __init__(self, like: Chunk, spaces: Mapping[str, Any]) -> None:
        self._like, self._spaces = like, spaces

    def episodes(self, batch: Batch, first: int, with_outputs: bool) -> list[SingleAgentEpisode]:
        """Return the items of `batch`, in its order.

        Args:
            batch: Transitions with the fields of `Chunk.steps`.
            first: Number of the first item: its id, since connectors may put steps of equal ids together.
            with_outputs: Whether the model's outputs are wanted.
        """
        like = self._like
        obs = zipped(lambda _, one, after: np.stack([one, after], axis=1), like.obs, batch["obs"], batch["next_obs"])
        action = zipped(second, like.action, batch["action"])
        outputs = zipped(second, like.outputs, batch["outputs"]) if with_outputs else {}
        weights, steps, reward = batch.weights, batch.steps, batch.reward
        began, terminated, truncated = batch["step"].tolist(), batch.terminated.tolist(), batch.truncated.tolist()
        first_one = self._whole(mapped(itemgetter(0), obs), mapped(itemgetter(slice(1)), action), reward[:1])
        plain, made = InfiniteLookbackBuffer(reward[:1]), []
        for i in range(len(reward)):
            entry, kept = itemgetter(i), itemgetter(slice(i, i + 1))
            episode = copy.copy(first_one)
            episode.id_, episode.t_started, episode.t, episode._custom_data = f"{first + i}", began[i], began[i] + 1, {}
            episode.is_terminated, episode.is_truncated = terminated[i], truncated[i]
            episode.observations = _with(first_one.observations, mapped(entry, obs))
            episode.infos = InfiniteLookbackBuffer([{}, {}])
            episode.actions = _with(first_one.actions, mapped(kept, action))
            episode.rewards = _with(first_one.rewards, reward[i : i + 1])
            extra = {"weights": weights[i : i + 1], "n_step": steps[i : i + 1], **mapped(kept, outputs)}
            episode.extra_model_outputs = {name: _with(plain, value) for name, value in extra.items()}
            made.append(episode)
        return made

    def _whole(self, obs: Any, action: Any, reward: Array) -> SingleAgentEpisode:
        """Build an episode by its constructor, which takes longer than to copy one."""
        return SingleAgentEpisode(
            observations=InfiniteLookbackBuffer(obs),
            actions=InfiniteLookbackBuffer(action),
            rewards=InfiniteLookbackBuffer(reward, space=_REWARDS),
            len_lookback_buffer=0,
            **self._spaces,
        )


def by_agent(**figures: float) -> dict[str, dict[str, float]]:
    """Nest figures as RLlib's metrics take them, of the one agent and its one module."""
    agents = {f"agent_to_{name}": {DEFAULT_AGENT_ID: value} for name, value in figures.items()}
    return agents | {f"module_to_{name}": {DEFAULT_MODULE_ID: value} for name, value in figures.items()}


def _with(buffer: InfiniteLookbackBuffer, data: Any) -> InfiniteLookbackBuffer:
    """Copy shallowly with other data; to look through the space again would take longest of all."""
    made = object.__new__(InfiniteLookbackBuffer)
    vars(made).update(vars(buffer), data=data)
    return made


def _arrays(value: Any) -> Any:
    """Stack a list of steps to a nest of arrays; return a nest unchanged."""
    if isinstance(value, list):
        return stacked(value)
    return value


def _named(value: Any, change: Callable[[Array], Any]) -> Any:
    """Nest values as a schema does, with strings as names, and `change` applied to every array."""
    return nested((("", *path), change(np.asarray(leaf))) for path, leaf in paths(value))[""]


def second(one: Any, other: Any) -> Any:
    """Return the other one: `zipped(second, like, values)` nests `values` as `like`."""
    return other
