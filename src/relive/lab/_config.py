"""The settings that all trainers share. No PyTorch here, so that a command line can show them at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from relive.lab._fields import Fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """What every run needs: an environment, replay, a pace of updates, evaluations, and where to write.

    Each algorithm's own settings, and its own defaults for these, are in a subclass.

    Raises:
        ArgumentError: A value outside its legal range; the message names the field.

    >>> from relive.lab import DQNConfig
    >>> config = DQNConfig(use_per=True)
    >>> isinstance(config, TrainerConfig), config.per_beta_start
    (True, 0.4)
    """

    env_id: str = "CartPole-v1"
    """Gymnasium id of the environment; `module:Name-v0` imports the module first."""
    env_kwargs: Mapping[str, int | float | bool | str] = dataclasses.field(default_factory=dict)
    """Keyword arguments of the environment."""
    num_envs: int = 1
    """Environments stepped side by side."""
    total_steps: int = 20_000
    """Environment steps of the whole run, over all environments."""
    seed: int = 0
    """Decides initial weights, environment seeds, exploration and replay draws."""

    use_per: bool = False
    """Draw by TD error (prioritized replay) instead of uniformly."""
    per_alpha: float = 0.6
    """Exponent of the priorities: 0 is uniform, 1 is proportional."""
    per_beta_start: float = 0.4
    """Importance-sampling exponent at the first update."""
    per_beta_end: float = 1.0
    """Importance-sampling exponent from update `per_beta_anneal_steps` on."""
    per_beta_anneal_steps: int = 200_000
    """Updates over which beta moves linearly from start to end."""
    n_step: int = 1
    """Rewards summed before the target bootstraps."""
    gamma: float = 0.99
    """Discount per step."""

    buffer_capacity: int = 1_000_000
    """Steps the replay buffer holds, over all environments."""
    batch_size: int = 256
    """Items per update."""
    learning_rate: float = 3e-4
    """Adam step size."""

    start_steps: int = 1_000
    """Steps of uniformly random actions before the first update."""
    update_every: int = 1
    """Environment steps between two rounds of updates."""
    updates_per_step: int = 1
    """Updates in each round."""

    eval_every: int = 1_000
    """Environment steps between two evaluations; 0 never evaluates."""
    eval_episodes: int = 10
    """Episodes of an evaluation; their seeds are the same in every evaluation of every run."""
    log_dir: str | None = None
    """Folder for TensorBoard events and checkpoints."""
    log_every: int = 1_000
    """Environment steps between two TensorBoard entries."""
    checkpoint_every: int = 0
    """Environment steps between two checkpoints in `log_dir`; 0 writes none."""
    device: str = "cpu"
    """PyTorch device of the nets."""
    torch_threads: int | None = None
    """Threads of PyTorch in this process; small nets are fastest with 1."""

    def __post_init__(self) -> None:
        """Refuse what cannot train, and name the field."""
        fields = Fields(self)
        fields.integers("num_envs", "total_steps", "n_step", "buffer_capacity", "batch_size", minimum=1)
        fields.integers("update_every", "updates_per_step", "eval_episodes", "log_every", minimum=1)
        fields.integers("per_beta_anneal_steps", minimum=1)
        fields.integers("seed", "start_steps", "eval_every", "checkpoint_every", minimum=0)
        fields.numbers("per_alpha", "per_beta_start", "per_beta_end", "gamma", low=0.0, high=1.0)
        fields.numbers("learning_rate", above=0.0)
        fields.flags("use_per")
        if self.torch_threads is not None:
            fields.integers("torch_threads", minimum=1)
        if not isinstance(self.env_id, str) or not self.env_id:
            raise fields.refusal("env_id", "the id of a Gymnasium environment")
        if not isinstance(self.env_kwargs, Mapping):
            raise fields.refusal("env_kwargs", "a mapping of keyword arguments")
        if self.batch_size > self.buffer_capacity:
            raise fields.refusal("batch_size", f"at most buffer_capacity ({self.buffer_capacity})")
        if self.checkpoint_every and self.log_dir is None:
            raise fields.refusal("log_dir", "a folder, because checkpoint_every is set")
