"""What `sample` and `read` return."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy import ndarray

from ._base.extras import needs
from ._base.forks import importing
from ._base.memory import LINE, Arena
from ._base.narrow import to_torch
from ._base.nests import located, mapped
from ._base.types import Array, Bool, Float32, Int32, Int64, Leaves
from ._ring.kernels import active
from .errors import ArgumentError, message

if TYPE_CHECKING:
    from jax import Array as JaxArray
    from torch import Tensor

    class Values(ndarray[tuple[Any, ...], np.dtype[Any]]):
        """An array, or a nest of them: `batch.obs.shape`, `batch.obs.camera`."""

        def __getattr__(self, name: str) -> Any: ...

    class Tensors(Tensor):
        """A tensor, or a nest of them."""

        def __getattr__(self, name: str) -> Any: ...


E = TypeVar("E", bound=Exception)


class Batch(Mapping[str, Any]):
    """Items, by attribute or by key, nested as the schema is; plain NumPy arrays that belong to the caller.

    No two arrays that can be written to share memory. Those that show the same steps, such as `obs` and `next_obs` of
    `Sequences`, are read-only: `batch.obs.copy()` is one to change.

    `ids` (int64, `[B]`) and `weights` (float32, `[B]`, 1 for uniform draws) always exist. Fields have the shape
    `[B, ...]` with the schema's dtypes.

    >>> import numpy as np
    >>> batch = Batch({"obs": {"camera": np.zeros((2, 4))}, "reward": np.ones(2)})
    >>> batch.obs.camera.shape, batch["reward"].sum(), list(batch)
    ((2, 4), np.float64(2.0), ['obs', 'reward'])
    """

    __slots__ = ("__dict__", "_fields")
    _fields: Mapping[str, Any]
    # For type checkers and editors. Not all items have all of these.
    obs: Values
    action: Values
    next_obs: Values
    reward: Array
    discount: Array
    terminated: Bool
    truncated: Bool
    steps: Int32
    ids: Int64
    weights: Float32
    mask: Bool
    step_ids: Int64

    def __init__(self, fields: Mapping[str, Any]) -> None:
        own = fields if type(fields) is dict else dict(fields)
        object.__setattr__(self, "_fields", own)
        # Arrays are attributes, which are read without a call; so are those of a native draw.
        self.__dict__.update(
            {name: value for name, value in own.items() if type(value) is not dict and name not in _METHODS}
        )

    def __getitem__(self, name: str) -> Any:
        try:
            value = self._fields[name]
        except (KeyError, TypeError):
            raise _no_field(self, name, KeyError) from None
        return Batch(value) if type(value) is dict else value

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            raise _no_field(self, name, AttributeError)
        return self.__dict__.setdefault(name, self[name])  # a nest, or what a native draw works out when it is read

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a batch is read-only; `{name}` of another batch: `Batch({{**batch, {name!r}: ...}})`")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a batch is read-only; it has {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        fields = [_described(name, value) for name, value in self.items()]
        line = f"Batch({', '.join(fields)})"
        lines = "".join("    " + field.replace("\n", "\n    ") + ",\n" for field in fields)
        return line if len(line) <= _WIDTH else f"Batch(\n{lines})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (dict(self._fields),)

    def _repr_html_(self) -> str:
        with importing:
            from ._base.page import fragment

        rows = [(name, *_facts(value)) for name, value in _leaves(self)]
        return fragment("Batch", ("field", "dtype", "shape", "values"), rows)

    def map(self, change: Callable[[Any], Any]) -> AnyBatch:
        """Return a batch with `change` applied to every array."""
        return AnyBatch(mapped(change, dict(self._fields)))

    def torch(self, device: Any = None) -> TorchBatch:
        """Return the items as PyTorch tensors; on the CPU they share memory with this batch, but for read-only arrays.

        A tensor of a read-only array is a copy, made when it is first looked at. No two tensors share memory.

        Args:
            device: Where the tensors go, at once; None leaves them on the CPU.

        Raises:
            MissingExtra: PyTorch is not installed.
        """
        if "torch" not in sys.modules:
            with needs("torch", "Batch.torch"):
                import torch  # noqa: F401
        if device is not None:
            return TorchBatch(mapped(_Moving(device), dict(self._fields)), _same)
        if type(self) is not Batch:
            return TorchBatch(self, _tensor)
        made = TorchBatch(self._fields, _tensor)
        arrays, tensors = self.__dict__, made.__dict__
        if len(arrays) <= _AT_ONCE:
            # A learner looks at most of them; its step leaves nothing in the caches that a look at each would need.
            from_numpy = sys.modules["torch"].from_numpy
            for name, value in arrays.items():
                if type(value) is ndarray and value.flags.carray:
                    dtype = value.dtype
                    if dtype in _TENSORS and not dtype.metadata:
                        tensors[name] = from_numpy(value)
        return made

    def jax(self) -> JaxBatch:
        """Return the items as JAX arrays; large ones without a copy, where JAX can use the memory as it is.

        No number wraps. While JAX has 64 bits off, which is its default, `ids` and `step_ids` stay NumPy's int64, which
        `update_priorities` and `write` take. Other numbers of 64 bits become those of 32 bits, floats rounded, if all
        of them fit.

        Raises:
            MissingExtra: JAX is not installed.
            ArgumentError: A number of 64 bits that JAX cannot hold.

        >>> import numpy as np
        >>> batch = Batch({"reward": np.ones(3, np.float32), "discount": np.full(3, 0.99, np.float32)})
        >>> arrays = batch.jax()  # doctest: +SKIP
        >>> jax.jit(lambda b: b["reward"] + b["discount"])(dict(arrays))  # doctest: +SKIP
        Array([1.99, 1.99, 1.99], dtype=float32)
        """
        with needs("jax", "Batch.jax"):
            import jax

        wide, linear = jax.config.jax_enable_x64, jax.numpy

        def array(value: Any, at: str) -> Any:
            if type(value) is not ndarray or (at in _IDS and not wide and value.dtype == np.int64):
                return value
            # JAX uses memory that begins at a line as it is, and copies other memory, in less time if not by DLPack; so
            # it does with little. Neither numbers that NumPy lacks nor read-only arrays nor gaps go through that.
            through = value.nbytes >= _WORTH_DLPACK and value.flags.carray and value.dtype.isbuiltin != 2
            through = through and not value.__array_interface__["data"][0] % LINE
            made = linear.from_dlpack(value) if through else linear.asarray(value)
            if made.dtype != value.dtype:
                _check_narrowed(value, np.dtype(made.dtype), at)
            return made

        with np.errstate(over="ignore"):
            return cast("JaxBatch", Batch(located(array, dict(self._fields), "$")))


def joined_at_once(parts: list[Any]) -> dict[str, Any] | None:
    """Join batches that the native `sample` drew, by one call; return None if their fields need more than a copy."""
    return active().joined([part._fields if type(part) is Batch else part for part in parts])


def arrays_in(batch: Mapping[str, Any], above: tuple[str, ...] = ()) -> Leaves:
    """List the arrays of a batch with their paths, as they lie in it; what is no array is left out."""
    found, fields = [], batch._fields if isinstance(batch, Batch) else batch
    for name in fields:
        value = fields[name]
        if type(value) is ndarray:
            found.append(((*above, name) if above else (name,), value))
        elif isinstance(value, Mapping):
            found += arrays_in(value, (*above, name))
    return found


if TYPE_CHECKING:

    class AnyBatch(Batch):
        """A batch of arrays of any kind."""

        obs: Any
        action: Any
        next_obs: Any
        reward: Any
        discount: Any
        terminated: Any
        truncated: Any
        steps: Any
        ids: Any
        weights: Any
        mask: Any
        step_ids: Any

    class JaxBatch(AnyBatch):
        """A batch of JAX arrays; `ids` and `step_ids` are NumPy's while JAX has 64 bits off."""

        reward: JaxArray
        discount: JaxArray
        terminated: JaxArray
        truncated: JaxArray
        steps: JaxArray
        weights: JaxArray
        mask: JaxArray

