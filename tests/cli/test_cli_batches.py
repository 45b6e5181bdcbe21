"""`relive batches`: a table of what was kept, in plain text, and as JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import relive
from relive._buffer.kept import PAGE
from relive.cli import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Nine batches, of which the last one has a NaN among the TD errors, and others a reward that is infinite."""
    schema = relive.Schema(obs={"camera": relive.Field(4, "uint8")}, action=relive.Field((), "complex64"))
    buffer = relive.ReplayBuffer(schema, 60, sampler=relive.Prioritized(), seed=0)
    for t in range(50):
        obs = {"camera": np.full(4, t, np.uint8)}
        reward = np.inf if t == 30 else np.nan if t == 31 else 1.0
        buffer.add(obs=obs, action=1j * t, reward=reward, next_obs=obs, terminated=True, truncated=False)
    buffer.keep_batches(tmp_path / "batches", 4)
    for _ in range(8):
        buffer.update_priorities(buffer.sample(8).ids, np.linspace(-1.0, 0.25, 8))
    with pytest.raises(relive.PriorityError):
        buffer.update_priorities(buffer.sample(8).ids, np.full(8, np.nan))
    return tmp_path / "batches"


def test_the_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batches", str(path)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(f"{path}: 4 batches; ages in rows: least, median, largest\n")
    rows = re.findall(r"^ +(\d) +[\d.]+ \w+ +8 +(\S+ / \S+ / \S+) +(\S+ to \S+) +(.+?)  +(\S.*)$", shown, re.MULTILINE)
    assert [row[0] for row in rows] == ["6", "7", "8", "9"]
    assert [row[3] for row in rows] == ["-1 to 0.25"] * 3 + ["-"]
    assert rows[3][4].endswith("TD errors")
    assert re.search(r"^obs.camera +uint8 +\[8, 4\] +\d+ +\d+ +-  -$", shown, re.MULTILINE)
    assert re.search(r"^action +complex64 +\[8\] ", shown, re.MULTILINE)


def test_one_batch_as_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kept,) = (each for each in relive.kept_batches(path) if each.number == 7)
    status = main(["batches", str(path), "--number", "7", "--json"])
    (found,) = json.loads(capsys.readouterr().out)
    reward = found["fields"]["reward"]
    assert (found["number"], found["torn"], found["time"]) == (7, False, kept.time)
    assert reward["nan"] == np.isnan(kept.reward).sum()
    assert reward["not_finite"] == (~np.isfinite(kept.reward)).sum()
    assert status == int(reward["not_finite"] > 0)
    assert found["td_error"]["ends"] == [-1.0, 0.25]
    assert found["fields"]["obs.camera"]["ends"] == [kept.obs.camera.min(), kept.obs.camera.max()]
    assert found["ages"][0] == kept.ages.min()


def test_torn_batches_none_and_no_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(path.read_bytes())
    data[PAGE + (len(data) - PAGE) // 4 * 2] = 10
    path.write_bytes(data)
    main(["batches", str(path)])
    assert re.search(r"^ +10 +torn$", capsys.readouterr().out, re.MULTILINE)
    assert main(["batches", str(path), "--number", "99"]) == 0
    assert capsys.readouterr().out == f"{path}: no batch yet, or none of that number\n"
    assert main(["batches", f"{path}.x"]) == 2
    assert "Expected a file of kept batches, got none" in capsys.readouterr().err


def test_it_needs_no_package(path: Path) -> None:
    code = "import sys; sys.modules.update(rich=None, tyro=None); from relive.cli import main; main(sys.argv[1:])"
    run = subprocess.run(
        [sys.executable, "-c", code, "batches", str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "4 batches" in run.stdout
