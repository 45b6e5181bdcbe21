"""Lies in RLinf's files that are consistent: all is right but for one thing, so that one check alone can refuse it."""

from __future__ import annotations

import contextlib
import copyreg
import errno
import io
import os
import pickle
import resource
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from make_attacks import special, theirs
from rollouts import simple
from system_calls import System, open_files, watched

from relive.errors import MissingExtra, ReliveWarning, SchemaError, StorageError
from relive.trajectories import TrajectoryReplayBuffer, convert, verify
from relive.trajectories.rlinf import _source
from relive.trajectories.rlinf._file import contents

NUMBERS = np.arange(8, dtype=np.float32)
LOAD = "torch.storage._load_from_bytes"
MOST_MEBIBYTES = 64


# Pickles by hand: each function returns the opcodes that put one thing on the stack.


def plain(thing: Any) -> bytes:
    return pickle.dumps(thing, 2)[2:-1]


def named(name: str) -> bytes:
    module, _, member = name.rpartition(".")
    return f"c{module}\n{member}\n".encode()


def call(name: bytes, *arguments: bytes) -> bytes:
    return name + b"(" + b"".join(arguments) + b"tR"


def handle(kind: str = "storage", name: bytes = named("torch.FloatStorage"), key: Any = "0", count: Any = 8) -> bytes:
    return b"(" + plain(kind) + name + plain(key) + plain("cpu") + plain(count) + b"tQ"


def tensor(held: bytes = handle(), size: Any = (4, 2, 1), stride: Any = (2, 1, 1), offset: Any = 0) -> bytes:
    name = named("torch._utils._rebuild_tensor_v2")
    return call(name, held, plain(offset), plain(size), plain(stride), plain(False), plain({}))


def typed(dtype: str = "torch.uint16", name: str = "torch._utils._rebuild_tensor_v3", held: bytes = b"") -> bytes:
    """A tensor whose dtype is not that of its storage."""
    held = held or handle(name=named("torch.storage.UntypedStorage"), count=32)
    numbers = plain(0) + plain((4, 2, 1)) + plain((2, 1, 1)) + plain(False) + plain({})
    return call(named(name), held, numbers, named(dtype))


def mapping(**fields: bytes) -> bytes:
    return b"}(" + b"".join(plain(name) + field for name, field in fields.items()) + b"u"


def archive(head: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", method) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + head + b".")
        for name, data in {"version": b"3\n", "data/0": NUMBERS.tobytes()}.items():
            file.writestr(f"archive/{name}", data)
    return found.getvalue()


def file(head: bytes = tensor()) -> bytes:
    return archive(mapping(rewards=head))


def deep(levels: int) -> bytes:
    return mapping(a=deep(levels - 1)) if levels else tensor()


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "a list": lambda: archive(b"]" + tensor() + b"a"),
    "too deep": lambda: archive(deep(9)),
    "too many fields": lambda: archive(mapping(rewards=tensor(), **{f"f{k}": plain(k) for k in range(1025)})),
    "a number as a name": lambda: archive(b"}" + plain(1) + tensor() + b"s"),
    "another call": lambda: file(typed(name="os.mkdir")),
    "a call by REDUCE": lambda: archive(b"cos\nmkdir\n(X\4\0\0\0gonetR"),
    "another dtype": lambda: file(typed("torch.complex64")),
    "a huge view": lambda: file(tensor(size=(2**20, 2**20), stride=(0, 0))),
    "beyond its storage": lambda: file(tensor(offset=1)),
    "many axes": lambda: file(tensor(size=(8,) + (1,) * 32, stride=(1,) * 33)),
    "steps between rows": lambda: file(tensor(size=(2, 2, 1), stride=(4, 1, 1))),
    "no such record": lambda: file(tensor(handle(key="1"))),
    "no header": lambda: file().replace(b"data.pkl", b"data.pkk"),
    "packed": lambda: archive(mapping(rewards=tensor()), zipfile.ZIP_DEFLATED),
    "other bytes": lambda: file().replace(NUMBERS.tobytes(), NUMBERS[::-1].tobytes()),
    "the end alone": lambda: b"PK\5\6" + bytes(9),
}


def inner(
    system: bytes = plain({"little_endian": True}), count: int = 8, held: str = LOAD, more: bytes = b"", **shape: Any
) -> bytes:
    """A `pkl` file: a storage is five pickles, a count, and the numbers."""
    parts = [plain(0), plain(1001), system, handle(), b"]"]
    data = b"".join(b"\x80\x02" + part + b"." for part in parts) + struct.pack("<Q", count) + NUMBERS.tobytes()
    storage = call(named(held), b"B" + struct.pack("<I", len(data)) + data)
    return b"\x80\x02" + mapping(rewards=tensor(storage, **shape), **({"more": more} if more else {})) + b"."


