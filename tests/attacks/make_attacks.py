"""Directories of trajectories and of saves that are damaged, or meant to do harm: each made from a good one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import socket
import sqlite3
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from make_saved_attacks import lies

FILE, INDEX = "trajectory_000000000001.safetensors", "index.sqlite"
FRESH = "trajectory_000000000009.safetensors"  # not in the index: it would be taken in
CANARY = "canary"
DEEP = 300_000


@dataclass(frozen=True)
class Attack:
    """An attack on a good directory; `noticed`: whether `verify` has to report it."""

    name: str
    kind: str  # whose directory: `relive`, `pt` or `saved`
    do: Callable[[Path], None]
    noticed: bool = False
    plain: bool = False  # a flipped bit or a cut: one of many


class Gadget:
    """Would make a directory if it were unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = str(target / CANARY)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.target,)


def gadget(path: Path) -> bytes:
    return pickle.dumps({"rewards": Gadget(path.parent)}, 2)


def zipped(path: Path) -> bytes:
    """Make the same as a `pt` file."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as file:
        file.writestr("archive/data.pkl", gadget(path))
    return found.getvalue()


def theirs(path: Path) -> Path:
    """Return the first of RLinf's files."""
    return min(path.glob("trajectory_*.pt"))


# Pickles -------------------------------------------------------------------------------------------------------------


def put(name: str, make: Callable[[Path], bytes]) -> Callable[[Path], None]:
    return lambda path: ((theirs(path) if name == "*" else path / name).write_bytes(make(path)), None)[1]


def pickles() -> Iterator[Attack]:
    for make in (gadget, zipped):
        for name in (FILE, INDEX):
            yield Attack(f"{make.__name__} as {name}", "relive", put(name, make), noticed=True)
        others = ["-wal", "-shm", "-journal", ".new"]
        for name in (FRESH, *(INDEX + end for end in others), "lock", ".tmp-x", "metadata.json", "x.pt", "x.pkl"):
            yield Attack(f"{make.__name__} as {name}", "relive", put(name, make))
        for name in ("*", "metadata.json", "trajectory_index.json"):
            yield Attack(f"{make.__name__} as {name}", "pt", put(name, make))
    yield Attack("a pickle as RLinf's index", "relive", put("trajectory_index.json", gadget))

    def without_consent(path: Path) -> None:
        for file in path.glob("trajectory_*.pt"):
            file.with_suffix(".pkl").write_bytes(gadget(path))
        (path / "metadata.json").write_text(json.dumps({"trajectory_format": "pkl", "seed": 1}))

    yield Attack("pkl without consent", "pt", without_consent)


# The index -----------------------------------------------------------------------------------------------------------

_NUMBERS = (-1, 2**31, 2**53, 2**62, 2**63 - 1, "../../etc/passwd", "/etc/passwd", b"\x80\x02c", 1.5)
_COLUMNS: dict[str, Any] = {
    "deep": "[" * DEEP,
    "deeper": '{"columns":' * 50_000,
    "a path": {"columns": [["../../x", "float32", [4]]], "shared": []},
    "an absolute path": {"columns": [["/etc/passwd", "float32", [4]]], "shared": []},
    "objects": {"columns": [["rewards", "object", [1]]], "shared": []},
    "bytes": {"columns": [["rewards", "V8", [1]]], "shared": []},
    "a dtype that is code": {"columns": [["rewards", "__import__('os').mkdir('canary')", [1]]], "shared": []},
    "a product that overflows": {"columns": [["rewards", "float32", [2**39] * 29]], "shared": []},
    "a negative axis": {"columns": [["rewards", "float32", [-4]]], "shared": []},
    "an infinite axis": '{"columns": [["rewards", "float32", [Infinity]]], "shared": []}',
    "a rank of 10^5": {"columns": [["rewards", "float32", [1] * 10**5]], "shared": []},
    "20,000 fields": {"columns": [[f"f{k}", "bool", [1]] for k in range(20_000)], "shared": []},
    "half a character": '{"columns": [["\\ud800", "float32", [4]]], "shared": []}',
    "nothing": None,
}
_MERSENNE = {"bit_generator": "MT19937", "state": {"key": [1] * 624, "pos": 2**31 - 1}}
_PHILOX = {
    "bit_generator": "Philox", "state": {"counter": [0] * 4, "key": [0] * 2}, "buffer": [0] * 4,
    "buffer_pos": -(2**30), "has_uint32": 0, "uinteger": 0,
}  # fmt: skip
_PCG = {"bit_generator": "PCG64", "state": {"state": 2**200, "inc": -1}, "has_uint32": 0, "uinteger": 0}
_DRAWS: dict[str, Any] = {
    "deep": "[" * DEEP,
    "a list": [],
    "a position outside": {"kind": "numpy", "seed": 1, "state": _MERSENNE},
    "a position before": {"kind": "numpy", "seed": 1, "state": _PHILOX},
    "too large a state": {"kind": "numpy", "seed": 1, "state": _PCG},
    "another generator": {"kind": "numpy", "seed": 1, "state": {"bit_generator": "__class__"}},
    "an infinite seed": '{"kind": "torch", "seed": Infinity, "state": ""}',
    "a torch state of nothing": {"kind": "torch", "seed": 1, "state": ""},
    "a torch state of ones": {"kind": "torch", "seed": 1, "state": "ff" * 5056},
}


