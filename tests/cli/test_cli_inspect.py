"""`relive inspect` and `relive verify`."""

import re

import numpy as np
import pytest
from told import damage, out_of

from relive._disk import kinds
from relive.cli import main
from relive.cli.directories import looked_at_by
from relive.trajectories import TrajectoryReplayBuffer


@pytest.fixture(name="directory")
def _directory(tmp_path):
    states = np.random.default_rng(0).normal(size=(11, 2, 3)).astype(np.float32)
    with TrajectoryReplayBuffer(tmp_path / "replay", seed=0) as buffer:
        for length in (10, 4, 7):
            fields = {
                "rewards": np.ones((length, 2, 1), np.float32),
                "curr_obs": {"states": states[:length]}, "next_obs": {"states": states[1 : length + 1]},
            }  # fmt: skip
            buffer.add_trajectories([fields])
    return tmp_path / "replay"


def test_inspect_shows_what_is_there(directory, capsys):
    out = out_of(capsys, "inspect", directory)
    shown = ("3", "42", "shortest 4, median 7, longest 10", "0 (oldest) to 2 (newest)", "curr_obs.states", "float32")
    for text in (*shown, "next_obs.states (curr_obs one step later)", "all files are present"):
        assert text in out


def test_inspect_names_what_is_missing_and_what_is_left_over(directory, capsys):
    (directory / "trajectory_000000000001.safetensors").unlink()
    (directory / "trajectory_000000000009.safetensors").write_bytes(b"x")
    (directory / ".tmp-trajectory_000000000010.safetensors").write_bytes(b"x")
    out = out_of(capsys, "inspect", directory, status=1)
    assert "trajectory_000000000001.safetensors: missing" in out
    assert "trajectory_000000000009.safetensors: not in the index" in out
    assert "1 unfinished writes" in out


def test_verify_reads_every_byte(directory, capsys):
    assert "All 3 trajectories are intact." in out_of(capsys, "verify", directory)
    path = directory / "trajectory_000000000002.safetensors"
    for place in range(0, path.stat().st_size, 101):
        damage(path, place)
        out = out_of(capsys, "verify", directory, status=1)
        assert "trajectory_000000000002.safetensors" in out
        assert "1 of 3 trajectories are damaged." in out
        damage(path, place)


@pytest.mark.parametrize("other", [None, "notes.txt"])
@pytest.mark.parametrize("command", ["inspect", "verify", "salvage"])
def test_a_directory_with_nothing_of_relive_is_said(command, other, tmp_path, capsys):
    source, target = tmp_path / "source", tmp_path / "target"
    paths = [str(source), str(target)][: 2 if command == "salvage" else 1]
    assert main([command, *paths]) == 2
    assert f"Expected a directory, got none - at `{source}`" in capsys.readouterr().err
    source.mkdir()
    if other:
        (source / other).write_bytes(b"")
    assert main([command, *paths]) == 2
    wanted = f"Expected a complete save of a buffer, or trajectories, got neither - at `{source}`"
    assert capsys.readouterr().err == f"relive: {wanted}\n"
    assert not target.exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trajectory_000000000000.safetensors", "Expected an index, got none"),
        ("steps-0000000001.safetensors", "Expected a complete save of a buffer, got none"),
        ("shards.json", r"Invalid contents .* - at `.*shards\.json`"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_directories_that_lack_what_is_read_first_are_said(command, name, text, tmp_path, capsys):
    (tmp_path / name).write_bytes(b"")
    assert main([command, str(tmp_path)]) == 2
    assert re.search(text, capsys.readouterr().err)


def test_every_kind_of_directory_has_an_entry_of_its_own(tmp_path):
    names = {"SAVES": "save-0000000001.json", "SHARDS": "shards.json", "TRAJECTORIES": "index.sqlite"}
    assert {name for name, value in vars(kinds).items() if isinstance(value, kinds.Kind)} == {*names}
    for kind, name in names.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / name).touch()
    assert len({looked_at_by(tmp_path / kind).look for kind in names}) == 3
