"""A mixture of a device buffer with another one, or with an ordinary one whose items are copied to the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import relive

SCHEMA = relive.Schema(obs={"a": relive.Field((3,))}, action=relive.Field())


def filled(value: float, *, device: bool, sampler: relive.samplers.Sampler) -> Any:
    choices: dict[str, Any] = {"num_envs": 2, "sampler": sampler, "seed": 0}
    if device:
        buffer: Any = relive.DeviceBuffer(SCHEMA, 20, device="cpu", **choices)
    else:
        buffer = relive.ReplayBuffer(SCHEMA, 20, **choices)
    reward, never = torch.full((2,), value), torch.zeros(2, dtype=torch.bool)
    obs = {"a": reward[:, None].expand(2, 3)}
    for _ in range(4):
        step = {"obs": obs, "action": reward, "reward": reward, "next_obs": obs}
        buffer.add(**step, terminated=never, truncated=never)
    return buffer


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_a_batch_and_its_priorities(first: bool, second: bool) -> None:
    blend = relive.Blend((relive.Recent(share=0.2), 0.5), (relive.Prioritized(), 0.5))
    made = [filled(0.0, device=first, sampler=blend),
            filled(1.0, device=second, sampler=relive.Prioritized())]  # fmt: skip
    mixture = relive.Mixture(*made)
    batch = mixture.sample(6)
    assert batch.reward.tolist() == [0, 0, 0, 1, 1, 1]
    assert torch.equal(batch.obs.a[:, 0], batch.reward)
    assert mixture.update_priorities(batch.ids, torch.full((6, 1), 4.0, requires_grad=True)) is None
    for buffer, ids in zip(made, batch.ids.chunk(2), strict=True):
        given = ids if isinstance(buffer, relive.DeviceBuffer) else ids.numpy()
        assert np.allclose(buffer.priorities(given), 4.0)


def test_one_without_priorities_is_passed_over() -> None:
    made = filled(0.0, device=True, sampler=relive.Uniform()), filled(1.0, device=False, sampler=relive.Prioritized())
    mixture = relive.Mixture(*made)
    batch = mixture.sample(4)
    mixture.update_priorities(batch.ids, torch.ones(4))
    assert made[1].stats().updates == 2


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_mixture_in_a_mixture(share: float) -> None:
    """The device of an inner buffer is that of all batches, also of those without its items."""
    inner = relive.Mixture(filled(1.0, device=False, sampler=relive.Prioritized()),
                           filled(2.0, device=True, sampler=relive.Prioritized()))  # fmt: skip
    outer = filled(0.0, device=False, sampler=relive.Prioritized())
    mixture = relive.Mixture(inner, outer, share=share)
    batch = mixture.sample(8)
    assert batch.reward.tolist() == ([1, 1, 1, 2, 2, 2, 0, 0] if share < 1 else [0] * 8)
    assert mixture.update_priorities(batch.ids, torch.full((8,), 4.0)) == (None if share < 1 else 8)
    ids = batch.ids[batch.reward == 0].numpy()
    assert np.allclose(outer.priorities(ids), 4.0)
    with mixture.prefetch(8) as batches:
        assert torch.equal(next(batches).reward, batch.reward)
