"""A learner on disk: complete, private, replaced whole, and the same when it comes back."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trainer_toys import Toy, small

from relive.errors import ArgumentError
from relive.lab import SACTrainer, _checkpoint


def trained(path: Path, **changes: Any) -> SACTrainer:
    trainer = SACTrainer(small(use_per=True, **changes), make_env=Toy)
    trainer.train()
    trainer.save(path)
    return trainer


def state(trainer: SACTrainer) -> dict[str, torch.Tensor]:
    own = {"log_alpha": trainer._log_alpha, "generator": trainer._generator.get_state()}
    return {**_checkpoint.pack(trainer._parts()), **own, **trainer._log.tensors()}


def test_a_resumed_learner_is_the_same_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "learner.safetensors"
    old = trained(path, autotune=True)
    new = SACTrainer.load(path, make_env=Toy)
    before, after = state(old), state(new)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert any(name.startswith("critic_optimizer.0.exp_avg") for name in before)
    assert (new.step, new.updates, new.config) == (old.step, old.updates, old.config)
    assert new._rng.bit_generator.state == old._rng.bit_generator.state
    obs = np.ones(3, np.float32)
    assert np.array_equal(new.act(obs), old.act(obs))
    assert np.array_equal(new.act(obs, deterministic=False), old.act(obs, deterministic=False))


def test_the_next_update_is_the_same_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "learner.safetensors"
    old = trained(path)
    new = SACTrainer.load(path, make_env=Toy)
    batches = [old.buffer.sample(16) for _ in range(3)]
    for trainer in (old, new):
        stream = iter(batches)
        monkeypatch.setattr(trainer.buffer, "sample", lambda n, stream=stream: next(stream))
        monkeypatch.setattr(trainer.buffer, "update_priorities", lambda ids, error: len(ids))
        for _ in batches:
            trainer._update()
    before, after = state(old), state(new)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_training_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "learner.safetensors"
    old = trained(path)
    new = SACTrainer.load(path, make_env=Toy, total_steps=240)
    assert len(new.buffer) == 0
    result = new.train()
    # 40 of the 120 further steps fill the buffer again.
    assert (result.steps, result.updates) == (240, 80 + 80)
    assert result.eval_steps.tolist() == [60, 120, 180, 240]
    assert np.array_equal(result.episode_returns[:12], old.result.episode_returns)
    assert len(result.episode_returns) == 24
    assert result.seconds > old.result.seconds
    # The new episodes are not the first ones again.
    assert not np.array_equal(result.episode_returns[12:16], result.episode_returns[:4])


def test_beta_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "learner.safetensors"
    trained(path, per_beta_anneal_steps=160)
    new = SACTrainer.load(path, make_env=Toy, total_steps=240)
    beta = new.buffer.sampler.beta  # type: ignore[attr-defined]
    assert (beta.start, beta.end, beta.over) == (pytest.approx(0.7), 1.0, 80)
    new.train()
    # The last of 160 updates is the 159th after the first.
    assert new.buffer.stats().beta == pytest.approx(0.4 + 0.6 * 159 / 160)


def test_the_file_is_private_and_holds_no_code(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "learner.safetensors"
    trained(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    facts = json.loads(header["__metadata__"]["facts"])
    assert facts["config"]["use_per"] is True
    assert facts["step"] == 120


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "learner.safetensors"
    trainer = trained(path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    trainer._update()
    monkeypatch.setattr(_checkpoint.os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        trainer.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:-100],
        lambda data: b"not a learner at all",
        lambda data: data.replace(b"relive-learner-1", b"relive-learner-9"),
        lambda data: b"\xff" * 8 + data[8:],
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "learner.safetensors"
    trained(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ArgumentError, match=re.escape("Expected a file of format `relive-learner-1`")):
        SACTrainer.load(path, make_env=Toy)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "learner.safetensors"
    trained(path)
    with pytest.raises(FileNotFoundError):
        SACTrainer.load(tmp_path / "other", make_env=Toy)
    for changes, make in (({"hidden_sizes": (4, 4)}, Toy), ({}, lambda: Toy((5,)))):
        with pytest.raises(ArgumentError, match="Expected a learner that fits this environment and configuration"):
            SACTrainer.load(path, make_env=make, **changes)
    with pytest.raises(ArgumentError, match=re.escape("Expected fields of `SACConfig`, got `sede`")):
        SACTrainer.load(path, make_env=Toy, sede=1)


def test_settings_that_json_cannot_write_are_named(tmp_path: Path) -> None:
    trainer = SACTrainer(small(env_kwargs={"thing": object()}), make_env=Toy)
    with pytest.raises(ArgumentError, match="Expected env_kwargs that JSON can write"):
        trainer.save(tmp_path / "learner.safetensors")
    assert not list(tmp_path.iterdir())
