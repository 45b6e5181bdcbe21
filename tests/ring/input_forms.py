"""Every legal way to hand over a step, as tables: what `add` and `extend` take beyond arrays of the schema's dtypes."""

from __future__ import annotations

from array import array
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

import relive
from relive._base.narrow import kind_of, to_torch

try:
    import ml_dtypes  # noqa: F401  # gives NumPy bfloat16
except ImportError:
    BFLOAT16: list[str] = []
else:
    BFLOAT16 = ["bfloat16"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = ["bool", *INTEGERS, *BFLOAT16, "float16", "float32", "float64"]


class Own(np.ndarray):
    """A subclass that NumPy takes for an array."""


def misaligned(values: np.ndarray) -> np.ndarray:
    memory = np.zeros(values.nbytes + 1, np.uint8)
    moved = memory[1:].view(values.dtype).reshape(values.shape)
    moved[...] = values
    return moved


def tensor(values: np.ndarray) -> Any:
    return to_torch(values.copy())


def turned_tensor(values: np.ndarray) -> Any:
    """Make a tensor that is not contiguous."""
    axes = range(values.ndim)[::-1]
    return tensor(np.ascontiguousarray(values.transpose(axes))).permute(*axes)


def tuples(values: Any) -> Any:
    return tuple(map(tuples, values)) if isinstance(values, list) else values


# For one leaf: an array of the field's dtype, `[L, ...]` or `[L, T, ...]`.
LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "lists": np.ndarray.tolist,
    "tuples": lambda a: tuples(a.tolist()),
    "a list of arrays": list,
    "a list of NumPy's numbers": lambda a: list(a) if a.ndim == 1 else a.tolist(),
    "a subclass": lambda a: a.view(Own),
    "masked": np.ma.masked_array,
    "not contiguous": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards": lambda a: np.flip(np.flip(a).copy()),
    "Fortran order": np.asfortranarray,
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "misaligned": misaligned,
    "repeated": lambda a: np.broadcast_to(a[:1], a.shape),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "a memoryview": lambda a: memoryview(a) if a.dtype.isbuiltin == 1 else a,  # a buffer has no bfloat16
    "an array of Python's": lambda a: array("f", a) if a.dtype == np.float32 and a.ndim == 1 else a,
    "a tensor": tensor,
    "a turned tensor": turned_tensor,
}
MAPPINGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "OrderedDict": OrderedDict,
    "MappingProxyType": MappingProxyType,
    "UserDict": UserDict,
    "defaultdict": lambda obs: defaultdict(int, obs),
    "Batch": relive.Batch,
    "tuple": lambda obs: tuple(obs.values()),
    "list": lambda obs: list(obs.values()),
}
SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "bool": bool,
    "float": float,
    "0-d": np.asarray,
    "a tensor": lambda value: tensor(np.asarray(value)),
    **{dtype: np.dtype(dtype).type for dtype in DTYPES},
}
LANES: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "range": lambda lanes: range(lanes[0], lanes[-1] - 1, -1),
    "a list of NumPy's numbers": lambda lanes: list(np.array(lanes)),
    "a tensor": lambda lanes: tensor(np.array(lanes)),
    "backwards": lambda lanes: np.array(lanes[::-1])[::-1],
    **{dtype: lambda lanes, dtype=dtype: np.array(lanes, dtype) for dtype in INTEGERS},
}
PRIORITIES: dict[str, Callable[[np.ndarray], Any]] = {
    "int": lambda p: 2,
    "float": lambda p: 0.5,
    "a NumPy number": lambda p: np.float16(0.5),
    "0-d": lambda p: np.array(3),
    "list": np.ndarray.tolist,
    "a tensor": tensor,
    "not contiguous": lambda p: np.repeat(p, 2, axis=-1)[..., ::2],
    **{dtype: lambda p, dtype=dtype: p.astype(dtype) for dtype in DTYPES[1:]},
}


def legal(given: str, field: relive.Field) -> bool:
    """Return True if zeros and ones of one dtype may be given for a field."""
    return kind_of(field.dtype) in "bf" or kind_of(np.dtype(given)) != "f"
