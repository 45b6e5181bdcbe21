"""Files of sequences whose ids were those of their burn-in's first steps are drawn from as files of today are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from burnt_in import DATA, ITEM, STEPS, build, live
from recorded import copied, unpacked

import relive
from relive.checkpoints.salvage import salvage
from relive.testing.agreement import assert_same_batch

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


@pytest.fixture(params=["save", "mapped", "salvaged"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that opens the file; further calls open it again."""
    if request.param == "mapped":
        file = unpacked(DATA / "mapped.gz", tmp_path / "steps")
        return lambda: relive.open(file)
    path = copied(DATA, tmp_path / "saves")
    if request.param == "salvaged":
        salvage(path, tmp_path / "mended")
        path = tmp_path / "mended"
    return lambda: relive.load(path)


def assert_like(buffer: relive.ReplayBuffer, last: int) -> None:
    """Check for the items of a buffer that was given the same steps today."""
    alone = build()
    live(alone, 0, last)
    ids = np.sort(alone.ids())
    np.testing.assert_array_equal(np.sort(buffer.ids()), ids)
    assert_same_batch(buffer.read(ids), alone.read(ids))
    batch = buffer.sample(200)
    assert set(batch.ids.tolist()) <= set(ids.tolist())
    assert batch.mask[:, ITEM.burn_in].all()
    assert buffer.stats().drawable == len(ids)


def test_they_open(opened: Any, tmp_path: Path) -> None:
    with opened() as buffer:
        assert buffer.item == ITEM
        assert_like(buffer, STEPS)
        assert buffer.save(tmp_path / "anew").number == 1
    assert_like(relive.load(tmp_path / "anew"), STEPS)


def test_they_go_on(opened: Any) -> None:
    """Check that a mapped file cuts its streams when it is opened, as it always did."""
    with opened() as buffer:
        before = np.sort(buffer.ids())
        live(buffer, STEPS, STEPS + 1)
        if buffer.stats().cuts == 0:
            assert_like(buffer, STEPS + 1)
        live(buffer, STEPS + 1, STEPS + 30)
        ids = np.sort(buffer.ids())
        assert len(ids) > 5
        assert ids.min() > before.min()
        batch = buffer.read(ids)
        np.testing.assert_array_equal(batch.all_obs[:, ITEM.burn_in, -1, 0], batch.action[:, ITEM.burn_in] - ids % 2)
        assert batch.mask[:, ITEM.burn_in].all()


def test_priorities_of_a_save_stay_with_their_ids(tmp_path: Path) -> None:
    buffer = relive.load(copied(DATA, tmp_path / "saves"))
    ids = np.sort(buffer.ids())
    known = buffer.priorities(ids)
    assert (np.abs(known - (ids % 5 + 0.5)) < 1e-5).sum() >= len(ids) // 2
