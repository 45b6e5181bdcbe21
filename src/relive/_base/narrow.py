"""Numbers that NumPy lacks, bfloat16 and float8, kept as they are.

With `ml_dtypes` installed, arrays have its dtypes. Otherwise they are raw bits, uint16 or uint8, and the dtype's
metadata has the name, so that they become the right tensors again. What is stored and copied is always the raw bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .extras import needs
from .types import Array, Bool

_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
BITS: dict[str, np.dtype[Any]] = {"bfloat16": np.dtype(np.uint16), **dict.fromkeys(_FLOAT8, np.dtype(np.uint8))}
_NAME = "relive"
_USUAL = {char: np.dtype(char).name for char in "?bBhHiIlLqQefd"}


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return a NumPy dtype's own kind, `"f"` for bfloat16, and `"V"` for other libraries' dtypes."""
    if dtype.isbuiltin == 1:
        return dtype.kind
    return "f" if name_of(dtype) == "bfloat16" else dtype.kind if dtype.isbuiltin == 0 else "V"


def dtype_of(given: Any, at: str) -> np.dtype[Any]:
    """Return `numpy.dtype(given)`; NumPy knows `"bfloat16"` only after `ml_dtypes` has been imported.

    Raises:
        MissingExtra: bfloat16, and `ml_dtypes` is not installed.
        TypeError: Not a dtype.
    """
    name = name_of(given) if isinstance(given, np.dtype) else given if isinstance(given, str) else None
    if name == "bfloat16":
        with needs("bfloat16", at):
            import ml_dtypes

        given = ml_dtypes.bfloat16
    found: np.dtype[Any] = np.dtype(given)
    return found


def as_array(value: Any) -> Array:
    """Return `numpy.asarray(value)`; PyTorch's bfloat16 becomes float32.

    Raises:
        ValueError, TypeError, RuntimeError: Not an array: ragged lists, tensors that need `detach()` or `cpu()`.
    """
    try:
        return np.asarray(value)
    except TypeError:
        if str(getattr(value, "dtype", None)) != "torch.bfloat16":
            raise
        return np.asarray(value.float())


def stored(name: str) -> np.dtype[Any]:
    """Return the dtype in which numbers of this dtype are stored: that of their bits, or the dtype itself."""
    return BITS.get(name) or np.dtype(name)


def name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, narrow ones included."""
    if dtype.isbuiltin == 1 and not dtype.metadata and dtype.char in _USUAL:
        return _USUAL[dtype.char]  # NumPy composes names, which takes longer than all else here
    return str(dtype.metadata[_NAME]) if dtype.metadata and _NAME in dtype.metadata else dtype.name


def raw(array: Array) -> Array:
    """Return the bits of narrow numbers, and any other array unchanged."""
    bits = BITS.get(name_of(array.dtype))
    return array if bits is None else array.view(bits)


def named(array: Array, name: str) -> Array:
    """Convert raw bits to numbers of the narrow dtype `name`; return any other array unchanged."""
    return array.view(_dtype(name)) if name in BITS else array


@cache
def _dtype(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
    except (ImportError, AttributeError):  # not installed, or too old to have it
        return np.dtype(BITS[name], metadata={_NAME: name})


def from_torch(tensor: Any) -> Array:
    """Convert a PyTorch tensor, on any device, to an array that shares its memory where possible."""
    import torch

    tensor = tensor.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in BITS:
        array: Array = tensor.numpy()
        return array
    return named(tensor.view(torch.int16 if name == "bfloat16" else torch.uint8).numpy().view(BITS[name]), name)


def to_torch(value: Any) -> Any:
    """Convert an array to a PyTorch tensor that shares its memory; return anything else unchanged."""
    import torch

    if not isinstance(value, np.ndarray):
        return value
    name = name_of(value.dtype)
    if name not in BITS:
        return torch.from_numpy(value)
    bits: Any = raw(value)
    return torch.from_numpy(bits.view(np.int16) if name == "bfloat16" else bits).view(getattr(torch, name))


def widened(array: Array) -> Array:
    """Narrow numbers as float32; an array of any other dtype as it is.

    Raises:
        MissingExtra: The array has raw bits, and neither `ml_dtypes` nor PyTorch is installed.
    """
    if name_of(array.dtype) not in BITS:
        return array
    if not array.dtype.metadata:
        return array.astype(np.float32)
    with needs("torch", "bfloat16 or float8"):
        wide: Array = to_torch(array).float().numpy()
    return wide


def first(bad: Bool, values: Array) -> tuple[str, str]:
    """Return the first bad value's subscript, and its text with the number of bad values."""
    flat = bad.reshape(-1)
    first = int(flat.argmax())
    got = f"`{values.reshape(-1)[first]}`"
    if values.ndim == 0:
        return "", got
    position = ", ".join(str(int(i)) for i in np.unravel_index(first, values.shape))
    return f"[{position}]", f"{got} ({int(flat.sum())} of {flat.size})"
