"""Whether files of earlier saves can still be read: whole, or as cheaply as that can be known."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from .._disk import safetensors, tensors
from .._disk.files import Folder, read_at, size_of
from ..errors import CorruptionError, StorageError, event, message
from ._manifest import File

_SAMPLED = 4  # chunks of the data that a save reads
_LITTLE = 1 << 20  # bytes of files that are read whole
_MOST = 16  # at once
_HEAD = 1 << 13  # bytes that have nearly every header


class Checks:
    """The findings of one save about files that are already there.

    Sizes, headers and tables of checksums are compared whole; of the data a part, another one in each save, or all; a
    megabyte and less always.

    Args:
        folder: The directory.
        number: The save.
        whole: Whether all data are read.
        damaged: Files that the saves before this one found damaged; what is found is added.
    """

    def __init__(self, folder: Folder, number: int, whole: bool, damaged: set[File]) -> None:
        self._folder, self._number, self._whole, self._damaged = folder, number, whole, damaged
        self._sound: set[File] = set()

    def wrong(self, files: Sequence[tuple[str, File]]) -> str | None:
        """Check files; what is wrong with one of them, None if nothing is seen."""
        new = [(name, file, -(-file.nbytes // tensors.CHUNK)) for name, file in files if file not in self._sound]
        whole = self._whole or sum(file.nbytes for _, file, _ in new) <= _LITTLE
        windows = -(-sum(count for _, _, count in new) // _SAMPLED)
        # As good as random. In steps of equal width the place could keep up with what is written, and miss others.
        begin = (zlib.crc32(b"%d" % self._number) * windows >> 32) * _SAMPLED
        found = None
        for name, file, count in new:
            first, last = (0, count) if whole else (max(begin, 0), max(begin + _SAMPLED, 0))
            found = self._wrong(name, file, first, last) or found
            begin -= count
        return found

    def _wrong(self, name: str, file: File, first: int, last: int) -> str | None:
        if file in self._damaged:
            return f"{self._folder.path}/{name}"
        try:
            _check(self._folder, name, file, first, last)
        except StorageError as error:
            self._damaged.add(file)
            return str(error)
        self._sound.add(file)
        return None


def _check(folder: Folder, name: str, file: File, first: int, last: int) -> None:
    """Compare a file's header and table with their checksum, and the chunks `[first, last)` with the table.

    A header that is what it was when it was written need not be parsed, which would take longest.
    """
    at = f"{folder.path}/{name}"
    with folder.reading(name) as fd:
        size = size_of(fd)
        if size != file.nbytes:
            raise CorruptionError(message(f"a file of {file.nbytes} bytes", f"{size}", at))
        head = read_at(fd, 0, min(_HEAD, size))
        start = min(8 + int.from_bytes(head[:8], "little"), 8 + safetensors.MOST_HEADER, size)
        head = head[:start] if start <= len(head) else read_at(fd, 0, start)
        chunks = -(-(size - start) // (tensors.CHUNK + 4))  # the table has four bytes for each
        end = size - 4 * chunks
        raw = read_at(fd, end, 4 * chunks)
        if zlib.crc32(raw, zlib.crc32(head)) != file.checksum:
            raise CorruptionError(event("The header or the table of checksums does not match its checksum", at))
        table = np.frombuffer(raw, np.uint32)
        for begin in range(first, min(last, chunks), _MOST):
            offset, until = start + begin * tensors.CHUNK, min(begin + _MOST, last, chunks)
            data = read_at(fd, offset, min(start + until * tensors.CHUNK, end) - offset)
            if not np.array_equal(tensors.checksums(np.frombuffer(data, np.uint8)), table[begin:until]):
                raise CorruptionError(event(f"The data from offset {offset} on do not match their checksums", at))
