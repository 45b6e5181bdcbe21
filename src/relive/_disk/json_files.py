"""JSON files: written as one object whose last entry is the CRC-32 of all before it."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import CorruptionError, StorageError, event, message
from .files import Folder, read_at, size_of

_CHECKSUM = b',\n "checksum": '


def dumped(facts: Mapping[str, Any]) -> bytes:
    """Write facts as the contents of a file."""
    text = json.dumps(facts, indent=1, allow_nan=False).encode().removesuffix(b"\n}")
    return text + _last_of(text)


def _last_of(text: bytes) -> bytes:
    return b"%s%d\n}\n" % (_CHECKSUM, zlib.crc32(text))


def read(folder: Folder, name: str, most: int, *, plain: bool = False) -> dict[str, Any]:
    """Read the facts of a file, without the checksum.

    Args:
        folder: The directory.
        name: The file.
        most: The largest size that it may have, in bytes.
        plain: Whether it may lack a checksum: older versions wrote some files so.

    Raises:
        CorruptionError: It is damaged.
        StorageError: It is missing or cannot be read.
    """
    at = f"{folder.path}/{name}"
    with folder.reading(name) as fd:
        size = size_of(fd)
        if size > most:
            raise CorruptionError(message(f"a file of at most {most} bytes", f"{size}", at))
        raw = read_at(fd, 0, size)
    with damaged(at):
        text = raw.rpartition(_CHECKSUM)[0]
        if raw == text + _last_of(text):
            raw = text + b"}"
        elif b"\n" in raw or not plain:  # those without one were written in one line
            raise ValueError("it does not match its checksum")
        found = json_in(raw)
        if type(found) is not dict:
            raise ValueError("it is no object")
        return found


def json_in(data: bytes) -> Any:
    """Parse JSON; refuse duplicate keys and a byte order mark.

    Raises:
        ValueError: It is not JSON, or one of these.
    """
    return json.loads(data.decode(), object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts = dict(pairs)
    if len(facts) != len(pairs):
        raise ValueError("a key twice")
    return facts


@contextlib.contextmanager
def damaged(at: str) -> Iterator[None]:
    """Turn what damaged facts raise into a `CorruptionError` about `at`."""
    try:
        yield
    except StorageError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptionError(event(f"Invalid contents ({str(error)[:80]})", at)) from None
