"""One batched trajectory: the steps of several environments side by side, `[T, B, ...]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import numpy as np

from .._base import check
from .._base.narrow import BITS, from_torch, name_of
from .._base.nests import Path, paths
from .._base.types import Array
from ..errors import ArgumentError, SchemaError, message
from . import _metadata

# Fields that may have an extra row per rollout epoch: flags start with the reset's, values end with the final
# observation's.
LEADING = ("dones", "terminations", "truncations")
TRAILING = ("prev_values",)
# RLinf's fields. Its tensors always have the axes `(T, B, ...)`.
TENSORS = (
    "actions", "intervene_flags", "rewards", "terminations", "truncations", "dones", "prev_logprobs", "prev_values",
    "versions",
)  # fmt: skip
MAPPINGS = ("forward_inputs", "curr_obs", "next_obs")
# T and B are taken from the first of these that is given.
_MEASURES = ("rewards", "prev_logprobs", "actions")
_KINDS = "biuf"
_USUAL = frozenset("?bBhHiIlLqQefd")  # NumPy's numbers of up to 8 bytes
_DEEPEST = 30


class _Settled(NamedTuple):
    length: int
    width: int
    arrays: dict[Path, Array]
    metadata: dict[Path, Any]


class Trajectory(Mapping[str, Any]):
    """The steps of one rollout: nested mappings of arrays or PyTorch tensors of shape `[T, B, ...]`.

    T is the number of chunk-steps, B the number of environments. A trajectory is not split at episode ends. Fields may
    have any names. Some of RLinf's have a meaning: `dones`, `terminations`, `truncations` and `prev_values` may have an
    extra row per rollout epoch, which is dropped (the first row of an epoch for flags, the last one for values); and a
    `next_obs` that is `curr_obs` one step later is stored once.

    Texts, numbers, lists and arrays of one axis are kept once for the whole trajectory: an instruction, its tokens,
    `success=True`.

    Fields are attributes, and can be set after construction, as in RLinf. Their shapes are compared when the trajectory
    is used.

    Args:
        max_episode_length: Stored with the trajectory, as in RLinf.
        model_weights_id: Likewise: the weights of the policy that acted.
        **fields: Arrays, tensors, or nested mappings of them; None and empty mappings are left out.

    Raises:
        SchemaError: A field is neither numbers nor text, its first two axes differ from those of the others, or a name
            is empty or has a slash.

    >>> Trajectory(rewards=np.zeros((5, 2, 1)), curr_obs={"states": np.zeros((5, 2, 3))}).num_samples
    10
    >>> trajectory = Trajectory(max_episode_length=5, task="pick up the cup")
    >>> trajectory.rewards = np.ones((5, 2, 1), np.float32)
    >>> trajectory.rewards.shape, trajectory.actions, trajectory.task
    ((5, 2, 1), None, 'pick up the cup')
    """

    max_episode_length: int
    model_weights_id: str

    def __init__(self, /, *, max_episode_length: int = 0, model_weights_id: str = "", **fields: Any) -> None:
        self._given: dict[str, Any] = _taken(fields, ())
        self._settled: _Settled | None = None
        self.max_episode_length, self.model_weights_id = max_episode_length, model_weights_id
        if any(isinstance(value, Mapping | np.ndarray) for value in self._given.values()):
            self.settle()

    def settle(self) -> Trajectory:
        """Compare all fields, as they are now.

        Raises:
            SchemaError: There is no field `[T, B, ...]`, or two have different axes.
        """
        found = dict(paths(_taken(self._given, ())))
        arrays = {path: value for path, value in found.items() if isinstance(value, np.ndarray) and value.ndim > 1}
        if not arrays:
            raise SchemaError(message("at least one field of shape `(T, B, ...)`", "none", "Trajectory"))
        length, width = _measure(arrays)
        trimmed = {path: _trimmed(path, array, length, width) for path, array in arrays.items()}
        metadata = {path: value for path, value in found.items() if path not in arrays}
        if metadata:
            _metadata.to_json(metadata)
        self._settled = _Settled(length, width, trimmed, metadata)
        return self

    @property
    def _now(self) -> _Settled:
        settled = self._settled or self.settle()._settled
        return settled  # type: ignore[return-value]

    @property
    def length(self) -> int:
        """Chunk-steps, T."""
        return self._now.length

    @property
    def width(self) -> int:
        """Environments, B."""
        return self._now.width

    @property
    def arrays(self) -> dict[Path, Array]:
        """The fields `[T, B, ...]` by path, without extra rows."""
        return self._now.arrays

    @property
    def metadata(self) -> dict[Path, Any]:
        """The fields that are kept for the whole trajectory, by path."""
        return self._now.metadata

    @property
    def num_samples(self) -> int:
        """Chunk-steps of all environments, T * B."""
        return self.length * self.width

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def __getitem__(self, name: str) -> Any:
        """Return the array, text, or nested mapping of this name."""
        return self.arrays[(name,)] if name in LEADING + TRAILING and name in self._given else self._given[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in self._given.items() if not isinstance(value, Mapping) or value)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._given:
            return self[name]
        if name in MAPPINGS:  # to be filled in place
            return self._given.setdefault(name, {})
        if name in TENSORS:
            return None
        raise AttributeError(f"a trajectory without a field `{name}`; it has {', '.join(self) or 'none'}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name == "max_episode_length":
            object.__setattr__(self, name, check.integer(value, "Trajectory(max_episode_length)", minimum=0))
        elif name == "model_weights_id":
            if not isinstance(value, str):
                raise SchemaError(message("a string", f"`{value!r}`", "Trajectory(model_weights_id)"))
            object.__setattr__(self, name, value)
        else:
            self._settled = None
            self._given.update(_taken({name: value}, ()))
            if value is None:
                self._given.pop(name, None)

    def __repr__(self) -> str:
        fields = ", ".join(f"{'.'.join(path)}={_described(value)}" for path, value in paths(_taken(self._given, ())))
        return f"Trajectory({fields})"


def as_trajectory(value: Any, at: str = "$.trajectories") -> Trajectory:
    """Return a `Trajectory`, a mapping of fields, or RLinf's dataclass as a `Trajectory` with fields that fit.

    Raises:
        ArgumentError: It is anything else.
        SchemaError: A field is invalid.
    """
    if isinstance(value, Trajectory):
        return value.settle()  # nested mappings may have been filled since
    if is_dataclass(value) and not isinstance(value, type):  # RLinf's
        value = {field.name: getattr(value, field.name) for field in fields_of(value)}
    if not isinstance(value, Mapping):
        raise ArgumentError(message("a `Trajectory` or a mapping of fields", f"`{type(value).__name__}`", at))
    _names(value, ())
    trajectory = Trajectory(**value)
    return trajectory if trajectory._settled else trajectory.settle()


def _names(tree: Mapping[Any, Any], above: Path) -> None:
    at = "$." + ".".join(above)
    if len(above) > _DEEPEST:
        raise SchemaError(message(f"at most {_DEEPEST} levels of nesting", "more", at[:60]))
    for name in tree:
        if not check.is_name(name) or "/" in name or name.startswith("_"):
            at = "$." + ".".join([*above, str(name)])
            raise SchemaError(message("a name without a slash or a leading underscore", f"`{name!r}`", at))


def _taken(tree: Mapping[Any, Any], above: Path) -> dict[str, Any]:
    """Copy nested mappings, with their leaves as arrays, texts, numbers and lists; without None."""
    _names(tree, above)
    taken = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            taken[name] = _taken(value, (*above, name))
        elif value is not None:
            taken[name] = _leaf(value, (*above, name))
    return taken


def _leaf(value: Any, path: Path) -> Any:
    """Return a leaf as an array `(T, B, ...)` of the machine's byte order, or as a value that a trajectory has once."""
    if (
        type(value) is np.ndarray
        and value.ndim > 1
        and value.size
        and value.dtype.char in _USUAL
        and value.dtype.isnative
    ):
        return value
    at = "$." + ".".join(path)
    check.unmasked(value, at, SchemaError)
    array: Any = None
    if not isinstance(value, str | bool | int | float):
        try:
            array = from_torch(value) if hasattr(value, "detach") else np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:  # NotImplementedError is a RuntimeError
            if not isinstance(value, list | tuple):  # those may have rows of different lengths
                text = str(error).split("\n")[0]
                raise SchemaError(message("an array", f"`{type(value).__name__}`", at, text)) from None
    narrow = array is not None and name_of(array.dtype) in BITS
    numbers = array is not None and not narrow and array.dtype.kind in _KINDS and array.dtype.itemsize <= 8
    if array is not None and array.ndim > 1 and array.size and (numbers or narrow):
        return array.astype(array.dtype.newbyteorder("="), copy=False) if numbers else array
    if path in {(name,) for name in TENSORS} or (array is not None and not array.size and array.ndim > 1):
        got = f"`{type(value).__name__}`" if array is None else f"`{array.dtype}` of shape `{array.shape}`"
        raise SchemaError(message("non-empty numbers or booleans of shape `(T, B, ...)`", got, at))
    return _metadata.checked(array if numbers else value, at)


def _trimmed(path: Path, array: Array, length: int, width: int) -> Array:
    extra = len(array) - length
    if extra > 0 and path[0] in LEADING + TRAILING and len(path) == 1 and length % extra == 0:
        epochs = array.reshape(extra, length // extra + 1, *array.shape[1:])
        kept = epochs[:, 1:] if path[0] in LEADING else epochs[:, :-1]
        array = kept.reshape(length, *array.shape[1:])
    if array.shape[:2] != (length, width):
        wanted = f"the shape `({length}, {width}, ...)` of the other fields"
        raise SchemaError(message(wanted, f"`{array.shape}`", "$." + ".".join(path)))
    return array


def _measure(arrays: Mapping[Path, Array]) -> tuple[int, int]:
    named = [arrays[(name,)] for name in _MEASURES if (name,) in arrays]
    others = [array for path, array in arrays.items() if path[0] not in LEADING + TRAILING]
    measure = [*named, *others, *arrays.values()][0]
    return int(measure.shape[0]), int(measure.shape[1])


def _described(value: Any) -> str:
    return f"{name_of(value.dtype)}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)[:40]
