"""Arrays of offline data, under whatever names they come, as steps of a buffer."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._base import check
from .._base.narrow import kind_of
from .._base.nests import leaves, located, mapped, nested, paths
from .._base.types import Array, Bool
from ..errors import ReliveWarning, SchemaError, message
from .names import WITH_ARTICLE, remedy_for, role_of, unused

_CHUNK = 1 << 16  # rows that are compared at once
# The default names, and others under which episodes have the same, in the order in which they are looked for.
_ALSO = {
    "obs": ("observations", "observation", "obs"),
    "action": ("actions", "action"),
    "reward": ("rewards", "reward"),
    "terminated": ("terminals", "is_terminal", "terminations", "terminated"),
    "truncated": ("timeouts", "truncations", "truncated"),
    "next_obs": ("next_observations",),
}
_ARGUMENTS = {field: also[0] for field, also in _ALSO.items()}
_RLDS = ("is_first", "is_last", "discount")  # of RLDS, which says the same thrice
Names = Mapping[str, str | None]


@dataclass(frozen=True)
class OfflineSteps:
    """Steps that follow each other: `fields` are those of a schema and the flags, arrays `[N, ...]`, nested.

    Attributes:
        fields: `obs`, `action`, `reward`, `terminated`, `truncated` and extras.
        next_obs: Observations after each step, as `obs` nested; None: the following step's.
        left_out: The names of arrays that nothing takes.
    """

    fields: dict[str, Any]
    next_obs: Any = None
    left_out: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """N."""
        return len(self.fields["reward"])

    @property
    def boundaries(self) -> int:
        """The rows that final observations take: one at each end, and one before each step that continues none."""
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


def columns_of_arrays(data: Mapping[str, Any], names: Names, extras: Sequence[str]) -> OfflineSteps:
    """Read flat arrays, as D4RL has them.

    Raises:
        SchemaError: A name is missing, an array does not have one entry per step, or one that nothing takes has the
            name of an end, a successor or a reward.
    """
    found = _found(data, names, "$", flat=True)
    left_out = _left_out(data, {*found.values(), *extras}, "$", flat=True)
    fields = {name: _tree(data, str(found[name])) for name in ("obs", "action")}
    fields["reward"] = _flat(data, str(found["reward"]))
    fields["terminated"] = _flags(data, str(found["terminated"]))
    next_obs = None if found["next_obs"] is None else _tree(data, found["next_obs"])
    if found["truncated"] is not None:
        fields["truncated"] = _flags(data, found["truncated"])
    else:
        if names["truncated"] is not None and next_obs is None:
            remedy = "`timeouts=None` if all episodes end in terminal states; they are taken for such"
            text = message(f"an array `{names['truncated']}`, or `next_observations`", _known(data), "$", remedy)
            warnings.warn(text, ReliveWarning, stacklevel=3)
        fields["truncated"] = np.zeros(len(fields["reward"]), bool)
    return _checked(OfflineSteps(fields | _extras(data, extras), next_obs, left_out))


def columns_of_episodes(data: Iterable[Any], names: Names, extras: Sequence[str]) -> list[OfflineSteps]:
    """Read episodes, each a mapping of arrays or a list of steps; RLDS has either under `"steps"`.

    Raises:
        SchemaError: As in `columns_of_arrays`.
    """
    return [_episode(episode, names, extras, f"$[{number}]") for number, episode in enumerate(data)]


def _episode(episode: Any, names: Names, extras: Sequence[str], at: str) -> OfflineSteps:
    beside: tuple[str, ...] = ()
    if isinstance(episode, Mapping) and "steps" in episode:
        beside = _left_out(episode, {"steps"}, at)
        episode = episode["steps"]
    if not isinstance(episode, Mapping):
        episode = _stacked([*episode], at)
    found = _found(episode, names, at)
    says = {name: _flat(episode, name, at) for name in _RLDS if name in episode}
    left_out = _left_out(episode, {*found.values(), *extras, *says}, at)
    obs, action = (_tree(episode, str(found[field]), at) for field in ("obs", "action"))
    fields = {"obs": obs, "action": action, "reward": _flat(episode, str(found["reward"]), at)}
    fields |= _extras(episode, extras, at)
    observed, steps = len(leaves(obs)[0]), len(leaves(action)[0])
    # RLDS: the last entry is an observation whose action and reward mean nothing.
    alone = observed - steps in (0, 1) and len(says.get("is_last", ())) == observed and bool(says["is_last"][-1:].any())
    count = observed - 1 if alone else steps
    terminated, truncated = (_ends(episode, found[name], count, at) for name in ("terminated", "truncated"))
    _agree({name: values for name, values in says.items() if name not in found.values()}, terminated, count, at)
    if count:
        truncated[-1:] |= ~terminated[-1:]
    if alone:
        fields = {name: _first(value, count) for name, value in fields.items()}
    next_obs = None if found["next_obs"] is None else _tree(episode, found["next_obs"], at)
    if next_obs is not None and alone:
        next_obs = _first(next_obs, count)
    elif observed == count + 1:
        after, fields["obs"] = mapped(lambda values: values[1:], obs), _first(obs, count)
        next_obs = after if next_obs is None else _known_last(next_obs, after, str(found["next_obs"]), at)
    fields |= {"terminated": terminated, "truncated": truncated}
    return _checked(OfflineSteps(fields, next_obs, (*beside, *left_out)), at)


def _found(data: Mapping[str, Any], names: Names, at: str, flat: bool = False) -> dict[str, str | None]:
    """Find the name of each field in `data`; one that the caller gave has to be there."""
    found: dict[str, str | None] = {}
    for field, wanted in names.items():
        default = wanted == _ARGUMENTS[field] or (field == "next_obs" and wanted is None)
        known = _ALSO[field][: 1 if flat else None] if default else (wanted,)
        found[field] = next((name for name in known if name is not None and _value(data, name) is not None), None)
        needed = field in ("obs", "action", "reward") or (flat and field == "terminated")
        if found[field] is None and wanted is not None and (needed or not default):
            place = "" if flat else " in an episode"
            remedy = f'`{_ARGUMENTS[field]}="NAME"` says which array it is'
            raise SchemaError(message(f"an array `{wanted}`{place}", _known(data), at, remedy if default else None))
    return found


def _left_out(data: Mapping[str, Any], used: set[Any], at: str, flat: bool = False) -> tuple[str, ...]:
    """List the names of unused arrays.

    Raises:
        SchemaError: One has the name of an end, a successor or a reward.
    """
    names = [*unused(data, used)]
    for name in names:
        role = role_of(name, numbered=flat)
        if role is not None:
            wanted, remedy = f"a use of `{name}`, which has the name of {WITH_ARTICLE[role]}", remedy_for(name, role)
            raise SchemaError(message(wanted, "none", f"{at}.{name}", remedy))
    return tuple(names)


def _agree(says: Mapping[str, Array], terminated: Bool, count: int, at: str) -> None:
    """Check that RLDS's fields tell no other ends than the episode's own."""
    for name, values in says.items():
        if name == "is_first":
            agrees = not values[1:].any()
        elif name == "is_last":
            agrees = not values[:-1].any()
        else:
            steps = values[:count]
            agrees = bool((steps == 1).all()) or np.array_equal(steps, ~terminated)
        if not agrees:
            remedy = remedy_for(name, "end")
            raise SchemaError(
                message(f"`{name}` that tells the same ends as the episode", "others", f"{at}.{name}", remedy)
            )


def _first(value: Any, count: int) -> Any:
    """Drop the last entry where there is one more than steps."""
    return mapped(lambda array: array[:count] if len(array) == count + 1 else array, value)


def _known_last(next_obs: Any, after: Any, name: str, at: str) -> Any:
    """Return next observations, after a check that the last one equals the final observation."""
    for one, other in zip(leaves(next_obs), leaves(after), strict=True):
        if not np.array_equal(one[-1:], other[-1:], equal_nan=kind_of(one.dtype) in "fc"):
            wanted = f"`{name}` whose last entry is the final observation"
            raise SchemaError(message(wanted, "another one", f"{at}.{name}", "leave out one of both"))
    return next_obs


def _ends(episode: Mapping[str, Any], name: str | None, count: int, at: str) -> Bool:
    """Read a flag of each step; that of an entry without an action is the flag of the step before."""
    if name is None:
        return np.zeros(count, bool)
    flags = _flags(episode, name, at)
    if len(flags) == count + 1:
        flags[-2:-1] |= flags[-1]
        flags = flags[:count]
    return flags


def infos_of(infos: Mapping[str, Any], names: Sequence[str], count: int, at: str) -> dict[str, Any]:
    """Return Minari's infos as further arrays: of `count + 1` entries the first is of the reset.

    Raises:
        SchemaError: A name is missing, or an array does not have one entry per step.
    """
    found = mapped(lambda array: array[1:] if len(array) == count + 1 else array, _extras(infos, names, at))
    for path, array in paths(found):
        if len(array) != count:
            raise SchemaError(message(f"{count} entries, one per step", f"{len(array)}", f"{at}.{'.'.join(path)}"))
    return dict(found)


def _extras(data: Mapping[str, Any], extras: Sequence[str], at: str = "$") -> dict[str, Any]:
    """Return further arrays; those whose names are paths are nested."""
    return nested((tuple(re.split(r"[./]", name)), _tree(data, name, at)) for name in extras)


def _stacked(steps: list[Any], at: str) -> dict[str, Any]:
    if not steps or not all(isinstance(step, Mapping) for step in steps):
        got = f"`{type(steps[0]).__name__}`" if steps else "none"
        raise SchemaError(message("steps as mappings of names to values", got, at))

    def stack(values: list[Any], path: str) -> Array:
        check.unmasked(values, path, SchemaError)
        return np.stack([np.asarray(value) for value in values])

    def entries(values: list[Any], path: str) -> dict[str, Any] | None:
        if not any(isinstance(value, Mapping) for value in values):
            return None
        names = {name: None for value in values for name in (value if isinstance(value, Mapping) else ())}
        for name in names:
            lacking = [value for value in values if not isinstance(value, Mapping) or name not in value]
            # The last step of an episode may lack what has no meaning there.
            if lacking and (path != at or lacking[0] is not steps[-1]):
                got = f"{len(lacking)} of {len(values)} without it"
                raise SchemaError(message(f"`{name}` in every step", got, f"{path}.{name}"))
        return {name: [value[name] for value in values if name in value] for name in names}

    stacked: dict[str, Any] = located(stack, steps, at, entries)
    return stacked


def _value(data: Any, name: str) -> Any:
    """Look up a name, or a path separated by slashes; None if nothing is there."""
    if name in data:
        return data[name]
    first, _, rest = name.partition("/")
    return _value(data[first], rest) if rest and isinstance(data.get(first), Mapping) else None


def _tree(data: Mapping[str, Any], name: str, at: str = "$") -> Any:
    found = _value(data, name)
    if found is None:
        raise SchemaError(message(f"an array `{name}`", _known(data), at))

    def convert(value: Any) -> Array:
        check.unmasked(value, f"{at}.{name}", SchemaError)
        array = np.asarray(value)
        if kind_of(array.dtype) not in "biufc" or not array.ndim:
            raise SchemaError(message("an array of numbers", f"`{array.dtype}`, {array.shape}", f"{at}.{name}"))
        return array

    return mapped(convert, found)


def _flat(data: Mapping[str, Any], name: str, at: str = "$") -> Array:
    """Read numbers `[N]`, which may be a column `[N, 1]`."""
    array = _tree(data, name, at)
    if isinstance(array, dict | tuple) or array.shape[1:] not in ((), (1,)):
        got = "a nest" if isinstance(array, dict | tuple) else f"shape `{array.shape}`"
        raise SchemaError(message("one number per step", got, f"{at}.{name}"))
    return np.asarray(array.reshape(-1))


def _flags(data: Mapping[str, Any], name: str, at: str = "$") -> Bool:
    """Return flags `[N]`, a new array."""
    values = _flat(data, name, at)
    other = values[(values != 0) & (values != 1)]
    if len(other):
        raise SchemaError(message("flags, 0 or 1", f"`{other[0]}`", f"{at}.{name}"))
    return values.astype(bool)


def _checked(columns: OfflineSteps, at: str = "$") -> OfflineSteps:
    count = columns.count
    for name, value in {**columns.fields, "next_obs": columns.next_obs}.items():
        for array in leaves(value) if value is not None else ():
            if len(array) != count:
                raise SchemaError(message(f"{count} entries, one per step", f"{len(array)}", f"{at}.{name}"))
    return columns


def _known(data: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in data) or "none"
