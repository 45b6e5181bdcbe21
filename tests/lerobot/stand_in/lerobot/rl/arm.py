"""A toy arm whose every step has a number, so that whatever is read back tells what it has to be."""

from __future__ import annotations

import time
from pathlib import Path

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
        times: float64: of each step that was handed out its moment, in memory that outlives the process; 0: of none.
    """

    def __init__(self, folder):
        path = Path(folder, "clock")
        if not path.exists():
            path.write_bytes(bytes(8 * LONGEST))
        self.times = np.memmap(path, np.float64)

    def added(self):
        return np.flatnonzero(self.times).tolist()

    def episode(self):
        """Yield the steps of one episode. The arm's number then grows by one more, so that no two episodes join."""
        first = max(self.added(), default=-2) + 2
        state = state_of(first)
        for number in range(first, first + EPISODE):
            after, last = state_of(number + 1), number == first + EPISODE - 1
            self.times[number] = time.monotonic()
            yield {
                "state": state,
                "action": torch.full((1, 2), float(number)),
                "reward": number,
                "next_state": after,
                "done": last and first // (EPISODE + 1) % 3 == 0,
                "truncated": last and first // (EPISODE + 1) % 3 == 1,
                "complementary_info": {"is_intervention": torch.tensor([float(number - first < 3)])},
            }
            state = after

    @staticmethod
    def check(batch):
        """Check that every item is a yielded step; the observation after a terminal state is not compared."""
        for place, reward in enumerate(batch["reward"].tolist()):
            after = [] if batch["done"][place] else [("next_state", reward + 1)]
            for name, number in (("state", reward), *after):
                for key, values in state_of(int(number)).items():
                    assert torch.equal(batch[name][key][place], values[0]), (name, key, number)
            assert batch["action"][place].tolist() == [reward, reward]
