"""Lies in RLinf's files that are consistent: all is right but for one thing, so that one check alone can refuse it."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_attacks import tables, theirs
from rollouts import simple
from system_calls import System, watched

from relive.errors import SchemaError, StorageError
from relive.trajectories import TrajectoryReplayBuffer, convert, verify
from relive.trajectories.rlinf import _source
from relive.trajectories.rlinf._file import contents
from relive.trajectories.rlinf._opcodes import value

NUMBERS = np.arange(8, dtype=np.float32)
LOAD = "torch.storage._load_from_bytes"


# Pickles by hand: each function returns the opcodes that put one thing on the stack.


def plain(thing: Any) -> bytes:
    return pickle.dumps(thing, 2)[2:-1]


def named(name: str) -> bytes:
    module, _, member = name.rpartition(".")
    return f"c{module}\n{member}\n".encode()


def call(name: bytes, *arguments: bytes) -> bytes:
    return name + b"(" + b"".join(arguments) + b"tR"


def handle(kind: str = "storage", name: bytes = named("torch.FloatStorage"), key: str = "0") -> bytes:
    return b"(" + plain(kind) + name + plain(key) + plain("cpu") + plain(8) + b"tQ"


def tensor(held: bytes = handle(), size: Any = (4, 2, 1), stride: Any = (2, 1, 1), offset: Any = 0) -> bytes:
    name = named("torch._utils._rebuild_tensor_v2")
    return call(name, held, plain(offset), plain(size), plain(stride), plain(False), plain({}))


def typed(dtype: str = "torch.uint16", name: str = "torch._utils._rebuild_tensor_v3", held: bytes = b"") -> bytes:
    """A tensor whose dtype is not that of its storage."""
    held = held or handle(name=named("torch.storage.UntypedStorage"))
    numbers = plain(0) + plain((4, 2, 1)) + plain((2, 1, 1)) + plain(False) + plain({})
    return call(named(name), held, numbers, named(dtype))


def mapping(**fields: bytes) -> bytes:
    return b"}(" + b"".join(plain(name) + field for name, field in fields.items()) + b"u"


def archive(head: bytes, method: int = zipfile.ZIP_STORED, **records: bytes) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", method) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + head + b".")
        for name, data in {"data/0": NUMBERS.tobytes(), **records}.items():
            file.writestr(f"archive/{name}", data)
    return found.getvalue()


def file(head: bytes = tensor(), **records: bytes) -> bytes:
    return archive(mapping(rewards=head), **records)


def deep(levels: int) -> bytes:
    return mapping(a=deep(levels - 1)) if levels else tensor()


def many(count: int, name: str, *, lie: bool = False) -> bytes:
    """A good file with `count` more records, all in one place; `lie`: only the larger form tells how many."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + mapping(rewards=tensor()) + b".")
        file.writestr("archive/data/0", NUMBERS.tobytes())
        file.writestr("archive/data/empty", b"" if len(name) > 9 else bytes(99))
        one = file.infolist()[2]
        for number in range(count):
            again = zipfile.ZipInfo(f"archive/{name}{number}")
            again.header_offset, again.CRC, again.file_size = one.header_offset, one.CRC, one.file_size
            again.compress_size = one.compress_size
            file.filelist.append(again)
    data = found.getvalue()
    if not lie:
        return data
    (size, start), at = struct.unpack("<II", data[-10:-2]), len(data) - 22
    larger = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count + 3, count + 3, size, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    return data[:at] + larger + locator + data[at : at + 12] + struct.pack("<II", 9, start) + data[-2:]


def patched(field: int, number: int, *, listed: bool = False, size: int = 2) -> bytes:
    """A good file with another number in the header of its last record, or in what the list of records says of it."""
    data = bytearray(file())
    at = data.rindex(b"PK\1\2" if listed else b"PK\3\4") + field
    data[at : at + size] = number.to_bytes(size, "little")
    return bytes(data)


