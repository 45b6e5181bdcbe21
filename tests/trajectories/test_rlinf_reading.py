"""RLinf's directories, the usual and the unusual ones; what `verify` and `inspect` say of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlinf_files import STEPS, WIDTH, directory, fields, file, loaded, rows, sampled

from relive import cli
from relive.errors import ArgumentError, MissingExtra, ReliveWarning, SchemaError, StorageError
from relive.trajectories import TrajectoryReplayBuffer, contents, convert, inspect, verify


@pytest.mark.parametrize("kind", ["pt", "pkl"])
@pytest.mark.parametrize("cache", [0, 9])
def test_every_dtype_is_read(kind: str, cache: int, folder: Path) -> None:
    shape = (STEPS, WIDTH, 2)
    numbers = np.arange(STEPS * WIDTH * 2).reshape(shape)
    kinds = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
    kinds += ["float16", "float32", "float64"]
    content = fields()
    content["forward_inputs"] = {name: torch.from_numpy(numbers.astype(name)) for name in kinds}
    content["forward_inputs"]["half"] = torch.from_numpy(numbers).to(torch.bfloat16)
    shared = torch.from_numpy(np.concatenate([numbers, numbers + 9]))
    content["forward_inputs"] |= {"first": shared[:STEPS], "part": shared[STEPS:]}
    content["others"] = [torch.zeros(0), torch.ones(3)]  # a storage of no bytes, whose field is left out
    content["forward_inputs"]["deep"] = {"deeper": torch.from_numpy(numbers)}
    batch = rows(directory(folder / kind, [content], kind), cache).forward_inputs
    flat = numbers.reshape(-1, 2)
    for name in kinds:
        assert batch[name].dtype == np.dtype(name)
        np.testing.assert_array_equal(batch[name], flat.astype(name))
    assert batch.torch().half.dtype == torch.bfloat16
    np.testing.assert_array_equal(batch.torch().half.float(), flat)
    np.testing.assert_array_equal(batch.first, flat)
    np.testing.assert_array_equal(batch.part, flat + 9)
    np.testing.assert_array_equal(batch.deep.deeper, flat)


@pytest.mark.parametrize("cache", [0, 9])
@pytest.mark.parametrize("epochs", [1, 2, 4])
@pytest.mark.parametrize("values", ["whole", "flat"])
def test_rows_of_rollout_epochs_are_left_out(cache: int, epochs: int, values: str, folder: Path) -> None:
    content = fields()
    raw = np.arange((STEPS + epochs) * WIDTH, dtype=np.float32).reshape(STEPS + epochs, WIDTH, 1)
    each = raw.reshape(epochs, STEPS // epochs + 1, WIDTH, 1)
    content["prev_values"] = torch.from_numpy(raw if values == "whole" else raw.reshape(-1, 1))
    content["dones"] = torch.from_numpy(raw)
    batch = rows(directory(folder / "a", [content]), cache)
    np.testing.assert_array_equal(batch.dones, each[:, 1:].reshape(-1, 1))
    np.testing.assert_array_equal(batch.prev_values, each[:, :-1].reshape(-1, 1))


def test_what_has_no_rows_is_kept_for_the_whole_trajectory(folder: Path) -> None:
    content = fields()
    content["forward_inputs"] = {"tokens": torch.arange(STEPS), "texts": ["a", "b"], "kept": content["rewards"]}
    path = directory(folder / "a", [content])
    buffer = loaded(path)
    assert list(buffer.sample(4).forward_inputs) == ["kept"]
    convert(path, folder / "b")
    converted = TrajectoryReplayBuffer(folder / "b")
    for one in (buffer, converted):
        whole = one.load_trajectory(0).forward_inputs
        assert whole["texts"] == ["a", "b"]
        np.testing.assert_array_equal(whole["tokens"], np.arange(STEPS))
    converted.close()


@pytest.mark.parametrize("kind", ["pt", "pkl"])
def test_what_is_neither_numbers_nor_text_is_left_out(kind: str, folder: Path) -> None:
    content = fields()
    content["forward_inputs"] = {"when": [{"a": 1}], "kind": torch.float32, "kept": content["rewards"]}
    path = directory(folder / "a", [content], kind)
    with pytest.warns(ReliveWarning, match=r"Left out `forward_inputs.when`, `forward_inputs.kind`"):
        batch = sampled(path, 0)
    assert list(batch.forward_inputs) == ["kept"]


@pytest.mark.parametrize("cache", [0, 9])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rewards": torch.zeros(STEPS, WIDTH, 1, dtype=torch.float64)}, r"`float64` of shape `\(T, B, 1\)`"),
        ({"rewards": torch.zeros(STEPS, WIDTH, 3)}, r"`float32` of shape `\(T, B, 3\)`"),
        ({"rewards": torch.zeros(STEPS + 1, WIDTH, 1)}, r"the shape `\(4, 2, ...\)` of the index"),
        ({"actions": torch.zeros(STEPS, WIDTH, 1)}, "Expected no such field"),
        ({"curr_obs": {}}, "got no such field"),
        ({"curr_obs": {"a/b": torch.zeros(STEPS, WIDTH)}}, "without a slash"),
    ],
)
def test_other_fields_are_refused_by_name(change: dict[str, Any], text: str, cache: int, folder: Path) -> None:
    path = directory(folder / "a", [fields(), {**fields(1), **change}, fields(2)])
    buffer = loaded(path, cache_size=cache)
    with pytest.raises(SchemaError, match=text) as found:
        buffer.sample(64)
    (name,) = change
    assert "trajectory 1, " in str(found.value)
    assert f"$.{name}" in str(found.value)


def test_pickles_want_consent(folder: Path) -> None:
    path = directory(folder / "a", [fields()], "pkl")
    with pytest.raises(ArgumentError, match="`pkl` without `allow_pickle`"):
        TrajectoryReplayBuffer().load_checkpoint(path)


def test_the_misspelt_index(folder: Path) -> None:
    path = directory(folder / "a", [fields()])
    (path / "trajectory_index.json").rename(path / "trajector_index.json")
    assert len(loaded(path)) == 1


def test_pytorch_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = directory(folder / "pt", [fields()]), directory(folder / "pkl", [fields()], "pkl")
    monkeypatch.setitem(sys.modules, "torch", None)
    for path in paths:
        with pytest.raises(MissingExtra, match=r"pip install 'relive\[torch\]'"):
            loaded(path)


@pytest.mark.parametrize("kind", ["pt", "pkl"])
def test_rlinfs_directories_are_verified_and_inspected(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory(folder / "a", [fields(number) for number in range(3)], kind)
    if kind == "pkl":
        for call_ in (verify, inspect):
            with pytest.raises(ArgumentError, match="relive convert --allow-pickle"):
                call_(path)
        assert cli.main(["verify", str(path)]) != 0
        assert "relive convert --allow-pickle" in " ".join(capsys.readouterr().err.split())
        return
    data = bytearray((path / file(1)).read_bytes())
    data[data.index(fields(1)["rewards"].numpy().tobytes())] ^= 1
    (path / file(1)).write_bytes(data)
    torch.save({**fields(), "rewards": torch.zeros(4, 2, 3)}, path / file(2))
    steps = []
    bad = verify(path, lambda *done: steps.append(done))
    assert [name for name, _ in bad] == [file(1), file(2)]
    assert "Bad CRC-32" in bad[0][1]
    assert "`float32` of shape `(T, B, 3)`" in bad[1][1]
    assert steps == [(1, 3), (2, 3), (3, 3)]
    (path / file(2)).unlink()
    found = inspect(path)
    assert (found.trajectories, found.samples, found.unknown, found.missing) == (3, 24, (), (file(2),))
    assert found.fields["curr_obs.states"] == ("float32", "(T, B, 3)")
    assert (contents(path).read, contents(path).lengths.tolist()) == (1, [4, 4, 4])
    with pytest.warns(ReliveWarning, match="Expected the files of 3 trajectories, got 2"):
        assert [name for name, _ in verify(path)] == [file(1)], "what is not there is no damage"
    for number in (0, 1):
        (path / file(number)).unlink()
    with pytest.raises(StorageError, match="Expected the files of 3 trajectories, got none"):
        verify(path)
