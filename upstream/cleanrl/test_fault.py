"""Each step of an episode begins a window, and no window runs into the next episode."""

import collections
from collections import deque

import numpy as np
import torch
from source import names_of

names = ("PrioritizedBatch", "SumSegmentTree", "MinSegmentTree", "PrioritizedReplayBuffer")
given = {"np": np, "torch": torch, "deque": deque, "collections": collections}
Buffer = names_of("cleanrl/rainbow_atari.py", *names, **given).PrioritizedReplayBuffer


def stored(truncates):
    buffer = Buffer(64, (1,), "cpu", 3, 0.5)
    for step in range(12):
        episode, t = divmod(step, 6)
        obs, after = np.array([100 * episode + t]), np.array([100 * episode + t + 1])
        ends = t == 5
        flags = (False, ends) if truncates else (ends, False)
        buffer.add(obs, 0, 1.0, after, *flags[: 2 if hasattr(buffer, "_store") else 1])
    n = buffer.size
    return [(int(obs[0]), int(after[0])) for obs, after in zip(buffer.buffer_obs[:n], buffer.buffer_next_obs[:n])]


def test_every_step_of_an_episode_that_terminates_begins_a_window():
    assert [obs for obs, _ in stored(truncates=False)] == [*range(6), *range(100, 106)]


def test_no_window_runs_over_a_truncation():
    assert all(obs // 100 == after // 100 for obs, after in stored(truncates=True))