def sql(statement: str, *values: Any) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path / INDEX)) as db, db:
            db.execute(statement, values)

    return do


def index() -> Iterator[Attack]:
    for column in ("id", "length", "width", "start", "bytes", "checksum", "episode", "layout"):
        for value in _NUMBERS:
            do = sql(f"UPDATE trajectories SET {column} = ? WHERE place = 2", value)
            yield Attack(f"{column} = {value!r}", "relive", do)
    for value in ("../" * 9, "\0", "x" * 900_000, b"\x80\x02c", 5):
        do = sql("UPDATE trajectories SET weights = ? WHERE place = 2", value)
        yield Attack(f"weights = {value!r:.20}", "relive", do)
    for name, told in _COLUMNS.items():
        text = told if isinstance(told, str) else json.dumps(told)
        yield Attack(f"layout: {name}", "relive", sql("UPDATE layouts SET columns = ?", text), noticed=True)
    for name, told in _DRAWS.items():
        text = told if isinstance(told, str) else json.dumps(told)
        yield Attack(f"draws: {name}", "relive", sql("INSERT OR REPLACE INTO facts VALUES ('draws', ?)", text))
    for value in ("-1", "../0", "9" * 5000, str(2**53 + 1), b"\x80\x02c"):
        do = sql("UPDATE facts SET value = ? WHERE name = 'counter'", value)
        yield Attack(f"counter = {value!r:.20}", "relive", do, noticed=True)
    schema = {
        "another version": "UPDATE facts SET value = '9' WHERE name = 'version'",
        "a view": "CREATE VIEW v AS SELECT * FROM trajectories",
        "a trigger": "CREATE TRIGGER t AFTER INSERT ON facts BEGIN DELETE FROM trajectories; END",
        "an index": "CREATE INDEX i ON trajectories (abs(id))",
        "no table": "DROP TABLE layouts",
    }
    for name, statement in schema.items():
        yield Attack(name, "relive", sql(statement), noticed=True)


# Headers -------------------------------------------------------------------------------------------------------------


