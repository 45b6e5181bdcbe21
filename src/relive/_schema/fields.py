"""The leaves of a schema: fields of fixed shape and dtype, and the columns that they become."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from .._base import check
from .._base.extras import needs
from .._base.forks import importing
from .._base.frozen import Frozen
from .._base.narrow import dtype_of, kind_of
from ..errors import ArgumentError, SchemaError, message

# NumPy's arrays have at most 64 axes; two of them are lane and time, or batch and time.
MAX_AXES = 62


class Field(Frozen):
    """One named array of a step: its shape and dtype, the same at every step.

    Args:
        shape: The shape of the field at one step, without lane, time, batch or stack axes; an int `n` stands for
            `(n,)`.
        dtype: A boolean, integer, floating (up to `float64`) or complex NumPy dtype, or `"bfloat16"`, for which the
            extra `relive[bfloat16]` installs `ml_dtypes`.
        stack: Frames that an observation shows at once, oldest first; for fields of `obs` only. Given and drawn as
            `[..., stack, *shape]`, stored as one frame per step. None: no stack axis.
        pad: What stands before an episode's first frame: zeros (`"zero"`), or that frame again (`"first"`, what
            `gymnasium.wrappers.FrameStackObservation` does). Other older frames are stored too, one row each.
        stack_axis: 0 for `[..., stack, *shape]`, -1 for `[..., *shape, stack]`.
        every: Store the field at every `every`-th step of a lane only, as for recurrent state. It is given at every
            step and drawn at an item's first step only. None: an ordinary field.
        writable: Whether `ReplayBuffer.write` may change it later; for extras and the reward. It is then saved whole in
            each save, as priorities are.
        saved: False for a writable field that saves leave out: it is zero after a load.
        compress: `"zstd"`: saves hold the field compressed, some hundred KB together, which the extra
            `relive[compress]` can do; for fields of `uint8`, `int8` or `bool` that are not writable, such as images. In
            memory it is as ever. None: saves hold it as it is.

    Raises:
        SchemaError: The shape has more than 62 axes or an axis that is not a positive integer, the dtype is of another
            kind or is `longdouble`, `stack` or `every` is not a positive integer, a field that is not writable is
            not to be saved, or one that is writable or of wider numbers is to be compressed.
        MissingExtra: `"bfloat16"`, and `ml_dtypes` is not installed; `"zstd"`, and `zstandard` is not.

    >>> Field((84, 84), "uint8", stack=4).nbytes
    7056
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stack: int | None
    pad: str
    stack_axis: int
    every: int | None
    writable: bool
    saved: bool
    compress: str | None

    def __init__(
        self,
        shape: int | tuple[int, ...] = (),
        dtype: Any = "float32",
        *,
        stack: int | None = None,
        pad: str = "zero",
        stack_axis: int = 0,
        every: int | None = None,
        writable: bool = False,
        saved: bool = True,
        compress: str | None = None,
    ) -> None:
        axes = _axes(shape)
        kind = _dtype(dtype)
        if not isinstance(pad, str) or pad not in ("zero", "first"):
            raise SchemaError(message("`'zero'` or `'first'`", f"`{pad!r}`", "Field(pad)"))
        if stack_axis not in (0, -1) or isinstance(stack_axis, bool):
            raise SchemaError(message("0 or -1", f"`{stack_axis!r}`", "Field(stack_axis)"))
        for name, flag in (("writable", writable), ("saved", saved)):
            if not isinstance(flag, bool):
                raise SchemaError(message("True or False", f"`{flag!r}`", f"Field({name})"))
        if not (saved or writable):
            raise SchemaError(message("`writable=True` with `saved=False`", "`writable=False`", "Field(saved)"))
        frames = _count(stack, "Field(stack)")
        most = MAX_AXES if frames is None else MAX_AXES - 1
        if len(axes) > most:
            remedy = "NumPy's arrays have at most 64; a batch of sequences needs two of them, a stack one"
            raise SchemaError(message(f"at most {most} axes", f"{len(axes)}", "Field(shape)", remedy))
        object.__setattr__(self, "shape", axes)
        object.__setattr__(self, "dtype", kind)
        object.__setattr__(self, "stack", frames)
        object.__setattr__(self, "pad", str.__str__(pad))
        object.__setattr__(self, "stack_axis", int(stack_axis))
        object.__setattr__(self, "every", _count(every, "Field(every)"))
        object.__setattr__(self, "writable", writable)
        object.__setattr__(self, "saved", saved)
        object.__setattr__(self, "compress", _compression(compress, kind, writable))

    @property
    def nbytes(self) -> int:
        """Bytes of one stored value, of a single frame where the field is stacked."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def frames(self) -> int:
        """Frames that one value shows, `stack` or 1."""
        return self.stack or 1

    @property
    def full_shape(self) -> tuple[int, ...]:
        """The shape of one value as it is given and drawn, with the stack's axis."""
        if self.stack is None:
            return self.shape
        return (self.stack, *self.shape) if self.stack_axis == 0 else (*self.shape, self.stack)

    def __repr__(self) -> str:
        text = f"{self.shape}, {self.dtype.name!r}"
        if self.stack is not None:
            text += f", stack={self.stack}, pad={self.pad!r}" + (", stack_axis=-1" if self.stack_axis else "")
        text += f", every={self.every}" if self.every is not None else ""
        text += f", compress={self.compress!r}" if self.compress is not None else ""
        return f"Field({text}{', writable=True' * self.writable}{', saved=False' * (not self.saved)})"


