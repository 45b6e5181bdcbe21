"""Rows between files, blocks in memory and batches, in readable Python."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..._base import system
from ..._base.types import Array, Bytes, Int64, Leaves
from ..lanes import get_rows, items_of, set_rows
from ..plans import RowsRead


def _bytes(rows: Array) -> Any:
    return rows.reshape(len(rows), -1).view(np.uint8)


def checksums(rows: Array) -> Array:
    """Compute the CRC-32 of every row, uint32 `[n]`."""
    if not len(rows):
        return np.empty(0, np.uint32)
    data = memoryview(_bytes(rows).reshape(-1))
    size = len(data) // max(len(rows), 1)
    return np.array([zlib.crc32(data[k * size : (k + 1) * size]) for k in range(len(rows))], np.uint32)


def copy_steps(now: Array, later: Array, out: Array) -> bool:
    """Copy the steps `now`, `[T, ...]`, and the last one of `later` to `out`, `[T + 1, ...]`, all of them contiguous.

    Returns whether `later` is `now` one step later, byte by byte.
    """
    out[:-1], out[-1] = now, later[-1]
    left, right = _bytes(now)[1:].reshape(-1), _bytes(later)[:-1].reshape(-1)
    if left.size % 8 == 0 and left.ctypes.data % 8 == 0 and right.ctypes.data % 8 == 0:
        left, right = left.view(np.uint64), right.view(np.uint64)
    return bool(np.array_equal(left, right))


def keep_arrays(arrays: Leaves, places: Leaves, head: Bytes, facts: bytes) -> bool:
    """Copy arrays to places of the same paths, shapes and dtypes, but for byte order, and facts about them to a head.

    Both begin with a number. The head's first one is set before all else, its second one after; both are 8 bytes.
    Returns False, and changes nothing, where these are other arrays than the places are for.
    """
    if len(arrays) != len(places):
        return False
    for (path, array), (own, place) in zip(arrays, places, strict=True):
        if path != own or array.shape != place.shape or not np.can_cast(array.dtype, place.dtype, "equiv"):
            return False
    given = np.frombuffer(facts, np.uint8)
    head[:8], head[16 : len(given)] = given[:8], given[16:]
    for (_, array), (_, place) in zip(arrays, places, strict=True):
        place[...] = array
    head[8:16] = given[:8]
    return True


def put_rows(outs: Sequence[Array], which: Int64, values: Sequence[Array]) -> None:
    """Copy row i of each of the `values` to row `which[i]` of its array in `outs`, of the same dtype."""
    for out, rows in zip(outs, values, strict=True):
        out[which] = rows


def copy_ranges(columns: Sequence[Array], lanes: int, block: int, ranges: Int64, outs: Sequence[Array]) -> None:
    """Copy rows of lanes to `outs`, one range after the other.

    Args:
        columns: `[n, ...]` each: blocks of `block` rows, one of each lane, as often as a lane has blocks in memory.
        lanes: How many lanes there are.
        block: Rows of a block.
        ranges: int64 `[m, 3]`: lane, first row, and the row after the last; a lane's rows go round in its memory.
        outs: For each column as many rows of the same size as there are in all ranges, contiguous.
    """
    for rows, out in zip(columns, outs, strict=True):
        blocks = items_of(rows.reshape(-1, lanes, block, *rows.shape[1:]), 3)
        target, done = out.reshape(-1).view(blocks.dtype), 0
        for lane, first, last in ranges.tolist():
            target[done : done + last - first] = get_rows(blocks, lane, first, last)
            done += last - first


def set_ranges(columns: Sequence[Array], lanes: int, block: int, ranges: Int64, values: Sequence[Array]) -> None:
    """Copy `values` to rows of lanes, one range after the other.

    Args:
        columns: Arrays whose rows lie as in `copy_ranges`, all of the same length.
        lanes: How many lanes there are.
        block: Rows of a block.
        ranges: As in `copy_ranges`; the values of a range of lane -1 are passed over.
        values: For each column as many rows as there are in all ranges, contiguous.
    """
    blocks = [column.reshape(-1, lanes, block, *column.shape[1:]) for column in columns]
    done = 0
    for lane, first, last in ranges.tolist():
        for target, rows in zip(blocks, values, strict=True) if lane >= 0 else ():
            set_rows(target, lane, first, rows[done : done + last - first])
        done += last - first


def read_rows(files: Int64, offsets: Int64, places: Int64, out: Array) -> RowsRead:
    """Fill `out[places[i]]` from `offsets[i]` of the open file `files[i]`.

    Returns the first `i` for which there was not enough to read (-1: none), and the CRC-32 of what was read (0 there).
    """
    data = _bytes(out)
    return _read(files, offsets, [memoryview(data[place]) for place in places.tolist()])


def read_fields(
    files: Int64,
    kept: Sequence[Bytes | list[Array] | None],
    which: Int64,
    rows: Int64,
    targets: Int64,
    fields: Int64,
    outs: Sequence[Array],
) -> tuple[int, int]:
    """Fill a row of each of `outs` for every row that is wanted, and compare it with its checksum.

    Args:
        files: int64 `[f, s + 4]`: for each open file its descriptor, the rows of a step, and where these begin: its
            table of `s` checksums a row, something else without checksums, and `s` fields.
        kept: What is kept of each file's rows, uint8 `[rows, bytes]`, their `s` checksums first; None; or, for a file
            in memory, all rows of each of `outs`.
        which: The file of each row; rows of a file come one after the other. Negative ones are passed over.
        rows: Its number in the file.
        targets: Its place in `outs`.
        fields: int64 `[k, 5]`: for each of `outs` its number among the places of a file, the bytes from row to row
            there, the steps by which its rows are further down, its place in what is kept, and its number among the
            checksums; -1 where it is not kept, and has none.
        outs: The rows to fill.

    Returns:
        The first field and row, file by file, that could not be read or does not match; -1 and -1 if there is none.
    """
    for number in dict.fromkeys(which[which >= 0].tolist()):
        here, block, (file, width, *places) = np.flatnonzero(which == number), kept[number], files[number].tolist()
        known: dict[int, Array] = {}
        for j, ((place, stride, later, at, slot), out) in enumerate(zip(fields.tolist(), outs, strict=True)):
            further, data, failed = rows[here] + later * width, _bytes(out), -1
            if isinstance(block, list):
                data[targets[here]] = _bytes(block[j])[further]
                continue
            if block is not None and at >= 0:
                data[targets[here]] = block[further, at : at + data.shape[1]]
                continue
            read = partial(read_rows, np.full(len(here), file))
            if slot >= 0 and later not in known:
                size = 4 * (len(places) - 2)
                known[later] = np.zeros((len(here), size), np.uint8) if block is None else block[further, :size]
                if block is None:
                    failed, _ = read(places[0] + further * size, np.arange(len(here)), known[later])
            if failed < 0:
                failed, sums = read(places[place] + further * stride, targets[here], out)
                if slot >= 0:
                    wrong = known[later][:, 4 * slot : 4 * slot + 4].copy().view(np.uint32)[:, 0] != sums
                    wrong[failed:] |= failed >= 0
                    failed = int(np.argmax(wrong)) if wrong.any() else -1
            if failed >= 0:
                return j, int(here[failed])
    return -1, -1


def sort_rows(before: Int64, samples: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Find the files of samples, which are rows of all files one after the other: `before[f]` come before file f.

    Returns:
        By file and row: the number of each sample; the files, each once; each sample's place among these, and its row.
    """
    order = np.argsort(samples, kind="stable")
    files = np.searchsorted(before, samples[order], side="right") - 1
    new = np.diff(files, prepend=-1) > 0
    return order, files[new], np.cumsum(new) - 1, samples[order] - before[files]


def read_spans(files: Int64, offsets: Int64, sizes: Int64, places: Int64, out: Bytes) -> RowsRead:
    """Fill the `sizes[i]` bytes at `out[places[i]]` from `offsets[i]` of the open file `files[i]`.

    Returns what `read_rows` does.
    """
    data = out.data
    spans = zip(places.tolist(), sizes.tolist(), strict=True)
    return _read(files, offsets, [data[place : place + size] for place, size in spans])


def _read(files: Int64, offsets: Int64, targets: Sequence[memoryview]) -> RowsRead:
    sums = np.zeros(len(files), np.uint32)
    failed = -1
    for i, (file, offset, target) in enumerate(zip(files.tolist(), offsets.tolist(), targets, strict=True)):
        if not len(target) or system.read_into(file, [target], offset) == len(target):
            sums[i] = zlib.crc32(target)
        elif failed < 0:
            failed = i
    return RowsRead(failed, sums)
