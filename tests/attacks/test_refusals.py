"""Lies that are consistent: a header or an index is right but for one thing, so that one check alone can refuse it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_attacks import sql

from relive.errors import CorruptionError, StorageError
from relive.trajectories import TrajectoryReplayBuffer, verify
from relive.trajectories._block import parse
from relive.trajectories._catalog import NAME, Catalog, read
from relive.trajectories._draws import DrawGenerator
from relive.trajectories._entry import Entry, header_of
from relive.trajectories._layout import FieldColumn, FieldLayout, columns_json, layout_from
from relive.trajectories._plan import FilePlan

REWARDS = FieldColumn(("rewards",), "float32", (1,))
NOW, LATER = FieldColumn(("curr_obs", "x"), "float32", (3,)), FieldColumn(("next_obs", "x"), "float32", (3,))
SHARED = frozenset({LATER.path})
MAGIC = bytes.fromhex("d9d505f920a163d7")  # of SQLite's journals
GOOD = FieldLayout((NOW, LATER, REWARDS), SHARED)


def alone(*columns: FieldColumn, shared: frozenset[Any] = frozenset()) -> FieldLayout:
    return FieldLayout(columns, shared)


def flag(*shape: Any, path: tuple[str, ...] = ("a",)) -> FieldColumn:
    return FieldColumn(path, "bool", shape)


# Fields that cannot be, of which the library's own writer would make header and index all the same.
LAYOUTS = {
    "a name of nothing": (alone(flag(1, path=("a", ""))), "an empty name"),
    "names too deep": (alone(flag(1, path=("a",) * 31)), "too deep"),
    "too many axes": (alone(flag(*[1] * 31)), "too many axes|invalid shape"),
    "a field inside a field": (alone(flag(1), flag(1, path=("a", "b"))), "inside another field"),
    "an axis of none": (alone(REWARDS, flag(0)), "invalid shape|bool"),
    "an axis below none": (alone(flag(-1, -1)), "invalid shape|bool"),
    "a huge axis": (alone(flag(2**40)), "invalid shape|bool"),
    "an axis that is a flag": (alone(flag(True)), "invalid shape|bool"),
    "an axis that is a fraction": (alone(flag(1.0)), "invalid shape|bool"),
}
# Of the index only: a header has no place for these.
LISTED = {
    "fields of none": (alone(), "no fields"),
    "two fields of one name": (alone(REWARDS, REWARDS), "a duplicate name"),
    "objects": (alone(FieldColumn(("a",), "object", (1,))), "object"),
    "a step after of nothing": (alone(LATER, shared=SHARED), "marked shared"),
    "nothing as the step after": (alone(NOW, shared=SHARED), "marked shared"),
    "another dtype": (alone(FieldColumn(NOW.path, "int32", (3,)), LATER, shared=SHARED), "marked shared"),
    "another shape": (alone(FieldColumn(NOW.path, "float32", (4,)), LATER, shared=SHARED), "marked shared"),
    "no next_obs": (alone(NOW, shared=frozenset({NOW.path})), "marked shared"),
}


def of(layout: FieldLayout, length: int = 3, width: int = 2) -> FilePlan:
    return FilePlan(layout, length, width)


def whole(plan: FilePlan, episode: int = 0, weights: str = "") -> tuple[bytes, int]:
    """Make a header, and the length of its file."""
    head = header_of(Entry(0, plan.length, plan.width, plan.layout, 0, 0, 0, episode, weights), {})
    return head, len(head) + plan.nbytes


def changed(change: Callable[[dict[str, Any]], Any]) -> tuple[bytes, int]:
    """Make the good header with one change."""
    head, size = whole(of(GOOD))
    told = json.loads(head[8:])
    change(told)
    text = json.dumps(told).encode()
    return struct.pack("<Q", len(text)) + text, size - len(head) + len(text) + 8


def raw(text: str) -> tuple[bytes, int]:
    """Make a header of another text."""
    return struct.pack("<Q", len(text)) + text.encode(), 10**6


HEADERS: dict[str, tuple[Callable[[], tuple[bytes, int]], str]] = {
    "no bytes": (lambda: (b"", 10**6), "header of 0"),
    "seven bytes": (lambda: (bytes(7), 10**6), "header of 0"),
    "half a header": (lambda: (whole(of(GOOD))[0][:-9], whole(of(GOOD))[1]), "invalid header of"),
    "a header of 2 MB": (lambda: long(2 << 20), "invalid header of"),
    "a header beyond the file": (lambda: (struct.pack("<Q", 99) + bytes(99), 99), "invalid header of"),
    "another format": (lambda: changed(lambda told: told["__metadata__"].update(format="relive.2")), "format"),
    "a longer file": (lambda: (whole(of(GOOD))[0], whole(of(GOOD))[1] + 1), "a file of"),
    "no steps": (lambda: whole(of(FieldLayout((NOW, LATER), SHARED), 0)), "no steps"),
    "no fields": (lambda: changed(lambda told: [told.pop(key) for key in ("curr_obs/x", "rewards")]), "no steps"),
    "no environments": (lambda: whole_of_none(), "invalid shape"),
    "an episode below 0": (lambda: whole(of(GOOD), -1), "invalid `episode`"),
    "a long episode": (lambda: whole(of(GOOD), 2**31), "invalid `episode`"),
    "a long weights id": (lambda: whole(of(GOOD), weights="x" * 41), "invalid `weights`"),
    "other steps": (lambda: changed(lambda told: told["rewards"].update(shape=[2, 2, 1])), "next to"),
    "other environments": (lambda: changed(lambda told: told["rewards"].update(shape=[3, 1, 1])), "next to"),
    "one axis": (lambda: changed(lambda told: told["rewards"].update(shape=[3])), "invalid shape"),
    "other offsets": (lambda: changed(lambda told: told["rewards"].update(data_offsets=[0, 24])), "offsets"),
    "another table": (lambda: changed(lambda told: told["relive/crc32"].update(data_offsets=[0, 1])), "checksum table"),
    "a text": (lambda: raw('"x"'), "no attribute"),
    "a list": (lambda: raw("[]"), "list|interpreted"),
    "a mapping of nothing": (lambda: raw("{}"), "metadata"),
    "a mapping that never ends": (lambda: raw('{"a":' * 100_000), "recursion"),
    "a shape that is a number": (lambda: changed(lambda told: told["rewards"].update(shape=5)), "int"),
    "an endless episode": (
        lambda: changed(lambda told: told["__metadata__"].update(max_episode_length=float("inf"))),
        "infinity",
    ),
    "another step after": (
        lambda: changed(lambda told: told["__metadata__"].update(shared='["last_obs/x"]')),
        "marked shared|next to",
    ),
}


def long(count: int) -> tuple[bytes, int]:
    """Make the good header, filled up with spaces."""
    head, size = whole(of(GOOD))
    return struct.pack("<Q", count) + head[8:].ljust(count), size - len(head) + 8 + count


def whole_of_none() -> tuple[bytes, int]:
    """Make the good header, of no environments."""
    return changed(lambda told: [told[name].update(shape=[3, 0, 1]) for name in told if name[0] != "_"])


def test_the_good_ones_are_taken(tmp_path: Path) -> None:
    """Check the good ones, since others might be refused for some other reason."""
    for head, size in (whole(of(GOOD)), changed(lambda told: None), long(1 << 20)):
        assert parse(head, size, "x").entry.layout == GOOD
    assert layout_from(columns_json(GOOD)) == GOOD
    assert [entry.id for entry in listed(tmp_path, entry(), entry(id=7))] == [1, 7]


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_with_one_lie(name: str) -> None:
    make, text = HEADERS[name]
    with pytest.raises(StorageError, match=text):
        parse(*make(), "x")


@pytest.mark.parametrize("name", LAYOUTS | LISTED)
def test_fields_that_cannot_be(name: str) -> None:
    layout, text = (LAYOUTS | LISTED)[name]
    if name in LAYOUTS:
        with pytest.raises(StorageError, match=text):
            parse(*whole(of(layout)), "x")
    with pytest.raises(ValueError, match=text):
        layout_from(columns_json(layout))


@pytest.mark.parametrize("lie", ["episode = 7", "weights = 'x'", "length = 2, width = 3"])
def test_what_the_index_alone_says_of_a_file(lie: str, tmp_path: Path) -> None:
    with TrajectoryReplayBuffer(tmp_path) as buffer:
        buffer.add_trajectories([{"rewards": np.zeros((3, 2), np.float32)}])
    sql(f"UPDATE trajectories SET {lie}")(tmp_path)
    assert len(verify(tmp_path)) == 1


@pytest.mark.parametrize("at", [3, -1])
def test_bytes_that_belong_to_no_field(at: int, tmp_path: Path) -> None:
    """Change the bytes that align the table of checksums, and the checksum of the table."""
    with TrajectoryReplayBuffer(tmp_path) as buffer:
        buffer.add_trajectories([{"dones": np.ones((3, 1), bool)}])
    (path,) = tmp_path.glob("trajectory_*")
    data = bytearray(path.read_bytes())
    data[at if at < 0 else int.from_bytes(data[:8], "little") + 8 + at] ^= 1
    path.write_bytes(data)
    assert [name for name, _ in verify(tmp_path)] == [path.name]


@pytest.mark.parametrize("text", ["", "{}", "5", "[" * 100_000, '{"columns": [["a", "bool", 5]], "shared": []}'])
def test_fields_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        layout_from(text)


# The index -----------------------------------------------------------------------------------------------------------


def entry(**changes: Any) -> Entry:
    """Make a row of the index, whose size follows from the others unless given."""
    good = Entry(1, 3, 2, GOOD, 640, 0, 5, 0, "")._replace(**changes)
    numbers = [n if type(n) is int else 1 for n in good[1:3]]
    return good if good.bytes else good._replace(bytes=good.start + of(good.layout, *numbers).nbytes)


def listed(folder: Path, *entries: Entry) -> list[Entry]:
    """Read an index with these entries."""
    catalog = Catalog(str(folder))
    catalog.add(entries, {"counter": 9})
    catalog.close()
    return read(str(folder))[0]


VAST = alone(flag(2**39, 2**21))
ENTRIES = {
    "an id below 0": {"id": -1},
    "a large id": {"id": 2**53},
    "no steps": {"length": 0},
    "many steps": {"length": 2**31},
    "no environments": {"width": 0},
    "many environments": {"width": 2**31},
    "no header": {"start": 0},
    "a long header": {"start": 2**31},
    "bytes that no sum holds": {"layout": VAST},
    "other bytes": {"bytes": 12},
    "a large checksum": {"checksum": 2**32},
    "a checksum that is a fraction": {"checksum": 1.5},
    "an episode below 0": {"max_episode_length": -1},
    "a long episode": {"max_episode_length": 2**31},
    "a long weights id": {"model_weights_id": "x" * 41},
    "long letters": {"model_weights_id": "é" * 21},
    "weights that are bytes": {"model_weights_id": b"x"},
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_row_of_the_index_with_one_lie(name: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"invalid `|cannot have a file of"):
        listed(tmp_path, entry(**ENTRIES[name]))


def test_a_trajectory_that_is_listed_twice(tmp_path: Path) -> None:
    """Change an id in the rows, but not in SQLite's second tree, which keeps ids apart."""
    listed(tmp_path, entry(id=100), entry(id=101, length=77, width=99))
    data = (tmp_path / NAME).read_bytes()
    assert data.count(b"\x65\x4d\x63") == 1
    (tmp_path / NAME).write_bytes(data.replace(b"\x65\x4d\x63", b"\x64\x4d\x63"))
    with pytest.raises(StorageError, match="listed twice"):
        read(str(tmp_path))