def _axes(shape: object) -> tuple[int, ...]:
    try:
        if not isinstance(shape, tuple | list):
            return (check.integer(shape, "Field(shape)", minimum=1, unbounded=True),)
        return tuple(check.integer(axis, "Field(shape)", minimum=1, unbounded=True) for axis in shape)
    except ArgumentError:
        raise SchemaError(message("a shape of positive integers", f"`{shape!r}`", "Field(shape)")) from None


def _dtype(dtype: Any) -> np.dtype[Any]:
    try:
        found = None if dtype is None else dtype_of(dtype, "Field(dtype)")
    except TypeError:
        found = None
    if found is None or kind_of(found) not in "biufc":
        wanted = "a boolean, integer, floating or complex dtype"
        raise SchemaError(message(wanted, f"`{dtype!r}`", "Field(dtype)"))
    if found.char in "gG":
        remedy = "observations are compared byte by byte, and its padding bytes are arbitrary; PyTorch has no such type"
        wanted = f"`{'float64' if found.char == 'g' else 'complex128'}` or smaller"
        raise SchemaError(message(wanted, f"`{found.name}`", "Field(dtype)", remedy))
    native: np.dtype[Any] = found.newbyteorder("=")
    return native


def _count(value: object, at: str) -> int | None:
    try:
        return None if value is None else check.integer(value, at, minimum=1)
    except ArgumentError:
        limit = " < 2**63" if type(value) is int and value > 0 else ""
        raise SchemaError(message(f"a positive integer{limit} or None", f"`{value!r}`", at)) from None


def _compression(given: object, dtype: np.dtype[Any], writable: bool) -> str | None:
    if given is None:
        return None
    at = "Field(compress)"
    if not isinstance(given, str) or given != "zstd":
        raise SchemaError(message("`'zstd'` or None", f"`{given!r}`", at))
    if kind_of(dtype) not in "biu" or dtype.itemsize != 1:
        remedy = "the bytes of wider numbers hardly repeat, and compressing them takes time for nothing"
        raise SchemaError(message("`compress=` with `uint8`, `int8` or `bool`", f"`{dtype.name}`", at, remedy))
    if writable:
        remedy = "each save has all of a writable field beside the counters, as it is"
        raise SchemaError(message("`compress=` in fields that are not writable", "`writable=True`", at, remedy))
    with importing, needs("compress", at):
        import zstandard  # noqa: F401
    return "zstd"


Tree: TypeAlias = "Field | dict[str, Tree]"


class Column(Frozen):
    """One leaf of the schema's tree: the keys that lead to it, and its field."""

    keys: tuple[str, ...]
    field: Field

    @property
    def path(self) -> str:
        """The leaf's path as error messages write it, such as `$.obs.camera`."""
        return "$." + ".".join(self.keys)


def is_image(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Return True if values look like images: `uint8` `[H, W]`, `[H, W, C]` or `[C, H, W]`."""
    return dtype == np.uint8 and len(shape) in (2, 3) and sorted(shape)[-2] >= 8
