"""Items of random programs, equal to those of an oracle: every boundary, every kind of item, which can be drawn."""

from __future__ import annotations

import pytest
import torch
from depth import LONG
from lockstep_programs import Program

import relive

pytestmark = pytest.mark.filterwarnings("ignore::relive.ReliveWarning")


EVERY, FIRST = (7, 0) if LONG else (14, 0)  # calls between looks
# Their programs have each pair of choices that forty have: item, sampler, stack, masks, forms of calls; four of them
# leave lanes out in mid-episode where items have several steps.
SEEDS = (0, 2, 3, 5, 7, 11, 14, 18, 24, 25, 26, 28, 31, 32, 33, 36)


@pytest.mark.parametrize("seed", range(300) if LONG else SEEDS)
def test_every_item_is_the_oracle_s(seed: int) -> None:
    program = Program(seed)
    for t in range(120 if LONG else 60):
        program.step()
        program.disturb()
        if t % EVERY == FIRST or t % 30 > 28:
            program.look()
    assert program.items


def test_stacks_that_frames_cannot_show_are_left_out() -> None:
    frame = relive.Field(1, "int32", stack=3, pad="zero")
    schema = relive.Schema(obs=frame, action=relive.Field())
    buffer = relive.DeviceBuffer(schema, 60, num_envs=2, device="cpu", seed=0)
    no, zero = torch.zeros(2, dtype=torch.bool), torch.zeros(2)

    def stacked(*frames: int) -> torch.Tensor:
        return torch.tensor(frames, dtype=torch.int32).view(1, 3, 1).expand(2, 3, 1)

    given = [
        (stacked(0, 0, 5), stacked(0, 5, 6)),
        (stacked(0, 5, 6), stacked(5, 6, 7)),
        (stacked(5, 9, 7), stacked(9, 7, 8)),
        (stacked(0, 0, 1), stacked(0, 1, 2)),
    ]
    for obs, after in given:
        ids = buffer.add(obs=obs, action=zero, reward=zero, next_obs=after, terminated=no, truncated=no)
    assert ids.tolist() == [6, 7]
    with pytest.warns(relive.ReliveWarning, match="2 steps were left out"):
        stats = buffer.stats()
    assert (stats.size, stats.cuts) == (6, 2)
    assert torch.equal(buffer.read(torch.tensor([2, 6])).next_obs, torch.stack((given[1][1][0], given[3][1][0])))
