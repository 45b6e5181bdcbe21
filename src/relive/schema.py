"""What one step holds: named fields of fixed shape and dtype, nested as the observation and action spaces are.

A schema is a tree of `Field`s. The storage sees it flat, as a tuple of `Column`s, the observation's columns first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from . import _check
from .errors import ArgumentError, SchemaError, message

# Names that a batch gives a meaning of its own, that `add` takes as arguments, or that are methods of a batch.
RESERVED = frozenset(
    {"next_obs", "terminated", "truncated", "discount", "steps", "ids", "weights", "mask", "all_obs"}
    | {"prev_action", "prev_reward", "all_prev_action", "all_prev_reward", "env_ids", "priority", "time_major"}
    | {"torch", "jax", "map", "keys", "values", "items", "get"}
)


@dataclass(frozen=True)
class Field:
    """One named array of a step: its shape and dtype, the same at every step.

    Args:
        shape: The shape of the field at one step, without lane, time, batch or stack axes; an int `n` stands for
            `(n,)`.
        dtype: Any fixed-size boolean, integer, floating or complex NumPy dtype.
        stack: Frames that an observation shows at once, oldest first; for fields of `obs` only. Given and drawn as
            `[..., stack, *shape]`, stored as one frame per step. None: no stack axis.
        pad: What stands before an episode's first frame: zeros (`"zero"`), or that frame again (`"first"`, what
            `gymnasium.wrappers.FrameStackObservation` does). Any other history is kept, too, and takes a row a frame.
        stack_axis: 0 for `[..., stack, *shape]`, -1 for `[..., *shape, stack]`.
        every: Keep the field at every `every`-th step of a lane only, which is what recurrent state is for: given at
            every step, drawn at the first step of an item only. None: an ordinary field.

    Raises:
        SchemaError: The shape has an axis that is no positive integer, the dtype is of another kind, or a stack or an
            interval is no positive integer.

    >>> Field((84, 84), "uint8", stack=4).nbytes
    7056
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stack: int | None
    pad: str
    stack_axis: int
    every: int | None

    def __init__(
        self,
        shape: int | tuple[int, ...] = (),
        dtype: Any = "float32",
        *,
        stack: int | None = None,
        pad: str = "zero",
        stack_axis: int = 0,
        every: int | None = None,
    ) -> None:
        axes = (shape,) if isinstance(shape, int | np.integer) else shape
        try:
            if not isinstance(axes, tuple | list):
                raise TypeError
            checked = tuple(_check.integer(axis, "Field(shape)", minimum=1) for axis in axes)
        except (TypeError, ValueError):
            raise SchemaError(message("a shape of positive integers", f"`{shape!r}`", "Field(shape)")) from None
        try:
            kind = None if dtype is None else np.dtype(dtype)
        except TypeError:
            kind = None
        if kind is None or kind.kind not in "biufc":
            wanted = "a boolean, integer, floating or complex dtype"
            raise SchemaError(message(wanted, f"`{dtype!r}`", "Field(dtype)"))
        if pad not in ("zero", "first"):
            raise SchemaError(message("`'zero'` or `'first'`", f"`{pad!r}`", "Field(pad)"))
        if stack_axis not in (0, -1) or isinstance(stack_axis, bool):
            raise SchemaError(message("0 or -1", f"`{stack_axis!r}`", "Field(stack_axis)"))
        object.__setattr__(self, "shape", checked)
        object.__setattr__(self, "dtype", kind.newbyteorder("="))
        object.__setattr__(self, "stack", _count(stack, "Field(stack)"))
        object.__setattr__(self, "pad", pad)
        object.__setattr__(self, "stack_axis", int(stack_axis))
        object.__setattr__(self, "every", _count(every, "Field(every)"))

    @property
    def nbytes(self) -> int:
        """Bytes of one stored value: of a single frame where the field is stacked."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def frames(self) -> int:
        """Frames that one value shows: `stack`, or 1."""
        return self.stack or 1

    @property
    def full_shape(self) -> tuple[int, ...]:
        """The shape of one value as it is given and drawn, with the stack's axis."""
        if self.stack is None:
            return self.shape
        return (self.stack, *self.shape) if self.stack_axis == 0 else (*self.shape, self.stack)

    def __repr__(self) -> str:
        told = f"{self.shape}, {self.dtype.name!r}"
        if self.stack is not None:
            told += f", stack={self.stack}, pad={self.pad!r}" + (", stack_axis=-1" if self.stack_axis else "")
        return f"Field({told}" + (f", every={self.every})" if self.every is not None else ")")


