"""Arrays of offline data, under whatever names they come, as steps of a buffer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._base.narrow import kind_of
from .._base.nests import leaves, mapped
from .._base.types import Array, Bool
from ..errors import ReliveWarning, SchemaError, message

_CHUNK = 1 << 16  # rows that are compared at once
# Other names under which episodes have the same, in the order in which they are looked for.
_ALSO = {
    "obs": ("observations", "observation", "obs"),
    "action": ("actions", "action"),
    "reward": ("rewards", "reward"),
    "terminated": ("terminals", "is_terminal", "terminations", "terminated"),
    "truncated": ("timeouts", "truncations", "truncated"),
    "next_obs": ("next_observations",),
}
Names = Mapping[str, str | None]


@dataclass(frozen=True)
class Columns:
    """Steps that follow each other: `fields` are those of a schema and the flags, arrays `[N, ...]`, nested.

    Attributes:
        fields: `obs`, `action`, `reward`, `terminated`, `truncated` and extras.
        next_obs: Observations after each step, as `obs` nested; None: the following step's.
    """

    fields: dict[str, Any]
    next_obs: Any = None

    @property
    def count(self) -> int:
        """N."""
        return len(self.fields["reward"])

    @property
    def boundaries(self) -> int:
        """How many rows final observations take: one at each end, and where a step does not continue the last one."""
        if self.next_obs is None:
            return 0
        ends: Bool = self.fields["terminated"] | self.fields["truncated"]
        ends[-1] = True
        pairs = zip(leaves(self.fields["obs"]), leaves(self.next_obs), strict=True)
        for obs, after in pairs:
            for begin in range(0, self.count - 1, _CHUNK):
                rows = slice(begin, min(begin + _CHUNK, self.count - 1))
                differs = obs[rows.start + 1 : rows.stop + 1] != after[rows]
                ends[rows] = ends[rows] | differs.reshape(len(differs), -1).any(axis=1)
        return int(ends.sum())


def columns_of_arrays(data: Mapping[str, Any], names: Names, extras: Sequence[str], float_dtype: Any) -> Columns:
    """Flat arrays, as D4RL has them.

    Raises:
        SchemaError: A name is missing, or an array does not have one entry per step.
    """
    fields = {name: _tree(data, str(names[name]), float_dtype) for name in ("obs", "action")}
    fields["reward"] = _flat(data, str(names["reward"]), np.float32)
    fields["terminated"] = _flat(data, str(names["terminated"]), bool)
    given = names["next_obs"] or ("next_observations" if "next_observations" in data else None)
    next_obs = None if given is None else _tree(data, given, float_dtype)
    if names["truncated"] is not None and names["truncated"] in data:
        fields["truncated"] = _flat(data, str(names["truncated"]), bool)
    else:
        if names["truncated"] is not None and next_obs is None:
            remedy = "`timeouts=None` if all episodes end in terminal states; they are taken for such"
            text = message(f"an array `{names['truncated']}`, or `next_observations`", _known(data), "$", remedy)
            warnings.warn(text, ReliveWarning, stacklevel=3)
        fields["truncated"] = np.zeros(len(fields["reward"]), bool)
    fields |= {name: _tree(data, name, float_dtype) for name in extras}
    return _checked(Columns(fields, next_obs))


def columns_of_episodes(data: Iterable[Any], names: Names, extras: Sequence[str], float_dtype: Any) -> list[Columns]:
    """Episodes, each a mapping of arrays or a list of steps; RLDS has either under `"steps"`.

    Raises:
        SchemaError: As in `columns_of_arrays`.
    """
    return [_episode(episode, names, extras, float_dtype, f"$[{number}]") for number, episode in enumerate(data)]


def _episode(episode: Any, names: Names, extras: Sequence[str], float_dtype: Any, at: str) -> Columns:
    if isinstance(episode, Mapping) and "steps" in episode:
        episode = episode["steps"]
    if not isinstance(episode, Mapping):
        episode = _stacked([*episode], at)

    def name_of(field: str) -> str | None:
        wanted = names[field]
        return next((name for name in (wanted, *_ALSO[field]) if name is not None and name in episode), None)

    found = {field: name_of(field) for field in names}
    for field in ("obs", "action", "reward"):
        if found[field] is None:
            raise SchemaError(message(f"an array `{names[field]}` in an episode", _known(episode), at))
    obs, action = (_tree(episode, str(found[field]), float_dtype, at) for field in ("obs", "action"))
    reward = _flat(episode, str(found["reward"]), np.float32, at)
    fields = {"obs": obs, "action": action, "reward": reward}
    fields |= {name: _tree(episode, name, float_dtype, at) for name in extras}
    observed, steps = len(leaves(obs)[0]), len(leaves(action)[0])
    # RLDS: the last entry is an observation whose action and reward mean nothing.
    is_last = _flat(episode, "is_last", bool, at) if "is_last" in episode else np.zeros(observed, bool)
    count = steps - 1 if steps == observed and steps and bool(is_last[-1]) else steps
    terminated = _ends(episode, found["terminated"], count, at)
    truncated = _ends(episode, found["truncated"], count, at)
    if count:
        truncated[-1] |= not terminated[-1]
    fields |= {"terminated": terminated, "truncated": truncated}
    next_obs = None
    if found["next_obs"] is not None:
        next_obs = mapped(lambda values: values[:count], _tree(episode, found["next_obs"], float_dtype, at))
    elif observed == count + 1:
        next_obs = mapped(lambda values: values[1:], obs)
    shortened = {name: mapped(lambda values: values[:count], value) for name, value in fields.items()}
    return _checked(Columns(shortened, next_obs), at)


def _ends(episode: Mapping[str, Any], name: str | None, count: int, at: str) -> Bool:
    """A flag of each step; that of an entry without an action is the flag of the step before."""
    if name is None:
        return np.zeros(count, bool)
    flags = _flat(episode, name, bool, at).copy()
    if len(flags) == count + 1:
        flags[-2:-1] |= flags[-1]
    return np.asarray(flags[:count])


def _stacked(steps: list[Any], at: str) -> dict[str, Any]:
    if not steps or not all(isinstance(step, Mapping) for step in steps):
        got = f"`{type(steps[0]).__name__}`" if steps else "none"
        raise SchemaError(message("steps as mappings of names to values", got, at))

    def stack(values: list[Any], path: str) -> Any:
        if isinstance(values[0], Mapping):
            return {name: stack([value[name] for value in values], f"{path}.{name}") for name in values[0]}
        return np.stack([np.asarray(value) for value in values])

    # The last step of an episode may lack what has no meaning there.
    names = [name for name in steps[0] if all(name in step for step in steps[:-1])]
    return {name: stack([step[name] for step in steps if name in step], f"{at}.{name}") for name in names}


def _tree(data: Mapping[str, Any], name: str, float_dtype: Any, at: str = "$") -> Any:
    if name not in data:
        raise SchemaError(message(f"an array `{name}`", _known(data), at))

    def convert(value: Any) -> Array:
        array = np.asarray(value)
        if kind_of(array.dtype) == "f" and float_dtype is not None:
            array = array.astype(float_dtype, copy=False)
        if kind_of(array.dtype) not in "biufc" or not array.ndim:
            raise SchemaError(message("an array of numbers", f"`{array.dtype}`, {array.shape}", f"{at}.{name}"))
        return array

    return mapped(convert, data[name])


def _flat(data: Mapping[str, Any], name: str, dtype: Any, at: str = "$") -> Array:
    """Numbers `[N]`, which may be a column `[N, 1]`."""
    array = _tree(data, name, None, at)
    if isinstance(array, dict | tuple) or array.shape[1:] not in ((), (1,)):
        got = "a nest" if isinstance(array, dict | tuple) else f"shape `{array.shape}`"
        raise SchemaError(message("one number per step", got, f"{at}.{name}"))
    return np.asarray(array.reshape(-1), dtype)


def _checked(columns: Columns, at: str = "$") -> Columns:
    count = columns.count
    for name, value in {**columns.fields, "next_obs": columns.next_obs}.items():
        for array in leaves(value) if value is not None else ():
            if len(array) != count:
                raise SchemaError(message(f"{count} entries, one per step", f"{len(array)}", f"{at}.{name}"))
    return columns


def _known(data: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in data) or "none"
