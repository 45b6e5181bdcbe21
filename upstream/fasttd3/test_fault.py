"""Windows of n steps end at the newest step of a full ring."""

import torch
from source import names_of
from tensordict import TensorDict
from torch import nn

FILE = "fast_td3/fast_td3_utils.py"
SimpleReplayBuffer = names_of(FILE, "SimpleReplayBuffer", torch=torch, nn=nn, TensorDict=TensorDict).SimpleReplayBuffer


def test_no_reward_comes_from_behind_the_newest_step():
    buffer = SimpleReplayBuffer(1, 8, 1, 1, 1, n_steps=3, gamma=0.5, device="cpu")
    zero = torch.zeros(1)
    for step in range(12):
        now, after = torch.full((1, 1), float(step)), torch.full((1, 1), step + 1.0)
        following = {"rewards": torch.tensor([float(step)]), "dones": zero, "truncations": zero, "observations": after}
        columns = {"observations": now, "actions": torch.zeros(1, 1)}
        buffer.extend(TensorDict({**columns, "next": TensorDict(following, batch_size=1)}, batch_size=1))
    batch = buffer.sample(200)
    for obs, reward in zip(batch["observations"][:, 0].tolist(), batch["next"]["rewards"].tolist()):
        steps = range(int(obs), min(int(obs) + 3, 12))
        assert abs(reward - sum(0.5**k * step for k, step in enumerate(steps))) < 1e-4
