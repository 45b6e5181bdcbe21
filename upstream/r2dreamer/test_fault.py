"""Latents of steps that were overwritten since the draw are written nowhere. Needs `torchrl`."""

from types import SimpleNamespace

import pytest
import torch
from source import names_of

pytest.importorskip("torchrl")
from tensordict import TensorDict
from torchrl.data.replay_buffers import LazyTensorStorage, ReplayBuffer
from torchrl.data.replay_buffers.samplers import SliceSampler

names = {"LazyTensorStorage": LazyTensorStorage, "ReplayBuffer": ReplayBuffer, "SliceSampler": SliceSampler}
Buffer = names_of("buffer.py", "Buffer", torch=torch, TensorDict=TensorDict, **names).Buffer


def add(buffer, steps):
    for step in steps:
        columns = {name: torch.zeros(1, 1) for name in ("stoch", "deter", "action")}
        columns |= {"obs": torch.tensor([[float(step)]]), "episode": torch.tensor([step // 10])}
        buffer.add_transition(TensorDict(columns, batch_size=[1]))


def test_late_latents():
    config = {"device": "cpu", "storage_device": "cpu", "batch_size": 4, "batch_length": 2, "max_size": 20}
    buffer = Buffer(SimpleNamespace(**config))
    add(buffer, range(20))
    data, index, _ = buffer.sample()
    ones = torch.ones(4, 2, 1)
    buffer.update(index, ones, ones)
    drawn = set(data["obs"].flatten().tolist())
    stored = buffer._buffer[:]
    assert {obs for obs, x in zip(stored["obs"].flatten().tolist(), stored["stoch"].flatten()) if x == 1} == drawn
    add(buffer, range(20, 40))
    buffer.update(index, ones, ones)
    assert not buffer._buffer[:]["stoch"].any()
