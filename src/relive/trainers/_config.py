"""The settings of the SAC trainer. No PyTorch here, so that a command line can show them at once."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import Literal

from relive.errors import ArgumentError, message


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig:
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
    """Transitions per update."""
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
        for name in ("num_envs", "total_steps", "per_beta_anneal_steps", "n_step", "buffer_capacity", "batch_size"):
            _integer(self, name, 1)
        for name in ("update_every", "updates_per_step", "eval_episodes", "log_every"):
            _integer(self, name, 1)
        for name in ("seed", "start_steps", "eval_every", "checkpoint_every"):
            _integer(self, name, 0)
        for name in ("per_alpha", "per_beta_start", "per_beta_end", "gamma"):
            _number(self, name, 0.0, 1.0)
        for name in ("learning_rate", "init_alpha", "reward_scale", "tau"):
            _number(self, name, 0.0, 1.0 if name == "tau" else math.inf, open_low=True)
        if self.actor_learning_rate is not None:
            _number(self, "actor_learning_rate", 0.0, math.inf, open_low=True)
        if self.torch_threads is not None:
            _integer(self, "torch_threads", 1)
        if self.target_entropy != "auto":
            _number(self, "target_entropy", -math.inf, math.inf)
        self._check_text_and_shape()

    def _check_text_and_shape(self) -> None:
        if not isinstance(self.env_id, str) or not self.env_id:
            raise _refusal("env_id", "the id of a Gymnasium environment", self.env_id)
        if not isinstance(self.env_kwargs, Mapping):
            raise _refusal("env_kwargs", "a mapping of keyword arguments", self.env_kwargs)
        sizes = self.hidden_sizes
        if not isinstance(sizes, tuple | list) or not sizes or not all(_is_integer(n) and n > 0 for n in sizes):
            raise _refusal("hidden_sizes", "one positive width for each hidden layer", sizes)
        object.__setattr__(self, "hidden_sizes", tuple(int(n) for n in sizes))
        for name in ("use_per", "autotune"):
            if not isinstance(getattr(self, name), bool):
                raise _refusal(name, "`True` or `False`", getattr(self, name))
        if self.batch_size > self.buffer_capacity:
            raise _refusal("batch_size", f"at most buffer_capacity ({self.buffer_capacity})", self.batch_size)
        if self.checkpoint_every and self.log_dir is None:
            raise _refusal("log_dir", "a folder, because checkpoint_every is set", None)


def _refusal(name: str, expected: str, got: object) -> ArgumentError:
    return ArgumentError(message(expected, f"`{got!r}`", f"SACConfig({name})"))


def _is_integer(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _integer(config: SACConfig, name: str, low: int) -> None:
    value = getattr(config, name)
    if not _is_integer(value) or value < low:
        raise _refusal(name, f"an integer of at least {low}", value)
    object.__setattr__(config, name, int(value))  # NumPy's integers have no JSON


def _number(config: SACConfig, name: str, low: float, high: float, *, open_low: bool = False) -> None:
    value = getattr(config, name)
    real = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not real or not low <= value <= high or (open_low and value == low):
        text = "a finite number" if math.isinf(low) else f"a number {'above' if open_low else 'from'} {low:g}"
        raise _refusal(name, text + ("" if math.isinf(high) else f" up to {high:g}"), value)
    object.__setattr__(config, name, float(value))
