"""The tensors in one of RLinf's files: dtypes, shapes and byte offsets, found without running code from the file.

`pt` files are zip archives with one record per tensor and its CRC-32. `pkl` files are pickles that contain the bytes,
without checksums. Both are parsed as data, which is stricter than `torch.load(weights_only=True)`.
"""

from __future__ import annotations

import io
import itertools
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..._base import narrow
from ..._base.nests import Path
from ..._disk.files import read_at, size_of
from ...errors import StorageError, event
from ._opcodes import Call, Handle, Named, Span, value

_MOST_HEAD = 1 << 20
_MOST_FIELDS = 1024
_DEEPEST = 8
_STORAGES = {
    "torch.FloatStorage": "float32", "torch.DoubleStorage": "float64", "torch.HalfStorage": "float16",
    "torch.LongStorage": "int64", "torch.IntStorage": "int32", "torch.ShortStorage": "int16",
    "torch.CharStorage": "int8", "torch.ByteStorage": "uint8", "torch.BoolStorage": "bool",
    "torch.BFloat16Storage": "bfloat16",
}  # fmt: skip
# What damaged files raise, here and in `zipfile`.
_DAMAGE = (
    ValueError, LookupError, TypeError, AttributeError, OSError, RuntimeError, MemoryError, struct.error,
    zipfile.BadZipFile,
)  # fmt: skip
_UNTYPED = "torch.storage.UntypedStorage"
_WIDTHS = {
    name: narrow.stored(name).itemsize
    for name in {*_STORAGES.values(), "uint16", "uint32", "uint64", *narrow.BITS}
}  # fmt: skip


class Tensor(NamedTuple):
    """A contiguous tensor: dtype, shape, and the offset of its bytes in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * _WIDTHS[self.dtype]


class Contents(NamedTuple):
    """What a file holds by path: tensors, and anything else."""

    tensors: dict[Path, Tensor]
    others: dict[Path, Any]


class _Storage(NamedTuple):
    dtype: str | None
    start: int
    size: int


def contents(fd: int, kind: str, name: str) -> Contents:
    """Parse an open file; the checksums of a `pt` file are compared.

    Raises:
        StorageError: The file is damaged, or not one that RLinf writes.
    """
    try:
        tree, storage = _archive(fd) if kind == "pt" else _pickle(fd)
        found = Contents({}, {})
        left = itertools.count(_MOST_FIELDS, -1)
        for path, leaf in _leaves(tree, (), _DEEPEST, left):
            if isinstance(leaf, Call):
                found.tensors[path] = _tensor(leaf, storage)
            else:
                found.others[path] = leaf
        if sum(tensor.nbytes for tensor in found.tensors.values()) > size_of(fd):
            raise ValueError("tensors have more bytes than the file")
    except _DAMAGE as error:
        raise StorageError(event(f"Invalid RLinf trajectory file ({str(error)[:80]})", name)) from None
    return found


def _leaves(tree: Any, above: Path, depth: int, left: Iterator[int]) -> Iterator[tuple[Path, Any]]:
    """The values of nested mappings. All of them are counted: a mapping may be in many others, without taking bytes."""
    if type(tree) is not dict or not depth:
        raise ValueError(f"expected a mapping of at most {_DEEPEST} levels")
    for key, leaf in tree.items():
        if not next(left):
            raise ValueError(f"expected a mapping of at most {_MOST_FIELDS} fields")
        if type(leaf) is dict:
            yield from _leaves(leaf, (*above, key), depth - 1, left)
        else:
            yield (*above, key), leaf


def _tensor(call: Call, storage: Callable[[Any], _Storage]) -> Tensor:
    """The tensor that a call describes."""
    typed = call.name == "torch._utils._rebuild_tensor_v2"
    if not typed and call.name != "torch._utils._rebuild_tensor_v3":
        raise ValueError(f"unknown call of {call.name}"[:80])
    found = storage(call.args[0])
    offset, shape, stride = call.args[1:4]
    dtype = found.dtype if typed else str(getattr(call.args[6], "name", "")).removeprefix("torch.")
    if dtype is None or dtype not in _WIDTHS or type(shape) is not tuple or type(stride) is not tuple:
        raise ValueError(f"invalid tensor of {dtype}"[:80])
    if len(shape) > 32 or not all(type(k) is int and 0 <= k < 2**48 for k in (offset, *shape, *stride)):
        raise ValueError("invalid shape of a tensor")
    expected = 1
    for axis, step in reversed(list(zip(shape, stride, strict=True))):
        if axis != 1 and step != expected and math.prod(shape):
            raise ValueError("a tensor is not contiguous")
        expected *= axis
    width = _WIDTHS[dtype]
    if (offset + math.prod(shape)) * width > found.size:
        raise ValueError("a tensor exceeds its storage")
    return Tensor(dtype, shape, found.start + offset * width)


def _typed(handle: Any, start: int, count: int) -> _Storage:
    """The storage of `count` bytes that a handle names."""
    kind, name = handle.value[:2]
    if kind != "storage" or type(name) is not Named or name.name not in {*_STORAGES, _UNTYPED}:
        raise ValueError("unknown storage")
    return _Storage(_STORAGES.get(name.name), start, count)


# pt -------------------------------------------------------------------------------------------------------------------


def _archive(fd: int) -> tuple[Any, Callable[[Any], _Storage]]:
    records = {name: _checked(fd, record) for name, record in _records(fd).items()}
    (head,) = (name for name in records if name.endswith("/data.pkl") and name.count("/") == 1)
    folder = head.removesuffix("data.pkl")
    order = records.get(f"{folder}byteorder")
    if order is not None and read_at(fd, *order) != b"little":
        raise ValueError("big-endian numbers")
    start, count = records[head]
    if count > _MOST_HEAD:
        raise ValueError(f"header of {count} bytes is too large")

    def storage(handle: Any) -> _Storage:
        if type(handle) is not Handle or type(handle.value[2]) is not str:
            raise ValueError("a tensor has no storage")
        return _typed(handle, *records[f"{folder}data/{handle.value[2]}"])

    return value(io.BytesIO(read_at(fd, start, count))), storage


def _records(fd: int) -> Mapping[str, zipfile.ZipInfo]:
    if _directory_bytes(fd) > _MOST_HEAD:
        raise ValueError("too many records")
    with os.fdopen(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
        records = archive.infolist()
    if len({record.filename for record in records}) != len(records):
        raise ValueError("two records have the same name")
    if sum(record.file_size for record in records) > size_of(fd):
        raise ValueError("records have more bytes than the file")  # so some overlap
    return {record.filename: record for record in records}


def _directory_bytes(fd: int) -> int:
    """Bytes of the archive's central directory, which `zipfile` reads whole."""
    size = size_of(fd)
    end = read_at(fd, max(size - 22, 0), 22)
    if len(end) < 22 or end[:4] != b"PK\5\6":
        raise ValueError("not a zip archive")
    (count,) = struct.unpack("<I", end[12:16])
    locator = read_at(fd, max(size - 42, 0), 20)
    if locator[:4] == b"PK\6\7":  # zip64, for archives above 4 GiB
        (start,) = struct.unpack("<Q", locator[8:16])
        (count,) = struct.unpack("<Q", read_at(fd, min(start, size), 56)[40:48])
    return int(count)


