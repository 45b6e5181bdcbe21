"""What all trainers promise, on small environments: counts, seeds, pace, evaluations, reports, refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dqn_toys
import gymnasium
import numpy as np
import psutil
import pytest
import r2d2_toys
import torch
import trainer_toys
from dqn_toys import Signs
from gymnasium import spaces
from needs import needs
from r2d2_toys import Walk
from trainer_toys import Toy

from relive.errors import ArgumentError
from relive_lab import DQNConfig, DQNTrainer, Progress, R2D2Trainer, SACTrainer

KINDS: dict[str, tuple[Any, Any, Any]] = {
    "sac": (SACTrainer, trainer_toys.small, Toy),
    "dqn": (DQNTrainer, dqn_toys.small, Signs),
    "r2d2": (R2D2Trainer, r2d2_toys.small, Walk),
}
UPDATES = {"sac": 20, "dqn": 20, "r2d2": 15}
PARTS = {"sac": ("_actor_weights", "_critic_weights"), "dqn": ("_weights",), "r2d2": ("_weights",)}
every = pytest.mark.parametrize("kind", KINDS)
per = pytest.mark.parametrize("use_per", [False, True])


def made(kind: str, make_env: Any = None, evaluator: Any = None, **changes: Any) -> Any:
    maker, small, env = KINDS[kind]
    return maker(small(**changes), make_env=make_env or env, evaluator=evaluator)


def weights(trainer: Any, kind: str) -> list[torch.Tensor]:
    return [weight.detach().clone() for part in PARTS[kind] for weight in getattr(trainer.agent, part)]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(one, other, strict=True)]


@every
@per
def test_a_run_counts_what_it_does(kind: str, use_per: bool) -> None:
    trainer = made(kind, use_per=use_per)
    result, steps = trainer.train(), trainer.config.total_steps
    assert (result.steps, result.updates) == (steps, UPDATES[kind])
    assert result.eval_steps.tolist() == [steps // 2, steps]
    assert result.eval_returns.shape == (2, 3)
    assert all(torch.isfinite(weight).all() for weight in weights(trainer, kind))
    assert np.isfinite(result.episode_returns).all()
    if kind != "r2d2":  # whose episodes have any length
        assert result.episode_steps.tolist() == list(range(10, 121, 10))
        assert result.eval_episodes.tolist() == [6, 12]
        assert (result.episode_returns <= 10.0).all()  # a reward of at most 1 in each of 10 steps
    stats = trainer.buffer.stats()
    assert len({*stats.priority_quantiles}) > 1 if use_per else not stats.priority_quantiles
    assert (0.4 < stats.beta <= 1.0) is use_per


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("sac", {}),
        ("sac", {"use_per": True}),
        ("dqn", {"use_per": True, "dueling": True}),
        ("r2d2", {}),
        ("r2d2", {"use_per": True, "state": "zero", "dueling": True}),
    ],
)
def test_the_same_seed_gives_the_same_run(kind: str, changes: dict[str, Any]) -> None:
    runs = [made(kind, seed=seed, **changes).train() for seed in (3, 3, 4)]
    assert np.array_equal(runs[0].episode_returns, runs[1].episode_returns)
    assert np.array_equal(runs[0].eval_returns, runs[1].eval_returns)
    assert not np.array_equal(runs[0].episode_returns, runs[2].episode_returns)


@pytest.mark.parametrize(("kind", "changes"), [("sac", {}), ("dqn", {"eval_epsilon": 0.5}), ("r2d2", {})])
def test_evaluations_change_nothing(kind: str, changes: dict[str, Any]) -> None:
    often, never = (made(kind, eval_every=steps, **changes) for steps in (20, 0))
    assert np.array_equal(often.train().episode_returns, never.train().episode_returns)
    assert all(same(weights(often, kind), weights(never, kind)))


@every
def test_both_arms_learn_the_same_from_the_same_batch(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = [made(kind, use_per=use_per, total_steps=120, start_steps=120, eval_every=0) for use_per in (False, True)]
    for arm in arms:
        arm.train()
    before, batches = weights(arms[0], kind), [arms[0].buffer.sample(8) for _ in range(4)]
    for arm in arms:
        # The uniform arm's batches have weights of 1; their ids are those of the other arm's buffer, too.
        stream = iter(batches)
        monkeypatch.setattr(arm.buffer, "sample", lambda n, stream=stream: next(stream))
        for _ in batches:
            arm.learn()
    uniform, prioritized = (weights(arm, kind) for arm in arms)
    assert all(same(uniform, prioritized))
    assert not any(same(uniform, before))
    # The arms share all that comes before the first update, too.
    assert np.array_equal(arms[0].result.episode_returns, arms[1].result.episode_returns)


@pytest.mark.parametrize(
    ("kind", "lanes"), [("sac", 2), ("sac", 7), ("dqn", 2), ("dqn", 3), ("r2d2", 1), ("r2d2", 3), ("r2d2", 7)]
)
def test_vector_environments_keep_the_ratio_of_updates(kind: str, lanes: int) -> None:
    frames = {"frame_stack": 2} if kind == "dqn" else {}
    changes = {"use_per": True, "n_step": 2, "start_steps": 84, "total_steps": 120, "eval_every": 0, **frames}
    trainer = made(kind, num_envs=lanes, update_every=2, **changes)
    result = trainer.train()
    assert 120 <= result.steps < 120 + lanes
    assert result.updates == (result.steps - 84) // 2
    assert trainer.buffer.num_envs == lanes
    assert kind == "r2d2" or len(result.episode_returns) == result.steps // lanes // 10 * lanes


@pytest.mark.parametrize(("rhythm", "rounds", "updates"), [(8, 1, 2), (4, 3, 15), (1, 2, 40)])
def test_updates_come_as_often_as_asked_for(rhythm: int, rounds: int, updates: int) -> None:
    trainer = made("sac", total_steps=60, update_every=rhythm, updates_per_step=rounds)
    assert trainer.train().updates == updates


@pytest.mark.parametrize("kind", ["sac", "dqn"])
def test_termination_stops_the_bootstrap_and_truncation_does_not(kind: str) -> None:
    for ends, last in (("terminated", 0.0), ("truncated", 0.99)):
        trainer = made(kind, lambda ends=ends: KINDS[kind][2](ends=ends), total_steps=60, eval_every=0)
        trainer.train()
        batch = trainer.buffer.sample(256)
        assert batch[ends].any()
        np.testing.assert_allclose(batch.discount[batch[ends]], last)


@every
def test_an_evaluator_takes_the_place_of_evaluation(kind: str) -> None:
    def evaluator(policy: Any) -> Any:
        acted = policy(np.zeros((4, 3), np.float32)).reshape(4, -1).mean(axis=1)
        if kind == "r2d2":
            policy.after(np.zeros(4), np.zeros(4, bool))
        return acted

    assert made(kind, evaluator=evaluator).train().eval_returns.shape == (2, 4)


@every
def test_progress_can_end_a_run_which_then_goes_on(kind: str) -> None:
    seen: list[Progress] = []
    trainer = made(kind)
    half = trainer.config.total_steps // 2
    first = trainer.train(lambda progress: seen.append(progress) or progress.step < half)
    assert first.steps == half
    assert seen[-1].eval_return == pytest.approx(first.eval_returns[-1].mean())
    told = (seen[-1].total_steps, seen[-1].episodes, seen[-1].updates)
    assert told == (2 * half, len(first.episode_returns), first.updates)
    second = trainer.train()
    assert (second.steps, second.updates, len(second.eval_steps)) == (2 * half, UPDATES[kind], 2)


@pytest.mark.parametrize("kind", ["sac", "dqn"])
def test_target_weights_need_no_gradient_after_updates(kind: str) -> None:
    trainer = made(kind, **({"target_every": 1, "tau": 0.1} if kind == "dqn" else {}))
    assert trainer.train().updates
    assert all(not weight.requires_grad for weight in trainer.agent._target_weights)


@pytest.mark.slow
def test_memory_does_not_grow_with_updates() -> None:
    trainer, process = made("sac", torch_threads=1), psutil.Process()
    trainer.train()
    for _ in range(300):
        trainer.learn()
    before = process.memory_info().rss
    for _ in range(1_000):
        trainer.learn()
    # A graph that grows takes 4,000 bytes an update.
    assert process.memory_info().rss - before < 1_000 * 1_000


LOSSES = {"sac": "critic actor alpha", "dqn": "q", "r2d2": "q"}
BUFFER = "size replay_ratio beta priority_50 age_max"
MORE = {
    "sac": {"noise/share", "noise/variance", "noise/effective_batch"},
    "dqn": {"train/mean_q", "train/epsilon"},
    "r2d2": {"train/epsilon", "train/td_error"},
}


@every
def test_tensorboard_gets_returns_losses_the_buffer_speed_and_memory(kind: str, tmp_path: Path) -> None:
    EventAccumulator = needs("tensorboard.backend.event_processing.event_accumulator").EventAccumulator

    noise = {"measure_noise": True} if kind == "sac" else {}
    trainer, reports = made(kind, log_dir=str(tmp_path), log_every=40, use_per=True, **noise), []
    trainer.train(reports.append)
    trainer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    wanted = {"train/return", "eval/return", *(f"loss/{name}" for name in LOSSES[kind].split())}
    assert wanted | MORE[kind] | {f"buffer/{name}" for name in BUFFER.split()} <= set(events.Tags()["scalars"])
    steps = [*range(40, trainer.config.total_steps + 1, 40)]
    assert [event.step for event in events.Scalars("buffer/size")] == steps
    resident = [event.value for event in events.Scalars("system/resident_mb")]
    assert len(resident) == len(steps)
    assert reports[-1].resident / 1e6 == pytest.approx(resident[-1], rel=0.2)
    assert all(event.value > 0 for event in events.Scalars("system/steps_per_second"))


ACTION, OBSERVATION = "action_space", "observation_space"
FLATTEN = "wrap the environment in `gymnasium.wrappers.FlattenObservation`"
BOUND = "wrap the environment so that its actions have bounds"
UNFIT: list[tuple[str, str, gymnasium.Space[Any], str, str]] = [
    ("sac", ACTION, spaces.Discrete(3), "a `Box` action space of floats", ""),
    ("sac", ACTION, spaces.Box(0, 9, (2,), np.int64), "a `Box` action space of floats", ""),
    (
        "sac",
        ACTION,
        spaces.Box(-np.inf, 1.0),
        "bounded actions",
        "wrap the environment so that its actions have bounds",
    ),
    ("sac", OBSERVATION, spaces.Dict({"a": spaces.Discrete(2)}), "a `Box` observation space", FLATTEN),
    ("dqn", ACTION, spaces.Box(-1, 1, (2,)), "a `Discrete` action space", ""),
    ("dqn", OBSERVATION, spaces.Discrete(2), "a `Box` observation space", FLATTEN),
    ("r2d2", ACTION, spaces.Box(-2, 2, (1,)), "a `Discrete` action space", ""),
]


@pytest.mark.parametrize(("kind", "name", "space", "wanted", "remedy"), UNFIT)
def test_an_unfit_environment_is_refused(kind: str, name: str, space: Any, wanted: str, remedy: str) -> None:
    def odd() -> Any:
        env = KINDS[kind][2]()
        setattr(env, name, space)
        return env

    with pytest.raises(ArgumentError) as refused:
        made(kind, odd)
    text = f"Expected {wanted}, got `{space}` - at `{KINDS[kind][0].__name__}(env)`"
    assert str(refused.value) == (f"{text}: {remedy}" if remedy else text)


@every
def test_a_bad_call_is_refused(kind: str) -> None:
    trainer, name = made(kind), KINDS[kind][0].__name__
    for shape in ((4,), (2, 2, 3)):
        text = f"Expected an observation of shape `(3,)`, or a batch, got shape `{shape}` - at `{name}.act`"
        with pytest.raises(ArgumentError, match=re.escape(text)):
            trainer.act(np.zeros(shape))
    text = f"Expected a positive number of episodes, got `0` - at `{name}.evaluate`"
    with pytest.raises(ArgumentError, match=re.escape(text)):
        trainer.evaluate(0)


def test_an_unknown_environment_or_device_is_refused() -> None:
    with pytest.raises(ArgumentError, match=re.escape("at `DQNConfig(env_id)`")):
        DQNTrainer(DQNConfig(env_id="NoSuchThing-v7"))
    with pytest.raises(ArgumentError, match=re.escape("at `SACConfig(device)`")):
        made("sac", device="abacus")


def test_an_environment_of_relive_needs_no_import() -> None:
    mode = {"mode": "dislocation", "sigma": 0.3}
    config = trainer_toys.small(env_id="relive/PairsTrading-v0", env_kwargs=mode, eval_every=0)
    assert SACTrainer(config).train().updates == 20
