"""Every cut and every flipped bit of a save: a `CorruptionError` that names the file, or the very same buffer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from saved_lives import build, live, rounds_of
from sizes import with_sizes

import relive
from relive._disk import tensors
from relive.errors import CorruptionError

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


@pytest.fixture
def saved(folder: Path) -> Iterator[Path]:
    """Make two saves, of 2 and of 3 rounds; the second has two files of steps. Checksums are of 256 bytes each."""
    with with_sizes(checksum=256, read=1024):
        buffer = build()
        for serial in range(3):
            if serial == 2:
                buffer.save(folder, keep=2)
            live(buffer, serial)
        buffer.save(folder, keep=2)
        assert len(os.listdir(folder)) == 7
        yield folder


HEADER = 1200  # bytes at the beginning of a file, of which more bits are flipped


def look(folder: Path, changed: str) -> str:
    """Load while one file is damaged; return the error about it, or check for the newest save."""
    try:
        loaded = relive.load(folder)
    except CorruptionError as error:
        text = str(error)
    else:
        assert rounds_of(loaded, [3]) == 3
        return ""
    assert changed in text
    return text


def flips(folder: Path, stride: int) -> Iterator[str]:
    """Flip bits, one at a time, and look."""
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        for bit in sorted({*range(0, 8 * len(data), stride), *range(0, 8 * min(HEADER, len(data)), (stride + 2) // 3)}):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(changed)
            told = look(folder, file.name)
            kept = file.name.removeprefix("steps-").startswith("0000000001") or "0000000002" not in file.name
            assert bool(told) == (file.name.startswith("steps") or not kept), (file.name, bit)
            sound = "save 1 is sound; `relive.load(path, number=1)` loads it"
            assert (sound in told) == ("0000000002" in file.name), told
            yield told
        file.write_bytes(data)


@pytest.mark.parametrize("stride", [1301, pytest.param(1, marks=pytest.mark.slow)])
def test_flipped_bits(stride: int, saved: Path, record_property: Any) -> None:
    told = list(flips(saved, stride))
    record_property("cases", len(told))
    assert len(told) > 80_000 / stride
    assert sum("offset" in text for text in told) > len(told) / 16
    assert rounds_of(relive.load(saved, number=1), [2]) == 2


@pytest.mark.parametrize("stride", [211, pytest.param(1, marks=pytest.mark.slow)])
def test_cut_files(stride: int, saved: Path, record_property: Any) -> None:
    cuts = 0
    for file in sorted(saved.iterdir()):
        data = file.read_bytes()
        for length in {*range(0, len(data), stride), len(data) - 1} - {-1}:
            file.write_bytes(data[:length])
            cuts += 1
            assert bool(look(saved, file.name)) == (file.name.startswith("steps") or "0000000002" in file.name)
        file.unlink()
        try:
            assert rounds_of(relive.load(saved), [2, 3]) == 3 - (file.name == "save-0000000002.json")
        except CorruptionError as error:
            assert file.name in str(error)  # noqa: PT017
        file.write_bytes(data)
    record_property("cases", cuts)


def test_meta_a_load_that_compares_nothing_is_found(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = tensors.TensorReader.differing

    def careless(self: Any, begin: int, part: Any) -> list[int]:
        read(self, begin, part)
        return []

    monkeypatch.setattr(tensors.TensorReader, "differing", careless)
    with pytest.raises((AssertionError, RuntimeError)):  # no state of the buffer's life
        list(flips(saved, 4001))
