"""RLinf's `pkl` files. Nothing that a file names is imported or called: functions of this module take its role."""

from __future__ import annotations

import io
import math
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pickle import Unpickler
from typing import Any, NamedTuple

import numpy as np

from ..._base import narrow
from ..._base.types import Array
from ..._disk.files import read_at, size_of
from .._layout import DTYPES

_MOST = 2 << 30
_MOST_HEAD = 1 << 12  # bytes of a storage before its numbers
_STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": None,
}  # fmt: skip


class Flat(NamedTuple):
    """A contiguous tensor: dtype, shape, and its bytes as uint8 `[n]`."""

    dtype: str
    shape: tuple[int, ...]
    data: Array


# No tuples, which might pass for texts and numbers of a file.


@dataclass(frozen=True)
class _Global:
    name: str

    def __call__(self, *arguments: Any) -> Any:
        if self.name not in _CALLS:
            raise ValueError(f"a call of {self.name}"[:80])
        return _CALLS[self.name](*arguments)


@dataclass(frozen=True)
class _Handle:
    value: Any


@dataclass(frozen=True)
class _Storage:
    dtype: str | None
    data: Array


class _Tree(Unpickler):
    """An unpickler of mappings, lists, texts, numbers, and tensors as `Flat`."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a new object for a name; what a file does to it changes nothing else.

        Raises:
            ValueError: RLinf's files have no such name.
        """
        if module not in _MODULES:
            raise ValueError(f"unknown name {module}.{name}"[:80])
        return _Global(name)

    def persistent_load(self, pid: Any) -> Any:
        """Return the id of a storage in place of the storage."""
        return _Handle(pid)


def tree(fd: int) -> Any:
    """Read an open `pkl` file, all of it into memory, and unpickle it.

    Raises:
        Exception: It is damaged, or not one that RLinf writes.
    """
    if size_of(fd) > _MOST:
        raise ValueError(f"more than {_MOST} bytes")
    return _loaded(io.BytesIO(read_at(fd, 0, size_of(fd))))


def _loaded(file: io.BytesIO) -> Any:
    start = file.tell()
    if any(opcode.name.startswith("EXT") for opcode, _, _ in pickletools.genops(file)):
        raise ValueError("a code of an extension")  # which may be an object that this process has in a cache
    file.seek(start)
    return _Tree(file).load()


def _load_from_bytes(data: bytes) -> _Storage:
    """Return the storage that PyTorch wrote into a pickle: five pickles, the count of elements, and the elements."""
    file = io.BytesIO(data[:_MOST_HEAD])
    heads = [_loaded(file) for _ in range(5)]
    if heads[2]["little_endian"] is not True:
        raise ValueError("big-endian numbers")
    kind, name = heads[3].value[:2]
    if kind != "storage" or type(name) is not _Global or name.name not in _STORAGES:
        raise ValueError("unknown storage")
    dtype, count = _STORAGES[name.name], int.from_bytes(file.read(8), "little")
    numbers = np.frombuffer(data, np.uint8, offset=file.tell())
    nbytes = count * narrow.stored(dtype or "uint8").itemsize
    if nbytes > len(numbers):
        raise ValueError("a storage ends early")
    return _Storage(dtype, numbers[:nbytes])


def _typed(storage: _Storage, offset: int, shape: Any, stride: Any, *_: Any) -> Flat:
    return _rebuilt(storage.dtype, storage, offset, shape, stride)


def _untyped(storage: _Storage, offset: int, shape: Any, stride: Any, _: Any, __: Any, dtype: _Global) -> Flat:
    return _rebuilt(dtype.name, storage, offset, shape, stride)


def _rebuilt(dtype: str | None, storage: _Storage, offset: int, shape: Any, stride: Any) -> Flat:
    if type(storage) is not _Storage or type(shape) is not tuple or type(stride) is not tuple:
        raise ValueError("a tensor has no storage or no shape")
    if len(shape) > 32 or not all(type(k) is int and 0 <= k < 2**48 for k in (offset, *shape, *stride)):
        raise ValueError("invalid shape of a tensor")
    if dtype not in DTYPES:
        raise ValueError(f"invalid tensor of {dtype}")
    expected, width = 1, narrow.stored(dtype).itemsize
    for axis, step in reversed(list(zip(shape, stride, strict=True))):
        if axis != 1 and step != expected and math.prod(shape):
            raise ValueError("a tensor is not contiguous")
        expected *= axis
    first, last = offset * width, (offset + math.prod(shape)) * width
    if last > storage.data.nbytes:
        raise ValueError("a tensor exceeds its storage")
    return Flat(dtype, shape, storage.data[first:last])


_MODULES = ("torch", "torch.storage", "torch._utils", "collections")
_CALLS: Mapping[str, Callable[..., Any]] = {
    "_load_from_bytes": _load_from_bytes,
    "_rebuild_tensor_v2": _typed,
    "_rebuild_tensor_v3": _untyped,
    "OrderedDict": OrderedDict,  # the hooks of a tensor, of which there are none
}
