"""The tensors in one of RLinf's files, `pt` or `pkl`, as bytes in memory.

PyTorch maps `pt` files, and looks up no name but its own. `pkl` files have no checksums.
"""

from __future__ import annotations

import itertools
import os
import sys
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..._base.extras import needs
from ..._base.nests import Path
from ..._base.system import LINUX
from ..._disk.files import size_of
from ...errors import CorruptionError, MissingExtra, StorageError, event, message
from .._layout import DTYPES
from . import _pickle
from ._pickle import Flat

_MOST_FIELDS = 1024
_DEEPEST = 8
_OLDEST = (2, 6)


class FileContents(NamedTuple):
    """The values of a file by path: tensors, and anything else."""

    tensors: dict[Path, Flat]
    others: dict[Path, Any]


def require_torch(at: str) -> Any:
    """Import PyTorch, in a version that maps files and unpickles tensors alone.

    Raises:
        MissingExtra: It is not installed, or older than 2.6.
    """
    with needs("torch", at):
        import torch

    version = str(torch.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise MissingExtra(message("PyTorch 2.6 or later", f"{version}", at, "pip install 'relive[torch]'"))
    return torch


def contents(fd: int, kind: str, name: str, *, compare: bool = True) -> FileContents:
    """Read an open file.

    Args:
        fd: The file. That of a `pt` file may be closed afterwards; truncating it ends the process at the next look.
        kind: `"pt"` or `"pkl"`.
        name: The path to name in errors.
        compare: Whether to compare the checksums of a `pt` file, for which all of it is read.

    Raises:
        MissingExtra: PyTorch is not installed, or too old.
        CorruptionError: The file is damaged, or not one that RLinf writes.
        StorageError: It needs more memory than there is.
    """
    torch = require_torch(name)
    try:
        tree = _mapped(fd, name, torch, compare) if kind == "pt" else _pickle.tree(fd)
        found = FileContents({}, {})
        for path, leaf in _leaves(tree, (), _DEEPEST, itertools.count(_MOST_FIELDS, -1)):
            if type(leaf) is torch.Tensor:
                leaf = _flat(leaf, torch)
            if type(leaf) is not Flat:
                found.others[path] = leaf
            elif leaf.dtype in DTYPES:
                found.tensors[path] = leaf
            else:
                raise ValueError(f"invalid tensor of {leaf.dtype}")
        if sum(tensor.data.nbytes for tensor in found.tensors.values()) > size_of(fd):
            raise ValueError("tensors have more bytes than the file")
    except MemoryError:
        raise StorageError(event("The file needs more memory than there is", name)) from None
    except Exception as error:  # whatever PyTorch, `zipfile` and `pickle` raise for damaged files
        why = (str(error) or type(error).__name__)[:80]
        if why.startswith("Weights only"):  # PyTorch's advice is to let the file run its code
            why = "it has what `torch.load(weights_only=True)` refuses"
        raise CorruptionError(event(f"Invalid RLinf trajectory file ({why})", name)) from None
    return found


def _mapped(fd: int, name: str, torch: Any, compare: bool) -> Any:
    """Load an open `pt` file by PyTorch, which maps it, and compares no checksums.

    It takes as many bytes for each storage as the file's head says, whatever the storage's record has: where these
    differ, the rest would be other records.
    """
    taken: list[tuple[int, int]] = []
    with os.fdopen(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
        records = sorted(archive.infolist(), key=lambda record: record.header_offset)
        if any(record.compress_type != zipfile.ZIP_STORED for record in records):
            raise ValueError("a record is compressed")
        bad = archive.testzip() if compare else None
    if bad is not None:
        raise ValueError(f"Bad CRC-32 of {bad!r}")

    def kept(storage: Any, location: str) -> Any:
        """Keep a storage where it is, in the mapped file, whichever device it was on."""
        taken.append((storage.data_ptr(), storage.nbytes()))
        return storage

    tree = torch.load(_path_of(fd, name), map_location=kept, weights_only=True, mmap=True)
    sizes = [each.compress_size for each in records if each.filename.split("/")[1:-1] == ["data"]]
    if [nbytes for _, nbytes in sorted(taken) if nbytes] != [size for size in sizes if size]:
        raise ValueError("a tensor's storage is not what its record has")
    return tree


def _path_of(fd: int, name: str) -> str:
    """Return a path of the open file itself: by its name another one might be loaded than was compared."""
    return f"/proc/self/fd/{fd}" if LINUX else f"/dev/fd/{fd}" if sys.platform == "darwin" else name


def _leaves(tree: Any, above: Path, depth: int, left: Iterator[int]) -> Iterator[tuple[Path, Any]]:
    """Yield the values of nested mappings, counting all: a mapping may be in many others, without taking bytes."""
    if type(tree) is not dict or not depth:
        raise ValueError(f"expected a mapping of at most {_DEEPEST} levels")
    for key, leaf in tree.items():
        if not next(left):
            raise ValueError(f"expected a mapping of at most {_MOST_FIELDS} fields")
        if type(key) is not str:
            raise ValueError("invalid field name, not a string")
        if isinstance(leaf, dict):
            yield from _leaves(leaf, (*above, key), depth - 1, left)
        else:
            yield (*above, key), leaf


def _flat(tensor: Any, torch: Any) -> Flat:
    """Return a tensor as its bytes, which stay where they are."""
    dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not (tensor.is_neg() or tensor.is_conj())
    if not plain or not tensor.is_contiguous() or len(shape) > 32:
        raise ValueError("a tensor is not contiguous")
    return Flat(dtype, shape, tensor.detach().reshape(-1).view(torch.uint8).numpy())
