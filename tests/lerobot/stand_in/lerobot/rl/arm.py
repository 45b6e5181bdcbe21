"""A toy arm whose every step has a number, so that whatever is read back tells what it has to be."""

from __future__ import annotations

import mmap
import os
import time

import numpy as np
import torch

LONGEST, EPISODE = 200_000, 7


def state_of(number):
    """Make the observation before the step of this number: the number, and an image of it."""
    image = torch.full((1, 3, 4, 4), number % 256, dtype=torch.uint8).float() / 255
    return {"observation.state": torch.full((1, 3), number + 0.5), "observation.images.top": image}


class Arm:
    """Steps that follow each other; each episode ends in `done`, is truncated, or breaks off, in turns.

    Attributes:
        count: int64 `[1]`: the steps that were handed out so far, in memory that outlives the process.
        times: float64: of each its moment.
    """

    def __init__(self, run):
        path = os.path.join(run, "clock")
        if not os.path.exists(path):
            open(path, "wb").close()
            os.truncate(path, 8 + 8 * LONGEST)
        with open(path, "r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        self.count, self.times = np.frombuffer(mapped, np.int64, 1), np.frombuffer(mapped, np.float64, offset=8)

    def episode(self):
        """Yield the steps of one episode. The arm's number then grows by one more, so that no two episodes join."""
        first = int(self.count[0])
        state = state_of(first)
        for number in range(first, first + EPISODE):
            after, last = state_of(number + 1), number == first + EPISODE - 1
            self.count[0], self.times[number] = number + 1, time.monotonic()
            yield {
                "state": state,
                "action": torch.full((1, 2), float(number)),
                "reward": number,
                "next_state": after,
                "done": last and first // (EPISODE + 1) % 3 == 0,
                "truncated": last and first // (EPISODE + 1) % 3 == 1,
                "complementary_info": {"is_intervention": torch.tensor([float(number % EPISODE < 3)])},
            }
            state = after
        self.count[0] += 1

    @staticmethod
    def check(batch):
        """Check that every item is a yielded step; the observation after a terminal state is not compared."""
        for place, reward in enumerate(batch["reward"].tolist()):
            after = [] if batch["done"][place] else [("next_state", reward + 1)]
            for name, number in (("state", reward), *after):
                for key, values in state_of(int(number)).items():
                    assert torch.equal(batch[name][key][place], values[0]), (name, key, number)
            assert batch["action"][place].tolist() == [reward, reward]
