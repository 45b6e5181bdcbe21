"""Headers of safetensors files: 8 bytes with the length, then JSON, padded with spaces so that the data are aligned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .files import read_at
from .json_files import json_in

MOST_HEADER = 1 << 20
CODES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16", "int32": "I32",
    "uint32": "U32", "float32": "F32", "float64": "F64", "int64": "I64", "uint64": "U64", "complex64": "C64",
    "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
DTYPES = {code: name for name, code in CODES.items()}
_ALIGN = 64


def tensor(dtype: str, shape: Sequence[int], start: int, nbytes: int) -> dict[str, Any]:
    """Describe a tensor as in a header; `start` is the offset of its bytes after the header."""
    return {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [start, start + nbytes]}


def header(tensors: Mapping[str, Any], metadata: Mapping[str, str], least: int = 0) -> bytes:
    """Return the first bytes of a file, up to the data: `least` of them, or more."""
    text = json.dumps({"__metadata__": dict(metadata), **tensors}, separators=(",", ":")).encode()
    text = text.ljust(least - 8)
    text += b" " * (-(len(text) + 8) % _ALIGN)
    return len(text).to_bytes(8, "little") + text


def read(fd: int, size: int) -> bytes:
    """Read the header of an open file of `size` bytes; if its length is impossible, only the first 8 bytes."""
    first = read_at(fd, 0, 8)
    count = int.from_bytes(first, "little")
    return first + (read_at(fd, 8, count) if count <= min(MOST_HEADER, size - 8) else b"")


def parsed(head: bytes, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the header of a file of `size` bytes into tensors by name, and metadata.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: It is no header.
    """
    count = int.from_bytes(head[:8], "little")
    if count > min(MOST_HEADER, size - 8) or len(head) < 8 + count:
        raise ValueError(f"invalid header of {count} bytes")
    tensors = json_in(head[8 : 8 + count])
    return tensors, tensors.pop("__metadata__")
