"""RLinf's directories that are damaged, or meant to do harm."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from depth import LONG
from rlinf_files import STEPS, WEIGHTS, WIDTH, Ordered, directory, entry, fields, file, loaded, rewrite, rows, sampled

from relive.errors import SchemaError, StorageError

ENTRIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another folder": lambda told: told.update(model_weights_id="../../etc/passwd"),
    "an absolute path": lambda told: told.update(model_weights_id="/etc/passwd"),
    "a zero byte": lambda told: told.update(model_weights_id=WEIGHTS[:-1] + "\0"),
    "a number as weights": lambda told: told.update(model_weights_id=5),
    "a line end": lambda told: told.update(model_weights_id=WEIGHTS + "\n"),
    "another id": lambda told: told.update(trajectory_id=7),
    "a text as id": lambda told: told.update(trajectory_id="../0"),
    "a huge id": lambda told: told.update(trajectory_id=2**70),
    "other samples": lambda told: told.update(num_samples=9),
    "no steps": lambda told: told.update(num_samples=0, shape=[0, WIDTH, 1]),
    "negative axes": lambda told: told.update(shape=[-STEPS, -WIDTH, 1]),
    "true for one": lambda told: told.update(shape=[STEPS, WIDTH, True]),
    "huge axes": lambda told: told.update(num_samples=2**62, shape=[2**31, 2**31]),
    "no shape": lambda told: told.pop("shape"),
    "a text as shape": lambda told: told.update(shape="42"),
    "a negative length": lambda told: told.update(max_episode_length=-1),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_bad_entry_of_the_index(name: str, folder: Path) -> None:
    path, bad = directory(folder / "a", [fields()]), entry(0)
    ENTRIES[name](bad)
    rewrite(path, "pt", [bad])
    with pytest.raises(StorageError, match="Invalid RLinf index"):
        loaded(path)


@pytest.mark.parametrize("part", ["metadata.json", "trajectory_index.json"])
@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", "[" * 100_000, '{"trajectory_index": [], "trajectory_id_list": [0]}', "\xff"]
)
def test_a_bad_json_file(part: str, text: str, folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    if part == "metadata.json" and text.startswith("{"):
        text = '{"trajectory_format": ["pt"]}'
    (path / part).write_bytes(text.encode("latin-1"))
    with pytest.raises(StorageError, match="Invalid RLinf index"):
        loaded(path)


def test_a_trajectory_that_is_listed_twice(folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    told = json.loads((path / "trajectory_index.json").read_text())
    (path / "trajectory_index.json").write_text(json.dumps({**told, "trajectory_id_list": [0, 0]}))
    with pytest.raises(StorageError, match="listed twice"):
        loaded(path)


@pytest.mark.parametrize("seed", [True, 1.5, "1", 2**64, [1]])
def test_a_bad_seed(seed: Any, folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    rewrite(path, "pt", [entry(0)], seed=seed)
    with pytest.raises(StorageError, match="seed"):
        loaded(path)


@pytest.mark.parametrize("name", ["metadata.json", "trajectory_index.json", file(0)])
@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder"])
def test_nothing_but_regular_files_is_opened(name: str, kind: str, folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    (path / name).rename(folder / "moved")
    if kind == "a link":
        (path / name).symlink_to(folder / "moved")
    elif kind == "a pipe":
        os.mkfifo(path / name)
    else:
        (path / name).mkdir()
    with pytest.raises(StorageError):
        loaded(path)


class Gadget:
    """Would write a file if it were unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.target,)


