"""Parse what a caller gives to `add` and `extend` into canonical arrays: checked, cast, contiguous, frames in front.

Everything is checked here before the ring writes its first byte. Casts never change a value's meaning: a float is never
rounded to an integer, an integer never wraps, a finite number never becomes infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .._base import check
from .._base.narrow import as_array, kind_of
from .._base.types import Array, Bool, Int64
from ..errors import SchemaError, message
from .fields import Column, Field, Tree

FLAGS = ("terminated", "truncated")
_FLAG = Field((), "bool")
# In which unknown names are looked for, whatever order the fields are given in: extras come behind.
_ORDER = ("obs", "action", "reward", "next_obs", *FLAGS)


# What other libraries call these fields.
_ENDS = {"done", "dones", "terminal", "terminals", "episode_end", "is_terminal", "is_last"}
_ENDS_MEAN = "`terminated=` is for a terminal state, `truncated=` for a time limit"
_FLAGS_MEAN = f"; {_ENDS_MEAN}"
_ALSO = {
    **dict.fromkeys(("state", "states", "observation", "observations", "s"), "obs"),
    **dict.fromkeys(("next_state", "next_states", "next_observation", "next_observations", "obs_next"), "next_obs"),
    **dict.fromkeys(("timeout", "timeouts"), "truncated"),
}


class SchemaFields(Protocol):
    """The part of a `relive.Schema` that parsing a step needs."""

    @property
    def columns(self) -> Sequence[Column]: ...
    @property
    def num_obs(self) -> int: ...
    @property
    def tree(self) -> Mapping[str, Tree]: ...
    @property
    def reward(self) -> Field: ...


class ParsedStep:
    """Canonical data of one call, in the order of the schema's columns; leading axes `[L, T]`, or `[L]` for `add`."""

    __slots__ = ("next_values", "terminated", "truncated", "values")

    def __init__(self, values: list[Array], next_values: list[Array] | None, terminated: Bool, truncated: Bool) -> None:
        self.values, self.next_values, self.terminated, self.truncated = values, next_values, terminated, truncated

    def mapped(self, change: Callable[[Array], Array]) -> ParsedStep:
        """Return the step with `change` applied to every array."""
        later = None if self.next_values is None else [change(array) for array in self.next_values]
        return ParsedStep(
            [change(array) for array in self.values], later, change(self.terminated), change(self.truncated)
        )


class Lead:
    """The leading axes of one call's data.

    Attributes:
        shape: `[L, T]`, or `[T, L]` where `swapped`.
        flat: Whether the lane axis was left out.
        swapped: Whether time comes first.
    """

    __slots__ = ("flat", "shape", "swapped")

    def __init__(self, shape: tuple[int, int], flat: bool, swapped: bool) -> None:
        self.shape, self.flat, self.swapped = shape, flat, swapped

    def lane_major(self, array: Array) -> Array:
        """Move the lanes of `array` to the first axis."""
        return np.ascontiguousarray(array.swapaxes(0, 1)) if self.swapped else array

    def as_given(self, ids: Int64) -> Int64:
        """Return ids `[L, T]` in the shape of the data."""
        return ids[0] if self.flat else ids.T if self.swapped else ids


class StepParser:
    """Parses the data of one call by a schema."""

    def __init__(self, schema: SchemaFields) -> None:
        self._schema = schema
        self._flags = [Column((name,), _FLAG) for name in FLAGS]
        self._next = [Column(("next_obs", *c.keys[1:]), c.field) for c in schema.columns[: schema.num_obs]]
        self._all = [*schema.columns, *self._flags, *self._next]

    def step(self, data: Mapping[str, object], lead: tuple[int, ...], optional: int) -> ParsedStep:
        """Parse `data` whose leading axes are `lead`; the first `optional` of these may be left out if they are 1.

        Raises:
            SchemaError: A field is missing, unknown, or of another shape or dtype.
        """
        data = {**dict.fromkeys(_ORDER), **data}
        _reject_unknown(data, self._schema)
        values = [canonical(_leaf(data, column), column, lead, optional) for column in self._schema.columns]
        flags = [canonical(_leaf(data, column), column, lead, optional) for column in self._flags]
        later = None
        if data.get("next_obs") is not None:
            later = [canonical(_leaf(data, column), column, lead, optional) for column in self._next]
        return ParsedStep(values, later, *flags)

    def column(self, number: int, value: object, sizes: tuple[int, int], axes: int, optional: int) -> Array:
        """Parse one value for the kernel: column `number` of the schema's, the flags, and those of `next_obs`.

        Args:
            number: Which one.
            value: What was given for it.
            sizes: Of the leading axes, of which there are `axes`.
            axes: 1 for `add`, 2 for `extend`.
            optional: As in `step`.

        Returns:
            The canonical array.

        Raises:
            SchemaError: As in `step`.
        """
        return canonical(value, self._all[number], sizes[:axes], optional)

    def lead(self, data: Mapping[str, object], lanes: int, time_major: bool) -> Lead:
        """Find the leading axes of the data of `lanes` lanes from the reward.

        Raises:
            SchemaError: There is no time axis, or no step.
        """
        reward = _as_array(_leaf(data, Column(("reward",), self._schema.reward)), "$.reward")
        own = len(self._schema.reward.shape)
        axes = tuple(reward.shape[: reward.ndim - own]) if reward.ndim >= own else ()
        flat = len(axes) == 1 and lanes == 1
        swapped = time_major and not flat
        length = axes[0] if flat or (swapped and axes) else axes[1] if len(axes) == 2 else 0
        if not length:
            wanted = f"leading axes {'`[T, L]`' if time_major else '`[L, T]`'} with T >= 1"
            remedy = None if axes else "`add` takes a single step"
            raise SchemaError(message(wanted, f"shape `{axes}`", "$.reward", remedy))
        return Lead((length, lanes) if swapped else (lanes, length), flat, swapped)


