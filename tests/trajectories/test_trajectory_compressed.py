"""Files with compressed fields: the same draws as without, as FORMAT.md says, and no wrong row from a damaged one."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from needs import needs
from oracle_trajectories import Oracle, assert_rows
from sizes import with_sizes

from relive._disk.files import Folder
from relive._ring import kernels as chosen
from relive.errors import ArgumentError, MissingExtra, StorageError
from relive.testing._lives import BACK_ENDS
from relive.trajectories import TrajectoryReplayBuffer, _frames, convert, inspect, merge, salvage, verify
from relive.trajectories._block import TrajectoryBlock, entry_of, file_of
from relive.trajectories._catalog import read
from relive.trajectories._checkpoint import publish
from relive.trajectories._index import Table

zstandard = needs("zstandard")
SIDE = 32  # of an image: 1 KiB
NAME = "trajectory_000000000000.safetensors"


def rollout(serial: int, length: int = 3, width: int = 2, *, shared: bool = True) -> dict[str, Any]:
    """Make two fields of images, one of which is shared, and one that is too small to be compressed."""
    rng = np.random.default_rng(serial)
    images = rng.integers(0, 9, (length + 1, width, SIDE, SIDE), np.uint8) * (rng.random((SIDE, SIDE)) < 0.2)
    images = images.astype(np.uint8)
    code = np.stack([np.full((length, width), serial), *np.indices((length, width))], axis=2)
    return {
        "code": code,
        "rewards": code[:, :, :1].astype(np.float32),
        "curr_obs": {"main": images[:-1], "touch": images[:-1, :, 0]},
        "next_obs": {"main": images[1:] if shared else images[1:] + 1, "touch": images[1:, :, 0]},
        "mask": rng.random((length, width, 2 * SIDE * SIDE)) < 0.01,
    }


GIVEN = [rollout(k, 1 + k % 4, 1 + k % 3, shared=k % 5 > 0) for k in range(7)]


@with_sizes(frames=5 * SIDE * SIDE)
def test_draws_are_those_of_files_without(folder: Path) -> None:
    """Draw also from directories of both kinds, of checkpoints, merged, converted and salvaged ones."""
    for name, compress in (("plain", None), ("packed", "zstd")):
        with TrajectoryReplayBuffer(folder / name, compress=compress) as buffer:
            buffer.add_trajectories(GIVEN[:4])
        with TrajectoryReplayBuffer(folder / name, compress="zstd", seed=1, cache_size=0) as buffer:
            buffer.add_trajectories(GIVEN[4:])
            assert buffer.sync().durable == 7
            buffer.save_checkpoint(folder / f"{name}_saved")
            assert buffer.get_stats()["nbytes"] == sum(path.stat().st_size for path in (folder / name).glob("traj*"))
        convert(folder / name, folder / f"{name}_pt", "pt")
        convert(folder / name, folder / f"{name}_zstd", compress="zstd")
    convert(folder / "plain_pt", folder / "plain_none", compress="none")
    convert(folder / "packed", folder / "packed_none", compress="none")
    for name in ("plain_none", "packed_none"):
        assert inspect(folder / name).compressed == ()
    assert (folder / "packed_none" / NAME).read_bytes() == (folder / "plain" / NAME).read_bytes()
    with TrajectoryReplayBuffer(compress="zstd") as memory:
        memory.add_trajectories(GIVEN)
        memory.save_checkpoint(folder / "memory")
        memory.save_checkpoint(folder / "memory")
        memory.load_checkpoint(folder / "plain_pt")
        memory.save_checkpoint(folder / "from_pt")
    with TrajectoryReplayBuffer(folder / "into_own", compress="zstd") as own:
        own.load_checkpoint(folder / "packed_pt")
    merge([folder / "packed"], folder / "merged")
    salvage(folder / "packed", folder / "salvaged")
    (folder / "packed_saved" / "index.sqlite").unlink()
    salvage(folder / "packed_saved", folder / "without_index")
    names = ["packed", "memory", "from_pt", "into_own", "merged", "salvaged", "without_index"]
    for name in ["plain", *names, "plain_zstd", "packed_zstd"]:
        found = inspect(folder / name)
        assert found.compressed == ("curr_obs.main", "mask", "next_obs.main"), name
        assert found.nbytes < found.unpacked
        assert verify(folder / name) == []
        for kernels in BACK_ENDS:
            with chosen.use(kernels):
                assert_drawn(folder / name)


def assert_drawn(path: Path) -> None:
    """Check draws, and whole trajectories."""
    oracle = Oracle(np.random.default_rng(3), 0)
    oracle.add(GIVEN)
    with TrajectoryReplayBuffer(seed=3, sample_window_size=0, cache_size=0) as loaded:
        loaded.load_checkpoint(path)
        loaded._draws.generator = np.random.default_rng(3)
        for n in (30, 3) * 5:  # the narrow fields are in memory at the end
            assert_rows(loaded.sample(n), oracle.draw(n))
        for id_ in loaded.list_trajectory_ids():
            trajectory = loaded.load_trajectory(id_)
            np.testing.assert_array_equal(trajectory["next_obs"]["main"], GIVEN[id_]["next_obs"]["main"])
            np.testing.assert_array_equal(trajectory["mask"], GIVEN[id_]["mask"])


def written(folder: Path, given: dict[str, Any], compress: str | None = "zstd") -> bytes:
    with TrajectoryReplayBuffer(folder, compress=compress) as buffer:
        buffer.add_trajectories([given])
    return (folder / NAME).read_bytes()


def parsed(raw: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    kinds = {"I64": "<i8", "U32": "<u4", "U8": "u1", "BOOL": "?", "F32": "<f4"}
    metadata = header.pop("__metadata__")
    arrays = {
        name: np.frombuffer(raw[start:][slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }
    return metadata, arrays


def test_a_file_is_as_the_format_says(folder: Path) -> None:
    """Read without relive; the file of a buffer that compresses nothing says nothing of it."""
    given = rollout(3)
    raw = written(folder, given)
    metadata, arrays = parsed(raw)
    assert metadata["format"] == "relive.trajectory.2"
    compressed = json.loads(metadata["compressed"])
    assert compressed == {"curr_obs/main": ["U8", [4, 2, SIDE, SIDE]], "mask": ["BOOL", [3, 2, 2 * SIDE * SIDE]]}
    begins, frames, table = (arrays[f"relive/{name}"] for name in ("begins", "frames", "crc32"))
    for number, (name, column) in enumerate((("curr_obs/main", 2), ("mask", 4))):
        want = given["mask"] if number else np.concatenate([given["curr_obs"]["main"], given["next_obs"]["main"][-1:]])
        for row, image in enumerate(want.reshape(-1, *want.shape[2:])):
            first, last = begins[row * 2 + number : row * 2 + number + 2]
            frame = frames[first:last].tobytes()
            assert zstandard.frame_content_size(frame) == image.nbytes, name
            assert zstandard.decompress(frame) == image.tobytes()
            assert table[row, column] == zlib.crc32(frame)
    assert begins[0] == 0
    assert len(frames) % 4 == 0
    assert len(raw) - frames.nbytes - 4 == raw.index(frames.tobytes()[:100])
    metadata, _ = parsed(written(folder / "plain", given, None))
    assert metadata["format"] == "relive.trajectory.1"
    assert "compressed" not in metadata
    facts = [read(str(path))[1]["version"] for path in (folder, folder / "plain")]
    assert facts == ["2", "1"], "an older relive says that it is too old"


@pytest.mark.parametrize("shared", [True, False])
def test_a_damaged_byte_gives_no_wrong_row(shared: bool, folder: Path) -> None:
    """Damage every byte of the numbers, the padding and the header's length; some of frames, table and images."""
    given = rollout(4, 2, 1, shared=shared)
    raw = written(folder, given)
    size, start = len(raw), 8 + int.from_bytes(raw[:8], "little")
    _, arrays = parsed(raw)
    last = int(arrays["relive/begins"][-1]) - len(arrays["relive/frames"]) + size - 4  # behind the last frame
    assert last < size - 4, "there is padding"
    places = {*range(8), *range(start, start + arrays["relive/begins"].nbytes), *range(last - 3, size)}
    places |= set(np.random.default_rng(0).integers(8, size, 40).tolist())
    reader = TrajectoryReplayBuffer(cache_size=0)
    reader.load_checkpoint(folder)
    for place in sorted(places):
        damaged = bytearray(raw)
        damaged[place] ^= 1 << place % 8
        with (folder / NAME).open("r+b") as file:  # the same file, which the reader has open
            file.write(damaged)
        assert [name for name, _ in verify(folder)] == [NAME], place
        try:
            batch = reader.sample(6)
        except StorageError:
            continue
        for row, (_, t, b) in enumerate(batch["code"]):
            np.testing.assert_array_equal(batch["curr_obs"]["main"][row], given["curr_obs"]["main"][t, b])
            np.testing.assert_array_equal(batch["next_obs"]["main"][row], given["next_obs"]["main"][t, b])
            np.testing.assert_array_equal(batch["mask"][row], given["mask"][t, b])