def _checked(fd: int, record: zipfile.ZipInfo) -> tuple[int, int]:
    """The offset and size of a record, after comparing its bytes with their checksum."""
    local = read_at(fd, record.header_offset, 30)
    if len(local) < 30 or local[:4] != b"PK\3\4" or record.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"record {record.filename!r} is damaged or compressed"[:80])
    start = record.header_offset + 30 + sum(struct.unpack("<HH", local[26:]))
    left, at, found = record.file_size, start, 0
    while left:
        part = read_at(fd, at, min(left, 1 << 20))
        if not part:
            raise ValueError("the file ends early")
        found, at, left = zlib.crc32(part, found), at + len(part), left - len(part)
    if found != record.CRC:
        raise ValueError(f"wrong checksum of {record.filename}"[:80])
    return start, record.file_size


# pkl ------------------------------------------------------------------------------------------------------------------


def _pickle(fd: int) -> tuple[Any, Callable[[Any], _Storage]]:
    def storage(call: Any) -> _Storage:
        if type(call) is not Call or call.name != "torch.storage._load_from_bytes" or type(call.args[0]) is not Span:
            raise ValueError("a tensor has no storage")
        return _inner(fd, call.args[0])

    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        return value(file), storage


def _inner(fd: int, span: Span) -> _Storage:
    """The storage that PyTorch wrote into a pickle: five pickles, the count of elements, and the elements."""
    head = io.BytesIO(read_at(fd, span.start, min(span.size, 1 << 12)))
    _, _, system, handle, _ = (value(head) for _ in range(5))
    if system.get("little_endian") is not True:
        raise ValueError("big-endian numbers")
    found = _typed(handle, span.start + head.tell() + 8, 0)
    count = int.from_bytes(head.read(8), "little") * _WIDTHS.get(found.dtype or "", 1)
    if found.start + count > span.start + span.size:
        raise ValueError("a storage ends early")
    return found._replace(size=count)