def header(text: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Write another header, of the same length if possible, to a known file and to a new one."""

    def do(path: Path) -> None:
        data = (path / FILE).read_bytes()
        count = int.from_bytes(data[:8], "little")
        told = json.loads(data[8 : 8 + count])
        changed = text(told)
        new = changed if isinstance(changed, str) else json.dumps(told if changed is None else changed)
        raw = new.encode().ljust(count)
        for name in (FILE, FRESH):
            (path / name).write_bytes(struct.pack("<Q", len(raw)) + raw + data[8 + count :])

    return do


def field(key: str, value: Any) -> Callable[[Path], None]:
    return header(lambda told: told["rewards"].__setitem__(key, value))


def fact(key: str, value: Any) -> Callable[[Path], None]:
    return header(lambda told: told["__metadata__"].__setitem__(key, value))


def counts(count: int) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        data = (path / FILE).read_bytes()
        for name in (FILE, FRESH):
            (path / name).write_bytes(count.to_bytes(8, "little") + data[8:])

    return do


def hole(path: Path) -> None:
    """Make a file of 4 TB with nothing in it, which header and index confirm."""
    from relive.trajectories._catalog import Catalog, read
    from relive.trajectories._entry import Entry, file_name, header_of
    from relive.trajectories._layout import FieldColumn, FieldLayout
    from relive.trajectories._plan import plan_of

    layout = FieldLayout((FieldColumn(("rewards",), "float32", (2**39,)),), frozenset())
    head = header_of(Entry(0, 1, 2, layout, 0, 0, 0, 0, ""), {})
    size = len(head) + plan_of(layout, 1, 2).nbytes
    entries, _ = read(str(path))
    one = entries[0]._replace(id=5, layout=layout, length=1, width=2, start=len(head), bytes=size)
    with open(path / file_name(5), "wb") as file:
        file.write(head)
        file.truncate(size)
    catalog = Catalog(str(path))
    catalog.add([one], {"counter": 6})
    catalog.close()


def headers() -> Iterator[Attack]:
    for count in (0, 1, 2**20 + 1, 2**32, 2**63, 2**64 - 1):
        yield Attack(f"a header of {count}", "relive", counts(count), noticed=True)
    far = float("inf")
    names: dict[str, list[Any]] = {
        "dtype": ["O", "pickle", "|V8", ["F32"], None, "F" * 10**5],
        "data_offsets": [[0, 0], [-8, 0], [2**64, 2**64 + 8], [8, 0], [0, 2**63], [0], "../x", {}, [0.0, far]],
        "shape": [[-1, 2, 1], [2**39] * 30, [1] * 10**5, [2**63, 2, 1], [0, 0], 5, [True, 2, 1], [far] * 3, []],
    }
    for key, values in names.items():
        for value in values:
            yield Attack(f"{key} = {str(value)[:30]}", "relive", field(key, value), noticed=True)
    facts = {"shared": ["[" * 10**5, "../x", "[[]]", '["next_obs/none"]', 5], "format": ["pickle", None, []]}
    facts["max_episode_length"] = [float("inf"), -1, "9" * 5000, "__import__('os')", 2**31, None]
    facts["model_weights_id"] = ["../../x", "\ud800", "x" * 10**5, 5, None]
    for key, values in facts.items():
        for value in values:
            # Whatever a weights id says, it is looked up nowhere.
            yield Attack(f"{key} = {str(value)[:20]!r}", "relive", fact(key, value), noticed=True)
    texts = {
        "deep": "[" * DEEP,
        "deep mappings": '{"a":' * 150_000,
        "no text": "\x80\x02c",
        "digits": '{"a": ' + "9" * 10**5,
    }
    for name, text in texts.items():
        yield Attack(f"a header: {name}", "relive", header(lambda _, text=text: text), noticed=True)
    for name in ("../../x", "/etc/passwd", "", "a//b", "rewards/x"):
        do = header(lambda told, name=name: told.__setitem__(name, told["rewards"]))
        yield Attack(f"a field {name!r}", "relive", do, noticed=True)
    yield Attack("a hole of 4 TB", "relive", hole, noticed=True)


# Names ---------------------------------------------------------------------------------------------------------------


def special(name: str, what: str) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        at = theirs(path) if name == "*" else path / name
        outside = path.parent / "outside"
        if at.exists():
            at.rename(outside)
        else:
            outside.write_bytes(b"secret")
        if what == "link":
            at.symlink_to(outside)
        elif what == "dangling":
            at.symlink_to(path.parent / CANARY)
        elif what == "pipe":
            os.mkfifo(at, 0o600)
        elif what == "folder":
            at.mkdir()
        else:
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(str(at))

    return do


def special_files() -> Iterator[Attack]:
    for what in ("link", "dangling", "pipe", "folder", "socket"):
        for name in (FILE, INDEX):
            yield Attack(f"a {what} as {name}", "relive", special(name, what), noticed=True)
        ends = ("-wal", "-shm", "-journal", ".new", ".new-wal", ".new-journal")
        for name in ("lock", FRESH, ".tmp-" + FILE, ".tmp-" + FRESH, *(INDEX + end for end in ends)):
            yield Attack(f"a {what} as {name}", "relive", special(name, what))
        for name in ("*", "metadata.json", "trajectory_index.json"):
            yield Attack(f"a {what} as {name}", "pt", special(name, what))


# RLinf's -------------------------------------------------------------------------------------------------------------


def tables(change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Change the JSON index; `change` gets it, and its first entry."""

    def do(path: Path) -> None:
        file = path / "trajectory_index.json"
        told = json.loads(file.read_text())
        change(told, next(iter(told["trajectory_index"].values())))
        file.write_text(json.dumps(told))

    return do


def text(name: str, content: str) -> Callable[[Path], None]:
    return lambda path: ((path / name).write_text(content), None)[1]


def overlapping(path: Path) -> None:
    """Make 10,000 records that are all the same 4 MB."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02}.")
        file.writestr("archive/data/0", bytes(1 << 22))
        one = file.infolist()[1]
        for number in range(1, 10_000):
            again = zipfile.ZipInfo(f"archive/data/{number}")
            again.header_offset, again.CRC, again.file_size = one.header_offset, one.CRC, one.file_size
            again.compress_size = one.compress_size
            file.filelist.append(again)
    theirs(path).write_bytes(found.getvalue())


def packed(path: Path) -> None:
    with zipfile.ZipFile(theirs(path), "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", bytes(200 << 20))


def rlinf() -> Iterator[Attack]:
    weights = ["../../etc/passwd", "/etc/passwd", "\0", 5, None, "x" * 10**6]
    for value in weights:
        do = tables(lambda _, first, value=value: first.__setitem__("model_weights_id", value))
        yield Attack(f"model_weights_id = {value!r:.20}", "pt", do)
    for key in ("trajectory_id", "num_samples", "max_episode_length", "shape"):
        for value in (-1, 2**70, "../0", float("inf"), [2**31, 2**31], [1] * 10**5, None):
            do = tables(lambda _, first, key=key, value=value: first.__setitem__(key, value))
            yield Attack(f"{key} = {str(value)[:20]}", "pt", do)
    for value in ([float("inf")], [float("nan")], ["../0"], [-1], 5, [[]], ["9" * 5000]):
        do = tables(lambda told, _, value=value: told.__setitem__("trajectory_id_list", value))
        yield Attack(f"ids = {str(value)[:20]}", "pt", do)
    for name in ("metadata.json", "trajectory_index.json"):
        for content in (
            "[" * DEEP,
            '{"a":' * DEEP,
            "",
            "9" * 10**5,
            '{"seed": 1e999}',
            '{"trajectory_format": "../x"}',
        ):
            yield Attack(f"{name}: {content[:20]}", "pt", text(name, content))
    yield Attack("records on top of each other", "pt", overlapping)
    yield Attack("a packed record of 200 MB", "pt", packed)


# Damage --------------------------------------------------------------------------------------------------------------


def cut(name: str, share: float) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        at = theirs(path) if name == "*" else path / name
        os.truncate(at, int(at.stat().st_size * share))

    return do


def flip(name: str, bit: int) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        at = theirs(path) if name == "*" else path / name
        data = np.fromfile(at, np.uint8)
        data[bit // 8] ^= 1 << bit % 8
        at.write_bytes(data.tobytes())

    return do


def damage(good: dict[str, Path], every: int) -> Iterator[Attack]:
    for kind, name in (("relive", FILE), ("relive", INDEX), ("pt", "*"), ("pt", "trajectory_index.json")):
        at = theirs(good[kind]) if name == "*" else good[kind] / name
        for share in np.linspace(0, 0.999, 25):
            yield Attack(f"{name} cut to {share:.3f}", kind, cut(name, share), name == FILE, plain=True)
        for bit in range(0, at.stat().st_size * 8, every):
            yield Attack(f"bit {bit} of {name}", kind, flip(name, bit), name == FILE, plain=True)


def attacks(good: dict[str, Path], every: int) -> list[Attack]:
    """Make all of them; `every`: which bits to flip."""
    made = [*pickles(), *index(), *headers(), *special_files(), *rlinf()]
    told = lies(good["saved"], special)[:: 1 if every < 1000 else 5]
    return [*made, *damage(good, every), *(Attack(lie.name, "saved", lie.do) for lie in told)]