IMAGE = bytes(range(64)) * (SIDE * SIDE // 64)
GOOD = zstandard.ZstdCompressor().compress(IMAGE)


def claiming(nbytes: int, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(bytes(nbytes))


FRAMES = {
    "many megabytes": claiming(1 << 26),
    "many megabytes unsaid": claiming(1 << 26, write_content_size=False),
    "a byte more": claiming(SIDE * SIDE + 1),
    "a byte less": claiming(SIDE * SIDE - 1),
    "a wide window": b"\x28\xb5\x2f\xfd\x80\xa8" + (SIDE * SIDE).to_bytes(4, "little") + GOOD[7:-1],
    "half a frame": GOOD[: len(GOOD) // 2],
    "nothing": b"",
    "no frame": b"x" * 30,
}
BEGINS: dict[str, list[int]] = {
    "an end before the beginning": [0, len(GOOD), 5],
    "an end behind the file": [0, len(GOOD), 1 << 62],
    "a beginning before the file": [-(1 << 62), len(GOOD), 2 * len(GOOD)],
    "behind every file": [0, 1 << 62, (1 << 62) + 50],
    "the smallest number": [0, -(1 << 63), 2 * len(GOOD)],
    "a long frame": [],
}


@pytest.mark.parametrize("name", FRAMES | BEGINS)
def test_a_file_that_lies_is_refused(name: str, folder: Path) -> None:
    """Check with right checksums, and a right other row; no memory is taken for more than rows."""
    image = np.frombuffer(IMAGE, np.uint8).reshape(1, 1, SIDE, SIDE)
    given = {"image": np.concatenate([image, image])}
    frames = [GOOD, FRAMES.get(name, GOOD)]
    if name == "a long frame":
        frames = [GOOD, GOOD + bytes(SIDE * SIDE + 90)]
    begins = np.cumsum([0, *map(len, frames)])
    begins[: len(BEGINS.get(name, ()))] = BEGINS.get(name, ())
    sums = np.array([[zlib.crc32(frame)] for frame in frames], np.uint32)
    joined = [*frames, bytes(-sum(map(len, frames)) % 4)]
    (folder / "lying").mkdir()
    with (
        mock.patch.object(_frames, "compressed", return_value=(begins.astype(np.int64), joined, sums)),
        TrajectoryReplayBuffer() as buffer,
        contextlib.closing(Folder(folder / "lying")) as place,
    ):
        buffer.add_trajectories([given])
        block: TrajectoryBlock = next(iter(buffer._store.blocks.values())).compressing()
        parts, entry = file_of(block)
        place.write(NAME, parts)
        publish(place, Table.of([entry]), {"counter": 1})
    assert [path for path, _ in verify(folder / "lying")] == [NAME]
    with TrajectoryReplayBuffer(cache_size=0, seed=0) as reader:
        reader.load_checkpoint(folder / "lying")
        for _ in range(10):
            with contextlib.suppress(StorageError):
                np.testing.assert_array_equal(reader.sample(1)["image"], image[0])
        with pytest.raises(StorageError, match=rf"Row \d of `image` does not match .*{NAME}"):
            reader.sample(50)


def test_what_a_file_claims_is_bounded_by_its_size(folder: Path) -> None:
    """Claim rows of a terabyte in a file of some hundred bytes: refused by its header and by the index."""
    raw = written(folder, {"image": np.zeros((2, 1, SIDE, SIDE), np.uint8)})
    head = 8 + int.from_bytes(raw[:8], "little")
    text = raw[8:head].replace(b"[2, 1, 32, 32]", b"[2,1,32,%d]" % 10**11).rstrip()
    text = text.ljust(-(-(len(text) + 8) // 64) * 64 - 8)
    (folder / NAME).write_bytes(len(text).to_bytes(8, "little") + text + raw[head:])
    table, _ = read(str(folder))
    (folder / "index.sqlite").unlink()
    with contextlib.closing(Folder(folder)) as place:
        assert entry_of(place, 0) is None
        (entry,) = table
        huge = (replace(entry.layout.columns[0], shape=(SIDE, 10**11)),)
        publish(place, Table.of([entry._replace(layout=replace(entry.layout, columns=huge))]), {})
    with pytest.raises(StorageError, match=f"trajectory 0 cannot have a file of {len(raw)} bytes"):
        read(str(folder))


@pytest.mark.parametrize("value", ["gzip", True, 3])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"`'zstd'`.*TrajectoryReplayBuffer\(compress\)"):
        TrajectoryReplayBuffer(compress=value)


def test_without_the_package_it_is_said(folder: Path) -> None:
    written(folder, rollout(0))
    with mock.patch.dict(sys.modules, {"zstandard": None}):
        with pytest.raises(MissingExtra, match=r"relive\[compress\]"):
            TrajectoryReplayBuffer(compress="zstd")
        with TrajectoryReplayBuffer(cache_size=0) as reader:
            reader.load_checkpoint(folder)
            with pytest.raises(MissingExtra, match=r"relive\[compress\]"):
                reader.sample(3)


@pytest.mark.parametrize(("compress", "layout"), [("lz4", "safetensors"), (True, "safetensors"), ("zstd", "pt")])
def test_convert_refuses(folder: Path, compress: Any, layout: str) -> None:
    written(folder / "source", rollout(0))
    with pytest.raises(ArgumentError, match=r"convert\(compress\)"):
        convert(folder / "source", folder / "target", layout, compress=compress)
    assert not (folder / "target").exists()


def test_the_caller_compresses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the writer does, and that rows in memory are drawn unpacked."""
    threads, real = set(), _frames.compressed
    monkeypatch.setattr(_frames, "compressed", lambda *a: (threads.add(threading.current_thread().name), real(*a))[1])
    with TrajectoryReplayBuffer(folder, compress="zstd", max_bytes=1 << 30) as buffer:
        buffer.add_trajectories([rollout(k) for k in range(3)])
        with mock.patch.object(_frames, "read", side_effect=AssertionError):
            buffer.sample(20)
        buffer.sync()
        assert os.path.getsize(folder / NAME) < buffer.get_stats()["memory_bytes"] // 3
        nbytes = buffer.get_stats()["nbytes"]
    assert threads == {"relive-trajectories"}
    with TrajectoryReplayBuffer(cache_bytes=3 * nbytes) as reader:  # what is in the files does not fit
        reader.load_checkpoint(folder)
        reader.sample(20)
        assert reader.get_stats()["memory_bytes"] == 0