def steps_in(call: Mapping[str, Any], lanes: int, several: bool) -> int:
    """Count the steps given to `add`, or with `several` to `extend`, for `lanes` lanes, before they are parsed.

    0 where the call is about to be refused.
    """
    if not several and call.get("env_ids") is None:
        return lanes
    try:
        if several:
            given = call["terminated"]  # one flag a step
            return int(given.size) if type(given) is np.ndarray else math.prod(np.shape(given))
        return len(call["env_ids"])
    except (KeyError, TypeError, ValueError):
        return 0


def _leaf(data: Mapping[str, object], column: Column) -> object:
    node: object = data
    at = "$"
    for key in column.keys:
        if isinstance(node, tuple | list) and key.isdigit() and at != "$":
            node = {str(index): child for index, child in enumerate(node)}  # a sample of a `Tuple` space
        if not isinstance(node, Mapping):
            raise SchemaError(message(f"a mapping with the key `{key}`", f"`{type(node).__name__}`", at))
        if node.get(key) is None:
            name = f"{at}.{key}".removeprefix("$.")
            remedy = f"every step needs `{name}`{_FLAGS_MEAN if key in FLAGS else ''}"
            raise SchemaError(message("a value", "nothing", name, remedy))
        node, at = node[key], f"{at}.{key}"
    return node


def _reject_unknown(data: Mapping[str, object], schema: SchemaFields) -> None:
    """Refuse keys that the schema does not have, nested ones too: a typo would lose data silently."""
    trees: dict[str, Any] = {**schema.tree, "next_obs": schema.tree["obs"], **dict.fromkeys(FLAGS, _FLAG)}
    stack: list[tuple[str, Any, Any]] = [("$", data, trees)]
    while stack:
        at, value, tree = stack.pop()
        if isinstance(tree, Field) or not isinstance(value, Mapping):
            continue
        for name, child in value.items():
            if name not in tree:
                known = ", ".join(f"`{key}`" for key in tree)
                remedy = _meant(name, tree)
                if remedy is None and at == "$":
                    remedy = f"add it to the schema, such as `{name}=relive.Field()`"
                raise SchemaError(message(f"one of {known}", f"`{name}`", f"{at}.{name}", remedy))
            stack.append((f"{at}.{name}", child, tree[name]))


def _meant(name: object, known: Mapping[str, Any]) -> str | None:
    """Guess which of the `known` names was meant."""
    if name in _ENDS and FLAGS[0] in known:
        return _ENDS_MEAN
    from difflib import get_close_matches  # only for an error

    near = [_ALSO[name]] if name in _ALSO else get_close_matches(str(name), [*known], 1, 0.75)
    return f"did you mean `{near[0]}`?" if near and near[0] in known else None


def _as_array(value: object, at: str) -> Array:
    if isinstance(value, Mapping):
        raise SchemaError(message("an array", "a mapping", at))
    check.unmasked(value, at, SchemaError)
    try:
        return as_array(value)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists, tensors that need detach() or cpu()
        pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)
        remedy = "`obs, info = env.reset()` returns two values" if pair else str(error).split("\n")[0]
        raise SchemaError(message("an array", f"`{type(value).__name__}`", at, remedy)) from None