def test_a_tree_that_leads_to_the_same_rows_again_and_again(tmp_path: Path) -> None:
    """Make a page of branches that all end in one page of leaves."""
    listed(tmp_path, *[entry(id=k) for k in range(1, 90)])
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'trajectories'").fetchone()
    data, size, count = bytearray((tmp_path / NAME).read_bytes()), 4096, 600
    start, leaf, cell = (root - 1) * size, len(data) // size + 1, size - 5
    data += data[start : start + size]
    struct.pack_into(">I", data, 28, leaf)  # pages of the whole
    page = struct.pack(">BHHHBI", 5, 0, count, cell, 0, leaf) + struct.pack(">H", cell) * count
    data[start : start + size] = page.ljust(cell, b"\0") + struct.pack(">IB", leaf, 1)
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(StorageError, match="more rows than fit in the file"):
        read(str(tmp_path))


def test_a_value_of_megabytes(tmp_path: Path) -> None:
    listed(tmp_path, entry())
    sql("UPDATE layouts SET columns = columns || ?", " " * (2 << 20))(tmp_path)
    with pytest.raises(StorageError, match="too big"):
        read(str(tmp_path))


@pytest.mark.parametrize(("counter", "text"), [(-1, "counter -1"), (2**53 + 1, "counter"), ("x", "invalid literal")])
def test_a_counter_that_cannot_be(counter: Any, text: str, tmp_path: Path) -> None:
    listed(tmp_path, entry())
    sql("UPDATE facts SET value = ? WHERE name = 'counter'", str(counter))(tmp_path)
    with pytest.raises(StorageError, match=text):
        read(str(tmp_path))


