"""relive.ray.rllib in RLlib's own training steps, on a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import needs

needs("ray.rllib")
pytest.importorskip("torch")

import relive
from relive.ray.rllib import EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer


def configured(name: str, kind: Any, **choices: Any) -> Any:
    from ray.rllib.algorithms import dqn, sac

    config, env = {"dqn": (dqn.DQNConfig(), "CartPole-v1"), "sac": (sac.SACConfig(), "Pendulum-v1")}[name]
    config.environment(env).env_runners(num_env_runners=0, num_envs_per_env_runner=2)
    settings = {"num_steps_sampled_before_learning_starts": 20, "train_batch_size": 16, "n_step": 3}
    return config.training(**settings, replay_buffer_config={"type": kind, "capacity": 200, **choices})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dqn", PrioritizedEpisodeReplayBuffer),
        ("dqn", "relive.ray.rllib.EpisodeReplayBuffer"),
        ("sac", PrioritizedEpisodeReplayBuffer),
    ],
)
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")  # Ray's own
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_rllibs_algorithms_learn_from_it(name: str, kind: Any) -> None:
    choices = {} if isinstance(kind, str) else {"alpha": 0.6, "beta": 0.4}
    algorithm = configured(name, kind, **choices).build_algo()
    try:
        buffer = algorithm.local_replay_buffer
        assert type(buffer).__module__ == "relive.ray.rllib"
        for _ in range(8):
            algorithm.training_step()
        stats = buffer.relive.stats()
        assert buffer.relive.num_envs == 2
        assert len(buffer) == stats.size == buffer.get_added_timesteps() >= 8 * 6
        assert buffer.get_sampled_timesteps() == stats.drawn > 0
        if choices:  # what the learner's TD errors are for
            drawable = buffer.relive.sample(64).ids
            assert len(np.unique(buffer.relive.priorities(drawable))) > 4
    finally:
        algorithm.stop()


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_module_with_a_state_learns_from_sequences() -> None:
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    # One environment: with more, RLlib 2.60 cannot act by such a module.
    config = configured("dqn", EpisodeReplayBuffer).training(n_step=1, burn_in_len=2)
    config.env_runners(num_envs_per_env_runner=1)
    config.rl_module(model_config=DefaultModelConfig(use_lstm=True, lstm_cell_size=8, max_seq_len=5))
    algorithm = config.build_algo()
    try:
        for _ in range(40):
            algorithm.training_step()
        buffer = algorithm.local_replay_buffer
        assert buffer.relive.item == relive.Sequences(6)
        assert len(buffer) == buffer.get_added_timesteps() == 40
        assert buffer.get_sampled_timesteps() > 0
    finally:
        algorithm.stop()
