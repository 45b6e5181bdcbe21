"""What `sample` and `read` return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ._extras import needs


class Batch(Mapping[str, Any]):
    """Items, by attribute or by key, nested as the schema is; plain NumPy arrays that belong to the caller.

    `ids` (int64, `[B]`) and `weights` (float32, `[B]`, 1 for uniform draws) always exist. Fields have the shape
    `[B, ...]` with the schema's dtypes.

    >>> import numpy as np
    >>> batch = Batch({"obs": {"camera": np.zeros((2, 4))}, "reward": np.ones(2)})
    >>> batch.obs.camera.shape, batch["reward"].sum(), list(batch)
    ((2, 4), np.float64(2.0), ['obs', 'reward'])
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Any:
        value = self._fields[name]
        return Batch(value) if type(value) is dict else value

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._fields:
            return self[name]
        raise AttributeError(f"a batch has no field `{name}`; it has {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Batch({', '.join(_described(name, value) for name, value in self.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (self._fields,)

    def map(self, change: Callable[[Any], Any]) -> Batch:
        """Return a batch with `change` applied to every array."""
        return Batch(_mapped(change, self._fields))

    def torch(self, device: Any = None) -> Batch:
        """Return the items as PyTorch tensors; on the CPU they share memory with this batch.

        Args:
            device: Where the tensors go; None leaves them on the CPU.

        Raises:
            MissingExtra: PyTorch is not installed.
        """
        with needs("torch", "Batch.torch"):
            import torch
        if device is None:
            return self.map(torch.from_numpy)
        return self.map(lambda array: torch.from_numpy(array).to(device))

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
        return self.map(jax.numpy.from_dlpack)


def _mapped(change: Callable[[Any], Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {n: _mapped(change, v) if type(v) is dict else change(v) for n, v in fields.items()}


def _described(name: str, value: Any) -> str:
    if isinstance(value, Batch):
        return f"{name}={value!r}"
    return f"{name}={value.dtype}{list(value.shape)}"
