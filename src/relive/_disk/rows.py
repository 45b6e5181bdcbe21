"""Rows in memory and in open files, many by one call; `_ring/kernels_numpy/files.py` has the code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._base.types import Array, Bytes, Int64
from .._ring.kernels import active
from .._ring.plans import RowsRead as RowsRead


def checksums(rows: Array) -> Array:
    """Compute the CRC-32 of every row, uint32 `[n]`."""
    return active().checksums(rows)


def copy_steps(now: Array, later: Array, out: Array) -> bool:
    """Copy steps, and the last one of `later`, to `out`; return whether `later` is `now` one step later."""
    return active().copy_steps(now, later, out)


def sort_rows(before: Int64, samples: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Find the files of samples, `before[f]` of which come before file f; return them by file and row."""
    return active().sort_rows(before, samples)


def read_fields(
    files: Int64,
    kept: Sequence[Bytes | list[Array] | None],
    which: Int64,
    rows: Int64,
    targets: Int64,
    fields: Int64,
    outs: Sequence[Array],
) -> tuple[int, int]:
    """Read rows of fields from files; return field and row of the first that does not match, or -1 and -1."""
    return active().read_fields(files, list(kept), which, rows, targets, fields, list(outs))


def copy_rows(
    blocks: Sequence[list[Array]],
    which: Int64,
    rows: Int64,
    targets: Int64,
    outs: Sequence[Array],
    later: Sequence[int] = (0,),
    widths: Int64 | int = 0,
) -> None:
    """Copy row `rows[i]` of block `which[i]` to row `targets[i]` of all `outs`, but where `which[i]` is negative.

    A block has an array for each of them, in which rows are so many times the block's `widths` further down.
    """
    places = np.zeros((len(blocks), 4), np.int64)
    places[:, 1] = widths
    read_fields(places, blocks, which, rows, targets, np.array([(0, 0, shift, -1, -1) for shift in later]), outs)


def read_rows(files: Int64, offsets: Int64, places: Int64, out: Array) -> RowsRead:
    """Read rows from open files to `out[places]`; return the first that failed, or -1, and their checksums."""
    return active().read_rows(files, offsets, places, out)


def read_spans(files: Int64, offsets: Int64, sizes: Int64, places: Int64, out: Bytes) -> RowsRead:
    """Read spans of different sizes to `out`, from the byte `places[i]` on; return as `read_rows`."""
    return active().read_spans(files, offsets, sizes, places, out)
