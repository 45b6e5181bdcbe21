"""Initial priorities: what an actor says of a step that is on its way."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dqn_toys import Drift, Signs, small
from r2d2_toys import Walk
from r2d2_toys import small as small_r2d2
from shard_steps import LANES, Counting, made
from trainer_toys import Toy
from trainer_toys import small as small_sac

import relive
from relive.gymnasium import Recorder
from relive_lab import DQNTrainer, R2D2Trainer, SACTrainer
from relive_lab.agent import weights_of
from relive_lab.crew.actor import Actor, Job
from relive_lab.crew.outbox import Outbox
from relive_lab.crew.weights import flattened, restore
from relive_lab.environments import vectorize

KINDS: dict[str, Any] = {
    "sac, 3 steps": (SACTrainer, small_sac(use_per=True, n_step=3), Toy),
    "sac, precision": (SACTrainer, small_sac(use_per=True, priority="precision"), Toy),
    "dqn, terminated": (DQNTrainer, small(use_per=True, n_step=3), functools.partial(Signs, ends="terminated")),
    "dqn, frames": (DQNTrainer, small(use_per=True, frame_stack=3), functools.partial(Drift, "CHW")),
    "r2d2": (R2D2Trainer, small_r2d2(use_per=True), Walk),
    "r2d2, zero": (R2D2Trainer, small_r2d2(use_per=True, n_step=2, state="zero", starts=3), Walk),
}


@pytest.mark.parametrize("kind", KINDS)
def test_initial_priorities_are_those_of_the_learner(kind: str) -> None:
    """Check an actor's priority of a step against the learner's nets on the item that its buffer draws."""
    maker, config, make_env = KINDS[kind]
    trainer = maker(config, make_env=make_env)
    trainer.train()
    own = dataclasses.replace(config, num_envs=2, seed=5)
    choices: dict[str, Any] = {
        "item": trainer.agent.item,
        "sampler": trainer.config.sampler(),
        "storage": relive.Shared(),
    }
    counts = (5, 61)  # the second actor begins where items do not start
    with relive.ReplayBuffer(trainer.buffer.schema, 1000, num_envs=3, **choices) as buffer:
        for number, steps in enumerate(counts):
            with buffer.writer([2, 0]) as writer:
                actor = Actor(Job(type(trainer.agent), own, make_env), writer)
                restore(actor.weights, flattened(weights_of(trainer.agent)))
                for agent in (actor.agent, trainer.agent):  # SAC draws the next actions of its targets
                    agent.normal = lambda rows, source: torch.zeros(rows, 2)
                assert actor.act(0, steps).steps == 2 * steps
                late = 2 * sum(counts[: number + 1]) - buffer.stats().added
                assert 0 < late <= 2 * actor.outbox.held
                actor.collector.begin()  # in mid-episode: adds the rest, and cuts
                actor.close()
        assert buffer.stats().added == 2 * sum(counts)
        ids = np.concatenate([batch.ids for batch in buffer.batches(64, shuffle=False)])
        assert len(ids) >= 2 * sum(counts) // getattr(trainer.agent.item, "starts", 1) - 2
        found = np.abs(trainer.agent.errors(buffer.read(ids))) + buffer.sampler.eps
        np.testing.assert_allclose(buffer.priorities(ids), found, rtol=1e-4, atol=1e-6)
        assert len(np.unique(found)) > 20
    trainer.close()


def test_a_pause_sends_what_waits_and_streams_go_on() -> None:
    """Check that items end at the pause when they are judged; the learner draws them whole, later ones too."""
    envs, seen = vectorize(Signs, 1), []

    def judge(batch: Any) -> Any:
        seen.append(batch)
        return batch.reward

    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    item = relive.Transitions(n_step=3)
    with relive.ReplayBuffer(schema, 100, item=item, storage=relive.Shared(), sampler=relive.Prioritized()) as buffer:
        with buffer.writer() as writer:
            outbox = Outbox(writer, item, 0.25, judge)
            recorder = Recorder(envs, outbox)
            recorder.reset(seed=0)
            for t in range(30):
                recorder.step(np.array([t % 2]))
                if t == 13:
                    outbox.flush()
                    assert buffer.stats().added == 14
            outbox.flush()
        assert (buffer.stats().added, buffer.stats().cuts) == (30, 0)
        assert [len(batch.ids) for batch in seen] == [14, 16]
        assert seen[0].steps.tolist() == [3] * 8 + [2, 1] + [3, 3, 2, 1]
        assert buffer.read([12, 13]).steps.tolist() == [3, 3]


@pytest.mark.parametrize("saved", [False, True])
def test_an_actor_knows_where_items_start_whoever_dies(saved: bool, tmp_path: Path) -> None:
    """Check that an actor's first priorities are those of the items that start at the step: here the step's number."""
    item = relive.Sequences(3, starts=4)
    shards, lines = made(item=item, capacity=LANES * 512, save_dir=str(tmp_path) if saved else None)
    envs, lanes = Counting(), np.arange(LANES)

    def steps(outbox: Any, count: int) -> None:
        for _ in range(count):
            outbox.add(**envs.step(lanes))
        outbox.flush()
        assert outbox.writer.flush() == 0

    for number in range(3):  # one actor after the other
        with shards.writer() as writer:
            outbox = Outbox(writer, item, 0.25, lambda batch: batch.obs[:, 0, 1])
            steps(outbox, 41 + number)
            lines.objects[1].save_by_clock()
            steps(outbox, 9)
            lines.kill(1)
            lines.restart(1)
            steps(outbox, 4)  # the gap is seen when these are acknowledged
            since = envs.time[0]
            steps(outbox, 21)
            assert writer.gaps == 1
        found = 0
        for shard in lines.objects:
            for batch in shard.buffer.batches(64, shuffle=False):
                times = batch.obs[:, 0, 1]
                chosen = times >= since
                np.testing.assert_array_equal(shard.buffer.priorities(batch.ids)[chosen], times[chosen] + 0.25)
                found += chosen.sum()
        assert found >= 4 * LANES