else:
    AnyBatch = Batch


class TorchBatch(AnyBatch):
    """A batch of PyTorch tensors. A field becomes a tensor when it is first looked at: most learners need only some."""

    __slots__ = ("_change",)
    _change: Callable[[Any], Any]
    obs: Tensors
    action: Tensors
    next_obs: Tensors
    reward: Tensor
    discount: Tensor
    terminated: Tensor
    truncated: Tensor
    steps: Tensor
    ids: Tensor
    weights: Tensor
    mask: Tensor
    step_ids: Tensor

    def __init__(self, fields: Mapping[str, Any], change: Callable[[Any], Any]) -> None:
        _set_fields(self, fields)
        _set_change(self, change)

    def __getitem__(self, name: str) -> Any:
        made = self.__dict__
        return made[name] if name in made else made[f" {name}"] if f" {name}" in made else self._changed(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            return super().__getattr__(name)
        return self._changed(name)

    def _changed(self, name: str) -> Any:
        value = self._fields[name]
        nests = type(value) is dict or isinstance(value, Batch)
        changed = TorchBatch(value, self._change) if nests else self._change(value)
        # Where another thread was faster both have what it made. What a method hides is kept under no one's name.
        return self.__dict__.setdefault(f" {name}" if name in _METHODS else name, changed)

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (mapped(lambda value: value, self),)

    def map(self, change: Callable[[Any], Any]) -> AnyBatch:
        """Return a batch with `change` applied to every array."""
        return AnyBatch(mapped(change, self))


_set_fields, _set_change = Batch.__dict__["_fields"].__set__, TorchBatch.__dict__["_change"].__set__
_AT_ONCE = 16
_WIDTH = 88  # of a representation in one line
_TENSORS = frozenset(map(np.dtype, "?bBhHiIlLqQefdFD"))
# What other libraries call fields, and tensors' methods.
_ELSEWHERE = {
    **dict.fromkeys(("observations", "state", "states"), "obs"),
    **dict.fromkeys(("next_observations", "next_state", "next_states"), "next_obs"),
    **dict.fromkeys(("done", "dones"), "terminated"),
    **dict.fromkeys(("indices", "idxes", "idx"), "ids"),
    **dict.fromkeys(("to", "cuda"), "batch.torch(device)"),
}
_METHODS = frozenset(dir(Batch))  # fields of these names are reached by key


def _same(value: Any) -> Any:
    return value


def _tensor(value: Any) -> Any:
    """Make a tensor that shares an array's memory; a copy of a read-only one, since no tensor is read-only."""
    if type(value) is not ndarray:  # texts
        return value
    if not value.flags.writeable:
        source = value
        value = _COPIES.array(value.shape, value.dtype) if value.nbytes >= _LARGE else np.empty_like(value, order="C")
        value[...] = source
    dtype = value.dtype
    if dtype.isbuiltin != 1 or dtype.metadata:
        return to_torch(value)
    return sys.modules["torch"].from_numpy(value)


_WORTH_DLPACK = 64 << 10
# A fresh page costs more than the copy into it; the C library uses less memory than this again by itself.
_COPIES, _LARGE = Arena(16, 64 << 20), 1 << 20


class _Moving:
    """Makes tensors on a device; memory that several arrays show is moved there once, and copied there."""

    def __init__(self, device: Any) -> None:
        self._device, self._blocks = device, dict[int, Any]()

    def __call__(self, value: Any) -> Any:
        if type(value) is not ndarray:
            return value
        whole = value.base if type(value.base) is ndarray else value
        if (
            value.flags.writeable
            or not whole.flags.c_contiguous
            or not value.nbytes <= whole.nbytes <= 4 * value.nbytes
        ):
            return _tensor(value).to(self._device)
        block = self._blocks.get(id(whole))
        if block is None:
            readable = np.asarray(_Readable(whole.reshape(-1).view(np.uint8)))
            block = self._blocks[id(whole)] = _tensor(readable).to(self._device, copy=True)
        size, begin = value.itemsize, value.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        numbers = block[: len(block) // size * size].view(_tensor(np.empty(0, value.dtype)).dtype)
        shown = numbers.as_strided(value.shape, [stride // size for stride in value.strides], begin // size)
        return shown if whole is value else shown.clone()


class _Readable:
    """An array as one that PyTorch takes, which would warn of a read-only one; it is only read."""

    def __init__(self, array: ndarray[Any, Any]) -> None:
        self._kept, facts = array, array.__array_interface__
        self.__array_interface__ = {**facts, "data": (facts["data"][0], False)}


# What names steps for ever: rounded or wrapped it would name others.
_IDS = frozenset({"$.ids", "$.step_ids"})


def _check_narrowed(value: ndarray[Any, Any], dtype: np.dtype[Any], at: str) -> None:
    """Refuse numbers that JAX cannot hold in the dtype which it gives them.

    Raises:
        ArgumentError: One of them would wrap, or become infinite.
    """
    with np.errstate(over="ignore"):
        narrow = value.astype(dtype)
    fits = narrow == value if value.dtype.kind in "iu" else np.isfinite(narrow) | ~np.isfinite(value)
    if not fits.all():
        wanted, got = f"numbers that fit `{dtype.name}`, in which JAX holds them", f"`{value[~fits][0]}`"
        remedy = f'`jax.config.update("jax_enable_x64", True)`, or a field of `{dtype.name}` in the schema'
        raise ArgumentError(message(wanted, got, at, remedy))


def _no_field(batch: Batch, name: object, kind: type[E]) -> E:
    """Make the error of a field that a batch lacks."""
    first = next(iter(batch), "obs")
    if not isinstance(name, str):
        ends = (name.start, name.stop) if isinstance(name, slice) else ()
        shown = ":".join("" if end is None else str(end) for end in ends) if ends else repr(name)
        return kind(f"a batch is indexed by field, as in `batch.{first}[{shown}]`; it has {', '.join(batch)}")
    from difflib import get_close_matches  # only for an error

    near = [] if name.startswith("_") else get_close_matches(name, [*batch], 1, 0.7)
    meant = f"; did you mean `{_ELSEWHERE.get(name) or near[0]}`?" if near or name in _ELSEWHERE else ""
    return kind(f"a batch has no field `{name}`; it has {', '.join(batch)}{meant}")


def _leaves(batch: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a batch with their paths."""
    for name, value in batch.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _facts(value: Any) -> tuple[str, str, str]:
    """Describe an array's dtype, shape and range."""
    if not hasattr(value, "shape"):
        return type(value).__name__, str(len(value)), ""
    kind = str(value.dtype).removeprefix("torch.")
    some = value.size if isinstance(value, ndarray) else value.numel() if hasattr(value, "numel") else 0
    inside = f"{float(value.min()):.4g} to {float(value.max()):.4g}" if some and "complex" not in kind else ""
    return kind, str(tuple(value.shape)), inside


def _described(name: str, value: Any) -> str:
    if isinstance(value, Batch):
        return f"{name}={value!r}"
    if not hasattr(value, "shape"):
        return f"{name}={type(value).__name__}[{len(value)}]"
    return f"{name}={value.dtype}{list(value.shape)}"