PICKLES: dict[str, Callable[[], bytes]] = {
    "big-endian": lambda: inner(plain({"little_endian": False})),
    "no order of bytes": lambda: inner(plain(5)),
    "a storage that ends early": lambda: inner(count=9),
    "a storage that is short": lambda: inner(count=7),
    "another call": lambda: inner(held="os.mkdir"),
    "a call of a text": lambda: inner(more=plain("os.mkdir") + b")R"),
    "a call of a dtype": lambda: inner(more=named("torch.float32") + b")R"),
    "a call with other things": lambda: inner(more=call(named(LOAD), plain("x"))),
    "a call with no pickles": lambda: inner(more=call(named(LOAD), b"C\x01x")),
    "a call by INST": lambda: inner(more=b"(Vgone\nios\nmkdir\n"),
    "a call by OBJ": lambda: inner(more=b"(cos\nmkdir\nX\4\0\0\0goneo"),
    "a tensor without storage": lambda: inner(more=tensor(plain(5))),
    "a tensor that overlaps itself": lambda: inner(stride=(0, 0, 0)),
    "a tensor beyond its storage": lambda: inner(offset=1),
    "a negative offset": lambda: inner(offset=-1),
    "axes in a list": lambda: inner(size=[4, 2, 1]),
    "an axis that is a flag": lambda: inner(size=(4, 2, True)),
    "many axes": lambda: inner(size=(8,) + (1,) * 32, stride=(1,) * 33),
    "a huge tensor": lambda: inner(size=(2**40, 2**40), stride=(2**40, 1)),
    "a state": lambda: inner(more=b"}}b"),
    "a name in two strings": lambda: inner(more=plain("os") + plain("mkdir") + b"\x93"),
    "an instance": lambda: inner(more=b"ccollections\nOrderedDict\n)\x81"),
    "an extension": lambda: inner(more=b"\x82\x01"),
    "a buffer of the caller's": lambda: inner(more=b"\x97"),
    "a mapping in itself": lambda: b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
    "no end": lambda: b"\x80\x02}",
    "nothing": lambda: b"",
}
CASES = [*(("pt", name) for name in ARCHIVES), *(("pkl", name) for name in PICKLES)]


def read(path: Path, data: bytes, kind: str) -> Any:
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return contents(fd, kind, "x")
    finally:
        os.close(fd)


