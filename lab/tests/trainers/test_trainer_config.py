"""Settings are checked when they are made, and the refusal names the field."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from relive.errors import ArgumentError
from relive_lab import DQNConfig, SACConfig

BAD: list[tuple[str, Any, str]] = [
    ("env_id", "", "Expected the id of a Gymnasium environment, got `''`"),
    ("env_id", None, "Expected the id of a Gymnasium environment, got `None`"),
    ("env_kwargs", [1], "Expected a mapping of keyword arguments, got `[1]`"),
    ("num_envs", 0, "Expected an integer >= 1, got `0`"),
    ("num_envs", 1.0, "Expected an integer >= 1, got `1.0`"),
    ("total_steps", -1, "Expected an integer >= 1, got `-1`"),
    ("seed", -1, "Expected an integer >= 0, got `-1`"),
    ("seed", True, "Expected an integer >= 0, got `True`"),
    ("use_per", 1, "Expected `True` or `False`, got `1`"),
    ("per_alpha", -0.1, "Expected a finite number >= 0 and <= 1, got `-0.1`"),
    ("per_beta_start", float("nan"), "Expected a finite number >= 0 and <= 1, got `nan`"),
    ("per_beta_end", 1.5, "Expected a finite number >= 0 and <= 1, got `1.5`"),
    ("per_beta_anneal_steps", 0, "Expected an integer >= 1, got `0`"),
    ("recent_share", 0.5, "Expected a finite number > 0 and < 0.5, got `0.5`"),
    ("n_step", 0, "Expected an integer >= 1, got `0`"),
    ("gamma", 1.01, "Expected a finite number >= 0 and <= 1, got `1.01`"),
    ("tau", 0.0, "Expected a finite number > 0 and <= 1, got `0.0`"),
    ("learning_rate", 0, "Expected a finite number > 0, got `0`"),
    ("learning_rate", "fast", "Expected a finite number > 0, got `'fast'`"),
    ("actor_learning_rate", float("inf"), "Expected a finite number > 0, got `inf`"),
    ("batch_size", 2_000_000, "Expected at most buffer_capacity (1000000), got `2000000`"),
    ("buffer_capacity", 0, "Expected an integer >= 1, got `0`"),
    ("hidden_sizes", (), "Expected one positive width for each hidden layer, got `()`"),
    ("hidden_sizes", (32, 0), "Expected one positive width for each hidden layer, got `(32, 0)`"),
    ("hidden_sizes", 32, "Expected one positive width for each hidden layer, got `32`"),
    ("start_steps", -5, "Expected an integer >= 0, got `-5`"),
    ("update_every", 0, "Expected an integer >= 1, got `0`"),
    ("updates_per_step", 0, "Expected an integer >= 1, got `0`"),
    ("target_entropy", "high", "Expected a finite number, got `'high'`"),
    ("init_alpha", 0.0, "Expected a finite number > 0, got `0.0`"),
    ("autotune", None, "Expected `True` or `False`, got `None`"),
    ("reward_scale", -1.0, "Expected a finite number > 0, got `-1.0`"),
    ("eval_every", -1, "Expected an integer >= 0, got `-1`"),
    ("eval_episodes", 0, "Expected an integer >= 1, got `0`"),
    ("log_every", 0, "Expected an integer >= 1, got `0`"),
    ("torch_threads", 0, "Expected an integer >= 1, got `0`"),
]


@pytest.mark.parametrize(("name", "value", "text"), BAD)
def test_a_bad_value_is_refused_by_name(name: str, value: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(f"{text} - at `SACConfig({name})`")):
        SACConfig(**{name: value})


def test_settings_are_frozen_and_by_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SACConfig().seed = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        SACConfig("Pendulum-v1")  # type: ignore[misc]


def test_numbers_of_numpy_become_plain_ones() -> None:
    config = SACConfig(seed=np.int64(3), gamma=np.float32(0.5), hidden_sizes=[np.int32(8)])  # type: ignore[arg-type]
    assert json.loads(json.dumps(dataclasses.asdict(config)))["hidden_sizes"] == [8]
    assert (config.seed, config.gamma) == (3, 0.5)


def test_the_package_loads_pytorch_with_the_first_trainer_that_is_named() -> None:
    code = (
        "import sys; import relive_lab; from relive_lab import TrainResult, statistics; print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cluster": "local"}, "Expected at least 1 with `cluster`, got `0` - at `DQNConfig(actors)`"),
        ({"cluster": ""}, "Expected the address of a Ray cluster, or `local`, got `''` - at `DQNConfig(cluster)`"),
        ({"shards": 2}, "Expected 1 without `cluster`, got `2` - at `DQNConfig(shards)`"),
        (
            {"cluster": "auto", "actors": 2, "shards": 3},
            "Expected at most 2, the lanes, got `3` - at `DQNConfig(shards)`",
        ),
        ({"cluster": "auto", "actors": 2, "shards": 0}, "DQNConfig(shards)"),
    ],
)
def test_actors_and_cluster_have_to_fit(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        DQNConfig(**settings)
    assert text in str(error.value)