def test_an_index_that_is_in_its_journal_as_yet(tmp_path: Path) -> None:
    """Add more rows than fit in the file itself, as when a writer was killed."""
    catalog = Catalog(str(tmp_path))
    catalog.add([entry(id=k) for k in range(3000)], {"counter": 3000})
    assert (tmp_path / NAME).stat().st_size < 3000 * 4
    assert len(read(str(tmp_path))[0]) == 3000
    (synchronous,) = catalog._db.execute("PRAGMA synchronous").fetchone()
    assert synchronous == 2, "what is acknowledged is on the disk"
    catalog.close()


def test_reading_an_index_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="got none"):
        read(str(tmp_path))
    (tmp_path / NAME).touch()
    with pytest.raises(StorageError, match="no tables"):
        read(str(tmp_path))
    assert (tmp_path / NAME).stat().st_size == 0


def test_a_journal_that_names_another_file(tmp_path: Path) -> None:
    """Check that SQLite does not delete the file that a journal of several databases names."""
    (tmp_path / "own").mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    with TrajectoryReplayBuffer(tmp_path / "own") as buffer:
        buffer.add_trajectories([{"rewards": np.zeros((3, 2, 1), np.float32)}])
    name = str(outside).encode()
    pages = (tmp_path / "own" / NAME).stat().st_size // 4096
    head = (MAGIC + struct.pack(">IIIII", 0, 1, pages, 512, 4096)).ljust(512, b"\0")
    tail = struct.pack(">I", 2**30 // 4096 + 1) + name + struct.pack(">II", len(name), sum(name)) + MAGIC
    (tmp_path / "own" / f"{NAME}-journal").write_bytes(head + tail)
    with pytest.raises(StorageError, match="spans several databases"):
        TrajectoryReplayBuffer(tmp_path / "own")
    assert outside.read_bytes() == b"secret"


def test_reading_rolls_nothing_back(tmp_path: Path) -> None:
    """Check with a journal that would cut the index, were it opened for writing."""
    listed(tmp_path, entry())
    before = (tmp_path / NAME).read_bytes()
    head = MAGIC + struct.pack(">IIIII", 0, 1, 1, 512, 4096)
    (tmp_path / f"{NAME}-journal").write_bytes(head.ljust(512, b"\0"))
    with pytest.raises(StorageError):
        read(str(tmp_path))
    assert (tmp_path / NAME).read_bytes() == before


# Draws ---------------------------------------------------------------------------------------------------------------


def state_of(kind: str) -> dict[str, Any]:
    """Return the saved state of a generator that has drawn."""
    bits = getattr(np.random, kind)(5)
    np.random.Generator(bits).integers(0, 9, 3)
    return json.loads(json.dumps({"kind": "numpy", "seed": 5, "state": bits.state}, default=np.ndarray.tolist))


def resumed(folder: Path, told: Any) -> TrajectoryReplayBuffer:
    """Make a buffer that continues from a checkpoint with such a state; its rows are numbered."""
    buffer = TrajectoryReplayBuffer(seed=1)
    buffer.add_trajectories([{"rewards": np.arange(600).reshape(300, 2, 1)}])
    buffer.save_checkpoint(folder)
    sql("INSERT OR REPLACE INTO facts VALUES ('draws', ?)", json.dumps(told))(folder)
    buffer.load_checkpoint(folder)
    return buffer


@pytest.mark.parametrize(
    ("kind", "change", "text"),
    [
        ("MT19937", lambda told: told["state"]["state"].update(pos=625), "position 625"),
        ("MT19937", lambda told: told["state"]["state"].update(pos=-1), "position -1"),
        ("MT19937", lambda told: told["state"]["state"].update(pos=1.0), r"position 1\.0"),
        ("MT19937", lambda told: told["state"]["state"].update(pos=True), "position True"),
        ("Philox", lambda told: told["state"].update(buffer_pos=5), "position 5"),
        ("Philox", lambda told: told["state"].update(buffer_pos=-1), "position -1"),
        ("PCG64", lambda told: told["state"].update(bit_generator="default_rng"), "bit generator 'default_rng'"),
        ("PCG64", lambda told: told["state"].pop("state"), "state"),
        ("PCG64", lambda told: told["state"].update(state=5), "not subscriptable|integer"),
        ("PCG64", lambda told: told["state"]["state"].update(inc=-1), "out of bounds|convert|negative"),
        ("PCG64", lambda told: told.update(state=[]), "indices"),
        ("PCG64", lambda told: told.update(seed=2**64), "invalid seed"),
        ("PCG64", lambda told: told.update(seed=-(2**63) - 1), "invalid seed"),
        ("PCG64", lambda told: told.update(seed=True), "invalid seed"),
        ("PCG64", lambda told: told.update(seed="5"), "invalid seed"),
    ],
)
def test_a_state_of_draws_with_one_lie(
    kind: str, change: Callable[[dict[str, Any]], Any], text: str, tmp_path: Path
) -> None:
    told = state_of(kind)
    change(told)
    with pytest.raises(CorruptionError, match=f"Invalid contents .*({text})"):
        resumed(tmp_path, told)


@pytest.mark.parametrize("state", ["", "00" * 7, "zz", 5, "ff" * 5056])
def test_a_state_that_is_not_torchs(state: Any, tmp_path: Path) -> None:
    told = json.loads(DrawGenerator.torch(3).state())
    assert len(resumed(tmp_path, told)) == 1
    with pytest.raises(CorruptionError, match="Invalid contents"):
        resumed(tmp_path, {**told, "state": state})