def located(start: int) -> bytes:
    """A good file with a locator that leads there."""
    data = file()
    return data[:-22] + struct.pack("<4sIQI", b"PK\6\7", 0, start, 1) + data[-22:]


ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a list": (lambda: archive(b"]"), "expected a mapping of"),
    "too deep": (lambda: archive(deep(9)), "expected a mapping of"),
    "too many fields": (lambda: archive(mapping(**{f"f{k}": plain(k) for k in range(1025)})), "expected a mapping of"),
    "a number as a name": (lambda: archive(b"}" + plain(1) + tensor() + b"s"), "invalid field name"),
    "another call": (lambda: file(typed(name="os.mkdir")), "unknown call of os.mkdir"),
    "another dtype": (lambda: file(typed("torch.complex64")), "invalid tensor of complex64"),
    "no dtype": (lambda: file(tensor(handle(name=named("torch.storage.UntypedStorage")))), "invalid tensor of None"),
    "axes in a list": (lambda: file(tensor(size=[4, 2, 1])), "invalid tensor of"),
    "steps in a list": (lambda: file(tensor(stride=[2, 1, 1])), "invalid tensor of"),
    "many axes": (lambda: file(tensor(size=(8,) + (1,) * 32, stride=(1,) * 33)), "invalid shape"),
    "an axis that is a flag": (lambda: file(tensor(size=(4, 2, True))), "invalid shape"),
    "a negative offset": (lambda: file(tensor(offset=-1)), "invalid shape"),
    "beyond its storage": (lambda: file(tensor(offset=1)), "exceeds its storage"),
    "steps between rows": (lambda: file(tensor(size=(2, 2, 1), stride=(4, 1, 1))), "not contiguous"),
    "another handle": (lambda: file(tensor(handle("module"))), "unknown storage"),
    "a handle without a name": (lambda: file(tensor(handle(name=plain("torch.FloatStorage")))), "unknown storage"),
    "a handle that is a number": (lambda: file(tensor(plain(5) + b"Q")), "not subscriptable"),
    "a handle of two": (lambda: file(tensor(b"(" + plain("storage") + named("torch.FloatStorage") + b"tQ")), "range"),
    "another storage": (lambda: file(typed("torch.float32", held=handle(name=named("os.Storage")))), "unknown storage"),
    "no handle": (lambda: file(tensor(plain(5))), "has no storage"),
    "no such record": (lambda: file(tensor(handle(key="1"))), "data/1"),
    "big-endian": (lambda: file(byteorder=b"big"), "big-endian"),
    "a header of 2 MB": (
        lambda: archive(mapping(rewards=tensor(), x=b"B" + struct.pack("<I", 2 << 20) + bytes(2 << 20))),
        "too large",
    ),
    "no header": (lambda: file().replace(b"data.pkl", b"data.pkk"), "unpack"),
    "packed": (lambda: archive(mapping(rewards=tensor()), zipfile.ZIP_DEFLATED), "damaged or compressed"),
    "other bytes": (lambda: file().replace(NUMBERS.tobytes(), NUMBERS[::-1].tobytes()), "wrong checksum of"),
    "more bytes than there are": (lambda: many(50, "x"), "more bytes than the file"),
    "a long list of records": (lambda: many(6000, "x" * 150), "too many records"),
    "a list of another length": (lambda: many(6000, "x" * 150, lie=True), "too many records"),
    "a locator that leads nowhere": (lambda: located(2**63), "unpack requires"),
    "a record that is none": (lambda: patched(2, 0x0505), "damaged or compressed"),
    "a record that starts at the end": (
        lambda: patched(42, len(file()) - 9, listed=True, size=4),
        "damaged or compressed",
    ),
    "a record that ends behind the file": (lambda: patched(28, 0xFFFF), "the file ends early"),
    "a comment": (lambda: file()[:-2] + b"\x28\0" + b"x" * 40, "not a zip archive"),
    "the end alone": (lambda: b"PK\5\6" + bytes(9), "not a zip archive"),
}


def read(path: Path, data: bytes, kind: str) -> Any:
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return contents(fd, kind, "x")
    finally:
        os.close(fd)


def test_the_good_ones_are_taken(tmp_path: Path) -> None:
    """Else the others would be refused for some other reason."""
    for data in (file(), archive(mapping(rewards=tensor(), a=deep(7))), file(byteorder=b"little"), many(9, "x" * 10)):
        found = read(tmp_path / "x", data, "pt").tensors[("rewards",)]
        assert data[found.start : found.start + found.nbytes] == NUMBERS.tobytes()
    for strange in (
        tensor(size=(8, 1, 1), stride=(1, 7, 9)),
        tensor(size=(0, 2, 1), stride=(7, 7, 7)),
    ):  # is contiguous
        assert list(read(tmp_path / "x", file(strange), "pt").tensors) == [("rewards",)]
    assert read(tmp_path / "x", file(typed()), "pt").tensors[("rewards",)].dtype == "uint16"
    good = inner()
    found = read(tmp_path / "x", good, "pkl").tensors[("rewards",)]
    assert good[found.start : found.start + found.nbytes] == NUMBERS.tobytes()


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_with_one_lie(name: str, tmp_path: Path) -> None:
    make, text = ARCHIVES[name]
    with pytest.raises(StorageError, match=text):
        read(tmp_path / "x", make(), "pt")


