"""Settings are checked when they are made, and the refusal names the field."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from relive.errors import ArgumentError
from relive_lab import DQNConfig, R2D2Config, SACConfig
from relive_lab.td3 import TD3Config

NAN, INF = math.nan, math.inf
# What is wanted, values that are refused, and the fields of each class that want it.
COUNT = ("an integer >= 1", (0, -1, 1.0, True, "1"))
NATURAL = ("an integer >= 0", (-1, 0.5, True, "0"))
SHARE = ("a finite number >= 0 and <= 1", (-0.1, 1.5, NAN, "0.5", None))
POSITIVE = ("a finite number > 0", (0, -1.0, INF, "fast"))
RATE = ("a finite number > 0 and <= 1", (0, 1.1, NAN))
FLAG = ("`True` or `False`", (0, 1, None, "no"))
WIDTHS = ("one positive width for each hidden layer", ((8, 0), 32))
WEIGHTS = ("finite weights >= 0, not all of them 0", ((), (0, 0), (1, -1), (1, NAN)))
LOSS = ("one of `'mse'`, `'huber'`", ("l1", None))
COMMON = [
    (*COUNT, "num_envs total_steps n_step buffer_capacity batch_size update_every updates_per_step eval_episodes"),
    (*COUNT, "log_every per_beta_anneal_steps torch_threads"),
    (*NATURAL, "seed start_steps eval_every actors keep_batches"),
    ("a number of steps, or a time such as `1s`, `30s` or `5min`", ("0", "0.01s"), "save_every"),
    (*SHARE, "per_alpha per_beta_start per_beta_end gamma"),
    (*POSITIVE, "learning_rate huber_threshold samples_per_insert"),
    (*FLAG, "use_per"),
    (*LOSS, "critic_loss"),
    ("a finite number > 0 and < 0.5", (0, 0.5), "recent_share"),
    ("the id of a Gymnasium environment", ("", None), "env_id"),
    ("a mapping of keyword arguments", ([1],), "env_kwargs"),
]
Q = [
    (*COUNT, "target_every epsilon_steps"),
    (*SHARE, "epsilon_start epsilon_end"),
    (*POSITIVE, "max_grad_norm"),
    (*FLAG, "double dueling"),
]
FIELDS: dict[Any, list[tuple[str, tuple[Any, ...], str]]] = {
    SACConfig: [
        *COMMON,
        ("one of `'td'`, `'precision'`", ("noise",), "priority"),
        (*POSITIVE, "init_alpha reward_scale actor_learning_rate"),
        (*RATE, "tau"),
        ("a finite number", ("high", NAN), "target_entropy"),
        (*WIDTHS, "hidden_sizes"),
        ("one positive width for each hidden layer", ((),), "hidden_sizes"),
        (*FLAG, "autotune measure_noise"),
        ("at most buffer_capacity (1000000)", (2_000_000,), "batch_size"),
    ],
    DQNConfig: [
        *COMMON,
        *Q,
        (*COUNT, "frame_stack"),
        (*SHARE, "eval_epsilon"),
        (*RATE, "tau"),
        (*WIDTHS, "hidden_sizes"),
        ("one of `'auto'`, `'perceptron'`, `'convolution'`", ("transformer",), "net"),
    ],
    R2D2Config: [
        *COMMON,
        *Q,
        (*COUNT, "length starts lstm_size"),
        (*NATURAL, "burn_in"),
        (*SHARE, "priority_eta"),
        (*POSITIVE, "adam_eps"),
        (*FLAG, "rescale"),
        (*WIDTHS, "hidden_sizes"),
        ("one positive width for each hidden layer", (None,), "hidden_sizes"),
        ("one of `'stored'`, `'zero'`", ("old",), "state"),
        (*WEIGHTS, "explore_weights"),
    ],
    TD3Config: [
        (*COUNT, "limit num_envs total_steps n_step batch_size eval_every"),
        ("an integer >= 2", (1, 2.0), "updates_per_step"),
        ("an even number", (3,), "updates_per_step"),
        ("one of `'final'`, `'reset'`, `'none'`", ("start",), "ends"),
        ("one of `'pendulum'`, `'reach'`", ("ant",), "env"),
    ],
}


def refusal(make: Any, settings: dict[str, Any]) -> str:
    with pytest.raises(ArgumentError) as refused:
        make(**settings)
    return str(refused.value)


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_a_bad_value_is_refused_by_name(kind: Any) -> None:
    for wanted, values, names in FIELDS[kind]:
        for name in names.split():
            for value in values:
                said = refusal(kind, {name: value})
                assert said.startswith(f"Expected {wanted}, got `{value!r}` - at `{kind.__name__}({name})`"), said


PRECISION: dict[str, Any] = {"priority": "precision", "use_per": True}
TOGETHER: list[tuple[Any, dict[str, Any], str]] = [
    (SACConfig, {"priority": "precision"}, "`True` with `priority='precision'`, got `False` - at `SACConfig(use_per)`"),
    (SACConfig, {**PRECISION, "per_alpha": 0.5}, "1 (or the default, 0.6) with `pr"),
    (SACConfig, {**PRECISION, "per_beta_end": 0.5}, "0 (or the default, 1) with `pri"),
    (DQNConfig, {"keep_batches": 1}, "0, or at least 2 without `cluster`, got `1`"),
    (DQNConfig, {"cluster": "local"}, "at least 1 with `cluster`, got `0` - at `DQNConfig(actors)`"),
    (DQNConfig, {"cluster": ""}, "the address of a Ray cluster, or `local`, got `''` - at `DQNConfig(cluster)`"),
    (DQNConfig, {"shards": 2}, "1 without `cluster`, got `2` - at `DQNConfig(shards)`"),
    (DQNConfig, {"cluster": "auto", "actors": 2, "shards": 3}, "at most 2, the lanes, got `3` - at `DQNConfig(shards)"),
    (DQNConfig, {"cluster": "auto", "actors": 2, "shards": 0}, "an integer >= 1, got `0` - at `DQNConfig(shards)`"),
    (R2D2Config, {"actors": 6, "num_envs": 10, "buffer_capacity": 50, "batch_size": 8}, "at most 5, for a row of "),
    (TD3Config, {"num_envs": 50, "n_step": 2, "start_steps": 99}, "at least n_step * num_envs (100), got `99` - at"),
]


@pytest.mark.parametrize(("kind", "settings", "text"), TOGETHER)
def test_settings_have_to_fit_each_other(kind: Any, settings: dict[str, Any], text: str) -> None:
    assert refusal(kind, settings).startswith(f"Expected {text}")
    SACConfig(**PRECISION, per_alpha=1.0, per_beta_start=0.0, per_beta_end=0.0)


def test_settings_are_frozen_and_by_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SACConfig().seed = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        SACConfig("Pendulum-v1")  # type: ignore[misc]


def test_numbers_of_numpy_become_plain_ones() -> None:
    config = SACConfig(seed=np.int64(3), gamma=np.float32(0.5), hidden_sizes=[np.int32(8)])  # type: ignore[arg-type]
    assert json.loads(json.dumps(dataclasses.asdict(config)))["hidden_sizes"] == [8]
    assert (config.seed, config.gamma) == (3, 0.5)


def test_every_trainer_has_the_loss_that_it_had() -> None:
    found = {kind.__name__: (kind().critic_loss, kind().huber_threshold) for kind in (SACConfig, DQNConfig, R2D2Config)}
    assert found == {"SACConfig": ("mse", 0.3), "DQNConfig": ("huber", 1.0), "R2D2Config": ("mse", 1.0)}