def archive(content: Any, **records: bytes) -> bytes:
    """A `pt` file around a pickle."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as file:
        file.writestr("archive/data.pkl", content if isinstance(content, bytes) else pickle.dumps(content, 2))
        for name, data in records.items():
            file.writestr(f"archive/data/{name}", data)
    return found.getvalue()


OPCODES = {
    "a call": b"cos\nmkdir\n(Vgone\ntR.",
    "a call by INST": b"(Vgone\nios\nmkdir\n.",
    "a call by OBJ": b"(cos\nmkdir\nVgone\no.",
    "a call by NEWOBJ": b"\x80\x02cbuiltins\nlist\n)\x81.",
    "a state": b"\x80\x02}}b.",
    "an extension": b"\x80\x02\x82\x01.",
    "a buffer": b"\x80\x05\x97.",
    "no end": b"\x80\x02}",
    "an empty stack": b"\x80\x020.",
    "half an item": b"\x80\x02}(K\x01u.",
    "a memo of nothing": b"\x80\x02h\x05.",
    "a million marks": b"\x80\x02" + b"(" * 1_000_000 + b".",
    "a billion bytes": b"\x80\x04\x8e" + (10**9).to_bytes(8, "little") + b"x.",
    "all bytes there are": b"\x80\x04\x8e" + b"\xff" * 8 + b"x.",
    "a buffer of the caller's": b"\x80\x05}\x98.",
    "more than there is use for": b"\x80\x02" * 200_000 + b"}.",
    "a number as a key": b"\x80\x02}K\x01K\x02s.",
    "a list as a key": b"\x80\x02}]K\x02s.",
    "a mapping in itself": b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
}


@pytest.mark.parametrize("kind", ["pt", "pkl"])
@pytest.mark.parametrize("name", OPCODES)
def test_a_pickle_that_is_no_data(name: str, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    path = directory(folder / "a", [fields()], kind)
    (path / file(0, kind)).write_bytes(archive(OPCODES[name]) if kind == "pt" else OPCODES[name])
    with pytest.raises(StorageError, match="Invalid RLinf trajectory file"):
        loaded(path)
    assert os.listdir(folder) == ["a"]


@pytest.mark.parametrize("kind", ["pt", "pkl"])
@pytest.mark.parametrize("slot", ["whole", "field", "nested", "storage"])
def test_a_gadget_is_not_run(slot: str, kind: str, folder: Path) -> None:
    path, gadget = directory(folder / "a", [fields()], kind), Gadget(folder / "gone")
    content: Any = {
        "whole": gadget,
        "field": {**fields(), "actions": gadget},
        "nested": {**fields(), "curr_obs": {"states": gadget}},
        "storage": {"rewards": Rebuilt(gadget)},
    }[slot]
    if kind == "pt" and slot in ("field", "nested"):
        torch.save(content, path / file(0))
    else:
        data = pickle.dumps(content, 2)
        (path / file(0, kind)).write_bytes(archive(data) if kind == "pt" else data)
    with pytest.raises(StorageError):
        loaded(path)
    assert os.listdir(folder) == ["a"]


class Rebuilt:
    """A tensor of something that is no storage."""

    def __init__(
        self, storage: Any, size: Any = (STEPS, WIDTH, 1), stride: Any = (WIDTH, 1, 1), offset: Any = 0
    ) -> None:
        self.args = (storage, offset, size, stride, False, {})

    def __reduce__(self) -> Any:
        return torch._utils._rebuild_tensor_v2, self.args


class Pickler(pickle.Pickler):
    """Writes `("storage", ...)` tuples as handles, as `torch.save` does."""

    def persistent_id(self, value: Any) -> Any:
        return value if isinstance(value, tuple) and value[:1] == ("storage",) else None


def tensor_file(rebuilt: Rebuilt) -> bytes:
    found = io.BytesIO()
    Pickler(found, 2).dump({**{k: v for k, v in fields().items() if k in ("max_episode_length",)}, "rewards": rebuilt})
    return archive(found.getvalue(), **{"0": np.arange(8, dtype=np.float32).tobytes()})


STORAGE = ("storage", torch.FloatStorage, "0", "cpu", 8)


@pytest.mark.parametrize(
    "arguments",
    [
        {"size": (2**40, 2**40), "stride": (0, 0)},
        {"size": (STEPS, WIDTH, 2**50), "stride": (0, 0, 0)},
        {"size": (STEPS, WIDTH, 2), "stride": (4, 2, 1)},
        {"stride": (-2, 1, 1)},
        {"stride": (1, 4, 1)},
        {"stride": (2, 1)},
        {"offset": 1},
        {"offset": -1},
        {"offset": "0"},
        {"size": [STEPS, WIDTH, 1]},
        {"size": (STEPS, float(WIDTH), 1)},
        {"size": (1,) * 100, "stride": (1,) * 100},
        {"storage": ("storage", torch.FloatStorage, "../0", "cpu", 8)},
        {"storage": ("storage", torch.FloatStorage, "1", "cpu", 8)},
        {"storage": ("storage", torch.ComplexFloatStorage, "0", "cpu", 8)},
        {"storage": ("storage", "torch.FloatStorage", "0", "cpu", 8)},
        {"storage": ("storage",)},
        {"storage": 5},
    ],
)
def test_a_tensor_that_is_none(arguments: dict[str, Any], folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    (path / file(0)).write_bytes(tensor_file(Rebuilt(STORAGE)))
    np.testing.assert_array_equal(rows(path, 0).rewards[:, 0], np.arange(8))
    (path / file(0)).write_bytes(tensor_file(Rebuilt(**{"storage": STORAGE, **arguments})))
    with pytest.raises(StorageError, match="Invalid RLinf trajectory file"):
        loaded(path)


def test_more_tensors_than_bytes(folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    shared = torch.zeros(STEPS, WIDTH, 500)
    torch.save({"rewards": shared, "curr_obs": {str(number): shared for number in range(9)}}, path / file(0))
    with pytest.raises(StorageError, match="more bytes than the file"):
        loaded(path)


def test_records_that_are_packed_or_double(folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    good = tensor_file(Rebuilt(STORAGE))
    for method, names in ((zipfile.ZIP_DEFLATED, 1), (zipfile.ZIP_STORED, 2)):
        found = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(found, "w", method) as new:
            for _ in range(names):
                for record in old.infolist():
                    twice = record.filename in new.namelist()
                    with pytest.warns(UserWarning, match="Duplicate name") if twice else contextlib.nullcontext():
                        new.writestr(record.filename, old.read(record))
        (path / file(0)).write_bytes(found.getvalue())
        with pytest.raises(StorageError, match=r"damaged or compressed|have the same name"):
            loaded(path)


@pytest.mark.parametrize("cache", [0, 9])
def test_a_flipped_bit_is_an_error_or_nothing(cache: int, folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    whole, wanted = (path / file(0)).read_bytes(), rows(path, cache)
    refused = 0
    for at in range(cache % 2, len(whole), 13 if LONG else 41):
        (path / file(0)).write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            found = rows(path, cache)
        except (StorageError, SchemaError):
            refused += 1
            continue
        np.testing.assert_array_equal(found.rewards, wanted.rewards)
        np.testing.assert_array_equal(found.curr_obs.states, wanted.curr_obs.states)
    assert refused > 6


@pytest.mark.parametrize("kind", ["pt", "pkl"])
def test_a_cut_file_is_an_error(kind: str, folder: Path) -> None:
    path = directory(folder / "a", [fields()], kind)
    whole = (path / file(0, kind)).read_bytes()
    for size in range(0, len(whole), 37 if LONG else 97):
        (path / file(0, kind)).write_bytes(whole[:size])
        with pytest.raises(StorageError):
            rows(path, 0)


def test_a_file_that_changes_later_is_checked_again(folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    buffer = loaded(path, cache_size=0)
    buffer.sample(8)
    torch.save({**fields(1)}, path / file(0))
    buffer._draws = Ordered()
    np.testing.assert_array_equal(buffer.sample(8).rewards, fields(1)["rewards"].numpy().reshape(-1, 1))
    data = (path / file(0)).read_bytes()
    at = data.index(fields(1)["rewards"].numpy().tobytes())
    (path / file(0)).write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with pytest.raises(StorageError, match="wrong checksum of"):
        buffer.sample(8)


def test_nothing_is_looked_up_while_reading(folder: Path) -> None:
    """Neither modules nor names: an audit hook would see them."""
    paths = [directory(folder / kind, [fields()], kind) for kind in ("pt", "pkl")]
    for path in paths:
        sampled(path, 0)  # whatever is loaded lazily is loaded now
    seen: list[str] = []
    active = True

    def hook(event: str, _: Any) -> None:
        if active and event in ("import", "pickle.find_class", "exec", "compile", "os.system", "subprocess.Popen"):
            seen.append(event)

    sys.addaudithook(hook)
    for path in paths:
        loaded(path)
    before = list(seen)
    pickle.loads((paths[1] / file(0, "pkl")).read_bytes())
    active = False
    assert before == []
    assert "pickle.find_class" in seen
