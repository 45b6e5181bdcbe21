"""The settings of the SAC trainer. No PyTorch here, so that a command line can show them at once."""

from __future__ import annotations

import dataclasses
from typing import Literal

from relive.lab._config import TrainerConfig
from relive.lab._fields import Fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(TrainerConfig):
    """Everything that decides a soft actor-critic run (Haarnoja et al. 2018, arXiv:1812.05905).

    `use_per` is the one switch between uniform and prioritized replay (Schaul et al. 2016, arXiv:1511.05952). Nets and
    loss, its scale included, stay the same, so that two runs which differ in this flag alone can be compared.

    Raises:
        ArgumentError: A value outside its legal range; the message names the field.

    >>> SACConfig(env_id="Pendulum-v1", total_steps=5_000, n_step=3).batch_size
    256
    """

    env_id: str = "Pendulum-v1"
    """Gymnasium id of the environment; `module:Name-v0` imports the module first."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    learning_rate: float = 3e-4
    """Adam step size of critics, actor and temperature."""
    actor_learning_rate: float | None = None
    """Step size of the actor and the temperature alone, where it differs."""
    tau: float = 0.005
    """Share by which the target critics follow the critics after each update."""
    target_entropy: float | Literal["auto"] = "auto"
    """Entropy the temperature aims at, in nats of actions scaled to [-1, 1]; auto is minus the number of actions."""
    init_alpha: float = 1.0
    """Entropy temperature at the start."""
    autotune: bool = True
    """Learn the temperature; otherwise it stays at `init_alpha`."""
    reward_scale: float = 1.0
    """Factor on rewards in the targets; reported returns are never scaled."""

    def __post_init__(self) -> None:
        """Refuse what cannot train, and name the field."""
        super().__post_init__()
        fields = Fields(self)
        fields.numbers("init_alpha", "reward_scale", above=0.0)
        fields.numbers("tau", above=0.0, high=1.0)
        if self.actor_learning_rate is not None:
            fields.numbers("actor_learning_rate", above=0.0)
        if self.target_entropy != "auto":
            fields.numbers("target_entropy")
        fields.widths("hidden_sizes")
        fields.flags("autotune")
