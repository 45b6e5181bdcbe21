"""Rows between files, blocks and batches: the same in both back ends."""

from __future__ import annotations

import os
import zlib

import numpy as np
import pytest
from back_ends import both


@both
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_checksums_are_zlibs_at_every_length(kernels, dtype):
    """Check lengths around every step of the folding, and rows that start anywhere."""
    rng = np.random.default_rng(0)
    itemsize = np.dtype(dtype).itemsize
    for length in [*range(1, 300), 1023, 1024, 12_288]:
        whole = rng.integers(0, 256, (3, length, itemsize), dtype=np.uint8).view(dtype)[..., 0]
        expected = [zlib.crc32(row.tobytes()) for row in whole]
        np.testing.assert_array_equal(kernels.checksums(whole), expected, err_msg=str(length))


@both
def test_checksums_of_no_rows(kernels):
    assert kernels.checksums(np.empty((0, 5), np.float32)).tolist() == []


@both
@pytest.mark.parametrize("shift", [0, 1, 8, 13])
@pytest.mark.parametrize("shape", [(1,), (3,), (7, 5), (4, 64), (3, 64, 64)])
def test_steps_are_copied_once_and_compared(kernels, shape, shift):
    """Check memory that starts anywhere; every byte that differs is noticed."""
    rng = np.random.default_rng(3)
    size = int(np.prod(shape))

    def laid(steps: np.ndarray) -> np.ndarray:
        memory = np.zeros(steps.size + 64, np.uint8)
        memory[shift : shift + steps.size] = steps.reshape(-1)
        return memory[shift : shift + steps.size].reshape(steps.shape)

    for length in (1, 2, 9):
        steps = rng.integers(0, 256, (length + 1, *shape), dtype=np.uint8)
        now, later, out = laid(steps[:-1]), laid(steps[1:]), laid(np.full_like(steps, 77))
        assert kernels.copy_steps(now, later, out)
        np.testing.assert_array_equal(out, steps)
        for byte in {*range(0, (length - 1) * size, 1 + size * length // 200), (length - 1) * size - 1} - {-1}:
            later.reshape(-1)[byte] ^= 1 << byte % 8
            assert not kernels.copy_steps(now, later, out), byte
            later.reshape(-1)[byte] ^= 1 << byte % 8
        assert not out.base[:shift].any()
        assert not out.base[shift + steps.size :].any()


@both
def test_arrays_are_kept_or_nothing_changes(kernels):
    """Check gaps, another byte order, objects and arrays of zero size; other paths, shapes, dtypes and numbers."""
    rng, words = np.random.default_rng(3), np.array(["a", None, 3.0], object)
    given = [rng.random((9, 4)), rng.random((9, 8))[:, ::2], rng.random(5).astype(">f4"), np.float64(2.0), words]
    arrays = [
        (("field", str(i)), np.asarray(array)) for i, array in enumerate([*given, np.zeros((0, 3)), np.ones(9000)])
    ]
    places = [(path, np.zeros(array.shape, array.dtype.newbyteorder("<"))) for path, array in arrays]
    head, facts = np.full(90, 7, np.uint8), bytes(range(1, 81))
    (path, first), rest = arrays[0], arrays[1:]
    for other in (
        [*arrays, (("more",), first)],
        rest,
        [(("others", "0"), first), *rest],
        [(path, first[:8]), *rest],
        [(path, first.T), *rest],
        [(path, first.astype("float32")), *rest],
        [(path, first.view("int64")), *rest],
    ):
        assert not kernels.keep_arrays(other, places, head, facts)
        assert (head == 7).all()
        assert not any(place.any() for _, place in places)
    assert kernels.keep_arrays(arrays, places, head, facts)
    for (_, array), (_, place) in zip(arrays, places, strict=True):
        np.testing.assert_array_equal(place, array)
    assert head.tobytes() == facts[:8] + facts[:8] + facts[16:] + bytes([7] * 10)


@both
@pytest.mark.parametrize("shape", [(), (3,), (7, 5), (3, 64, 64)])
def test_rows_are_put_where_they_belong(kernels, shape):
    rng = np.random.default_rng(2)
    outs = [rng.integers(0, 256, (40, *shape)).astype(dtype) for dtype in ("u1", "f4", "f8")]
    records = np.zeros(40, [("before", "i2"), ("rows", "f4", shape), ("behind", "u1")])
    outs.append(records["rows"])
    which, expected = rng.permutation(40)[:17], [out.copy() for out in outs]
    values = [rng.integers(0, 256, (17, *shape)).astype(out.dtype) for out in outs]
    kernels.put_rows(outs, which, values)
    for out, other, rows in zip(outs, expected, values, strict=True):
        for i, row in zip(which.tolist(), rows, strict=True):
            other[i] = row
        np.testing.assert_array_equal(out, other)
    assert not records["before"].any()
    assert not records["behind"].any()


@both
@pytest.mark.parametrize("width", [1, 4, 8, 24, 68, 600])
@pytest.mark.parametrize(("lanes", "block", "depth"), [(1, 1, 9), (1, 4, 12), (3, 1, 10), (3, 4, 16), (70, 32, 64)])
def test_ranges_of_lanes_are_copied_one_after_the_other(kernels, lanes, block, depth, width):
    """Check single columns and a field of a record at once; ranges of every length, which wrap in memory."""
    rng = np.random.default_rng(4)
    memory = rng.integers(0, 256, (depth * lanes, width + 5), dtype=np.uint8)
    lane, first = rng.integers(0, lanes, 60), rng.integers(0, 3 * depth, 60)
    last = first + rng.integers(0, depth + 1, 60)
    expected = [
        (row % depth // block * lanes + each) * block + row % block
        for each, begin, end in zip(lane.tolist(), first.tolist(), last.tolist(), strict=True)
        for row in range(begin, end)
    ]
    columns = [memory, memory[:, 3 : 3 + width], rng.random(depth * lanes)]
    outs = [np.zeros((len(expected), *column.shape[1:]), column.dtype) for column in columns]
    kernels.copy_ranges(columns, lanes, block, np.stack([lane, first, last], axis=1), outs)
    for column, out in zip(columns, outs, strict=True):
        np.testing.assert_array_equal(out, column[expected])


@both
@pytest.mark.parametrize(("lanes", "block", "depth"), [(1, 1, 90), (1, 4, 92), (3, 1, 100), (3, 4, 160), (70, 32, 64)])
def test_rows_of_lanes_are_set_one_range_after_the_other(kernels, lanes, block, depth):
    """Check by copies of the ranges; rows of no range, bytes between fields, and values for no lane change nothing."""
    rng = np.random.default_rng(5)
    widths = [1, 4, 8, 24, 68, 600]
    memory = rng.integers(0, 256, (depth * lanes, sum(widths) + 7), dtype=np.uint8)
    columns = [memory[:, end - width : end] for width, end in zip(widths, np.cumsum(widths), strict=True)]
    columns += [rng.integers(0, 256, (depth * lanes, 3, 5), dtype=np.uint8), rng.random(depth * lanes)]
    first = rng.integers(0, 3 * depth, 2 * lanes)
    last = first + np.append(rng.integers(0, depth + 1, lanes), rng.integers(0, 9, lanes))
    named = np.append(np.arange(lanes), np.full(lanes, -1))
    ranges = rng.permutation(np.stack([named, first, last], axis=1))
    sizes = ranges[:, 2] - ranges[:, 1]
    values = [rng.integers(0, 256, (sizes.sum(), *c.shape[1:])).astype(c.dtype) for c in columns]
    before = [memory.copy(), *(column.copy() for column in columns)]
    kernels.set_ranges(columns, lanes, block, ranges, values)
    of_lanes = np.repeat(ranges[:, 0] >= 0, sizes)
    found = [given[of_lanes] * 0 for given in values]
    kernels.copy_ranges(columns, lanes, block, ranges[ranges[:, 0] >= 0], found)
    for got, given in zip(found, values, strict=True):
        np.testing.assert_array_equal(got, given[of_lanes])
    rest = np.ones(depth * lanes, bool)
    for lane, begin, end in ranges[ranges[:, 0] >= 0].tolist():
        rows = np.arange(begin, end) % depth
        rest[(rows // block * lanes + lane) * block + rows % block] = False
    for now, then in zip([memory, *columns], before, strict=True):
        np.testing.assert_array_equal(now[rest], then[rest])
    np.testing.assert_array_equal(memory[:, -7:], before[0][:, -7:])


@both
def test_rows_are_read_to_their_places_with_their_checksums(kernels, tmp_path):
    data = np.random.default_rng(2).integers(0, 256, (50, 6, 5), dtype=np.uint8)
    (tmp_path / "rows").write_bytes(data.tobytes())
    file = os.open(tmp_path / "rows", os.O_RDONLY)
    try:
        rows, places = np.array([3, 49, 0, 3]), np.array([2, 0, 3, 1])
        out = np.zeros((4, 6, 5), np.uint8)
        failed, sums = kernels.read_rows(np.full(4, file), rows * 30, places, out)
        assert failed == -1
        np.testing.assert_array_equal(out[places], data[rows])
        np.testing.assert_array_equal(sums, [zlib.crc32(data[row].tobytes()) for row in rows])
        short = np.array([0, 1471, 10**9, 30])  # the second ends behind the file
        failed, sums = kernels.read_rows(np.full(4, file), short, np.arange(4), out)
        assert failed == 1
        assert sums[[1, 2]].tolist() == [0, 0]
        np.testing.assert_array_equal(out[[0, 3]], data[[0, 1]])
        rows = np.array([4, 5, 6, 47, 48, 49, 50, 51])  # neighbours, of which two are behind the file
        out = np.zeros((8, 6, 5), np.uint8)
        failed, sums = kernels.read_rows(np.full(8, file), rows * 30, np.arange(8), out)
        assert failed == 6
        np.testing.assert_array_equal(out[:6], data[rows[:6]])
        np.testing.assert_array_equal(sums, [zlib.crc32(data[row].tobytes()) if row < 50 else 0 for row in rows])
        # Of different sizes, none among them, to places with gaps; the fourth ends behind the file.
        begins, sizes, places = np.array([7, 0, 1500, 1490, 30]), np.array([30, 1, 0, 11, 1400]), [40, 9, 3, 20, 80]
        flat, wanted = np.full(1480, 9, np.uint8), np.full(1480, 9, np.uint8)
        failed, sums = kernels.read_spans(np.full(5, file), begins, sizes, np.array(places), flat)
        parts = [data.tobytes()[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
        assert failed == 3
        np.testing.assert_array_equal(sums, [zlib.crc32(part) * (k != 3) for k, part in enumerate(parts)])
        for place, part in zip(places, parts, strict=True):
            wanted[place : place + len(part)] = np.frombuffer(part, np.uint8)
        np.testing.assert_array_equal(np.delete(flat, np.s_[20:31]), np.delete(wanted, np.s_[20:31]))
    finally:
        os.close(file)


@both
@pytest.mark.parametrize("shape", [(), (7,), (40, 3)])
def test_fields_are_read_from_files_what_is_kept_of_them_and_memory(kernels, shape, tmp_path):
    """Check three files of two fields: nothing kept, checksums and the first field kept, and all in memory."""
    rng, steps, width = np.random.default_rng(6), 9, 4
    fields = [rng.integers(0, 256, (3, steps * width, *shape), dtype=np.uint8) for _ in range(2)]
    sums = np.array([[[zlib.crc32(row.tobytes()) for row in rows] for rows in field] for field in fields], np.uint32)
    tables = np.ascontiguousarray(sums.transpose(1, 2, 0))
    size, row = tables[0].nbytes, fields[0][0, 0].nbytes
    files, places = [], []
    for k in range(3):
        (tmp_path / f"{k}").write_bytes(b"head" + tables[k].tobytes() + fields[0][k].tobytes() + fields[1][k].tobytes())
        files.append(os.open(tmp_path / f"{k}", os.O_RDWR))
        places.append([files[k], width, 4, 0, 4 + size, 4 + size + fields[0][k].nbytes])
    known = np.concatenate([tables[1].view(np.uint8), fields[0][1].reshape(steps * width, -1)], axis=1)
    asked = np.array([[2, row, 0, 8, 0], [3, row, 1, -1, 1], [2, row, 1, 8, 0], [0, 8, 0, 0, -1]])
    held = [fields[0][2], fields[1][2], fields[0][2], tables[2].view(np.uint8)]
    which = np.repeat([0, 1, -1, 2], [20, 15, 3, 12])
    rows, targets = rng.integers(0, (steps - 1) * width, 50), rng.permutation(60)[:50]

    def read(kept: list[object]) -> tuple[tuple[int, int], list[np.ndarray]]:
        outs = [np.zeros((60, *each.shape[1:]), np.uint8) for each in held]
        return kernels.read_fields(np.array(places), kept, which, rows, targets, asked, outs), outs

    wanted = [np.zeros((60, *each.shape[1:]), np.uint8) for each in held]
    sources = fields[0], fields[1], fields[0], tables.view(np.uint8)
    for k, at, target in zip(which.tolist(), rows.tolist(), targets.tolist(), strict=True):
        for out, source, (_, _, later, _, _) in zip(wanted, sources, asked, strict=True):
            out[target] = source[k, at + later * width] if k >= 0 else 0
    try:
        for kept in ([None, known, held], [None, None, held], [None, None, None]):
            bad, outs = read(kept)
            assert bad == (-1, -1)
            for out, each in zip(outs, wanted, strict=True):
                np.testing.assert_array_equal(out, each)
        changed = rows[7] + width  # of the second field, so many rows of which were asked for
        damaged = ~fields[1][0].reshape(-1, row)[changed, :1]
        os.pwrite(files[0], damaged.tobytes(), int(places[0][5] + changed * row))
        assert read([None, known, held])[0] == (1, int(np.argmax(rows == rows[7])))
        os.ftruncate(files[0], 4 + size + fields[0][0].nbytes - 1)
        assert read([None, known, held])[0] == (1, 0)
        os.ftruncate(files[0], 4)
        assert read([None, known, held])[0] == (0, 0)
    finally:
        for file in files:
            os.close(file)


@both
def test_samples_are_sorted_by_file_and_row(kernels):
    rng = np.random.default_rng(7)
    before = 5 + np.append(0, np.cumsum(rng.integers(0, 4, 40)))
    samples = rng.integers(before[0], before[-1], 100)
    order, files, which, rows = kernels.sort_rows(before, samples)
    np.testing.assert_array_equal(order, np.argsort(samples, kind="stable"))
    np.testing.assert_array_equal(files, sorted(set(files.tolist())))
    np.testing.assert_array_equal(before[files[which]] + rows, samples[order])
    assert (samples[order] < before[files[which] + 1]).all()
    assert [len(part) for part in kernels.sort_rows(before, samples[:0])] == [0, 0, 0, 0]
