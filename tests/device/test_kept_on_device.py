"""The last batches of a device buffer: what the learner got, and the TD errors that came for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import relive

SCHEMA = relive.Schema(obs={"arm": relive.Field(3), "code": relive.Field((), "int64")}, action=relive.Field())
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def filled(device: str, **choices: Any) -> relive.DeviceBuffer:
    buffer = relive.DeviceBuffer(SCHEMA, 400, num_envs=4, device=device, seed=0, **choices)
    for t in range(50):
        obs = {"arm": torch.full((4, 3), float(t)), "code": torch.full((4,), t)}
        no = torch.zeros(4, dtype=torch.bool)
        step = {"obs": obs, "action": torch.ones(4), "reward": torch.ones(4), "next_obs": obs}
        on = relive.Batch({**step, "terminated": no, "truncated": no}).map(lambda tensor: tensor.to(device))
        buffer.add(**dict(on))
    return buffer


@pytest.mark.parametrize("device", DEVICES)
def test_batches_and_td_errors_are_kept(device: str, tmp_path: Path) -> None:
    plain, buffer = (filled(device, sampler=relive.Prioritized()) for _ in range(2))
    buffer.keep_batches(tmp_path / "batches", last=3)
    got = []
    for _ in range(5):
        batch, other = buffer.sample(16), plain.sample(16)
        assert torch.equal(batch.ids, other.ids)
        td_error = torch.linspace(-1, 1, 16, device=device, dtype=torch.float32)
        buffer.update_priorities(batch.ids, td_error)
        plain.update_priorities(other.ids, td_error)
        got.append((batch, td_error))
    buffer.keep_batches(None)
    buffer.sample(16)
    found = relive.kept_batches(tmp_path / "batches")
    assert [kept.number for kept in found] == [3, 4, 5]
    for kept, (batch, td_error) in zip(found, got[-3:], strict=True):
        assert kept.obs.code.tolist() == batch.obs.code.tolist()
        assert kept.obs.arm.tolist() == batch.obs.arm.tolist()
        assert kept.weights.tolist() == batch.weights.tolist()
        assert kept.td_error.tolist() == td_error.double().tolist()
        assert (kept.ages, kept.generator) == (None, None)
