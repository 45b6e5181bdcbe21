"""A file with D4RL's arrays as batches for offline learning: python d4rl_to_batch.py [FILE.hdf5]."""

import sys

import h5py
import numpy as np

from relive.minari import from_arrays

if len(sys.argv) > 1:
    path = sys.argv[1]
else:  # a file as D4RL's, made up: episodes of 100 steps, of which every third ends in a terminal state
    path, t = "made.hdf5", np.arange(10_000)
    with h5py.File(path, "w") as file:
        angle = t[:, None] % 100 + 7.0 * (t[:, None] // 100) + np.arange(17)
        file["observations"] = np.sin(angle).astype(np.float32)
        file["actions"] = np.cos(t[:, None] + np.arange(6)).astype(np.float32)
        file["next_observations"] = np.sin(angle + 1).astype(np.float32)
        file["rewards"] = (t % 7).astype(np.float32)
        file["terminals"] = t % 300 == 299
        file["timeouts"] = (t % 100 == 99) & (t % 300 != 299)

with h5py.File(path) as file:
    buffer = from_arrays(file, seed=0)  # names of other files: `observations="obs"`, ...
print(buffer)

batch = buffer.sample(256).torch()  # for IQL, CQL, TD3+BC: uniformly, with replacement
assert batch.obs.shape == (256, 17)
assert batch.next_obs.shape == (256, 17)
assert not batch.discount[batch.terminated].any()  # a timeout is bootstrapped, where the file has what followed it

for epoch in range(2):  # for behaviour cloning: every step once an epoch
    seen = sum(len(each.ids) for each in buffer.batches(256))
    print(f"epoch {epoch}: {seen:,} steps, mean reward {buffer.sample(4096).reward.mean():.2f}")