def test_the_good_ones_are_taken(tmp_path: Path) -> None:
    """Else the others would be refused for some other reason."""
    for data in (file(), archive(mapping(rewards=tensor(), a=deep(7)))):
        assert read(tmp_path / "x", data, "pt").tensors[("rewards",)].data.tobytes() == NUMBERS.tobytes()
    for strange in (tensor(size=(8, 1, 1), stride=(1, 7, 9)), tensor(size=(0, 2, 1), stride=(7, 7, 7))):  # contiguous
        assert list(read(tmp_path / "x", file(strange), "pt").tensors) == [("rewards",)]
    assert read(tmp_path / "x", file(typed()), "pt").tensors[("rewards",)].dtype == "uint16"
    assert read(tmp_path / "x", inner(), "pkl").tensors[("rewards",)].data.tobytes() == NUMBERS.tobytes()


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_file_with_one_lie(kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by name, and nothing that it names is called."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match=r"^Invalid RLinf trajectory file \(.{,90}\) - at `x`$"):
        read(tmp_path / "x", (ARCHIVES if kind == "pt" else PICKLES)[name](), kind)
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("state", [{"name": "x"}, (None, {"__defaults__": (5,), "name": "x"})])
def test_a_pickle_changes_nothing_of_the_process(state: Any, tmp_path: Path) -> None:
    """A file may give a state to what it names: that is not what the next file gets."""
    for name in (LOAD, "torch._utils._rebuild_tensor_v2", "torch.float32"):
        with contextlib.suppress(StorageError):
            read(tmp_path / "x", inner(more=named(name) + plain(state) + b"b"), "pkl")
        assert read(tmp_path / "x", inner(), "pkl").tensors[("rewards",)].data.tobytes() == NUMBERS.tobytes()


def test_a_cached_extension_is_not_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unpickler would take its object from a cache of the process, and ask for no name."""
    copyreg.add_extension("os", "mkdir", 1)
    try:
        pickle.loads(b"\x80\x02\x82\x01.")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(StorageError, match="extension"):
            read(tmp_path / "x", inner(more=call(b"\x82\x01", plain("gone"))), "pkl")
        assert os.listdir(tmp_path) == ["x"]
    finally:
        copyreg.remove_extension("os", "mkdir", 1)


def test_a_newer_pytorch_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with pytest.raises(MissingExtra, match=r"Expected PyTorch 2.6 or later, got 2.5.1.*pip install 'relive\[torch\]'"):
        read(tmp_path / "x", file(), "pt")


# Directories ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def good(folder: Path) -> Path:
    with TrajectoryReplayBuffer(seed=1, trajectory_format="pt") as buffer:
        buffer.add_trajectories([simple(k) for k in range(3)])
        buffer.save_checkpoint(folder / "good")
    return folder / "good"


@contextlib.contextmanager
def reader(path: Path, cache: int = 0) -> Iterator[TrajectoryReplayBuffer]:
    with TrajectoryReplayBuffer(seed=0, sample_window_size=0, cache_size=cache) as buffer:
        buffer.load_checkpoint(path)
        yield buffer


@pytest.mark.parametrize(
    ("size", "text"), [((8,), "at least one field"), ((5, 2, 0), "of the index"), ((5, 1), "of the index")]
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


@pytest.mark.parametrize("change", ["another file", "other bytes at once", "a longer file", "link", "pipe", "folder"])
def test_a_file_that_is_exchanged_behind_its_time(change: str, good: Path) -> None:
    """The time of a file is what anybody may set; its kind, its number and its size are not."""
    at = theirs(good)
    with reader(good) as buffer:
        buffer.sample(200)
        data, times = bytearray(at.read_bytes()), at.stat()
        middle = bytes(data).index(b"data/0") + 200
        data[middle : middle + 400] = bytes(400)
        if change in ("link", "pipe", "folder"):
            special("*", change)(good)
        else:
            if change == "another file":
                at.rename(at.with_suffix(".old"))
            at.write_bytes(data + (b"x" if change == "a longer file" else b""))
            if change != "other bytes at once":
                os.utime(at, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(StorageError):
            buffer.sample(200)


def test_what_was_compared_is_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its name belongs to another file by then."""
    load = torch.load

    def swapped(*given: Any, **more: Any) -> Any:
        (tmp_path / "x").rename(tmp_path / "y")
        (tmp_path / "x").write_bytes(b"another")
        return load(*given, **more)

    monkeypatch.setattr(torch, "load", swapped)
    assert read(tmp_path / "x", file(), "pt").tensors[("rewards",)].data.tobytes() == NUMBERS.tobytes()


def test_a_file_that_is_cut_while_it_is_mapped(good: Path) -> None:
    """To look at what is mapped would end the process; a gather looks at the file first."""
    with reader(good) as buffer:
        buffer.sample(100)
        os.truncate(theirs(good), 0)
        with pytest.raises(StorageError, match="not a zip file"):
            buffer.sample(100)


@pytest.mark.parametrize("most", [1, 2, 9])
def test_few_files_are_mapped_and_each_is_compared_once(most: int, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared, compare = list[int](), zipfile.ZipFile.testzip
    monkeypatch.setitem(_source._MOST_OPEN, "pt", most)
    monkeypatch.setattr(zipfile.ZipFile, "testzip", lambda archive: (compared.append(1), compare(archive))[1])
    with reader(good) as buffer:
        descriptors = open_files()
        batches = [buffer.sample(200).rewards for _ in range(3)]
        assert len(buffer._store.source._open) == min(most, 3)
        assert sum(compared) == 3
        assert open_files() <= descriptors
    with reader(good, 9) as buffer:
        for batch in batches:
            np.testing.assert_array_equal(buffer.sample(200).rewards, batch)


def test_a_disk_that_cannot_be_read(good: Path) -> None:
    with watched() as system, reader(good) as buffer:
        for name in ("fstat", "open"):
            buffer._store.source.forget()
            system.decide = lambda called, _, name=name: errno.EIO if called == name else None
            with pytest.raises(StorageError):
                buffer.sample(100)


def test_a_text_that_is_in_a_list_many_times_is_left_out(good: Path) -> None:
    """A megabyte in the file, and 20 GB as JSON."""
    told = torch.load(theirs(good), weights_only=True)
    torch.save({**told, "more": ["x" * 900_000] * 20_000}, theirs(good))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.warns(ReliveWarning, match="Left out `more`"):
        TrajectoryReplayBuffer().load_checkpoint(good)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MOST_MEBIBYTES


@pytest.mark.parametrize("weights", ["x" * 41, "é" * 21, "a\0", "\ud800", 5])
def test_weights_that_no_index_of_ours_holds(weights: Any, good: Path, folder: Path) -> None:
    """They stand in the file alone; the UUID of its name takes their place."""
    told = torch.load(theirs(good), weights_only=True)
    torch.save({**told, "model_weights_id": weights}, theirs(good))
    assert convert(good, folder / "made") == 3
    assert verify(folder / "made") == []


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
    with watched() as system, TrajectoryReplayBuffer(trajectory_format="pt", max_trajectories=2) as b:
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
