"""A save of format 1 that was written once is read by this version, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from saved_format import DRAWS, LANES, SAMPLE, STEPS, build, draws, live

import relive
from relive.checkpoints.inspection import verify

EXPECTED = json.loads(DRAWS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", ["1", "2"])
def test_the_frozen_sample_draws_what_it_drew(number: str) -> None:
    assert draws(relive.load(SAMPLE, number=int(number))) == EXPECTED[number]


def test_the_frozen_sample_is_the_script_s(tmp_path: Path) -> None:
    """What was saved then is what the same calls give now, and the directory can be gone on with."""
    assert verify(SAMPLE) == []
    buffer = build()
    live(buffer, 0, STEPS)
    assert draws(buffer) == EXPECTED["2"]
    shutil.copytree(SAMPLE, tmp_path / "copy")
    loaded = relive.load(tmp_path / "copy")
    live(loaded, STEPS, STEPS + 5)
    assert loaded.save(tmp_path / "copy").number == 3
    ids = [int(i) for i in np.unique(relive.load(tmp_path / "copy").sample(64).ids)]
    assert relive.load(tmp_path / "copy").read(ids).reward.tolist() == loaded.read(ids).reward.tolist()
    assert loaded.num_envs == LANES


def test_it_is_small() -> None:
    assert sum(file.stat().st_size for file in SAMPLE.iterdir()) < 16_000