def _count(value: Any, at: str) -> int | None:
    try:
        return None if value is None else _check.integer(value, at, minimum=1)
    except ArgumentError:
        raise SchemaError(message("a positive integer or None", f"`{value!r}`", at)) from None


Tree: TypeAlias = "Field | dict[str, Tree]"


@dataclass(frozen=True)
class Column:
    """One leaf of the schema's tree: the keys that lead to it, and its field."""

    keys: tuple[str, ...]
    field: Field

    @property
    def path(self) -> str:
        """The leaf's place in the words of error messages, such as `$.obs.camera`."""
        return "$." + ".".join(self.keys)


class Schema:
    """The fields of one step, as keyword arguments: `obs`, `action`, and any extras.

    `reward` is a `float32` scalar unless stated; `terminated` and `truncated` (boolean scalars) exist in every schema
    and cannot be redefined. `obs` is the field that has a successor (`next_obs`); it is stored once.

    Args:
        obs: A `Field`, or a (nested) mapping of names to fields.
        action: Likewise.
        reward: The reward's field; a vector of rewards is allowed.
        **extras: Further fields or mappings of fields (log-probabilities, policy versions, ...), stored at every step.

    Raises:
        SchemaError: A value is no field, a mapping is empty, or a name is reserved or no identifier.

    >>> schema = Schema(obs=Field((3,)), action=Field((1,)), log_prob=Field())
    >>> schema.nbytes  # 12 + 4 + 4 + 4 bytes, and one each for terminated and truncated
    26
    """

    def __init__(self, *, obs: Any, action: Any, reward: Any = None, **extras: Any) -> None:
        given = {"obs": obs, "action": action, "reward": Field() if reward is None else reward, **extras}
        self._tree: dict[str, Tree] = {}
        for name, value in given.items():
            if name in RESERVED:
                remedy = "relive gives that name a meaning of its own; choose another"
                raise SchemaError(message("a field name that is free", f"`{name}`", f"$.{name}", remedy))
            self._tree[name] = _checked_tree(value, f"$.{name}")
        self.columns: tuple[Column, ...] = tuple(_leaves(self._tree, ()))
        self.num_obs: int = sum(column.keys[0] == "obs" for column in self.columns)
        if not isinstance(self._tree["reward"], Field):
            raise SchemaError(message("a single `Field`", "a mapping", "$.reward"))
        for column in self.columns:
            if column.field.stack is not None and column.keys[0] != "obs":
                wanted = "`stack=` in fields of `obs` only"
                raise SchemaError(message(wanted, f"`{column.field!r}`", column.path))
            if column.field.every is not None and column.keys[0] in ("obs", "action", "reward"):
                wanted = "`every=` in extras only"
                raise SchemaError(message(wanted, f"`{column.field!r}`", column.path))

    @property
    def tree(self) -> Mapping[str, Tree]:
        """The fields as they were given, `obs`, `action`, `reward` and extras; nested mappings stay nested."""
        return self._tree

    @property
    def reward(self) -> Field:
        """The reward's field."""
        field = self._tree["reward"]
        return field if isinstance(field, Field) else Field()

    @property
    def nbytes(self) -> int:
        """Bytes per step: every field once, with one byte each for `terminated` and `truncated`.

        A stacked field counts one frame, and one that is kept at every k-th step the k-th part, rounded up.
        """
        return sum(-(-column.field.nbytes // (column.field.every or 1)) for column in self.columns) + 2

    @classmethod
    def from_spaces(
        cls,
        observation_space: Any,
        action_space: Any,
        *,
        stack: int | None = None,
        pad: str = "zero",
        stack_axis: int = 0,
        **extras: Any,
    ) -> Schema:
        """Read the schema off Gymnasium spaces (those of a single environment, not the batched ones).

        `Box`, `Discrete`, `MultiDiscrete`, `MultiBinary`, `Dict` and `Tuple` are understood; a `Tuple` becomes a
        mapping with the keys `"0"`, `"1"`, ... and its values may be given to `add` as tuples.

        Args:
            observation_space: What the environment shows.
            action_space: What it takes.
            stack: Frames that all observations show along `stack_axis`, as frame-stack wrappers make them; each frame
                is then stored once. None: observations are no stacks, or are to be stored whole.
            pad: As in `Field`.
            stack_axis: As in `Field`.
            **extras: Further fields.

        Raises:
            SchemaError: A space of another kind, or one without `stack` frames.
            MissingExtra: Gymnasium is not installed.
        """
        from ._spaces import fields_of, unstacked

        obs, action = fields_of(observation_space, "$.obs"), fields_of(action_space, "$.action")
        if stack is not None:
            obs = unstacked(obs, Field(stack=stack, pad=pad, stack_axis=stack_axis), "$.obs")
        return cls(obs=obs, action=action, **extras)

    @classmethod
    def from_example(cls, step: Mapping[str, Any]) -> Schema:
        """Read the schema off one step, a mapping of names to arrays without lane or batch axes.

        NumPy values keep their dtype; Python floats become `float32`, ints `int64`. The reward is `float32` unless it
        is an integer array. `next_obs`, `terminated` and `truncated` are understood and add nothing.

        >>> Schema.from_example({"obs": np.zeros(3, "float32"), "action": 1, "reward": 0.5})
        Schema(obs=Field((3,), 'float32'), action=Field((), 'int64'), reward=Field((), 'float32'))
        """
        if not isinstance(step, Mapping):
            raise SchemaError(message("a mapping of names to arrays", f"`{type(step).__name__}`", "$"))
        fields = {
            name: _field_of(value, f"$.{name}")
            for name, value in step.items()
            if name not in ("next_obs", "terminated", "truncated")
        }
        for name in ("obs", "action"):
            if name not in fields:
                raise SchemaError(message("an example value", "nothing", f"$.{name}"))
        reward = fields.get("reward")
        if isinstance(reward, Field) and reward.dtype.kind == "f":
            fields["reward"] = Field(reward.shape, "float32")
        return cls(**fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._tree == other._tree

    def __hash__(self) -> int:
        return hash(self.columns)

    def __repr__(self) -> str:
        return "Schema(" + ", ".join(f"{name}={field!r}" for name, field in self._tree.items()) + ")"


def _checked_tree(value: Any, at: str) -> Tree:
    if isinstance(value, Field):
        return value
    if not isinstance(value, Mapping) or not value:
        got = "an empty mapping" if isinstance(value, Mapping) else f"`{value!r}`"
        raise SchemaError(message("a `Field` or a mapping of fields", got, at))
    tree: dict[str, Tree] = {}
    for name, child in value.items():
        if not isinstance(name, str) or not name or "." in name or name.startswith("_"):
            raise SchemaError(message("a name without dots or a leading underscore", f"`{name!r}`", at))
        tree[name] = _checked_tree(child, f"{at}.{name}")
    return tree


def _leaves(tree: Mapping[str, Tree], keys: tuple[str, ...]) -> Iterator[Column]:
    for name, node in tree.items():
        if isinstance(node, Field):
            yield Column((*keys, name), node)
        else:
            yield from _leaves(node, (*keys, name))


def _field_of(value: Any, at: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _field_of(child, f"{at}.{name}") for name, child in value.items()}
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise SchemaError(message("an array", f"`{type(value).__name__}`", at, str(error))) from None
    if array.dtype.kind not in "biufc":
        raise SchemaError(message("a numeric array", f"`{array.dtype}`", at))
    python_float = array.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic)
    return Field(array.shape, "float32" if python_float else array.dtype)
