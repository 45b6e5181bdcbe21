"""RLinf's `pkl` files. Nothing that a file names is imported or called: functions of this module stand for it."""

from __future__ import annotations

import io
import math
from collections import OrderedDict
from dataclasses import dataclass
from pickle import Unpickler
from typing import Any, NamedTuple

import numpy as np

from ..._base import narrow
from ..._base.types import Array
from ..._disk.files import read_at, size_of
from .._layout import DTYPES
from ._opcodes import GLOBALS, STORAGES, scan

_MOST = 2 << 30
_MOST_HEAD = 1 << 12  # bytes of a storage before its numbers


class Flat(NamedTuple):
    """A contiguous tensor: dtype, shape, and its bytes as uint8 `[n]`."""

    dtype: str
    shape: tuple[int, ...]
    data: Array


# No tuples, which might pass for texts and numbers of a file.


@dataclass(frozen=True)
class _Named:
    name: str


@dataclass(frozen=True)
class _Handle:
    value: Any


@dataclass(frozen=True)
class _Storage:
    dtype: str | None
    data: Array


class _Tree(Unpickler):
    """Reads mappings, lists, texts, numbers, and tensors as `Flat`."""

    def find_class(self, module: str, name: str) -> Any:
        """The function that stands for a name; a call of anything else fails."""
        full = f"{module}.{name}"
        if full in _STAND_INS:
            return _STAND_INS[full]
        if full not in GLOBALS:
            raise ValueError(f"unknown name {full}"[:80])
        return _Named(name)

    def persistent_load(self, pid: Any) -> Any:
        """The id of a storage, which stands for it."""
        return _Handle(pid)


def tree(fd: int) -> Any:
    """What an open `pkl` file holds; all of it is read into memory.

    Raises:
        Exception: It is damaged, or not one that RLinf writes.
    """
    if size_of(fd) > _MOST:
        raise ValueError(f"more than {_MOST} bytes")
    data = read_at(fd, 0, size_of(fd))
    scan(io.BytesIO(data), later=True)
    return _Tree(io.BytesIO(data)).load()


def _load_from_bytes(data: bytes) -> _Storage:
    """The storage that PyTorch wrote into a pickle: five pickles, the count of elements, and the elements."""
    file, heads = io.BytesIO(data[:_MOST_HEAD]), []
    for _ in range(5):
        start = file.tell()
        scan(file)
        heads.append(_Tree(io.BytesIO(data[start : file.tell()])).load())
    if heads[2]["little_endian"] is not True:
        raise ValueError("big-endian numbers")
    kind, name = heads[3].value[:2]
    if kind != "storage" or type(name) is not _Named or name.name not in {*STORAGES, "UntypedStorage"}:
        raise ValueError("unknown storage")
    dtype, count = STORAGES.get(name.name), int.from_bytes(file.read(8), "little")
    numbers = np.frombuffer(data, np.uint8, offset=file.tell())
    nbytes = count * narrow.stored(dtype or "uint8").itemsize
    if nbytes > len(numbers):
        raise ValueError("a storage ends early")
    return _Storage(dtype, numbers[:nbytes])


def _typed(storage: _Storage, offset: int, shape: Any, stride: Any, *_: Any) -> Flat:
    return _rebuilt(storage.dtype, storage, offset, shape, stride)


def _untyped(storage: _Storage, offset: int, shape: Any, stride: Any, _: Any, __: Any, dtype: _Named) -> Flat:
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


def _hooks() -> OrderedDict[str, Any]:
    """The hooks of a tensor, of which there are none."""
    return OrderedDict()


_STAND_INS = {
    "torch.storage._load_from_bytes": _load_from_bytes,
    "torch._utils._rebuild_tensor_v2": _typed,
    "torch._utils._rebuild_tensor_v3": _untyped,
    "collections.OrderedDict": _hooks,
}