def check_discounts(given: object) -> None:
    """Refuse discounts that are not from 0 to 1; what is no array of numbers is left to be refused elsewhere.

    Raises:
        SchemaError: One of them is not.
    """
    try:
        array = as_array(given)
    except (ValueError, TypeError, RuntimeError):
        return
    if not array.size or kind_of(array.dtype) not in "biuf":
        return
    if not (np.minimum.reduce(array, axis=None) >= 0 and np.maximum.reduce(array, axis=None) <= 1):  # or NaN
        outside = ~((array >= 0) & (array <= 1))
        got = f"`{array[outside][0]}`" + (f" ({outside.sum()} of {outside.size})" if outside.size > 1 else "")
        raise SchemaError(message("discounts >= 0 and <= 1", got, "$.discount"))


def canonical(value: object, column: Column, lead: tuple[int, ...], optional: int) -> Array:
    """Check one value with the leading axes `lead`, and convert it to the column's dtype; `optional` as in `step`.

    Raises:
        SchemaError: It has another shape, or another dtype that is not cast.
    """
    field, at = column.field, column.path
    array = _as_array(value, at)
    full = (*lead, *field.full_shape)
    shapes = [full]
    for left_out in range(1, optional + 1):
        if lead[left_out - 1] != 1:
            break
        shapes.append(full[left_out:])
    wanted = shapes[-1]
    if column.keys[0] == "action" and not field.full_shape and field.dtype.kind in "iu":
        shapes += [(*shape, 1) for shape in shapes]  # discrete actions as columns, ready for `gather(1, action)`
    if kind_of(array.dtype) not in "biufc" or array.shape not in shapes:
        expected, got = f"shape `{wanted}`", f"shape `{array.shape}`"
        if not _castable(kind_of(array.dtype), kind_of(field.dtype)):
            given = "str" if array.dtype.kind == "U" else array.dtype.name
            expected, got = f"`{field.dtype.name}` of {expected}", f"`{given}` of {got}"
        remedy = None if array.shape in shapes else _lanes_meant(array.shape, field.full_shape, lead)
        raise SchemaError(message(expected, got, at, remedy))
    if column.keys == ("discount",):
        check_discounts(array)
    cast = _cast(array, field.dtype, at).reshape(full)
    if field.stack and field.stack_axis:  # inside, frames come one after the other
        cast = np.moveaxis(cast, -1, len(lead))
    made = np.ascontiguousarray(cast.reshape((*lead, *field.shape)) if field.stack == 1 else cast)
    return made if made.flags.aligned else made.copy()


def _castable(source: str, target: str) -> bool:
    """Tell if values of one kind may be stored as values of another."""
    return source in ("biufc" if target == "c" else "biu" if target in "iu" else "biuf")


def _lanes_meant(given: tuple[int, ...], own: tuple[int, ...], lead: tuple[int, ...]) -> str | None:
    """Guess the remedy where a step has the shape of another number of environments."""
    if len(lead) != 1 or not given:
        turned = len(lead) == 2 and given[1:2] == lead[:1] != given[:1]
        return "environments and time may be swapped: see `time_major`" if turned else None
    if given == own and own[:1] == lead:
        return "a schema comes from `envs.single_observation_space`, not from the batched space"
    if given == own:
        return f"give a step of each of {lead[0]} environments; that of one alone is `env_ids=[i]`"
    if lead == (1,) and given[1:] == own:
        return f"{given[0]} environments need `ReplayBuffer(num_envs={given[0]})`, and no `env_ids`"
    return None


def _cast(array: Array, dtype: np.dtype[Any], at: str) -> Array:
    if array.dtype == dtype:
        return array
    source, target = kind_of(array.dtype), kind_of(dtype)
    wanted = f"`{dtype.name}`"
    if target == "b":
        if source == "c":
            raise SchemaError(message("`bool`", f"`{array.dtype.name}`", at))
        other = (array != 0) & (array != 1)  # NaN is neither
        if bool(other.any()):
            raise SchemaError(message("`bool`", f"`{array[other].flat[0]}`", at))
        return array.astype(dtype)
    if target in "iu":
        if source not in "biu":
            remedy = "round it yourself if that is meant" if source == "f" else None
            raise SchemaError(message(wanted, f"`{array.dtype.name}`", at, remedy))
        if source != "b":
            limits = np.iinfo(dtype)
            if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
                worst = int(array.min()) if int(array.min()) < limits.min else int(array.max())
                raise SchemaError(message(f"{wanted} from {limits.min} to {limits.max}", f"`{worst}`", at))
        return array.astype(dtype)
    if source == "c" and target != "c":
        raise SchemaError(message(wanted, f"`{array.dtype.name}`", at))
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    if not bool(np.isfinite(cast).all()):
        overflow = np.isfinite(array) & ~np.isfinite(cast)
        if bool(overflow.any()):
            raise SchemaError(message(f"a value that {wanted} can hold", f"`{array[overflow].flat[0]}`", at))
    return cast
