"""The settings of the DQN trainer. No PyTorch here, so that a command line can show them at once."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from relive.lab._config import TrainerConfig
from relive.lab._fields import Fields

# Where Atari wants other settings than a task of minutes: those of the literature, with a buffer of 0.7 GB.
ATARI: dict[str, Any] = {
    "total_steps": 1_000_000,
    "frame_stack": 4,
    "buffer_capacity": 100_000,
    "batch_size": 32,
    "learning_rate": 1e-4,
    "target_every": 250,
    "tau": 1.0,
    "start_steps": 10_000,
    "update_every": 4,
    "epsilon_end": 0.01,
    "epsilon_steps": 100_000,
    "eval_epsilon": 0.001,
    "eval_every": 100_000,
    "eval_episodes": 4,
    "per_beta_anneal_steps": 250_000,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(TrainerConfig):
    """Everything that decides a deep Q-learning run (Mnih et al. 2015, doi:10.1038/nature14236).

    Double targets (van Hasselt et al. 2016, arXiv:1509.06461), dueling heads (Wang et al. 2016, arXiv:1511.06581),
    n-step targets and prioritized replay (Schaul et al. 2016, arXiv:1511.05952) are a field each. `use_per` is the one
    switch between uniform and prioritized replay: nets and loss, its scale included, stay the same.

    Raises:
        ArgumentError: A value outside its legal range; the message names the field.

    >>> DQNConfig(env_id="CartPole-v1", use_per=True, dueling=True).batch_size
    64
    """

    env_id: str = "CartPole-v1"
    """Gymnasium id of the environment; `ALE/` names an Atari game, `module:Name-v0` imports the module first."""
    total_steps: int = 50_000
    """Environment steps of the whole run, over all environments; an Atari step is 4 frames of the emulator."""
    frame_stack: int = 1
    """Observations that the net sees at a time, the last ones; the buffer stores each of them once."""
    n_step: int = 3
    """Rewards summed before the target bootstraps."""

    double: bool = True
    """Let the online net choose the action whose value the target net gives."""
    dueling: bool = False
    """Estimate the value of a state and the advantages of its actions apart."""
    net: Literal["auto", "perceptron", "convolution"] = "auto"
    """Kind of net; auto is convolution for images (2 or 3 axes of bytes or bits), perceptron elsewhere."""
    hidden_sizes: tuple[int, ...] | None = None
    """Hidden layers (after convolutions, if any); None is 128 128 for vectors, 128 for small images, 512 for others."""
    buffer_capacity: int = 100_000
    """Steps the replay buffer holds, over all environments."""
    batch_size: int = 64
    """Transitions per update."""
    learning_rate: float = 5e-4
    """Adam step size."""
    max_grad_norm: float = 10.0
    """Gradients are scaled down to this norm, all weights together."""
    target_every: int = 1
    """Updates between two moves of the target net."""
    tau: float = 0.01
    """Share by which the target net moves towards the online net; 1 copies it."""

    update_every: int = 2
    """Environment steps between two rounds of updates."""
    epsilon_start: float = 1.0
    """Probability of a random action at the first step."""
    epsilon_end: float = 0.05
    """Probability of a random action from step `epsilon_steps` on."""
    epsilon_steps: int = 10_000
    """Environment steps over which that probability falls linearly."""
    eval_epsilon: float = 0.0
    """Probability of a random action in evaluations."""
    per_beta_anneal_steps: int = 25_000
    """Updates over which beta moves linearly from start to end."""
    eval_every: int = 5_000
    """Environment steps between two evaluations; 0 never evaluates."""

    def __post_init__(self) -> None:
        """Refuse what cannot train, and name the field."""
        super().__post_init__()
        fields = Fields(self)
        fields.integers("frame_stack", "target_every", "epsilon_steps", minimum=1)
        fields.numbers("epsilon_start", "epsilon_end", "eval_epsilon", low=0.0, high=1.0)
        fields.numbers("max_grad_norm", above=0.0)
        fields.numbers("tau", above=0.0, high=1.0)
        fields.flags("double", "dueling")
        fields.choice("net", "auto", "perceptron", "convolution")
        if self.hidden_sizes is not None:
            fields.widths("hidden_sizes")

    @classmethod
    def atari(cls, env_id: str, **changes: Any) -> DQNConfig:
        """Return settings for an Atari game; `relive train dqn` starts from them where the id begins with `ALE/`.

        Args:
            env_id: Such as `ALE/Pong-v5`.
            **changes: Fields that differ.

        >>> config = DQNConfig.atari("ALE/Pong-v5", use_per=True)
        >>> config.frame_stack, config.n_step, config.learning_rate
        (4, 3, 0.0001)
        """
        return cls(**{**ATARI, "env_id": env_id, **changes})
