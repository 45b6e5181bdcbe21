"""Updates leave nothing behind: target nets are no part of any graph, and memory does not grow."""

from __future__ import annotations

from typing import Any

import dqn_toys
import psutil
import pytest
import trainer_toys

from relive_lab import DQNTrainer, SACTrainer


def trained(kind: Any) -> Any:
    if kind is SACTrainer:
        trainer = SACTrainer(trainer_toys.small(torch_threads=1), make_env=trainer_toys.Toy)
    else:
        trainer = DQNTrainer(dqn_toys.small(target_every=1, tau=0.1, torch_threads=1), make_env=dqn_toys.Signs)
    trainer.train()
    return trainer


@pytest.mark.parametrize("kind", [SACTrainer, DQNTrainer])
def test_target_weights_need_no_gradient_after_updates(kind: Any) -> None:
    trainer = trained(kind)
    assert trainer.updates > 0
    assert all(not weight.requires_grad for weight in trainer.agent._target_weights)


@pytest.mark.slow
def test_memory_does_not_grow_with_updates() -> None:
    trainer, process = trained(SACTrainer), psutil.Process()
    for _ in range(300):
        trainer.learn()
    before = process.memory_info().rss
    for _ in range(1_000):
        trainer.learn()
    # A graph that grows takes 4,000 bytes an update.
    assert process.memory_info().rss - before < 1_000 * 1_000
