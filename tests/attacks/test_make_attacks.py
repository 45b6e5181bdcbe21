"""Hostile directories, relive's and RLinf's, opened in every way: a named error or good rows, at once; no code is run.

Each directory is loaded and verified, and opened in some of the other ways in turn; in the long mode in all of them.
`RELIVE_BITS=17` flips every 17th bit in place of every 2,003rd.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import LONG, MEMORY
from make_attacks import FILE, INDEX, theirs
from rollouts import simple

from relive.errors import ReliveError, ReliveWarning, StorageError
from relive.trajectories import TrajectoryReplayBuffer, verify

BITS = int(os.environ.get("RELIVE_BITS", "2003"))
PARTS = 2
MOST_SECONDS, MOST_MEBIBYTES = 1.0, 64


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    """Collect the outcome of every attack, by every way in; two processes share them."""
    homes = [tempfile.mkdtemp(prefix="attacks-", dir=MEMORY) for _ in range(PARTS)]
    script = Path(__file__).with_name("opened.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment["OMP_NUM_THREADS"] = "1"
    commands = [
        [sys.executable, str(script), home, str(BITS), str(part), str(PARTS)] for part, home in enumerate(homes)
    ]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for command in commands
    ]
    found: list[dict[str, Any]] = []
    try:
        for process in running:
            output, errors = process.communicate(timeout=400 if BITS > 1000 else 1200)
            lines = [json.loads(line) for line in output.splitlines()]
            assert process.returncode == 0, f"ended by {process.returncode} in {lines[-1:]}: {errors[-2000:]}"
            baseline = max(line["peak"] for line in lines if line["case"].startswith("none"))
            found += [{**line, "grown": (line["peak"] - baseline) / 1024} for line in lines if "way" in line]
    finally:
        for process in running:
            process.kill()
            process.wait()
        for home in homes:
            shutil.rmtree(home)
    return found


def attacked(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [result for result in results if not result["case"].startswith("none")]


@pytest.mark.slow
def test_there_are_enough_of_them(results: list[dict[str, Any]], record_property: Any) -> None:
    record_property("cases", len(attacked(results)))
    assert len({result["case"] for result in attacked(results)}) > 400
    assert len({result["case"] for result in attacked(results) if result["way"] == "load some lanes"}) > (
        150 if LONG else 30
    )
    assert len({result["way"] for result in results}) == 16


@pytest.mark.slow
def test_good_directories_are_read(results: list[dict[str, Any]]) -> None:
    """Check the good ones, since others might be refused for some other reason."""
    good = [result for result in results if result["case"] in ("none, relive", "none, saved")]
    assert good
    assert {result["outcome"] for result in good} == {"fine"}
    loaded = [result for result in results if result["case"] == "none, pt" and result["way"].startswith("load")]
    assert {result["outcome"] for result in loaded} == {"fine"}


@pytest.mark.slow
def test_nothing_but_named_errors_and_good_rows(results: list[dict[str, Any]]) -> None:
    bad = [(result["case"], result["way"], result["problems"]) for result in results if result["problems"]]
    assert not bad, f"{len(bad)}: {bad[:5]}"


@pytest.mark.slow
def test_most_are_refused(results: list[dict[str, Any]]) -> None:
    refused = Counter(result["outcome"] != "fine" for result in attacked(results))
    assert refused[True] > refused[False] / 2


@pytest.mark.slow
def test_each_is_over_at_once(results: list[dict[str, Any]]) -> None:
    slow = [
        (result["seconds"], result["case"], result["way"]) for result in results if result["seconds"] > MOST_SECONDS
    ]
    assert not [one for one in slow if not one[1].startswith("none")], slow


@pytest.mark.slow
def test_none_takes_much_memory(results: list[dict[str, Any]]) -> None:
    worst = max(attacked(results), key=lambda result: result["grown"])
    assert worst["grown"] < MOST_MEBIBYTES, worst


@pytest.fixture
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=MEMORY))
    with TrajectoryReplayBuffer(made / "relive", seed=1) as buffer:
        buffer.add_trajectories([simple(k) for k in range(3)])
        buffer.sync()
        writer = TrajectoryReplayBuffer(seed=1, trajectory_format="pt")
        writer.load_checkpoint(made / "relive")
        writer.save_checkpoint(made / "pt")
        writer.close()
    yield made
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["relive", "pt"])
@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_a_file_that_is_swapped_after_the_directory_was_opened(kind: str, what: str, home: Path) -> None:
    """Check that a listed file is looked at again when it is opened."""
    with TrajectoryReplayBuffer(sample_window_size=0, cache_size=0) as buffer:
        buffer.load_checkpoint(home / kind)
        at = home / kind / FILE if kind == "relive" else theirs(home / "pt")
        at.rename(home / "moved")
        if what == "link":
            at.symlink_to(home / "moved")
        elif what == "pipe":
            os.mkfifo(at)
        else:
            at.mkdir()
        with pytest.raises(ReliveError):
            buffer.sample(500)


@pytest.mark.slow
def test_each_bad_file_is_named_and_no_other(home: Path) -> None:
    """Flip a bit of each byte in turn; the other two trajectories stay good."""
    at = home / "relive" / FILE
    data = np.fromfile(at, np.uint8)
    for byte in range(0, len(data), 31):
        data[byte] ^= 1 << byte % 8
        at.write_bytes(data.tobytes())
        assert [name for name, _ in verify(home / "relive")] == [FILE], byte
        data[byte] ^= 1 << byte % 8


@pytest.mark.slow
def test_a_name_of_a_field_that_was_changed_in_the_index_is_noticed(home: Path) -> None:
    """Compare the index's names of fields, since SQLite has no checksums, with those in the files."""
    at = home / "relive" / INDEX
    data = at.read_bytes()
    assert data.count(b'"rewards"') == 2  # once in the table, once in its index
    at.write_bytes(data.replace(b'"rewards"', b'"rewardr"'))
    with TrajectoryReplayBuffer(sample_window_size=0, cache_size=0) as buffer:
        buffer.load_checkpoint(home / "relive")
        with pytest.raises(StorageError, match="has other fields"):
            buffer.sample(100)


@pytest.mark.slow
def test_an_index_that_is_wrong_deletes_no_trajectory(home: Path) -> None:
    """Check that a file missing in the index is only deleted as removed if the index is right."""
    with contextlib.closing(sqlite3.connect(home / "relive" / INDEX)) as db, db:
        db.execute("UPDATE trajectories SET id = 2000 WHERE place = 2")
    with (
        pytest.warns(ReliveWarning, match="left out 1 trajectory"),
        TrajectoryReplayBuffer(home / "relive") as buffer,
    ):
        assert len(buffer) == 2
    assert (home / "relive" / FILE).exists()
