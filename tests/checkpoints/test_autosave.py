"""A buffer that saves itself: what it says of saves and failures, what it costs, and how it ends."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autosaved import add, full_disk, made
from depth import eventually

import relive
from relive._ring import kernels
from relive.checkpoints import _saving
from relive.errors import ReliveError, StorageError


def test_statistics_and_last_save(tmp_path: Path) -> None:
    buffer = made(sampler=relive.Prioritized())
    with buffer.autosave(tmp_path, every=0.1) as saving:
        assert buffer.stats().autosave == saving.stats()
        assert (saving.stats().number, saving.stats().age, saving.stats().errors) == (1, 0.0, 0)
        add(buffer, 7)
        assert saving.stats().age > 0
        eventually(lambda: saving.stats().age == 0.0)
        last = saving.stats()
        assert last.saves == last.number >= 2
        assert 0 < last.stopped < last.seconds * last.saves + 1
        time.sleep(0.25)
        assert saving.stats() == last, "nothing has changed, so nothing is written"
        buffer.update_priorities(buffer.sample(4).ids, np.full(4, 9.0))
        with pytest.raises(ReliveError, match="a buffer without an autosave"):
            buffer.autosave(tmp_path / "other")
        add(buffer)
    assert saving.closed
    assert saving.stats().number == saving.stats().saves > last.number
    loaded = relive.load(tmp_path)
    assert loaded.stats().autosave is None
    assert (loaded.sample(16).ids == buffer.sample(16).ids).all()
    saving.close()
    with loaded.autosave(tmp_path) as going_on:  # it may be the next one's
        add(loaded)
    assert going_on.stats().number == saving.stats().number + 2


def test_failures_are_told_ever_louder_and_tried_again(tmp_path: Path, caplog: Any) -> None:
    buffer = made()
    with buffer.autosave(tmp_path, every=0.1) as saving:
        with full_disk():
            add(buffer)
            eventually(lambda: sum(record.levelno == logging.ERROR for record in caplog.records) >= 2)
            add(buffer)
            assert "the disk is full" in saving.stats().error
            assert saving.stats().age > 0
        eventually(lambda: not saving.stats().error)
        assert saving.stats().errors >= 2
    levels = [record.levelname for record in caplog.records if "tried again" in record.getMessage()]
    assert levels[:3] == ["WARNING", "ERROR", "ERROR"], "and fewer than the failures"
    assert len(levels) < 6
    assert len(relive.load(tmp_path)) == 2
    with full_disk(), pytest.raises(StorageError, match="full"), buffer.autosave(tmp_path):
        pass


def test_the_interval_grows_where_saves_stop_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, stop = made(), 0.02
    add(buffer)
    take = _saving.Snapshot.take
    monkeypatch.setattr(_saving.Snapshot, "take", lambda self: (take(self), time.sleep(stop)))
    with buffer.autosave(tmp_path, every=0.1) as saving:
        eventually(lambda: buffer.sample(1) and saving.stats().saves == 2)
        for _ in range(50):
            buffer.sample(1)
            time.sleep(0.01)
        assert saving.stats().saves == 2, "2 s at least lie between the next two"
    assert saving.stats().stopped >= 3 * stop


def test_what_is_refused(tmp_path: Path) -> None:
    buffer = made()
    if kernels.is_native():  # the others share nothing
        with made(relive.Shared()) as shared, pytest.raises(relive.ArgumentError, match="Mapped"):
            shared.autosave(tmp_path / "new")
    made().save(tmp_path / "taken")
    with pytest.raises(StorageError, match="another buffer"):
        buffer.autosave(tmp_path / "taken")
    with buffer.autosave(tmp_path / "new"), made(relive.Mapped(tmp_path / "mapped")) as mapped:
        mapped.autosave(tmp_path / "of it")
        add(mapped)
    assert len(relive.load(tmp_path / "of it")) == 1, "closing the buffer closes it"


def test_the_end_of_a_fresh_program_saves(tmp_path: Path) -> None:
    """Check where nothing has been imported yet."""
    program = f"""
import relive
buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100)
saving = buffer.autosave({str(tmp_path)!r}, every=60)
buffer.add(obs=0, action=0, reward=1, next_obs=1, terminated=False, truncated=False)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(relive.load(tmp_path)) == 1
