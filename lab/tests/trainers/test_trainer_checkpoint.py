"""A learner on disk: complete, private, replaced whole. That it comes back the same is in `test_resume.py`."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from trainer_toys import Toy, small

import relive
from relive.errors import ArgumentError
from relive_lab import SACTrainer, saving


@pytest.fixture(name="trainer", scope="module")
def _trainer() -> SACTrainer:
    trainer = SACTrainer(small(use_per=True), make_env=Toy)
    trainer.train()
    return trainer


def test_the_file_is_private_and_holds_no_code(trainer: SACTrainer, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "learner.safetensors"
    trainer.save(path.parent)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["buffer", path.name]
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    facts = json.loads(header["__metadata__"]["facts"])
    assert facts["config"]["use_per"] is True
    assert facts["step"] == 120


def test_a_failed_write_leaves_the_old_file(
    trainer: SACTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "learner.safetensors"
    trainer.save(tmp_path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    trainer.learn()
    monkeypatch.setattr(saving.os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        trainer.save(tmp_path)
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [tmp_path / "buffer", path]


def test_the_last_batches_are_kept_in_the_runs_folder(tmp_path: Path) -> None:
    config = small(use_per=True, keep_batches=3)
    SACTrainer(config, make_env=Toy).train(out=tmp_path)
    kept = relive.kept_batches(tmp_path / "batches")
    assert [len(batch.ids) for batch in kept] == [config.batch_size] * 3
    assert all(batch.td_error is not None for batch in kept)
    trainer = SACTrainer.load(tmp_path, make_env=Toy, total_steps=config.total_steps + 20)
    trainer.train(out=tmp_path)
    assert relive.kept_batches(tmp_path / "batches")[-1].number < kept[-1].number
    with pytest.raises(ArgumentError, match="0, or at least 2 without `cluster`, got `1`"):
        small(keep_batches=1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:-100],
        lambda data: b"not a learner at all",
        lambda data: data.replace(b"relive-learner-2", b"relive-learner-9"),
        lambda data: b"\xff" * 8 + data[8:],
    ],
)
def test_a_damaged_file_is_refused(trainer: SACTrainer, tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "learner.safetensors"
    trainer.save(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ArgumentError, match=re.escape("Expected a file of format `relive-learner-2`")):
        SACTrainer.load(tmp_path, make_env=Toy)


def test_what_does_not_fit_is_refused(trainer: SACTrainer, tmp_path: Path) -> None:
    trainer.save(tmp_path)
    with pytest.raises(FileNotFoundError):
        SACTrainer.load(tmp_path / "other", make_env=Toy)
    for changes, make in (({"hidden_sizes": (4, 4)}, Toy), ({}, lambda: Toy((5,)))):
        with pytest.raises(ArgumentError, match="Expected a learner that fits this environment and configuration"):
            SACTrainer.load(tmp_path, make_env=make, **changes)
    with pytest.raises(ArgumentError, match=re.escape("Expected fields of `SACConfig`, got `sede`")):
        SACTrainer.load(tmp_path, make_env=Toy, sede=1)


def test_settings_that_json_cannot_write_are_named(tmp_path: Path) -> None:
    trainer = SACTrainer(small(env_kwargs={"thing": object()}), make_env=Toy)
    with pytest.raises(ArgumentError, match="Expected env_kwargs that JSON can write"):
        trainer.save(tmp_path)
    assert not list(tmp_path.iterdir())
