"""`verify` and `inspect` of RLinf's directories."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rlinf_files import directory, fields, file

from relive import cli
from relive.errors import ArgumentError, ReliveWarning, StorageError
from relive.trajectories import contents, inspect, verify


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
