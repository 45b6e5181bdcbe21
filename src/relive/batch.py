"""What `sample` and `read` return."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from numpy import ndarray

from ._base.extras import needs
from ._base.narrow import to_torch
from ._base.nests import mapped


class Batch(Mapping[str, Any]):
    """Items, by attribute or by key, nested as the schema is; plain NumPy arrays that belong to the caller.

    `ids` (int64, `[B]`) and `weights` (float32, `[B]`, 1 for uniform draws) always exist. Fields have the shape
    `[B, ...]` with the schema's dtypes.

    >>> import numpy as np
    >>> batch = Batch({"obs": {"camera": np.zeros((2, 4))}, "reward": np.ones(2)})
    >>> batch.obs.camera.shape, batch["reward"].sum(), list(batch)
    ((2, 4), np.float64(2.0), ['obs', 'reward'])
    """

    __slots__ = ("__dict__", "_fields")
    _fields: Mapping[str, Any]

    def __init__(self, fields: Mapping[str, Any]) -> None:
        own = fields if type(fields) is dict else dict(fields)
        _set_fields(self, own)
        # Arrays are attributes, which are read without a call; so are those of a native draw.
        self.__dict__.update(
            {name: value for name, value in own.items() if type(value) is not dict and name not in _METHODS}
        )

    def __getitem__(self, name: str) -> Any:
        value = self._fields[name]
        return Batch(value) if type(value) is dict else value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            raise AttributeError(f"a batch has no field `{name}`; it has {', '.join(self)}")
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
        return f"Batch({', '.join(_described(name, value) for name, value in self.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (dict(self._fields),)

    def map(self, change: Callable[[Any], Any]) -> Batch:
        """Return a batch with `change` applied to every array."""
        return Batch(mapped(change, dict(self._fields)))

    def torch(self, device: Any = None) -> Batch:
        """Return the items as PyTorch tensors; on the CPU they share memory with this batch.

        Args:
            device: Where the tensors go; None leaves them on the CPU.

        Raises:
            MissingExtra: PyTorch is not installed.
        """
        if "torch" not in sys.modules:
            with needs("torch", "Batch.torch"):
                import torch  # noqa: F401
        if device is None:
            return _Changed(self._fields, _tensor)
        return self.map(lambda value: _tensor(value).to(device) if type(value) is ndarray else value)

    def jax(self) -> Batch:
        """Return the items as JAX arrays, through DLPack, without a copy where JAX can use the memory as it is.

        Raises:
            MissingExtra: JAX is not installed.

        >>> import numpy as np
        >>> batch = Batch({"reward": np.ones(3, np.float32), "discount": np.full(3, 0.99, np.float32)})
        >>> arrays = batch.jax()  # doctest: +SKIP
        >>> jax.jit(lambda b: b["reward"] + b["discount"])(dict(arrays))  # doctest: +SKIP
        Array([1.99, 1.99, 1.99], dtype=float32)
        """
        with needs("jax", "Batch.jax"):
            import jax

        def array(value: Any) -> Any:
            if type(value) is not ndarray:
                return value
            return jax.numpy.asarray(value) if value.dtype.isbuiltin == 2 else jax.numpy.from_dlpack(value)

        return self.map(array)


class _Changed(Batch):
    """A batch whose fields are changed when they are first looked at: most learners need only some of them."""

    __slots__ = ("_change",)
    _change: Callable[[Any], Any]

    def __init__(self, fields: Mapping[str, Any], change: Callable[[Any], Any]) -> None:
        _set_fields(self, fields)
        _set_change(self, change)

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name] if name in self.__dict__ else self._changed(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            return super().__getattr__(name)
        return self._changed(name)

    def _changed(self, name: str) -> Any:
        value = self._fields[name]
        nests = type(value) is dict or isinstance(value, Batch)
        changed = _Changed(value, self._change) if nests else self._change(value)
        # Where another thread was faster both have what it made.
        return changed if name in _METHODS else self.__dict__.setdefault(name, changed)

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (mapped(self._change, dict(self._fields)),)

    def map(self, change: Callable[[Any], Any]) -> Batch:
        """Return a batch with `change` applied to every array."""
        return Batch(mapped(lambda value: change(self._change(value)), dict(self._fields)))


_set_fields, _set_change = Batch.__dict__["_fields"].__set__, _Changed.__dict__["_change"].__set__
_METHODS = frozenset(dir(Batch))  # fields of these names are reached by key


def _tensor(value: Any) -> Any:
    if type(value) is not ndarray:  # texts
        return value
    dtype = value.dtype
    if dtype.isbuiltin != 1 or dtype.metadata:
        return to_torch(value)
    return sys.modules["torch"].from_numpy(value)


def _described(name: str, value: Any) -> str:
    if isinstance(value, Batch):
        return f"{name}={value!r}"
    if not hasattr(value, "shape"):
        return f"{name}={type(value).__name__}[{len(value)}]"
    return f"{name}={value.dtype}{list(value.shape)}"
