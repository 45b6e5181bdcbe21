"""Offline data: Minari's data sets, flat arrays as D4RL has them, episodes as RLDS has them; and back to Minari."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ._adapters.episodes import episodes
from ._adapters.offline import columns_of_arrays, columns_of_episodes, infos_of
from ._base.extras import needs
from ._base.narrow import kind_of
from ._base.nests import located, mapped, paths, zipped
from ._base.types import Array
from ._schema.fields import Field, Tree
from ._schema.spaces import floating
from .buffer import ReplayBuffer
from .errors import ArgumentError, ReliveWarning, event, message
from .items import Item
from .samplers import Sampler
from .schema import Schema

_CHUNK = 1 << 16  # steps that are handed over at once


def from_minari(
    dataset: Any,
    *,
    item: Item | None = None,
    sampler: Sampler | None = None,
    seed: int | np.random.Generator | None = None,
    float_dtype: Any = "float32",
    extras: Iterable[str] | None = None,
) -> ReplayBuffer:
    """Make a buffer of every step of a Minari data set.

    Args:
        dataset: A `minari.MinariDataset`, also a filtered one, or the id of one that is on this machine.
        item: As in `ReplayBuffer`.
        sampler: As in `ReplayBuffer`.
        seed: As in `ReplayBuffer`.
        float_dtype: How floating-point observations and actions are stored; None: as the data set's spaces say.
            Rewards are at least `float32`; with None they have the data set's floating dtype.
        extras: Names of infos to keep, paths separated by slashes: what `step` returned with each step. None: none,
            and a warning names those that the data set has.

    Returns:
        A buffer with one lane. It holds the data set's `total_steps`, and a row more for each episode, for the final
        observation.

    An episode without an end flag is cut after its last step, which bootstraps from the final observation.

    Raises:
        SchemaError: The data set has spaces that no schema has, such as `Text`, or values that do not fit its spaces;
            an episode lacks an info of `extras`.
        ArgumentError: `dataset` is no data set.
        MissingExtra: Minari is not installed.

    >>> import gymnasium, minari, relive.minari
    >>> env = minari.DataCollector(gymnasium.make("CartPole-v1"))  # doctest: +SKIP
    >>> ...  # doctest: +SKIP
    >>> buffer = relive.minari.from_minari("cartpole/mine-v0", seed=0)  # doctest: +SKIP
    """
    found = _opened(dataset) if isinstance(dataset, str) else dataset
    if not all(hasattr(found, name) for name in ("iterate_episodes", "observation_space", "total_steps")):
        wanted = "a `minari.MinariDataset`, or the id of one"
        raise ArgumentError(message(wanted, f"`{type(dataset).__name__}`", "from_minari(dataset)"))
    rows = max(1, int(found.total_steps) + int(found.total_episodes))
    spaces, kept, buffer = (found.observation_space, found.action_space), tuple(extras or ()), None
    for number, episode in enumerate(found.iterate_episodes()):
        if not len(episode.rewards):
            continue
        steps = {
            "obs": mapped(lambda values: values[:-1], episode.observations),
            "next_obs": mapped(lambda values: values[1:], episode.observations),
            "action": episode.actions,
            "reward": np.asarray(episode.rewards),
            "terminated": np.asarray(episode.terminations, bool),
            "truncated": np.asarray(episode.truncations, bool),
            **infos_of(episode.infos or {}, kept, len(episode.rewards), f"$[{number}].infos"),
        }
        if buffer is None:
            if extras is None and episode.infos:
                _notice(["/".join(path) for path, _ in paths(episode.infos)], "from_minari(dataset)")
            further = {name: steps[name] for name in ("reward", *{part.split("/")[0] for part in kept})}
            schema = Schema.from_spaces(*spaces, float_dtype=float_dtype, **_fields(further, float_dtype))
            buffer = ReplayBuffer(schema, rows, item=item, sampler=sampler, seed=seed)
        buffer.extend(**steps)
        buffer.cut()
    if buffer is None:
        schema = Schema.from_spaces(*spaces, float_dtype=float_dtype)
        buffer = ReplayBuffer(schema, rows, item=item, sampler=sampler, seed=seed)
    return buffer


def from_arrays(
    data: Mapping[str, Any] | Iterable[Any],
    *,
    observations: str = "observations",
    actions: str = "actions",
    rewards: str = "rewards",
    terminals: str = "terminals",
    timeouts: str | None = "timeouts",
    next_observations: str | None = None,
    extras: Iterable[str] | None = None,
    item: Item | None = None,
    sampler: Sampler | None = None,
    seed: int | np.random.Generator | None = None,
    float_dtype: Any = "float32",
) -> ReplayBuffer:
    """Make a buffer of every step of arrays in memory or in an open HDF5 file.

    Args:
        data: Either a mapping of names to flat arrays `[N, ...]` of one step after the other, as D4RL's; observations
            and actions may be mappings of arrays. Or a list of episodes, each a mapping of names to arrays, or a list
            of steps, or a mapping with one of these under `"steps"`, as in RLDS.
        observations: The name of the observations; in episodes they may have one more entry than the actions, the
            final observation.
        actions: The name of the actions.
        rewards: The name of the rewards.
        terminals: The name of the flags of ends in a terminal state.
        timeouts: The name of the flags of ends from outside; None: there are none, and all episodes end in terminal
            states or where `next_observations` say so.
        next_observations: The name of the observations after each step; None: those under `"next_observations"` if
            there are some, else the following step's observations.
        extras: Names of further arrays to keep, one entry per step; paths are separated by slashes. None: none, and a
            warning names those that the data have.
        item: As in `ReplayBuffer`.
        sampler: As in `ReplayBuffer`.
        seed: As in `ReplayBuffer`.
        float_dtype: How floating-point arrays are stored; None: in their own dtype. Rewards that are
            no floats become `float32`, and so do rewards where this is a narrower dtype.

    Returns:
        A buffer with one lane that holds every step, and a row more for each final observation.

    Without `next_observations`, flat arrays have no observation after a timeout: such steps are kept, and drawn with
    discount 0 and `truncated`. With them, each step bootstraps from its own; where the next step does not begin with
    it, the stream is cut. In RLDS the last entry of an episode (`is_last`) is an observation without an action, so it
    is no step here; `is_terminal` there says how the step before it ended. An episode of a list that does not end in a
    terminal state is truncated.

    An array with the name of an end, a successor or a reward (`dones`, `masks`, `next_obs`, `sparse_rewards`, ...) that
    nothing takes is refused: it could change every target. `extras` has those that are to be kept beside.

    Raises:
        SchemaError: A name is missing, which in episodes holds for one that was given; arrays do not have one entry per
            step; a flag is neither 0 nor 1; or nothing takes an array with the name of an end, a successor or a reward.
        ArgumentError: `data` is neither of both, or has no steps.

    >>> import numpy as np
    >>> flat = dict(observations=np.arange(6.0)[:, None], actions=np.zeros((6, 1)), rewards=np.ones(6))
    >>> flat |= dict(terminals=[0, 0, 1, 0, 0, 0], timeouts=[0, 0, 0, 0, 0, 1])
    >>> buffer = from_arrays(flat | {"next_observations": flat["observations"] + 1})
    >>> len(buffer), buffer.read([0, 2, 6]).discount.tolist()  # id 3 is a final observation
    (6, [0.9900000095367432, 0.0, 0.9900000095367432])
    """
    names = {
        "obs": observations,
        "action": actions,
        "reward": rewards,
        "terminated": terminals,
        "truncated": timeouts,
        "next_obs": next_observations,
    }
    if isinstance(data, Mapping):
        parts = [columns_of_arrays(data, names, tuple(extras or ()))]
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        parts = columns_of_episodes(data, names, tuple(extras or ()))
    else:
        wanted = "a mapping of names to arrays, or a list of episodes"
        raise ArgumentError(message(wanted, f"`{type(data).__name__}`", "from_arrays(data)"))
    parts = [part for part in parts if part.count]
    if not parts:
        raise ArgumentError(message("at least one step", "none", "from_arrays(data)"))
    left_out = sorted({name for part in parts for name in part.left_out})
    if extras is None and left_out:
        _notice(left_out, "from_arrays(data)")
    stored = {name: values for name, values in parts[0].fields.items() if name not in ("terminated", "truncated")}
    schema = Schema(**_fields(stored, float_dtype))
    rows = sum(part.count + part.boundaries for part in parts)
    buffer = ReplayBuffer(schema, rows, item=item, sampler=sampler, seed=seed)
    for part in parts:
        for begin in range(0, part.count, _CHUNK):
            now = slice(begin, begin + _CHUNK)
            known = {} if part.next_obs is None else {"next_obs": _rows(part.next_obs, now)}
            buffer.extend(**_rows(part.fields, now), **known)
    return buffer


def to_minari(
    buffer: ReplayBuffer,
    dataset_id: str,
    *,
    env: Any = None,
    observation_space: Any = None,
    action_space: Any = None,
    **metadata: Any,
) -> Any:
    """Write every stored step as a Minari data set, in Minari's own folder; images are not compressed with losses.

    Args:
        buffer: What to write. Extras are left out.
        dataset_id: The name, such as `"cartpole/mine-v0"`.
        env: The environment, its id or its spec, which Minari notes and takes the spaces from.
        observation_space: The space of single observations.
        action_space: The space of single actions.
        **metadata: Further arguments of `minari.create_dataset_from_buffers`, such as `author` and `description`.

    Returns:
        The `minari.MinariDataset`.

    Without `env` and spaces, spaces follow the schema: `Box` without bounds, for booleans `MultiBinary`. Episodes are
    what lies between ends, cuts and what was overwritten, with the flags as they are stored. Where a last observation
    is not known, the one before it stands in its place, and a warning says how often.

    Raises:
        ArgumentError: The buffer is empty or is no `ReplayBuffer`.
        MissingExtra: Minari is not installed.

    >>> buffer = from_arrays(dict(observations=np.zeros((2, 3)), actions=np.zeros(2), rewards=[0, 1], terminals=[0, 1],
    ...                           timeouts=[0, 0]))
    >>> to_minari(buffer, "mine/zeros-v0").total_steps  # doctest: +SKIP
    2
    """
    with needs("minari", "to_minari"):
        import minari
    if not isinstance(buffer, ReplayBuffer) or not len(buffer):
        got = "an empty one" if isinstance(buffer, ReplayBuffer) else f"`{type(buffer).__name__}`"
        raise ArgumentError(message("a `ReplayBuffer` with at least one step", got, "to_minari(buffer)"))
    if env is not None:
        given = _environment(env)
        observation_space = observation_space or given.observation_space
        action_space = action_space or given.action_space
    tree = buffer.schema.tree
    spaces = {
        "observation_space": observation_space or _space(tree["obs"]),
        "action_space": action_space or _space(tree["action"]),
    }
    parts, unknown = [], 0
    for number, (fields, complete) in enumerate(episodes(buffer)):
        unknown += not complete
        obs = zipped(_with_final, fields["obs"], fields["next_obs"])
        parts.append(
            minari.data_collector.EpisodeBuffer(
                id=number,
                observations=_nested(obs, spaces["observation_space"]),
                actions=_nested(fields["action"], spaces["action_space"]),
                rewards=fields["reward"],
                terminations=fields["terminated"],
                truncations=fields["truncated"],
            )
        )
    if unknown:
        what = f"{unknown} of {len(parts)} episodes have no last observation"
        text = event(what, "to_minari(buffer)", "the one before it stands in its place")
        warnings.warn(text, ReliveWarning, stacklevel=2)
    choices = {"jpeg_encoding": False, **metadata}
    return minari.create_dataset_from_buffers(dataset_id, parts, env=env, **spaces, **choices)


def _opened(name: str) -> Any:
    with needs("minari", "from_minari"):
        import minari
    try:
        return minari.load_dataset(name)
    except FileNotFoundError as error:
        text = message("a data set on this machine", f"`{name}`", "from_minari(dataset)", f"`minari download {name}`")
        raise ArgumentError(text) from error


def _environment(env: Any) -> Any:
    import gymnasium

    return env if hasattr(env, "observation_space") else gymnasium.make(env)


def _notice(names: list[str], at: str) -> None:
    listed = ", ".join(f"`{name}`" for name in names)
    remedy = f'`extras=["{names[0]}"]` stores it as a further field, and `extras=()` says that all are left out'
    warnings.warn(event(f"Left out {listed}", at, remedy), ReliveWarning, stacklevel=3)


def _fields(steps: Mapping[str, Any], float_dtype: Any) -> dict[str, Any]:
    """Make fields for arrays `[N, ...]`: floats as `float_dtype` says, rewards at least float32."""
    stored = None if float_dtype is None else floating(float_dtype)

    def field(values: Array) -> Field:
        floats = stored is not None and kind_of(values.dtype) == "f"
        return Field(values.shape[1:], stored if floats else values.dtype)

    def reward(values: Array) -> Field:
        kept = kind_of(values.dtype) == "f" and (stored is None or stored.itemsize >= 4)
        return field(values) if kept else Field(values.shape[1:])

    return {name: mapped(reward if name == "reward" else field, value) for name, value in steps.items()}


def _rows(value: Any, rows: slice) -> Any:
    return mapped(lambda array: array[rows], value)


def _with_final(obs: Array, next_obs: Array) -> Array:
    """Append the final observation: `[T + 1, ...]`."""
    return np.concatenate([obs, next_obs[-1:]])


def _nested(value: Any, space: Any) -> Any:
    """Nest arrays as the space is, in its dtypes: a schema has mappings where spaces have tuples."""

    def parts(node: tuple[Any, Any], at: str) -> Any:
        values, children = node[0], getattr(node[1], "spaces", None)
        if isinstance(children, Mapping):
            return {name: (values[str(name)], child) for name, child in children.items()}
        return children and tuple((values[str(place)], child) for place, child in enumerate(children))

    return located(lambda node, at: np.asarray(node[0], node[1].dtype), (value, space), "", parts)


def _space(tree: Tree) -> Any:
    """Return the widest space whose samples the fields can hold."""
    from gymnasium import spaces

    if not isinstance(tree, Field):
        return spaces.Dict({name: _space(child) for name, child in tree.items()})
    low, high = -np.inf, np.inf
    if tree.dtype.kind == "b":
        low, high = 0, 1
    elif tree.dtype.kind in "iu":
        low, high = np.iinfo(tree.dtype).min, np.iinfo(tree.dtype).max
    return spaces.Box(low, high, tree.full_shape, tree.dtype.type)
