"""RLinf's directories that are damaged, or meant to do harm."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from depth import LONG
from rlinf_files import (
    STEPS,
    WEIGHTS,
    WIDTH,
    directory,
    entry,
    fields,
    file,
    loaded,
    rewrite,
    rows,
    rows_in_order,
    sampled,
)

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
    "one axis": lambda told: told.update(num_samples=10, shape=[10]),
    "a fraction": lambda told: told.update(num_samples=10, shape=[5, 2.0]),
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


WRONG = [
    ("trajectory_index.json", {"trajectory_id_list": [0, 0]}, "listed twice"),
    *(("metadata.json", {"seed": seed}, "seed") for seed in (True, 1.5, "1", 2**64, [1])),
]


@pytest.mark.parametrize(("part", "change", "text"), WRONG)
def test_a_bad_fact_of_the_index(part: str, change: dict[str, Any], text: str, folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    (path / part).write_text(json.dumps(json.loads((path / part).read_text()) | change))
    with pytest.raises(StorageError, match=text):
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


@pytest.mark.parametrize("kind", ["pt", "pkl"])
@pytest.mark.parametrize("slot", ["whole", "field", "nested"])
def test_a_gadget_is_not_run(slot: str, kind: str, folder: Path) -> None:
    path, gadget = directory(folder / "a", [fields()], kind), Gadget(folder / "gone")
    nested = {**fields(), "curr_obs": {"states": gadget}}
    content: Any = {"whole": gadget, "field": {**fields(), "actions": gadget}, "nested": nested}[slot]
    if kind == "pt":
        torch.save(content, path / file(0))
    else:
        (path / file(0, kind)).write_bytes(pickle.dumps(content, 2))
    refused = r"it has what `torch.load\(weights_only=True\)` refuses" if kind == "pt" else "unknown name"
    with pytest.raises(StorageError, match=rf"^Invalid RLinf trajectory file \({refused}.* - at `.*/{file(0, kind)}`$"):
        loaded(path)
    assert os.listdir(folder) == ["a"]


def test_more_tensors_than_bytes(folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    shared = torch.zeros(STEPS, WIDTH, 500)
    torch.save({"rewards": shared, "curr_obs": {str(number): shared for number in range(9)}}, path / file(0))
    with pytest.raises(StorageError, match="more bytes than the file"):
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
    np.testing.assert_array_equal(rows_in_order(buffer, 8).rewards, fields(1)["rewards"].numpy().reshape(-1, 1))
    data = (path / file(0)).read_bytes()
    at = data.index(fields(1)["rewards"].numpy().tobytes())
    (path / file(0)).write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with pytest.raises(StorageError, match="Bad CRC-32"):
        buffer.sample(8)


def test_nothing_is_run_while_reading(folder: Path) -> None:
    """Neither is a name of a file looked up: an audit hook would see it."""
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
    before = set(seen)
    pickle.loads((paths[1] / file(0, "pkl")).read_bytes())
    active = False
    assert before <= {"import"}  # PyTorch's own
    assert "pickle.find_class" in seen