# Pickles that hold the numbers, too ----------------------------------------------------------------------------------


def inner(system: bytes = plain({"little_endian": True}), count: int = 8, held: str = LOAD) -> bytes:
    """A `pkl` file: a storage is five pickles, a count, and the numbers."""
    parts = [plain(0), plain(1001), system, handle(), b"]"]
    data = b"".join(b"\x80\x02" + part + b"." for part in parts) + struct.pack("<Q", count) + NUMBERS.tobytes()
    storage = call(named(held), b"B" + struct.pack("<I", len(data)) + data)
    return b"\x80\x02" + mapping(rewards=tensor(storage)) + b"."


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lambda: inner(plain({"little_endian": False})), "big-endian"),
        (lambda: inner(plain(5)), "no attribute"),
        (lambda: inner(count=9), "a storage ends early"),
        (lambda: inner(count=7), "exceeds its storage"),
        (lambda: inner(held="os.mkdir"), "has no storage"),
        (lambda: b"\x80\x02" + mapping(rewards=tensor(plain(5))) + b".", "has no storage"),
        (lambda: b"\x80\x02" + mapping(rewards=tensor(call(named(LOAD), plain("x")))) + b".", "has no storage"),
    ],
)
def test_a_pickle_with_one_lie(data: Callable[[], bytes], text: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=text):
        read(tmp_path / "x", data(), "pkl")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (b"}" + plain("a") + plain(1) + b"(s", "empty stack"),  # what stands before a mark is another's
        (b"]" + plain(1) + plain(2) + b"s", "something other than a dict"),
        (b"}" + plain(2) + b"a", "something other than a list"),
        (plain("os.mkdir") + b")R", "something other than a global"),
        (named("os.mkdir") + b"]R", "something other than a global"),
        (b"u", "invalid pickle"),
        (b"}]" + plain(1) + b"s", "invalid pickle"),
        (b"0", "forbidden opcode POP"),
        (b"}}b", "forbidden opcode BUILD"),
    ],
)
def test_opcodes_that_make_no_sense(code: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        value(io.BytesIO(b"\x80\x02" + code + b"."))


# Directories ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def good(folder: Path) -> Path:
    buffer = TrajectoryReplayBuffer(seed=1, trajectory_format="pt")
    buffer.add_trajectories([simple(k) for k in range(3)])
    buffer.save_checkpoint(folder / "good")
    return folder / "good"


@pytest.mark.parametrize("shape", [[], [10], [5, 2.0], [5, True], [-5, -2], [0, 0, 1], [2**31, 2]])
def test_a_shape_that_cannot_be(shape: list[Any], good: Path) -> None:
    def change(_: Any, first: dict[str, Any]) -> None:
        first.update(shape=shape, num_samples=int(np.prod(shape)))

    tables(change)(good)
    with pytest.raises(StorageError, match="Invalid RLinf index"):
        TrajectoryReplayBuffer().load_checkpoint(good)


@pytest.mark.parametrize(
    ("size", "text"),
    [((8,), "at least one field"), ((5, 2, 0), "of the index"), ((5, 1), "of the index")],
)
def test_a_file_without_its_rows(size: tuple[int, ...], text: str, good: Path) -> None:
    theirs(good).write_bytes(file(tensor(size=size, stride=(1,) * len(size))))
    with pytest.raises(SchemaError, match=text):
        TrajectoryReplayBuffer().load_checkpoint(good)


@pytest.mark.parametrize("name", ["metadata.json", "trajectory_index.json"])
def test_an_index_of_a_hole(name: str, good: Path) -> None:
    os.truncate(good / name, 300 << 20)
    with pytest.raises(StorageError, match=f"{300 << 20} bytes"):
        TrajectoryReplayBuffer().load_checkpoint(good)


@pytest.mark.parametrize("text", ["", "5", "[]", "{}", '{"metadata": 5', "[" * 100_000, "\x80\x02c", '{"draws": 5}'])
def test_a_file_beside_the_index_that_is_no_json(text: str, good: Path) -> None:
    """Whatever we may keep beside RLinf's own is refused by name, or passed over."""
    (good / "relive_generator.json").write_text(text)
    with contextlib.closing(TrajectoryReplayBuffer()) as buffer, contextlib.suppress(StorageError):
        buffer.load_checkpoint(good)
        buffer.sample(5)


@pytest.mark.parametrize("change", ["another file", "other bytes at once", "a longer file"])
def test_a_file_that_is_exchanged_behind_its_time(change: str, good: Path) -> None:
    """The time of a file is what anybody may set; its number and its size are not."""
    at = theirs(good)
    with contextlib.closing(TrajectoryReplayBuffer(seed=0, sample_window_size=0, cache_size=0)) as buffer:
        buffer.load_checkpoint(good)
        buffer.sample(200)
        data, times = bytearray(at.read_bytes()), at.stat()
        middle = bytes(data).index(b"data/0") + 200
        data[middle : middle + 400] = bytes(400)
        if change == "another file":
            at.rename(at.with_suffix(".old"))
        at.write_bytes(data + (b"x" if change == "a longer file" else b""))
        if change != "other bytes at once":
            os.utime(at, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(StorageError):
            buffer.sample(200)


@pytest.mark.parametrize("weights", ["x" * 41, "é" * 21, "a\0", "\ud800", 5])
def test_weights_that_no_index_of_ours_holds(weights: Any, good: Path, folder: Path) -> None:
    """They stand in the file alone; the UUID of its name takes their place."""
    import torch

    told = torch.load(theirs(good), weights_only=True)
    torch.save({**told, "model_weights_id": weights}, theirs(good))
    assert convert(good, folder / "made") == 3
    assert verify(folder / "made") == []


def test_places_in_files_are_forgotten(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_source, "_REMEMBERED_FILES", 2)
    with contextlib.closing(TrajectoryReplayBuffer(sample_window_size=0, cache_size=0)) as buffer:
        buffer.load_checkpoint(good)
        buffer.sample(200)
        assert len(buffer._store.source._located) == 2


@pytest.mark.parametrize("cache", [0, 9])
def test_a_file_that_is_cut_while_it_is_read(cache: int, good: Path) -> None:
    """After its checksums were compared."""
    with watched() as system, contextlib.closing(TrajectoryReplayBuffer(cache_size=cache)) as buffer:
        buffer.load_checkpoint(good)
        buffer.sample(100) if not cache else None
        system.before = lambda name, _: os.truncate(theirs(good), 0) if name == "preadv" else None
        with pytest.raises(StorageError, match="ends early"):
            buffer.sample(100)


@pytest.mark.parametrize("cache", [0, 9])
def test_a_disk_that_cannot_be_read(cache: int, good: Path) -> None:
    with watched() as system, contextlib.closing(TrajectoryReplayBuffer(cache_size=cache)) as buffer:
        buffer.load_checkpoint(good)
        for name in ("pread", "preadv", "fstat", "open"):
            buffer._store.source._located.clear()  # what stands where is looked up again
            system.decide = lambda called, _, name=name: errno.EIO if called == name else None
            with pytest.raises(StorageError):
                buffer.sample(100)


def changes(system: System) -> list[str]:
    """What happens to names, in order: given, taken away, and made durable."""
    words = []
    for name, args, _ in system.trace:
        if name == "fsync" and args[1]:
            words.append("sync")
        elif name == "rename":
            words.append(args[1])
        elif name == "unlink" and not args[0].startswith(".tmp-"):
            words.append(f"no {args[0]}")
    return words


def test_a_save_in_rlinfs_layout_is_durable_in_its_order(folder: Path) -> None:
    """All files, then the index, each with their directory; then only goes what the index names no more."""
    with (
        watched() as system,
        contextlib.closing(TrajectoryReplayBuffer(trajectory_format="pt", max_trajectories=2)) as b,
    ):
        for serial in (0, 2):
            system.reset()
            b.add_trajectories([simple(serial), simple(serial + 1)])
            b.save_checkpoint(folder / "saved")
        told = changes(system)
    index = told.index("trajectory_index.json")
    last = max(k for k, word in enumerate(told) if word.startswith("trajectory_") and word.endswith(".pt"))
    first = min(k for k, word in enumerate(told) if word.startswith("no trajectory_") and word.endswith(".pt"))
    assert "sync" in told[last:index]
    assert "sync" in told[index:first]


def test_a_state_of_before_goes_with_its_save(folder: Path) -> None:
    for draws in (5, 0):
        buffer = TrajectoryReplayBuffer(seed=1, trajectory_format="pt")
        buffer.add_trajectories([simple(k) for k in range(3)])
        if draws:
            buffer.sample(draws)
        buffer.save_checkpoint(folder / "saved")
    assert not (folder / "saved" / "relive_generator.json").exists()


def test_a_conversion_is_durable(good: Path, folder: Path) -> None:
    with watched() as system, TrajectoryReplayBuffer(folder / "own") as buffer:
        buffer.load_checkpoint(good)
        told = changes(system)
    last = max(k for k, word in enumerate(told) if word.startswith("trajectory_"))
    assert "sync" in told[last:]
