"""With `optimize_memory` no next state is that of another episode."""

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from source import names_of

FILE = "src/lerobot/rl/buffer.py"
names = {"torch": torch, "functools": functools, "threading": threading, "OBS_IMAGE": "observation.image"}
names |= {"Callable": Callable, "Sequence": Sequence, "suppress": suppress, "BatchTransition": dict}
ReplayBuffer = names_of(FILE, "ReplayBuffer", **names).ReplayBuffer


def test_truncated_steps():
    choices = {"use_drq": False, "optimize_memory": True, "image_augmentation_function": lambda x: x}
    buffer = ReplayBuffer(12, "cpu", ["state"], **choices)
    for step in range(12):
        episode, t = divmod(step, 4)
        now, after = (torch.tensor([[100.0 * episode + at]]) for at in (t, t + 1))
        buffer.add({"state": now}, torch.zeros(1, 1), 0.0, {"state": after}, done=False, truncated=t == 3)
    for _ in range(50):
        batch = buffer.sample(12)
        assert torch.equal(batch["next_state"]["state"], batch["state"]["state"] + 1)
