"""Groups with equal scores, or scores of 0, are kept and drawn; and so is each group of a batch that has a spread."""

import heapq
from types import SimpleNamespace

import pytest
import torch
from source import method_of, names_of

FILE = "trl/experimental/grpo_with_replay_buffer/grpo_with_replay_buffer_trainer.py"
ReplayBuffer = names_of(FILE, "ReplayBuffer", heapq=heapq, torch=torch).ReplayBuffer
update = method_of(FILE, "GRPOWithReplayBufferTrainer", "update_with_replay_buffer", torch=torch)


@pytest.mark.parametrize("score", [1.0, 0.0])
def test_equal_scores(score):
    buffer = ReplayBuffer(3)
    buffer.add([score] * 4, [{"group": i} for i in range(4)])
    assert len(buffer.sample(2)) == 2


def test_each_group_with_a_spread_is_kept():
    kept = []

    def stop(groups, *args, **kwargs):
        kept.extend(groups.nonzero()[:, 0].tolist())
        raise StopIteration

    trainer = SimpleNamespace(replay_buffer=ReplayBuffer(9), update_replay_buffer=stop, num_generations=2)
    spread = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])  # an entry for each completion, as the trainer passes them
    with pytest.raises(StopIteration):
        update(trainer, spread, spread, None, None, None, None, {}, 0)
    assert kept == [1, 2]
