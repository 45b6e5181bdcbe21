"""The settings that all trainers share. No PyTorch here, so that a command line can show them at once."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import Any

from relive.errors import ArgumentError, message


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
        for name in ("num_envs", "total_steps", "per_beta_anneal_steps", "n_step", "buffer_capacity", "batch_size"):
            integer(self, name, 1)
        for name in ("update_every", "updates_per_step", "eval_episodes", "log_every"):
            integer(self, name, 1)
        for name in ("seed", "start_steps", "eval_every", "checkpoint_every"):
            integer(self, name, 0)
        for name in ("per_alpha", "per_beta_start", "per_beta_end", "gamma"):
            number(self, name, 0.0, 1.0)
        number(self, "learning_rate", 0.0, math.inf, open_low=True)
        if self.torch_threads is not None:
            integer(self, "torch_threads", 1)
        if not isinstance(self.env_id, str) or not self.env_id:
            raise refusal(self, "env_id", "the id of a Gymnasium environment", self.env_id)
        if not isinstance(self.env_kwargs, Mapping):
            raise refusal(self, "env_kwargs", "a mapping of keyword arguments", self.env_kwargs)
        flag(self, "use_per")
        if self.batch_size > self.buffer_capacity:
            wanted = f"at most buffer_capacity ({self.buffer_capacity})"
            raise refusal(self, "batch_size", wanted, self.batch_size)
        if self.checkpoint_every and self.log_dir is None:
            raise refusal(self, "log_dir", "a folder, because checkpoint_every is set", None)


def refusal(config: TrainerConfig, name: str, expected: str, got: object) -> ArgumentError:
    """Return the error that says what a field of these settings must be."""
    return ArgumentError(message(expected, f"`{got!r}`", f"{type(config).__name__}({name})"))


def integer(config: TrainerConfig, name: str, low: int) -> None:
    """Refuse a field that is no integer of at least `low`."""
    value = getattr(config, name)
    if not _is_integer(value) or value < low:
        raise refusal(config, name, f"an integer of at least {low}", value)
    object.__setattr__(config, name, int(value))  # NumPy's integers have no JSON


def number(config: TrainerConfig, name: str, low: float, high: float, *, open_low: bool = False) -> None:
    """Refuse a field that is no finite number from `low` (or above it, with `open_low`) to `high`."""
    value = getattr(config, name)
    real = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not real or not low <= value <= high or (open_low and value == low):
        text = "a finite number" if math.isinf(low) else f"a number {'above' if open_low else 'from'} {low:g}"
        raise refusal(config, name, text + ("" if math.isinf(high) else f" up to {high:g}"), value)
    object.__setattr__(config, name, float(value))


def flag(config: TrainerConfig, name: str) -> None:
    """Refuse a field that is neither True nor False."""
    if not isinstance(getattr(config, name), bool):
        raise refusal(config, name, "`True` or `False`", getattr(config, name))


def widths(config: TrainerConfig, name: str) -> None:
    """Refuse a field that is no tuple of positive widths."""
    sizes: Any = getattr(config, name)
    if not isinstance(sizes, tuple | list) or not sizes or not all(_is_integer(n) and n > 0 for n in sizes):
        raise refusal(config, name, "one positive width for each hidden layer", sizes)
    object.__setattr__(config, name, tuple(int(n) for n in sizes))


def _is_integer(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
