"""Rows of images compressed in files: each row is a zstd frame of its own, so that a draw reads single rows.

The package compresses and decompresses many rows by one call, which lets other threads have the interpreter meanwhile:
after each row it would have to wait for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._base.extras import needs
from .._base.forks import importing
from .._base.types import Array, Bytes, Int64
from .._disk.rows import read_spans
from ._entry import Entry
from ._layout import FieldLayout
from ._plan import most_of_frame

AT_ONCE = 1 << 20  # bytes of rows that one call takes: with more, their memory comes from the system each time
_MOST_WINDOW = 1 << 23  # bytes that a decoder may reserve for itself, as the format advises
_LEVEL = -1  # the others take longer; of images they make hardly smaller frames


def package(at: str) -> Any:
    """Import the package that compresses.

    Raises:
        MissingExtra: It is not installed.
    """
    with importing, needs("compress", at):
        import zstandard
    return zstandard


def rows_at_once(width: int) -> int:
    """Return the number of rows of so many bytes that are taken together."""
    return max(1, AT_ONCE // width)


def compressed(layout: FieldLayout, arrays: Iterable[Array], rows: int) -> tuple[Int64, list[bytes], Array]:
    """Compress fields row by row.

    Args:
        layout: The fields.
        arrays: The rows of those that are compressed, `[n, ...]` each.
        rows: Rows of the longest field.

    Returns:
        Where each frame begins, row by row and in each row field by field, and where the last one ends, int64
        `[rows * fields + 1]`; the frames in that order, and zeros to a multiple of four bytes; the CRC-32 of each
        frame, uint32 `[rows, stored fields]`.
    """
    zstd = package("TrajectoryReplayBuffer(compress)")
    encoder, fields = zstd.ZstdCompressor(level=_LEVEL), len(layout.packed)
    frames, sums = [b""] * (rows * fields), np.zeros((rows, len(layout.stored)), np.uint32)
    for number, (column, array) in enumerate(zip(layout.packed, arrays, strict=True)):
        data: Bytes = array.reshape(len(array), -1).view(np.uint8)
        width, some = data.shape[1], rows_at_once(data.shape[1])
        for first in range(0, len(data), some):
            part = data[first : first + some]
            even = _segments(zstd, part, width * np.arange(len(part)), np.full(len(part), width))
            found = [frame.tobytes() for frame in encoder.multi_compress_to_buffer(even, threads=0)]
            frames[first * fields + number : (first + len(part)) * fields : fields] = found
            sums[first : first + len(part), layout.stored.index(column)] = [zlib.crc32(frame) for frame in found]
    begins = np.zeros(len(frames) + 1, np.int64)
    np.cumsum([len(frame) for frame in frames], out=begins[1:])
    return begins, [*frames, bytes(-int(begins[-1]) % 4)], sums


def exact(entry: Entry, begins: Int64) -> bool:
    """Return whether rows that a field does not have take no bytes."""
    layout, plan = entry.layout, entry.plan
    sizes = np.diff(begins).reshape(plan.rows, -1)
    steps = dict(zip(layout.stored, plan.steps, strict=True))
    return not any(sizes[steps[column] * entry.width :, k].any() for k, column in enumerate(layout.packed))


def read(files: Int64, starts: Int64, ends: Int64, places: Int64, sums: Array, out: Array, targets: Int64) -> int:
    """Read frames from open files, and decompress those that are what was written.

    No memory is reserved for more than the rows, whatever a file says.

    Args:
        files: The file of each frame.
        starts: Where the frames of each file start.
        ends: Bytes of all frames of each file.
        places: Where each frame begins and ends behind the start, int64 `[n, 2]`.
        sums: The CRC-32 of each frame.
        out: The rows, `[m, ...]`.
        targets: The row for the contents of each frame.

    Returns:
        The first frame that is not what was written, or whose contents are not as long as a row; -1 if there is none.
    """
    width, (begins, until) = out[:1].nbytes, places.T
    good = (begins >= 0) & (begins < until) & (until <= ends) & (until - begins <= most_of_frame(width))
    if not good.all():
        return int(np.argmin(good))
    some = rows_at_once(width)
    for first in range(0, len(files), some):
        here = slice(first, first + some)
        sizes = until[here] - begins[here]
        at = np.cumsum(sizes) - sizes
        data: Bytes = np.empty(int(sizes.sum()), np.uint8)
        failed, found = read_spans(files[here], starts[here] + begins[here], sizes, at, data)
        bad = found != sums[here]
        if failed < 0:
            failed = int(np.argmax(bad)) if bad.any() else _decompress(data, at, sizes, out, targets[here])
        if failed >= 0:
            return first + failed
    return -1


def _decompress(frames: Bytes, begins: Int64, sizes: Int64, out: Array, targets: Int64) -> int:
    """Decompress frames that begin at these places, as `read` does."""
    zstd = package("a file with compressed fields")
    rows: Bytes = out.reshape(len(out), -1).view(np.uint8)
    decoder = zstd.ZstdDecompressor(max_window_size=_MOST_WINDOW)
    wanted = np.full(len(begins), rows.shape[1], np.uint64).data.cast("B")
    try:
        found = decoder.multi_decompress_to_buffer(
            _segments(zstd, frames, begins, sizes), decompressed_sizes=wanted, threads=0
        )
    except zstd.ZstdError:
        if len(begins) == 1:
            return 0
        one = (_decompress(frames, begins[[k]], sizes[[k]], out, targets[[k]]) for k in range(len(begins)))
        return next((k for k, failed in enumerate(one) if failed >= 0), -1)
    rows[targets] = np.frombuffer(b"".join(found), np.uint8).reshape(len(begins), -1)
    return -1


def _segments(zstd: Any, data: Bytes, begins: Array, sizes: Array) -> Any:
    """Return parts of an array of bytes, as the package takes them."""
    table = np.stack([begins, sizes], axis=1).astype(np.uint64)
    return zstd.BufferWithSegments(data.reshape(-1).data, table.reshape(-1).data.cast("B"))
