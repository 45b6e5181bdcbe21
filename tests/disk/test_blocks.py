"""Arrays in compressed blocks: what is read is what was written, and damage costs the blocks that it is in."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import needs
from sizes import with_sizes

from relive._disk import blocks, tensors
from relive._disk.files import Folder
from relive._disk.tensor_writer import TensorWriter, portions_of
from relive._disk.tensors import Tensor, TensorReader
from relive.errors import CorruptionError

zstandard = needs("zstandard")
NAME, CHUNK, WIDTH = "x", 32, 6


def written(path: str, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> TensorWriter:
    kinds = {name: Tensor.of(array.dtype, array.shape) for name, array in tensors.items()}
    portions = (portion for each in tensors.items() for portion in portions_of(*each))
    return put(path, TensorWriter(kinds, portions, metadata))


def put(path: str, writer: TensorWriter) -> TensorWriter:
    with closing(Folder(path)) as folder:
        folder.write("file", writer.parts(), writer.nbytes)
    return writer


def packed(path: str, array: np.ndarray) -> TensorWriter:
    packing = blocks.Packing(NAME, len(array), array[:1].nbytes or WIDTH)
    parts = (array[at : at + packing.rows].reshape(-1).view(np.uint8) for at in range(0, len(array), packing.rows))
    return put(path, TensorWriter(packing.tensors, packing.portions(parts), packing.metadata, [NAME]))


@contextmanager
def opened(path: str, writer: TensorWriter, shape: tuple[int, ...], **how: Any) -> Iterator[blocks.Entries]:
    wanted = Tensor(np.dtype(np.uint8), shape)
    with closing(Folder(path)) as folder, TensorReader(folder, "file", writer.nbytes, writer.checksum, **how) as reader:
        yield blocks.entries(reader, NAME, wanted, compressed=True)


@given(st.data())
def test_damage_costs_the_blocks_that_it_is_in(data: st.DataObject) -> None:
    rows, seed = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 99))
    array = np.random.default_rng(seed).integers(0, 2 + seed % 3, (rows, WIDTH), np.uint8)
    some = st.tuples(*[st.integers(0, rows)] * 2).map(sorted)
    with (
        tempfile.TemporaryDirectory() as path,
        with_sizes(block=data.draw(st.sampled_from([1, 3 * WIDTH, 7 * WIDTH, 999])), checksum=CHUNK, read=4 * CHUNK),
    ):
        writer = packed(path, array)
        with opened(path, writer, array.shape) as found:
            for first, last in data.draw(st.lists(some, max_size=5)):
                np.testing.assert_array_equal(found.rows(first, last), array[first:last])
            stream, left = found.stream(), array
            while len(left):
                count = data.draw(st.integers(1, len(left)))
                np.testing.assert_array_equal(stream.rows(count), left[:count])
                left = left[count:]
            assert not found.lost([]).any()
        file = Path(path) / "file"
        raw = file.read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        entries = json.loads(raw[8:start])
        k, begin = int(entries["__metadata__"][blocks.INDEX + NAME]), entries[NAME]["data_offsets"][0]
        index = np.frombuffer(raw[start:], np.int64, begin // 8).reshape(-1, 2)
        end, changed = entries[tensors.TABLE]["data_offsets"][0], bytearray(raw)
        places = data.draw(st.lists(st.integers(0, end - 1), max_size=3, unique=True)) if end else []
        for place in places:
            changed[start + place] ^= 1
        file.write_bytes(changed)
        bad = np.zeros(len(index), bool)
        for number, (first, last) in enumerate(zip([0, *index[:, 0]], index[:, 0], strict=False)):
            ours = range(first + begin, last + begin)
            of_index = range(16 * number - 16, 16 * number - 8), range(16 * number, 16 * number + 16)
            bad[number] = any(place in each for place in places for each in (ours, *of_index))
        lost = np.repeat(bad, k)[:rows]
        with opened(path, writer, array.shape, forgiving=True) as found:
            np.testing.assert_array_equal(found.lost(places), lost)
            np.testing.assert_array_equal(found.rows(0, rows), np.where(lost[:, None], 0, array))


ROWS = np.arange(4 * WIDTH, dtype=np.uint8).reshape(4, WIDTH)
GOOD = zstandard.ZstdCompressor().compress(ROWS.tobytes())


def claiming(nbytes: int) -> bytes:
    """Make a frame that claims to hold that many bytes."""
    return zstandard.ZstdCompressor().compress(bytes(nbytes))


# Others are in `tests/checkpoints/test_hostile_blocks.py`; of these each would take memory, or come too short.
FRAMES: dict[str, bytes] = {
    "many megabytes": claiming(1 << 26),
    "a byte more": claiming(ROWS.nbytes + 1),
    "a byte less": claiming(ROWS.nbytes - 1),
    "half a frame of a wide window": b"\x28\xb5\x2f\xfd\x80\xa8" + ROWS.nbytes.to_bytes(4, "little") + GOOD[6:-1],
}
Change = Callable[[dict[str, np.ndarray], dict[str, str]], Any]


HEADERS: dict[str, Change] = {
    "no index": lambda arrays, _: arrays.pop(blocks.INDEX + NAME),
    "a longer index": lambda arrays, _: arrays.update({blocks.INDEX + NAME: np.zeros((2, 2), np.int64)}),
    "an index of other numbers": lambda arrays, _: arrays.update({blocks.INDEX + NAME: np.zeros((1, 2), np.uint64)}),
    "no blocks": lambda arrays, _: arrays.pop(NAME),
    "wider blocks": lambda arrays, _: arrays.update({NAME: np.zeros((2, 9), np.int16)}),
    "no metadata": lambda _, metadata: metadata.clear(),
    **{
        f"{rows} rows a block": lambda _, metadata, rows=rows: metadata.update({blocks.INDEX + NAME: rows})
        for rows in ("0", "-4", "x", "1e3", str(10**9), "9" * 5000)
    },
}


def lying(path: str, frame: bytes = GOOD, change: Change = lambda *_: None) -> TensorWriter:
    arrays = {blocks.INDEX + NAME: np.array([[len(frame), zlib.crc32(frame)]]), NAME: np.frombuffer(frame, np.uint8)}
    metadata = {blocks.INDEX + NAME: "4"}
    change(arrays, metadata)
    return written(path, arrays, metadata)


@pytest.mark.parametrize("name", FRAMES)
def test_a_block_that_lies_is_refused(name: str, tmp_path: Path) -> None:
    """Check, with right checksums, that no more is reserved than for the expected rows."""
    path = str(tmp_path)
    writer = lying(path, FRAMES[name])
    with (
        opened(path, writer, ROWS.shape) as found,
        pytest.raises(CorruptionError, match=r"Block 0 of `x` is not what was written - at .*file"),
    ):
        found.rows(1, 2)
    with opened(path, writer, ROWS.shape, forgiving=True) as found:
        assert not found.rows(0, 4).any()
    with opened(path, lying(path), ROWS.shape) as found:
        np.testing.assert_array_equal(found.rows(0, 4), ROWS)


@pytest.mark.parametrize("name", HEADERS)
def test_other_arrays_than_the_schema_s_are_refused(name: str, tmp_path: Path) -> None:
    writer = lying(str(tmp_path), change=HEADERS[name])
    with pytest.raises(CorruptionError, match="another shape"), opened(str(tmp_path), writer, ROWS.shape):
        pass


def test_a_block_of_many_rows_holds_a_megabyte_at_most(tmp_path: Path) -> None:
    writer = lying(str(tmp_path))
    with pytest.raises(CorruptionError, match="another shape"), opened(str(tmp_path), writer, (4, 1 << 20)):
        pass
