"""Merging, splitting and converting directories of trajectories."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forking import forked

from relive.errors import ArgumentError, SchemaError, StorageError
from relive.trajectories import (
    Trajectory,
    TrajectoryReplayBuffer,
    convert,
    extract_interventions,
    formats,
    inspect,
    merge,
    split,
)
from relive.trajectories._catalog import read
from relive.trajectories._store import StoreSnapshot


def directory(path: Path, values: list[float], kind: str = "safetensors", **choices: Any) -> Path:
    buffer = TrajectoryReplayBuffer(**{"seed": 1, "trajectory_format": kind, **choices})
    buffer.add_trajectories([Trajectory(rewards=np.full((2, 1, 1), value, np.float32)) for value in values])
    buffer.save_checkpoint(path)
    return path


def values(path: Path) -> list[float]:
    """Return the values of the trajectories of a directory, in order."""
    buffer = TrajectoryReplayBuffer()
    buffer.load_checkpoint(path)
    assert buffer._store.index.records["id"].tolist() == list(range(len(buffer)))
    return [float(stored.block().rows(("rewards",))[0, 0]) for stored in StoreSnapshot(buffer._store)]


@pytest.mark.parametrize("kinds", [("safetensors",) * 3, ("pt",) * 3, ("pt", "safetensors", "pt")])
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_ranks_in_the_order_of_their_numbers(kinds: tuple[str, ...], kind: str, folder: Path) -> None:
    ranks = [
        directory(folder / f"rank_{rank}", [rank, rank + 0.5], one) for rank, one in zip((10, 2, 9), kinds, strict=True)
    ]
    assert merge(ranks, folder / "all", kind) == 6
    assert values(folder / "all") == [2, 9, 10, 2.5, 9.5, 10.5]


def test_names_without_numbers_stay_as_given(folder: Path) -> None:
    ranks = [directory(folder / name, [number]) for number, name in enumerate(("b", "a", "rank_0"))]
    merge(ranks, folder / "all")
    assert values(folder / "all") == [0, 1, 2]


def test_relives_files_are_linked(folder: Path) -> None:
    ranks = [directory(folder / f"rank_{rank}", [rank, rank]) for rank in range(2)]
    merge(ranks, folder / "all")
    split(folder / "all", 3, folder / "some")
    first = (ranks[1] / "trajectory_000000000000.safetensors").stat().st_ino
    assert (folder / "all" / "trajectory_000000000001.safetensors").stat().st_ino == first
    assert (folder / "some" / "trajectory_000000000001.safetensors").stat().st_ino == first
    with TrajectoryReplayBuffer(folder / "some") as buffer:
        buffer.clear()
    assert values(folder / "all") == [0, 1, 0, 1]


def test_rlinfs_files_are_not_linked_because_it_writes_them_in_place(folder: Path) -> None:
    source = directory(folder / "a", [1, 2], "pt")
    convert(source, folder / "b", "pt")
    assert {path.stat().st_nlink for path in folder.glob("*/trajectory_*.pt")} == {1}
    assert values(folder / "b") == [1, 2]


def test_the_generator_of_the_first_goes_on(folder: Path) -> None:
    buffers = [TrajectoryReplayBuffer(seed=rank) for rank in range(2)]
    for rank, buffer in enumerate(buffers):
        buffer.add_trajectories([Trajectory(rewards=np.arange(40.0).reshape(20, 2, 1))])
        buffer.sample(3)
        buffer.save_checkpoint(folder / f"rank_{rank}")
    merge([folder / "rank_0", folder / "rank_1"], folder / "all")
    facts = [read(str(folder / name))[1] for name in ("all", "rank_0")]
    assert facts[0]["draws"] == facts[1]["draws"]
    convert(folder / "rank_0", folder / "same")
    buffer = TrajectoryReplayBuffer()
    buffer.load_checkpoint(folder / "same")
    np.testing.assert_array_equal(buffer.sample(50).rewards, buffers[0].sample(50).rewards)


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_different_fields_are_refused(kind: str, folder: Path) -> None:
    ranks = [directory(folder / "rank_0", [1], kind), folder / "rank_1"]
    other = TrajectoryReplayBuffer(trajectory_format=kind)
    other.add_trajectories([Trajectory(rewards=np.zeros((2, 1, 2), np.float32))])
    other.save_checkpoint(ranks[1])
    with pytest.raises(
        SchemaError, match=r"got `float32` of shape `\(T, B, 2\)` - at `.*rank_1, trajectory 0, \$.rewards`"
    ):
        merge(ranks, folder / "all")
    assert not (folder / "all").exists()


def test_fields_of_trajectories_that_were_removed_are_no_hindrance(folder: Path) -> None:
    source = directory(folder / "a", [1])
    with TrajectoryReplayBuffer(source) as buffer:
        buffer.clear()
        buffer.add_trajectories([Trajectory(actions=np.zeros((2, 1, 2), np.float32))])
    assert convert(source, folder / "b") == 1
    assert inspect(source).fields.keys() == {"actions"}


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_nothing_is_left_of_a_failure(kind: str, folder: Path) -> None:
    source = directory(folder / "a", [1, 2, 3], "pt")
    (name,) = source.glob("trajectory_2_*.pt")
    name.write_bytes(name.read_bytes()[:-9])
    with pytest.raises(StorageError, match="trajectory_2_"):
        convert(source, folder / "b", kind)
    assert list((folder / "b").iterdir()) == []


def test_a_further_layout_in_one_file(folder: Path) -> None:
    """Run the example of FORMAT.md in a child, since it registers its layout for good."""
    with forked(partial(a_further_layout, folder)):
        pass


def a_further_layout(folder: Path) -> None:
    """Check that `convert` reads and writes it, and a buffer's save refuses it."""
    page = (Path(__file__).parents[2] / "FORMAT.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    if "npz" not in [layout.name for layout in formats.formats()]:  # the page's own test runs it, too
        exec(example, names)
    source, told = directory(folder / "a", [1, 2]), []
    assert convert(source, folder / "b", "npz", progress=lambda done, total: told.append((done, total))) == 2
    assert told == [(1, 2), (2, 2)]
    assert formats.format_of(folder / "b").title == "a lab's"
    assert convert(folder / "b", folder / "c") == 2
    assert values(folder / "c") == [1, 2]
    for refused in (TrajectoryReplayBuffer, TrajectoryReplayBuffer().load_checkpoint):
        with pytest.raises(StorageError, match="got a lab's"):
            refused(folder / "b")
    with pytest.raises(ArgumentError, match="Expected a name that no layout has, got `npz`"):
        exec(example, names)


def test_bad_arguments(folder: Path) -> None:
    source = directory(folder / "a", [1, 2])
    target = folder / "b"
    for call, text in (
        (lambda: split(source, 3, target), r"Expected at most 2 trajectories, got `3` - at `split\(n\)`"),
        (lambda: split(source, 0, target), r"Expected an integer >= 1, got `0` - at `split\(n\)`"),
        (lambda: merge([], target), r"Expected a list of directories, got `\[\]` - at `merge\(sources\)`"),
        (lambda: merge(str(source), target), "Expected a list of directories"),
        (lambda: convert(source, target, "zip"), "Expected one of `'safetensors'`, `'pt'`, `'lerobot'`.*, got `'zip'`"),
        (lambda: extract_interventions({"rewards": np.zeros((1, 1))}, "most"), "Expected one of `'any'`, `'all'`"),
        (lambda: extract_interventions(5), "Expected a `Trajectory` or a mapping of fields, got `int`"),
    ):
        with pytest.raises(ArgumentError, match=text):
            call()
    with pytest.raises(StorageError, match="Expected a new or an empty directory, got one with files"):
        convert(source, source)
    with pytest.raises(StorageError, match="Expected a directory"):
        convert(folder / "none", target)
    assert values(source) == [1, 2]
