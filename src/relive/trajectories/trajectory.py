"""One batched trajectory: the steps of several environments side by side, `[T, B, ...]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from .. import _check
from .._types import Array
from ..errors import SchemaError, message

Path: TypeAlias = tuple[str, ...]

# Fields that may have an extra row per rollout epoch: flags start with the reset's, values end with the final
# observation's.
LEADING = ("dones", "terminations", "truncations")
TRAILING = ("prev_values",)
# T and B are taken from the first of these that is given.
_MEASURES = ("rewards", "prev_logprobs", "actions")
_KINDS = "biuf"


class Trajectory(Mapping[str, Any]):
    """The steps of one rollout: nested mappings of arrays or PyTorch tensors of shape `[T, B, ...]`.

    T is the number of chunk-steps, B the number of environments. A trajectory is not split at episode ends. Fields may
    have any names. Some of RLinf's have a meaning: `dones`, `terminations`, `truncations` and `prev_values` may have an
    extra row per rollout epoch, which is dropped (the first row of an epoch for flags, the last one for values); and a
    `next_obs` that is `curr_obs` one step later is stored once.

    Args:
        max_episode_length: Stored with the trajectory, as in RLinf.
        model_weights_id: Likewise: the weights of the policy that acted.
        **fields: Arrays, tensors, or nested mappings of them; None and empty mappings are left out.

    Raises:
        SchemaError: A field is not an array of numbers, its first two axes differ from those of the others, a name is
            empty or has a slash, or there are no fields.

    >>> Trajectory(rewards=np.zeros((5, 2, 1)), curr_obs={"states": np.zeros((5, 2, 3))}).num_samples
    10
    """

    def __init__(self, *, max_episode_length: int = 0, model_weights_id: str = "", **fields: Any) -> None:
        at = "Trajectory(max_episode_length)"
        self.max_episode_length = _check.integer(max_episode_length, at, minimum=0)
        if not isinstance(model_weights_id, str):
            raise SchemaError(message("a string", f"`{model_weights_id!r}`", "Trajectory(model_weights_id)"))
        self.model_weights_id = model_weights_id
        arrays = dict(_leaves(fields, ()))
        if not arrays:
            raise SchemaError(message("at least one field", "none", "Trajectory"))
        self.length, self.width = _measure(arrays)
        self.arrays: dict[Path, Array] = {path: self._trimmed(path, array) for path, array in arrays.items()}

    @property
    def num_samples(self) -> int:
        """Chunk-steps of all environments: T * B."""
        return self.length * self.width

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def __getitem__(self, name: str) -> Any:
        """The array, or nested mapping of arrays, of this name."""
        return nested({path: array for path, array in self.arrays.items() if path[0] == name})[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(path[0] for path in self.arrays))

    def __len__(self) -> int:
        return len({path[0] for path in self.arrays})

    def __repr__(self) -> str:
        fields = ", ".join(f"{'.'.join(path)}={a.dtype}{list(a.shape)}" for path, a in self.arrays.items())
        return f"Trajectory({fields})"

    def _trimmed(self, path: Path, array: Array) -> Array:
        extra = len(array) - self.length
        if extra > 0 and path[0] in LEADING + TRAILING and len(path) == 1 and self.length % extra == 0:
            epochs = array.reshape(extra, self.length // extra + 1, *array.shape[1:])
            kept = epochs[:, 1:] if path[0] in LEADING else epochs[:, :-1]
            array = kept.reshape(self.length, *array.shape[1:])
        if array.shape[:2] != (self.length, self.width):
            wanted = f"the shape `({self.length}, {self.width}, ...)` of the other fields"
            raise SchemaError(message(wanted, f"`{array.shape}`", "$." + ".".join(path)))
        return array


def nested(arrays: Mapping[Path, Any]) -> dict[str, Any]:
    """Return values by path as nested mappings."""
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = array
    return tree


def _leaves(tree: Mapping[Any, Any], above: Path) -> Iterator[tuple[Path, Array]]:
    for name, value in tree.items():
        at = "$." + ".".join([*above, str(name)])
        if not isinstance(name, str) or not name or "/" in name or name.startswith("_"):
            raise SchemaError(message("a name without a slash or a leading underscore", f"`{name!r}`", at))
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, name))
        elif value is not None:
            yield (*above, name), _array(value, at)


def _array(value: Any, at: str) -> Array:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            raise SchemaError(message("a dtype that NumPy has", "`torch.bfloat16`", at, "store `value.float()`"))
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise SchemaError(message("an array", f"`{type(value).__name__}`", at, str(error).split("\n")[0])) from None
    if array.dtype.kind not in _KINDS or array.ndim < 2 or 0 in array.shape or array.dtype.itemsize > 8:
        got = f"`{array.dtype}` of shape `{array.shape}`"
        raise SchemaError(message("non-empty numbers or booleans of shape `(T, B, ...)`", got, at))
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _measure(arrays: Mapping[Path, Array]) -> tuple[int, int]:
    named = [arrays[(name,)] for name in _MEASURES if (name,) in arrays]
    others = [array for path, array in arrays.items() if path[0] not in LEADING + TRAILING]
    measure = [*named, *others, *arrays.values()][0]
    return int(measure.shape[0]), int(measure.shape[1])
